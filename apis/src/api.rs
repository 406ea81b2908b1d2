//! The trait that each served API implements.

use model::{FieldError, GroupSpec, Incarnation, JobFact, JobKey, JobSpec, SlotId, SpecFact, Text, fact::Adopted};
use serde_json::Value;

use crate::call::Resource;
use crate::fields::Finding;
use crate::selector::Selector;

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

/// Translates between the objects of one served API and the engine's vocabulary. Pure.
pub trait JobApi: Send + Sync {
    /// Returns its type of object.
    fn resource(&self) -> Resource;

    /// Returns the plural name of the resource, as in URLs.
    fn plural(&self) -> &'static str;

    /// Selects the pods and services of this API's jobs, including those of an earlier operator.
    fn selector(&self) -> Selector;

    /// Reads the job object's metadata and mirror.
    fn job_fact(&self, object: &Value) -> JobFact;

    /// Reads the job object's spec. Never fails: what cannot be accepted is field errors inside the fact.
    fn spec_fact(&self, object: &Value) -> SpecFact;

    /// Returns what is to be said of the job object's spec, warnings of [`Self::spec_fact`] included.
    fn findings(&self, object: &Value) -> Vec<Finding>;

    /// Reads the state of a job back from its object, for a log that does not cover it.
    fn adopt(&self, object: &Value) -> Adopted;

    /// Returns the slot that the labels of a pod or service name.
    fn slot_of(&self, object: &Value) -> Option<SlotId>;

    /// Returns true if a container's result counts for its pod.
    fn is_main_container(&self, name: &str) -> bool;

    /// Returns the name of a slot's pod, which is that of its service.
    fn slot_name(&self, job: &JobKey, slot: &SlotId) -> Text;

    /// Renders the pods of some slots; one answer per slot, in order. What they share is made once.
    ///
    /// # Errors
    /// Each one for itself, when the manifest holds something no pod can be made of.
    fn pods(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>>;

    /// Renders the service of a slot.
    ///
    /// # Errors
    /// When the manifest holds something no service can be made of.
    fn service(&self, source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError>;

    /// Renders the whole `status` of a job.
    fn status(&self, key: &JobKey, job: &engine::Job) -> Value;

    /// Renders the merge patch of the end annotation that older tools read; `None` when the job's end has none.
    fn marker(&self, key: &JobKey, job: &engine::Job) -> Option<Value>;

    /// Spells a phase as this API does; empty for a job nothing was decided for.
    fn phase_word(&self, phase: model::Phase) -> &'static str;

    /// Returns the `CustomResourceDefinition`.
    fn crd(&self) -> Value;

    /// Returns the `source.component` of Kubernetes Events about its jobs.
    fn event_component(&self) -> &'static str;
}
