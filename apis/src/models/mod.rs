//! Model (`model.distributed.io/v1alpha1`): the name that the versions of a model have in common, as torch-on-k8s served it.
//!
//! To the engine a model is a job without groups whose spec is built from its versions: `spec` finds the latest one, the status shows it.
//! `crd` is its schema. It owns no object and has no pods. Nothing here decides anything. Tests: `tests.rs`.

mod crd;
mod spec;

#[cfg(test)]
mod tests;

use engine::Job;
use model::fact::Adopted;
use model::{JobKey, SpecFact};
use serde_json::{Value, json};

use crate::adopt;
use crate::api::{Descriptor, JobApi, ReferenceApi, Referenced};
use crate::call::Verb;
use crate::fields::Finding;
use crate::modelversion;
use crate::objects::{MIRROR, at};
use crate::translation;

pub use modelversion::constants::API_VERSION;

/// Kind of the objects.
pub const KIND: &str = "Model";
/// Plural of the resource.
const PLURAL: &str = "models";

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    // A version whose model is missing creates it.
    verbs: &[Verb::Create],
    referenced_kinds: &[modelversion::KIND],
    ..Descriptor::new(API_VERSION, KIND, PLURAL, "ModelController", crd::crd, translation::active)
};

/// The Model API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Model;

impl JobApi for Model {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        self.spec_fact_with(object, &Referenced::new())
    }

    fn findings(&self, _object: &Value) -> Vec<Finding> {
        Vec::new()
    }

    /// Its status is to be written again: the log that is lost may have known a newer version than it shows.
    fn adopt(&self, object: &Value) -> Adopted {
        Adopted { remarks: true, ..adopt::mirror_alone(object) }
    }

    fn status(&self, _key: &JobKey, job: &Job) -> Value {
        let manifest = job.spec.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.manifest).ok());
        let latest = manifest.as_ref().and_then(|manifest| manifest.get("latest")).filter(|latest| latest.is_object());
        let mut status = json!({MIRROR: engine::wire::mirror_value(&job.mirror())});
        if let (Some(latest), Some(status)) = (latest, status.as_object_mut()) {
            status.insert("latestVersion".to_owned(), latest.clone());
        }
        status
    }

    fn references(&self) -> Option<&dyn ReferenceApi> {
        Some(self)
    }
}

impl ReferenceApi for Model {
    /// A version is read again once its status reports another image.
    fn version_of(&self, object: &Value) -> Value {
        json!([at(object, &["metadata", "uid"]), at(object, &["status", "image"])])
    }

    fn spec_fact_with(&self, object: &Value, needed: &Referenced) -> SpecFact {
        spec::fact(object, needed)
    }
}
