//! TorchrunQueue (`torchrun.ai/v1alpha1`): a queue that TorchrunJobs name, as the torchrun controller served it.
//!
//! To the engine a queue is a job without groups. It owns the KAI Queue, the claim of its datasets and the objects of its templates,
//! and its finalizer waits while jobs need it. `settings`, `storage` and `templates` read the object, also for the jobs; `spec` and
//! `objects` make a job of it; `status` and `adopt` write and read its status; `crd` is its schema, `schemas` the parts that jobs
//! have as well; `parent` decides whether a KAI Queue is written. Tests: `tests.rs`.

mod adopt;
pub(crate) mod constants;
mod crd;
mod objects;
mod parent;
pub(crate) mod schemas;
pub(crate) mod settings;
mod spec;
mod status;
pub(crate) mod storage;
pub(crate) mod templates;

#[cfg(test)]
mod tests;

use ::settings::TorchrunSettings;
use model::fact::Adopted;
use model::{FieldError, JobKey, ObjectFact, OwnedRef, SpecFact};
use serde_json::Value;

use crate::api::{Descriptor, JobApi, OwnedApi, RenderInput};
use crate::authorization::{AuthorizationReads, OwnedWrite};
use crate::call::{ApiError, Verb};
use crate::fields::{Finding, Findings};
use crate::objects::finalized_object_fact;
use crate::owned::{CLAIM, CONFIG_MAP, SERVICE};

pub use constants::{API_VERSION, KIND};
pub(crate) use crd::definition;
pub(crate) use spec::datasets_claim;

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::APP_LABEL, constants::APP)),
    // The finalizer is put on a queue, and taken off.
    verbs: &[Verb::Patch],
    finalizer: Some(constants::FINALIZER),
    owned_types: &[CLAIM, CONFIG_MAP, SERVICE, constants::KAI_QUEUE],
    ..Descriptor::new(
        API_VERSION,
        KIND,
        constants::PLURAL,
        "torchrun-queue-controller",
        || crd::definition(KIND, constants::PLURAL, "torchrunqueue", &["trq", "jq"]),
        constants::phase_word,
    )
};

/// The TorchrunQueue API.
#[derive(Debug, Clone, Copy, Default)]
pub struct TorchrunQueue {
    /// Settings that its objects are written with.
    pub settings: TorchrunSettings,
}

impl JobApi for TorchrunQueue {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        finalized_object_fact(object, constants::FINALIZER)
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::fact(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::TRANSLATION.findings(object)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        adopt::adopt(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        status::status(*self, key, job)
    }

    fn owned(&self) -> Option<&dyn OwnedApi> {
        Some(self)
    }
}

impl OwnedApi for TorchrunQueue {
    fn render_owned(
        &self,
        source: RenderInput<'_>,
        _job: &engine::Job,
        object: &OwnedRef,
    ) -> Result<Value, FieldError> {
        objects::owned(source, object)
    }

    /// A KAI Queue takes from what its parent has.
    fn authorization_reads(&self, job: &JobKey, object: &OwnedRef, body: &Value) -> Option<AuthorizationReads> {
        let is_checked = self.settings.checks_parents && *object == constants::KAI_QUEUE.named(&object.name);
        is_checked.then(|| parent::reads(job, object, body))
    }

    fn authorize(&self, write: &OwnedWrite<'_>) -> Result<(), ApiError> {
        parent::authorize(write)
    }
}

/// Reads a queue for a job; the first reason for which it cannot be used otherwise.
///
/// # Errors
/// Returns an error if the queue is invalid, or no job can be started with it.
pub(crate) fn usable(object: &Value) -> Result<settings::Queue<'_>, String> {
    let mut findings = Findings::default();
    let queue = settings::Queue::read(object, &mut findings);
    let (errors, _) = findings.into_errors_and_warnings();
    match (errors.first(), queue) {
        (Some(error), _) => Err(error.to_string()),
        (None, Some(queue)) => queue.lacks().map_or(Ok(queue), |why| Err(why.to_owned())),
        (None, None) => Err("its spec cannot be read".to_owned()),
    }
}
