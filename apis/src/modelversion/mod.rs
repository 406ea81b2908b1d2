//! ModelVersion (`model.distributed.io/v1alpha1`): a trained model and the image that is built of it, as torch-on-k8s served it.
//!
//! To the engine a version is a job of one pod, which owns the volume that the pod builds from. `spec` and `storage` read the object,
//! `objects` renders from it, `security` decides whether the volume is created, `status` and `adopt` write and read its status, `crd` is
//! its schema, `constants` its vocabulary. Nothing here decides anything about a build. Tests: `tests.rs`.

mod adopt;
pub(crate) mod constants;
mod crd;
mod objects;
mod security;
mod spec;
mod status;
pub(crate) mod storage;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{AnnotationChanges, FieldError, JobKey, ObjectFact, OwnedRef, SlotId, SpecFact, Text, Timestamp};
use serde_json::Value;
use settings::ModelSettings;

use crate::api::{AnnotationApi, Descriptor, JobApi, OwnedApi, PodApi, PodSlot, ReferenceApi, Referenced, RenderInput};
use crate::authorization::{AuthorizationReads, OwnedWrite, namespace_of};
use crate::call::{ApiError, Verb};
use crate::fields::Finding;
use crate::models;
use crate::objects::{annotation, at, container_names, finalized_object_fact, label, name};
use crate::owned::CLAIM;

pub use constants::{API_VERSION, KIND};
pub(crate) use crd::spec_schema;
pub(crate) use spec::first_five;

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::GROUP_LABEL, constants::GROUP)),
    // A TorchJob that succeeded creates one. The finalizer and marks are put on it, among them its owner.
    verbs: &[Verb::Create, Verb::Patch, Verb::Delete],
    finalizer: Some(constants::FINALIZER),
    owned_types: &[constants::VOLUME, CLAIM, constants::CONFIG_MAP],
    referenced_kinds: &[models::KIND],
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "ModelVersionController", crd::crd, constants::phase_word)
};

/// The ModelVersion API.
#[derive(Debug, Clone, Default)]
pub struct ModelVersion {
    /// Settings that its specs are translated and its pods rendered with.
    pub settings: ModelSettings,
}

impl JobApi for ModelVersion {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        finalized_object_fact(object, constants::FINALIZER)
    }

    /// Its marks stand in its metadata.
    fn spec_inputs(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]);
        let annotations = [constants::POD_ANNOTATION, constants::FAILOVER].map(|key| annotation(object, key));
        Value::Array(
            [metadata("generation"), metadata("labels"), metadata("ownerReferences")]
                .into_iter()
                .map(|member| member.cloned().unwrap_or_default())
                .chain(annotations.map(Value::from))
                .collect(),
        )
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        self.spec_fact_with(object, &Referenced::new())
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        spec::findings(object, &self.settings)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        adopt::adopt(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        status::status(self, key, job)
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

    fn annotations(&self) -> Option<&dyn AnnotationApi> {
        Some(self)
    }
}

impl PodApi for ModelVersion {
    fn main_containers<'a>(&self, pod: &'a Value) -> Vec<&'a str> {
        container_names(pod).collect()
    }

    /// The group of the pod has its name, which is made of more than the version's.
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        (label(object, constants::GROUP_LABEL) == Some(constants::GROUP))
            .then(|| SlotId { group: name(object), index: 0 })
    }

    fn slot_name(&self, _job: &JobKey, slot: &SlotId) -> Text {
        slot.group.clone()
    }

    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        pods.iter().map(|pod| Ok(objects::pod(source, *pod))).collect()
    }
}

impl OwnedApi for ModelVersion {
    fn render_owned(&self, source: RenderInput<'_>, job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError> {
        objects::owned(source, job, object)
    }

    /// A volume is of storage outside of the namespace.
    fn authorization_reads(&self, job: &JobKey, object: &OwnedRef, _body: &Value) -> Option<AuthorizationReads> {
        let is_volume = *object == constants::VOLUME.named(&object.name);
        is_volume.then(|| AuthorizationReads { objects: vec![namespace_of(job)], others: false })
    }

    fn authorize(&self, write: &OwnedWrite<'_>) -> Result<(), ApiError> {
        security::authorize(write)
    }
}

impl ReferenceApi for ModelVersion {
    fn referenced(&self, object: &Value) -> Vec<(Text, Text)> {
        spec::model_of(object).map(|name| (Text::from(models::KIND), Text::from(name))).into_iter().collect()
    }

    fn owner(&self, object: &Value) -> Option<(Text, Text)> {
        self.referenced(object).pop()
    }

    fn spec_fact_with(&self, object: &Value, needed: &Referenced) -> SpecFact {
        spec::fact(object, needed, &self.settings)
    }
}

impl AnnotationApi for ModelVersion {
    fn notes_patch(&self, source: RenderInput<'_>, notes: &AnnotationChanges, _at: Timestamp) -> Value {
        objects::notes(source.manifest, notes)
    }
}
