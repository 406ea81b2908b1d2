//! ElasticJob (`elastic.pytorch.org/v1alpha1`), as the TorchElastic controller served it.
//!
//! Each file has one direction: `spec` and `run_policy` read the job object, `launcher`, `environment`, `pods` and `services` render from it,
//! `status` and `adopt` write and read its status, `events` reports records in this API's reasons, `crd` is its schema, `constants`
//! its vocabulary. Nothing here decides anything about a job's life. Tests: `tests/`, and beside the smaller files.

mod adopt;
mod constants;
mod crd;
mod environment;
mod events;
mod launcher;
mod pods;
mod run_policy;
mod services;
mod spec;
mod status;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{FieldError, JobKey, SlotId, SpecFact};
use serde_json::{Value, json};

use crate::api::{Descriptor, JobApi, JobStep, PodApi, PodSlot, RenderInput, ReportedEvent};
use crate::call::Verb;
use crate::fields::Finding;
use crate::kueue::{RESOURCE_FLAVOR, WORKLOAD};
use crate::objects::{annotation, at, labelled_slot};

pub use constants::{API_VERSION, GROUP, KIND};

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::GROUP_LABEL, constants::GROUP)),
    // A job is deleted when its time after the end has passed.
    verbs: &[Verb::Delete],
    owned_types: &[WORKLOAD, RESOURCE_FLAVOR],
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "elastic-job-controller", crd::crd, constants::phase_word)
};

/// The ElasticJob API.
#[derive(Debug, Clone, Copy, Default)]
pub struct ElasticJob;

impl JobApi for ElasticJob {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    /// Labels of the job are not those of its pods; two annotations reach them.
    fn spec_inputs(&self, object: &Value) -> Value {
        let annotations = [constants::BACKEND, constants::RESTART_SCOPE].map(|key| annotation(object, key));
        json!([at(object, &["metadata", "generation"]), annotations])
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::TRANSLATION.fact(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::TRANSLATION.findings(object)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        adopt::adopt(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        status::status(key, job)
    }

    fn events(&self, step: &JobStep<'_>) -> Vec<ReportedEvent> {
        events::events(step)
    }

    fn pods(&self) -> Option<&dyn PodApi> {
        Some(self)
    }
}

impl PodApi for ElasticJob {
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        labelled_slot(object, constants::TYPE_LABEL, constants::INDEX_LABEL)
    }

    fn is_training_name(&self, name: &str) -> bool {
        name == constants::CONTAINER
    }

    /// Formats the launcher's arguments once for these pods.
    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        let args = launcher::args(source);
        pods.iter().map(|pod| pods::pod(source, *pod, &args)).collect()
    }

    fn service(&self, source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
        Ok(services::service(source, slot))
    }
}
