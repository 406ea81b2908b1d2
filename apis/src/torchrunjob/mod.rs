//! TorchrunJob (`torchrun.ai/v1alpha1`), as the torchrun controller served it. Its workers are pods that we create ourselves.
//!
//! Each file has one direction: `fields` and `size` read the job object, `recipe` resolves it with its queue, `spec` makes a job
//! of both. `launcher`, `pods`, `workspace` and `owned` render, `status`, `conditions` and `adopt` write and read its status, `crd`
//! is its schema, `constants` its vocabulary. Nothing here decides anything about a job's life. Tests: `tests/`.

mod adopt;
mod conditions;
mod constants;
mod crd;
mod fields;
mod launcher;
mod owned;
mod pods;
mod recipe;
mod size;
mod spec;
mod status;
mod workspace;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{FieldError, JobKey, OwnedRef, SlotId, SpecFact, Text};
use serde_json::{Value, json};

use crate::api::{
    Descriptor, JobApi, OwnedApi, PodApi, PodSlot, ReferenceApi, Referenced, RenderInput, Upload, UploadApi,
};
use crate::call::Verb;
use crate::fields::Finding;
use crate::kueue::{RESOURCE_FLAVOR, WORKLOAD};
use crate::objects::{annotation, at, labelled_slot};
use crate::owned::{CLAIM, SERVICE};
use crate::replicas::slot_name;
use crate::torchrunqueue::constants::{APP, APP_LABEL, TRAINER};

pub use crate::torchrunqueue::API_VERSION;
pub use constants::{GENERATION, KIND, NAME_LABEL, ROLE_LABEL, SYNC, WORKER};

/// Returns the generation of a job's workspace, and whether it is filled by an upload. `None` where the job cannot be acted on, for
/// its own sake or its queue's: what is wrong is among the fact's errors or in `missing`.
pub fn uploads(object: &Value, fact: &SpecFact) -> Option<(String, bool)> {
    fact.spec.as_ref().ok()?;
    let manifest = serde_json::from_str(&fact.manifest).ok()?;
    let generation = annotation(object, constants::GENERATION)
        .filter(|text| !text.is_empty())
        .unwrap_or(constants::FIRST_GENERATION);
    Some((generation.to_owned(), workspace::awaits_upload(&manifest)))
}

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((APP_LABEL, APP)),
    // A job is deleted when its time after the end has passed.
    verbs: &[Verb::Delete],
    owned_types: &[CLAIM, SERVICE, WORKLOAD, RESOURCE_FLAVOR],
    referenced_kinds: &spec::QUEUE_KINDS,
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "torchrun-job-controller", crd::crd, constants::phase_word)
};

/// The TorchrunJob API.
#[derive(Debug, Clone, Copy, Default)]
pub struct TorchrunJob;

impl JobApi for TorchrunJob {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    /// Labels of the job are not those of its pods; one annotation reaches them.
    fn spec_inputs(&self, object: &Value) -> Value {
        json!([at(object, &["metadata", "generation"]), annotation(object, constants::GENERATION)])
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::fact(object, &Referenced::new())
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::findings(object)
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

    fn owned(&self) -> Option<&dyn OwnedApi> {
        Some(self)
    }

    fn references(&self) -> Option<&dyn ReferenceApi> {
        Some(self)
    }

    fn uploads(&self) -> Option<&dyn UploadApi> {
        Some(self)
    }
}

impl PodApi for TorchrunJob {
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        labelled_slot(object, constants::ROLE_LABEL, constants::INDEX_LABEL)
    }

    fn is_training_name(&self, name: &str) -> bool {
        name == TRAINER
    }

    /// Workers are named after their index alone: it is a part of their host names.
    fn slot_name(&self, job: &JobKey, slot: &SlotId) -> Text {
        if &*slot.group == constants::WORKER {
            Text::from(pods::worker_name(&job.name, slot.index))
        } else {
            Text::from(slot_name(&job.name, &slot.group, slot.index))
        }
    }

    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        let render = |pod: &PodSlot<'_>| match &*pod.slot.group {
            constants::SYNC => workspace::pod(source, *pod),
            _ => pods::pod(source, *pod),
        };
        pods.iter().map(render).collect()
    }
}

impl OwnedApi for TorchrunJob {
    fn render_owned(&self, source: RenderInput<'_>, job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError> {
        owned::owned(source, job, object)
    }
}

impl ReferenceApi for TorchrunJob {
    fn referenced(&self, object: &Value) -> Vec<(Text, Text)> {
        let queue = spec::queue_of(object).map(Text::from);
        let of_kind = |kind: &&str| Some((Text::from(*kind), queue.clone()?));
        spec::QUEUE_KINDS.iter().filter_map(of_kind).collect()
    }

    fn spec_fact_with(&self, object: &Value, needed: &Referenced) -> SpecFact {
        spec::fact(object, needed)
    }
}

impl UploadApi for TorchrunJob {
    fn awaited_upload<'a>(&self, pod: &'a Value) -> Option<Upload<'a>> {
        workspace::awaited_upload(pod)
    }
}
