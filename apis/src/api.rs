//! The trait that each served API implements.
//!
//! Owns the core that every API has. What only some APIs have is a capability of its own (`capabilities`), and constants stand in a
//! [`Descriptor`]. It must not name an API.

mod capabilities;
mod descriptor;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fact::Adopted;
use model::{
    GroupSpec, Incarnation, JobEvent, JobFact, JobKey, JobSpec, ObjectFact, Phase, SlotId, SpecFact, Text, Timestamp,
};
use serde_json::{Value, json};

use crate::call::Resource;
use crate::fields::Finding;
use crate::objects::{self, at};
use crate::selector::Selector;

pub use capabilities::{
    AnnotationApi, ExternalApi, OwnedApi, PodApi, ReferenceApi, ScalingApi, SchedulingApi, UploadApi,
};
pub use descriptor::Descriptor;

/// Everything rendering an object of a job needs besides the slot.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The job.
    pub job: &'a JobKey,
    /// Its translated spec.
    pub spec: &'a JobSpec,
    /// Its manifest, parsed from [`SpecFact::manifest`].
    pub manifest: &'a Value,
}

/// A pod to be rendered.
#[derive(Debug, Clone, Copy)]
pub struct PodSlot<'a> {
    /// The slot.
    pub slot: &'a SlotId,
    /// Its group.
    pub group: &'a GroupSpec,
    /// The incarnation, written as annotation `trainyard.dev/incarnation`.
    pub incarnation: Incarnation,
    /// The restart count it shows.
    pub count: u32,
}

/// A file that a pod waits for: a user uploads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upload<'a> {
    /// The container that waits.
    pub container: &'a str,
    /// Path of the file in that container.
    pub file: &'a str,
    /// Generation of the workspace that it fills. A later one is another upload.
    pub generation: &'a str,
}

/// Objects that a spec references: what was found of each, by kind and name. Those not found are absent.
pub type Referenced = BTreeMap<(Text, Text), Arc<Value>>;

/// A record about a job, and the job as it is afterwards.
#[derive(Debug, Clone, Copy)]
pub struct JobStep<'a> {
    /// The job.
    pub key: &'a JobKey,
    /// Its phase before.
    pub from: Phase,
    /// The job as it is known.
    pub job: &'a engine::Job,
    /// Facts that were observed.
    pub facts: &'a [JobFact],
    /// Events that were decided.
    pub events: &'a [JobEvent],
    /// End of the job that had this kind and name before, if it is known to have ended within the last hour.
    pub predecessor: Option<Timestamp>,
}

/// A Kubernetes Event about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedEvent {
    /// Set for type Warning; otherwise it is Normal.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Part of the Event's name: Events of one reason and message with different salts are different Events.
    pub salt: u32,
}

/// Translates between the objects of one served API and the engine's vocabulary. Pure.
///
/// The last methods return what only some APIs have; `None` stands for an API without it.
pub trait JobApi: Send + Sync {
    /// Returns the constants of the API.
    fn descriptor(&self) -> &'static Descriptor;

    /// Reads the job object's metadata and mirror. The default is for an API none of whose annotations ends a job: none reports its
    /// end either, so that none is missing.
    fn object_fact(&self, object: &Value) -> ObjectFact {
        objects::object_fact(object)
    }

    /// Returns what [`Self::spec_fact`] depends on, besides the job's name. The spec is translated again once this differs. The
    /// generation stands for `spec`.
    fn spec_inputs(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]).cloned().unwrap_or_default();
        json!([metadata("generation"), metadata("labels")])
    }

    /// Reads the job object's spec, as far as it consists of this object. Never fails: what cannot be accepted is field errors inside
    /// the fact.
    fn spec_fact(&self, object: &Value) -> SpecFact;

    /// Returns what is to be said of the job object's spec, warnings of [`Self::spec_fact`] included.
    fn findings(&self, object: &Value) -> Vec<Finding>;

    /// Reads the state of a job back from its object, for a log that does not cover it.
    fn adopt(&self, object: &Value) -> Adopted;

    /// Renders the whole `status` of a job; null for an API whose status another controller writes.
    fn status(&self, key: &JobKey, job: &engine::Job) -> Value;

    /// Returns the Kubernetes Events that report a record in this API's words, besides those common to all APIs. Best effort: the
    /// same Event may be reported twice.
    fn events(&self, step: &JobStep<'_>) -> Vec<ReportedEvent> {
        if self.external().is_some() { Vec::new() } else { crate::events::failures(step) }
    }

    /// Returns the translation of its pods and their services.
    fn pods(&self) -> Option<&dyn PodApi> {
        None
    }

    /// Returns the translation of the objects that its jobs own besides pods and services of slots.
    fn owned(&self) -> Option<&dyn OwnedApi> {
        None
    }

    /// Returns the reading of specs that consist of several objects.
    fn references(&self) -> Option<&dyn ReferenceApi> {
        None
    }

    /// Returns how a decision reaches the controller of another project, which defines the type, creates the pods and writes the status.
    fn external(&self) -> Option<&dyn ExternalApi> {
        None
    }

    /// Returns what its jobs report to a queue besides the labels that all APIs share.
    fn scheduling(&self) -> Option<&dyn SchedulingApi> {
        None
    }

    /// Returns the measurements by which an autoscaler decides.
    fn scaling(&self) -> Option<&dyn ScalingApi> {
        None
    }

    /// Returns the reading of files that its pods await from a user.
    fn uploads(&self) -> Option<&dyn UploadApi> {
        None
    }

    /// Returns the patches of annotations that report progress and ends.
    fn annotations(&self) -> Option<&dyn AnnotationApi> {
        None
    }
}

/// Methods that every API has by its core.
impl dyn JobApi + '_ {
    /// Returns its type of object.
    pub fn resource(&self) -> Resource {
        self.descriptor().resource()
    }

    /// Returns the `CustomResourceDefinition`.
    pub fn crd(&self) -> Value {
        self.descriptor().crd()
    }

    /// Spells a phase as this API does; empty for a job nothing was decided for.
    pub fn phase_word(&self, phase: Phase) -> &'static str {
        (self.descriptor().phase_word)(phase)
    }

    /// Selects the pods and services of this API's jobs, including those of an earlier operator.
    pub fn selector(&self) -> Selector {
        self.descriptor().selector()
    }

    /// Returns true if another project defines the type and writes its status.
    pub fn is_external(&self) -> bool {
        self.external().is_some()
    }

    /// Returns true if a cluster can lack its definition permanently: that of another project, or of a former kind.
    pub fn is_optional(&self) -> bool {
        self.is_external() || self.descriptor().is_former
    }

    /// Returns true if its jobs wait until a coordinator dequeues them.
    pub fn has_coordinator(&self) -> bool {
        self.scheduling().is_some_and(<dyn SchedulingApi>::has_coordinator)
    }

    /// Returns the name of a slot's pod, which is that of its service; the job's for an API without pods.
    pub fn slot_name(&self, job: &JobKey, slot: &SlotId) -> Text {
        self.pods().map_or_else(|| job.name.clone(), |pods| pods.slot_name(job, slot))
    }

    /// Returns the objects that the spec of an object references: kinds of served APIs and names, in the job's namespace.
    pub fn referenced(&self, object: &Value) -> Vec<(Text, Text)> {
        self.references().map_or_else(Vec::new, |references| references.referenced(object))
    }

    /// Returns the slot named by a pod's or service's labels; `None` for an API without pods.
    pub fn slot_of(&self, object: &Value) -> Option<SlotId> {
        self.pods()?.slot_of(object)
    }
}
