//! The trait that each served API implements.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fact::Adopted;
use model::{
    Event, Fact, FieldError, GroupSpec, Incarnation, JobFact, JobKey, JobSpec, Notes, OwnedRef, Phase, PodMark, SlotId,
    SpecFact, Text, Timestamp,
};
use serde_json::{Value, json};

use crate::authorization::{AuthorizationReads, OwnedWrite};
use crate::call::{ApiError, Resource, Verb};
use crate::fields::Finding;
use crate::objects::{self, at};
use crate::owned::OwnedType;
use crate::selector::Selector;
use crate::series::Series;

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

/// Objects that a spec is made of besides the job's: what was found of each, by kind and name. Those not found are absent.
pub type Needed = BTreeMap<(Text, Text), Arc<Value>>;

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
    pub facts: &'a [Fact],
    /// Events that were decided.
    pub events: &'a [Event],
    /// End of the job that had this kind and name before, if it is known to have ended within the last hour.
    pub predecessor: Option<Timestamp>,
}

/// A Kubernetes Event about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEvent {
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
pub trait JobApi: Send + Sync {
    /// Returns its type of object.
    fn resource(&self) -> Resource;

    /// Returns the plural name of the resource, as in URLs.
    fn plural(&self) -> &'static str;

    /// Returns false if its objects have no namespace.
    fn namespaced(&self) -> bool {
        true
    }

    /// Returns false if its jobs never have pods or services.
    fn has_pods(&self) -> bool {
        true
    }

    /// Returns true if its objects are queues. What queues decide by is watched only then.
    fn is_queue(&self) -> bool {
        false
    }

    /// Returns true if its jobs wait until a coordinator dequeues them. What that is decided by is watched only then.
    fn has_coordinator(&self) -> bool {
        false
    }

    /// Returns the operations on job objects besides reading them and writing their status.
    fn writes(&self) -> &'static [Verb] {
        &[]
    }

    /// Returns true if another project defines the type and writes its status. The job's state then stands in annotations:
    /// [`Self::state_patch`].
    fn is_foreign(&self) -> bool {
        false
    }

    /// Returns true for the former name of a kind: its successor is preferred where both can stand.
    fn is_former(&self) -> bool {
        false
    }

    /// Returns true if a cluster can lack its definition permanently: that of another project, or of a former kind.
    fn is_optional(&self) -> bool {
        self.is_foreign() || self.is_former()
    }

    /// Selects the pods and services of this API's jobs, including those of an earlier operator.
    fn selector(&self) -> Selector;

    /// Reads the job object's metadata and mirror. The default is for an API none of whose annotations ends a job: none reports its
    /// end either, so that none is missing.
    fn job_fact(&self, object: &Value) -> JobFact {
        objects::job_fact(object)
    }

    /// Returns what [`Self::spec_fact`] depends on, besides the job's name. The spec is translated again once this differs. The
    /// generation stands for `spec`.
    fn made_of(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]).cloned().unwrap_or_default();
        json!([metadata("generation"), metadata("labels")])
    }

    /// Reads the job object's spec. Never fails: what cannot be accepted is field errors inside the fact.
    fn spec_fact(&self, object: &Value) -> SpecFact;

    /// Returns the kinds of the objects that its specs are made of besides the jobs': those of other served APIs.
    fn needed_kinds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the objects that the spec is made of besides the job's: kinds of served APIs and names, in the job's namespace.
    fn needs(&self, _object: &Value) -> Vec<(Text, Text)> {
        Vec::new()
    }

    /// Returns the object that this one is a part of: a kind of a served API and a name, in its namespace. The spec of that object is
    /// made of all of its parts; their kind is one of its [`Self::needed_kinds`], and its kind one of theirs.
    fn part_of(&self, _object: &Value) -> Option<(Text, Text)> {
        None
    }

    /// Returns what its specs depend on of an object that they are made of.
    fn version_of_needed(&self, object: &Value) -> Value {
        json!([at(object, &["metadata", "uid"]), at(object, &["metadata", "generation"])])
    }

    /// Reads the job object's spec, given what was found of the objects it needs.
    fn spec_fact_with(&self, object: &Value, _needed: &Needed) -> SpecFact {
        self.spec_fact(object)
    }

    /// Returns the finalizer that this API puts on job objects; `None` when it has none.
    fn finalizer(&self) -> Option<&'static str> {
        None
    }

    /// Returns the types of the objects that its jobs own besides pods and services of slots.
    fn owned_types(&self) -> &'static [OwnedType] {
        &[]
    }

    /// Renders an object that a job owns, without what [`crate::owned::complete`] adds.
    ///
    /// # Errors
    /// Returns an error if the manifest holds something no such object can be made of.
    fn owned(&self, _source: RenderInput<'_>, _job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError> {
        Err(FieldError::new("kind", object.kind.to_string(), "jobs of this API own no object of this kind"))
    }

    /// Returns the objects to read before a write of an object that a job owns, by which [`Self::authorize`] decides whether the namespace of
    /// the job may have it; `None` where the job alone decides.
    fn authorization_reads(&self, _job: &JobKey, _object: &OwnedRef, _body: &Value) -> Option<AuthorizationReads> {
        None
    }

    /// Decides whether a write of an object that a job owns is sent.
    ///
    /// # Errors
    /// Returns the answer that stands for the API server's if it is not.
    fn authorize(&self, _write: &OwnedWrite<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Returns what is to be said of the job object's spec, warnings of [`Self::spec_fact`] included.
    fn findings(&self, object: &Value) -> Vec<Finding>;

    /// Reads the state of a job back from its object, for a log that does not cover it.
    fn adopt(&self, object: &Value) -> Adopted;

    /// Returns the slot that the labels of a pod or service name. Without it, as with the four after it, a kind has no pods.
    fn slot_of(&self, _object: &Value) -> Option<SlotId> {
        None
    }

    /// Returns the names of the containers of a pod whose results count for it.
    fn main_containers<'a>(&self, _pod: &'a Value) -> Vec<&'a str> {
        Vec::new()
    }

    /// Returns true if a container of this name trains, by the name that the API gives to those that do.
    fn is_training_name(&self, _name: &str) -> bool {
        false
    }

    /// Returns the upload that a pod waits for.
    fn awaited_upload<'a>(&self, _pod: &'a Value) -> Option<Upload<'a>> {
        None
    }

    /// Returns the name of a slot's pod, which is that of its service.
    fn slot_name(&self, job: &JobKey, _slot: &SlotId) -> Text {
        job.name.clone()
    }

    /// Renders the pods of some slots; one answer per slot, in order. What they share is made once.
    ///
    /// # Errors
    /// Each one for itself, when the manifest holds something no pod can be made of.
    fn pods(&self, _source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        pods.iter().map(|_| Err(FieldError::new("kind", &*self.resource().kind, "has no pods"))).collect()
    }

    /// Adds to a rendered pod what follows from the state of its job.
    fn complete_pod(&self, _source: RenderInput<'_>, _job: &engine::Job, _slot: &SlotId, _pod: &mut Value) {}

    /// Renders the service of a slot.
    ///
    /// # Errors
    /// Returns an error if the manifest holds something no service can be made of.
    fn service(&self, _source: RenderInput<'_>, _slot: &SlotId) -> Result<Value, FieldError> {
        Err(FieldError::new("kind", &*self.resource().kind, "has no services"))
    }

    /// Renders the whole `status` of a job.
    fn status(&self, key: &JobKey, job: &engine::Job) -> Value;

    /// Renders the merge patch of the job object that writes the job's state, in place of a status; `None` when this API writes the
    /// status. `source` is absent for a job without a valid spec.
    fn state_patch(&self, _key: &JobKey, _job: &engine::Job, _source: Option<RenderInput<'_>>) -> Option<Value> {
        None
    }

    /// Renders the merge patch of the end annotation that older tools read; `None` when the job's end has none.
    fn end_annotation(&self, _key: &JobKey, _job: &engine::Job) -> Option<Value> {
        None
    }

    /// Renders the merge patch of a job object that preempts the job, as a scheduler would; `None` when this API has none.
    fn preemption(&self, _reason: &str) -> Option<Value> {
        None
    }

    /// Renders the merge patch of a job object that writes notes, at this time.
    fn notes(&self, _source: RenderInput<'_>, _notes: &Notes, _at: Timestamp) -> Value {
        json!({})
    }

    /// Returns the Kubernetes Events that report written notes.
    fn noted(&self, _notes: &Notes) -> Vec<JobEvent> {
        Vec::new()
    }

    /// Renders the merge patch of a pod that puts a mark on it.
    fn pod_mark(&self, _mark: &PodMark) -> Value {
        json!({})
    }

    /// Returns the container in whose log the time of a step of the training stands; `None` where there is none.
    fn log_container(&self) -> Option<&'static str> {
        None
    }

    /// Reads the time of a step of the training from the end of a log, in microseconds.
    fn latency_us(&self, _log: &str) -> Option<u64> {
        None
    }

    /// Returns the finalizer that this API puts on pods; `None` when it has none.
    fn pod_finalizer(&self) -> Option<&'static str> {
        None
    }

    /// Returns true for a service that belongs to a whole job, and to no slot.
    fn is_of_job(&self, service: &Value) -> bool {
        self.slot_of(service).is_none()
    }

    /// Spells a phase as this API does; empty for a job nothing was decided for.
    fn phase_word(&self, phase: Phase) -> &'static str;

    /// Returns the `CustomResourceDefinition`.
    fn crd(&self) -> Value;

    /// Returns the `source.component` of Kubernetes Events about its jobs.
    fn event_component(&self) -> &'static str;

    /// Returns the priority that a field of its spec tells, for a job without the label of that.
    fn priority(&self, _object: &Value) -> Option<i32> {
        None
    }

    /// Returns the units of work in all that a job's spec tells, for a job that reports its progress in them.
    fn units(&self, _object: &Value) -> Option<u64> {
        None
    }

    /// Returns the queue of policies by attained service that a job starts in: 0 is served first.
    fn level(&self, _object: &Value) -> u32 {
        0
    }

    /// Returns the names of the metrics that its original operator had; `None` where they are not served.
    fn series(&self) -> Option<&'static Series> {
        None
    }

    /// Returns the Kubernetes Events that report a record in this API's words, besides those common to all APIs. Best effort: the
    /// same Event may be reported twice.
    fn events(&self, step: &JobStep<'_>) -> Vec<JobEvent> {
        if self.is_foreign() { Vec::new() } else { crate::events::failures(step) }
    }
}
