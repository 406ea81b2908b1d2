//! TrainingQueue (`trainyard.dev/v1alpha1`, cluster-scoped): quota, cohort, policy and order of the jobs that name it.
//!
//! To the engine a queue is a job without groups whose spec holds the settings of a queue. `spec` and `nodes` read the object, `status`
//! writes its status, `crd` is its schema. It owns no object and has no pods. Must not decide anything: that is
//! `engine::queues`. Tests: `tests.rs`.

mod crd;
mod nodes;
mod spec;
mod status;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{JobKey, SpecFact};
use serde_json::Value;

use crate::adopt;
use crate::api::{Descriptor, JobApi};
use crate::fields::Finding;
use crate::translation;

/// API version.
pub const API_VERSION: &str = "trainyard.dev/v1alpha1";
/// Kind of the objects.
pub const KIND: &str = "TrainingQueue";
/// Plural of the resource.
const PLURAL: &str = "trainingqueues";

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    is_queue: true,
    namespaced: false,
    ..Descriptor::new(API_VERSION, KIND, PLURAL, "trainingqueue-controller", crd::crd, translation::active)
};

/// The TrainingQueue API.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrainingQueue;

impl JobApi for TrainingQueue {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::fact(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::TRANSLATION.findings(object)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        adopt::mirror_alone(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        status::status(key, job)
    }
}
