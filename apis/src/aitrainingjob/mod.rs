//! AITrainingJob (`elasticdeeplearning.ai/v1`).
//!
//! Each file has one direction: `spec` and `metadata` read the job object (with `template` for the containers and ports that count), `pods`,
//! `peers` and `services` render from it, `status` and `adopt` write and read its status, `crd` is its schema, `constants` its
//! vocabulary. Nothing here decides anything about a job's life. Tests: `tests/`, and beside the smaller files.

mod adopt;
mod constants;
mod crd;
mod metadata;
mod peers;
mod pods;
mod services;
mod spec;
mod status;
mod template;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{FieldError, JobKey, ObjectFact, SlotId, SpecFact};
use serde_json::Value;

use crate::api::{AnnotationApi, Descriptor, JobApi, PodApi, PodSlot, RenderInput};
use crate::call::Verb;
use crate::fields::Finding;
use crate::kueue::{RESOURCE_FLAVOR, WORKLOAD};
use crate::objects::{labelled_slot, list_at, text_at};

pub use constants::{API_VERSION, GROUP, KIND};
pub use peers::PeerEnv;
pub use pods::pod;

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::GROUP_LABEL, constants::GROUP)),
    verbs: &[Verb::Patch],
    owned_types: &[WORKLOAD, RESOURCE_FLAVOR],
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "TrainingJobOperator", crd::crd, constants::phase_word)
};

/// The AITrainingJob API.
#[derive(Debug, Clone, Copy, Default)]
pub struct AiTrainingJob;

impl JobApi for AiTrainingJob {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        metadata::object_fact(object)
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

    fn pods(&self) -> Option<&dyn PodApi> {
        Some(self)
    }

    fn annotations(&self) -> Option<&dyn AnnotationApi> {
        Some(self)
    }
}

impl PodApi for AiTrainingJob {
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        labelled_slot(object, constants::REPLICA_LABEL, constants::INDEX_LABEL)
    }

    fn is_training_name(&self, name: &str) -> bool {
        name.starts_with(template::PREFIX)
    }

    fn main_containers<'a>(&self, pod: &'a Value) -> Vec<&'a str> {
        let statuses = list_at(pod, &["status", "containerStatuses"]);
        let names = statuses.iter().filter_map(|status| text_at(status, &["name"]));
        names.filter(|name| name.starts_with(template::PREFIX)).collect()
    }

    /// Formats the environment about all peers once for these pods.
    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        match PeerEnv::new(source.job, source.spec, source.manifest) {
            Ok(peers) => pods.iter().map(|pod| pods::pod(source, *pod, &peers)).collect(),
            Err(error) => pods.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn service(&self, source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
        services::service(source, slot)
    }
}

impl AnnotationApi for AiTrainingJob {
    fn end_annotation(&self, key: &JobKey, job: &engine::Job) -> Option<Value> {
        status::end_annotation(key, job)
    }

    fn preemption(&self, reason: &str) -> Option<Value> {
        Some(metadata::preemption(reason))
    }
}
