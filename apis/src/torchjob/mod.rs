//! TorchJob (`train.distributed.io/v1alpha1`), as torch-on-k8s served it.
//!
//! Each file has one direction: `spec` reads the job object with `run_policy`, `tasks`, `coordination`, `elastic_args` and `model_output`. `pods`,
//! `services`, `pod_groups` and `network` render from it, with `elastic` for what stands on the objects of elastic jobs and `restarts` for requests to restart their containers. `status`, `conditions` and `adopt` write and read its status, `events` reports records in
//! this API's reasons, `autoscaler` reads its bounds and logs, `crd` is its schema, `constants` its vocabulary. Nothing here decides
//! anything about a job's life. Tests: `tests/`, and beside the smaller files.

mod adopt;
mod autoscaler;
mod conditions;
mod constants;
mod coordination;
mod crd;
mod elastic;
mod elastic_args;
mod events;
mod model_output;
mod network;
mod pod_groups;
mod pods;
mod restarts;
mod run_policy;
mod services;
mod spec;
mod status;
mod storage_node;
mod tasks;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{AnnotationChanges, FieldError, JobKey, OwnedRef, PodMark, SlotId, SpecFact, Timestamp};
use serde_json::{Value, json};
use settings::TorchSettings;

use crate::api::{
    AnnotationApi, Descriptor, JobApi, JobStep, OwnedApi, PodApi, PodSlot, RenderInput, ReportedEvent, ScalingApi,
    SchedulingApi,
};
use crate::call::Verb;
use crate::fields::Finding;
use crate::kruise;
use crate::kueue::{RESOURCE_FLAVOR, WORKLOAD};
use crate::modelversion;
use crate::objects::{annotation, at, labelled_slot};
use crate::owned::SERVICE;

pub use constants::{API_VERSION, GROUP, KIND};

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::GROUP_LABEL, constants::GROUP)),
    // A job is deleted when its time after the end has passed. Annotations report to AIMaster and users how far its scaling is.
    verbs: &[Verb::Delete, Verb::Patch],
    pod_finalizer: Some(elastic::PROTECTOR),
    owned_types: &[pod_groups::POD_GROUP, kruise::REQUEST, SERVICE, WORKLOAD, RESOURCE_FLAVOR],
    series: Some(&constants::SERIES),
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "TorchJobController", crd::crd, conditions::phase_word)
};

/// The TorchJob API.
#[derive(Debug, Clone, Default)]
pub struct TorchJob {
    /// Settings that its specs are translated with.
    pub settings: TorchSettings,
}

impl JobApi for TorchJob {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    /// Some annotations say how the job is to run.
    fn spec_inputs(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]);
        let annotations = [constants::AIMASTER_READY, constants::NETWORK_MODE, constants::ELASTIC];
        let annotations = annotations.map(|(key, _)| annotation(object, key));
        let notes = elastic::ANNOTATIONS.map(|key| annotation(object, key));
        json!([metadata("generation"), metadata("labels"), annotations, notes])
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::fact(object, &self.settings)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::findings(object, &self.settings)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        adopt::adopt(object, &self.settings)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        status::status(self, key, job)
    }

    fn events(&self, step: &JobStep<'_>) -> Vec<ReportedEvent> {
        events::events(step)
    }

    fn pods(&self) -> Option<&dyn PodApi> {
        Some(self)
    }

    fn owned(&self) -> Option<&dyn OwnedApi> {
        Some(self)
    }

    fn scheduling(&self) -> Option<&dyn SchedulingApi> {
        Some(self)
    }

    fn scaling(&self) -> Option<&dyn ScalingApi> {
        Some(self)
    }

    fn annotations(&self) -> Option<&dyn AnnotationApi> {
        Some(self)
    }
}

impl PodApi for TorchJob {
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        labelled_slot(object, constants::TYPE_LABEL, constants::INDEX_LABEL)
    }

    fn is_training_name(&self, name: &str) -> bool {
        name == constants::CONTAINER
    }

    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        pods.iter().map(|pod| pods::pod(source, *pod)).collect()
    }

    fn complete(&self, source: RenderInput<'_>, job: &engine::Job, slot: &SlotId, pod: &mut Value) {
        pod_groups::join(source, job, slot, pod);
        storage_node::pin(job, slot, pod);
    }

    /// The master's service follows the generation of an elastic job.
    fn is_of_job(&self, service: &Value) -> bool {
        services::is_of_master(service)
    }

    fn service(&self, source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
        services::service(source, slot)
    }
}

impl OwnedApi for TorchJob {
    fn render_owned(&self, source: RenderInput<'_>, job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError> {
        match &*object.kind {
            kind if kind == SERVICE.kind => services::of_master(source),
            modelversion::KIND => Ok(model_output::render(source, job)),
            kind if kind == kruise::REQUEST.kind => restarts::request(source, job, object),
            _ => pod_groups::pod_group(source, object),
        }
    }
}

impl SchedulingApi for TorchJob {
    fn priority(&self, object: &Value) -> Option<i32> {
        let priority = at(object, &["spec", "schedulingPolicy", "priority"]).and_then(Value::as_i64);
        priority.and_then(|priority| i32::try_from(priority).ok())
    }

    fn has_coordinator(&self) -> bool {
        self.settings.coordinator
    }
}

impl ScalingApi for TorchJob {
    fn log_container(&self) -> &'static str {
        autoscaler::CONTAINER
    }

    fn latency_us(&self, log: &str) -> Option<u64> {
        autoscaler::latency_us(log)
    }
}

impl AnnotationApi for TorchJob {
    fn notes_patch(&self, source: RenderInput<'_>, notes: &AnnotationChanges, at: Timestamp) -> Value {
        elastic::patch(source, notes, at)
    }

    fn notes_events(&self, notes: &AnnotationChanges) -> Vec<ReportedEvent> {
        elastic::events(notes)
    }

    fn pod_mark(&self, mark: &PodMark) -> Value {
        restarts::mark(mark)
    }
}
