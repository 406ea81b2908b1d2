//! Capabilities of served APIs: one trait each, reached through [`super::JobApi`].
//!
//! It must not hold a default that stands for "no such thing": an API without a capability does not return it. Defaults here are for
//! parts of a capability that some of its APIs lack.

use model::{AnnotationChanges, FieldError, JobKey, OwnedRef, PodMark, SlotId, SpecFact, Text, Timestamp};
use serde_json::{Value, json};

use super::{PodSlot, Referenced, RenderInput, ReportedEvent, Upload};
use crate::authorization::{AuthorizationReads, OwnedWrite};
use crate::call::ApiError;
use crate::objects::{at, container_names};
use crate::replicas::slot_name;

/// Translates pods of slots, and their services.
pub trait PodApi {
    /// Returns the slot named by a pod's or service's labels.
    fn slot_of(&self, object: &Value) -> Option<SlotId>;

    /// Returns the name of a slot's pod, which is that of its service: made of the job's name, the group's and the index.
    fn slot_name(&self, job: &JobKey, slot: &SlotId) -> Text {
        Text::from(slot_name(&job.name, &slot.group, slot.index))
    }

    /// Returns true if a container of this name trains, by the name that the API gives to those that do.
    fn is_training_name(&self, _name: &str) -> bool {
        false
    }

    /// Returns the names of the containers of a pod whose results count for it: the one that trains, or else the first one.
    fn main_containers<'a>(&self, pod: &'a Value) -> Vec<&'a str> {
        let trains = container_names(pod).find(|name| self.is_training_name(name));
        trains.or_else(|| container_names(pod).next()).into_iter().collect()
    }

    /// Renders the pods of some slots; one answer per slot, in order. What they share is made once.
    ///
    /// # Errors
    /// Returns an error for each pod that cannot be rendered from the manifest.
    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>>;

    /// Adds to a rendered pod what follows from the state of its job.
    fn complete(&self, _source: RenderInput<'_>, _job: &engine::Job, _slot: &SlotId, _pod: &mut Value) {}

    /// Renders the service of a slot.
    ///
    /// # Errors
    /// Returns an error if it cannot be rendered from the manifest, or if pods of this API have no services of their own.
    fn service(&self, _source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
        Err(FieldError::new("spec", slot.to_string(), "pods of this API have no services of their own"))
    }

    /// Returns true for a service that belongs to a whole job, and to no slot.
    fn is_of_job(&self, service: &Value) -> bool {
        self.slot_of(service).is_none()
    }
}

/// Translates the objects that jobs own besides pods and services of slots. Their types stand in the descriptor.
pub trait OwnedApi {
    /// Renders such an object, without what [`crate::owned::complete`] adds.
    ///
    /// # Errors
    /// Returns an error if it cannot be rendered from the manifest.
    fn render_owned(&self, source: RenderInput<'_>, job: &engine::Job, object: &OwnedRef) -> Result<Value, FieldError>;

    /// Returns the objects to read before a write of such an object, by which [`Self::authorize`] decides whether the namespace of the job
    /// may have it; `None` where the job alone decides.
    fn authorization_reads(&self, _job: &JobKey, _object: &OwnedRef, _body: &Value) -> Option<AuthorizationReads> {
        None
    }

    /// Decides whether a write of such an object is sent.
    ///
    /// # Errors
    /// Returns the answer that stands for the API server's if it is not.
    fn authorize(&self, _write: &OwnedWrite<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Reads specs that consist of several objects. The kinds of the others stand in the descriptor.
pub trait ReferenceApi {
    /// Reads the job object's spec, given what was found of the objects that it references. Never fails: what cannot be accepted is
    /// field errors inside the fact.
    fn spec_fact_with(&self, object: &Value, referenced: &Referenced) -> SpecFact;

    /// Returns the objects that the spec references: kinds of served APIs and names, in the job's namespace.
    fn referenced(&self, _object: &Value) -> Vec<(Text, Text)> {
        Vec::new()
    }

    /// Returns the object that this one is a part of: a kind of a served API and a name, in its namespace. The spec of that object
    /// references all of its parts; their kind is one of its referenced kinds, and its kind one of theirs.
    fn owner(&self, _object: &Value) -> Option<(Text, Text)> {
        None
    }

    /// Returns what specs depend on of an object that they reference.
    fn version_of(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]);
        json!([metadata("uid"), metadata("generation")])
    }
}

/// Reports a decision to the controller of another project.
pub trait ExternalApi {
    /// Renders the merge patch of the job object that writes the job's state, in place of a status. `source` is absent for a job
    /// without a valid spec.
    fn state_patch(&self, key: &JobKey, job: &engine::Job, source: Option<RenderInput<'_>>) -> Value;
}

/// Reads what a queue decides by, besides the labels that all APIs share.
pub trait SchedulingApi {
    /// Returns true if its jobs wait until a coordinator dequeues them. What that is decided by is watched only then.
    fn has_coordinator(&self) -> bool {
        false
    }

    /// Returns the priority in a field of the spec, for a job without the label of that.
    fn priority(&self, _object: &Value) -> Option<i32> {
        None
    }

    /// Returns the units of work in all that a job's spec declares, for a job that reports its progress in them.
    fn units(&self, _object: &Value) -> Option<u64> {
        None
    }

    /// Returns the queue of policies by attained service that a job starts in: 0 is served first.
    fn level(&self, _object: &Value) -> u32 {
        0
    }
}

/// Measures a training for an autoscaler.
pub trait ScalingApi {
    /// Returns the container whose log has the time of a step of the training.
    fn log_container(&self) -> &'static str;

    /// Reads the time of a step of the training from the end of a log, in microseconds.
    fn latency_us(&self, log: &str) -> Option<u64>;
}

/// Reads which file a pod awaits from a user.
pub trait UploadApi {
    /// Returns the upload that a pod waits for.
    fn awaited_upload<'a>(&self, pod: &'a Value) -> Option<Upload<'a>>;
}

/// Renders merge patches of annotations, of a job object or of a pod.
pub trait AnnotationApi {
    /// Renders the patch of the end annotation that older tools read; `None` when the job's end has none.
    fn end_annotation(&self, _key: &JobKey, _job: &engine::Job) -> Option<Value> {
        None
    }

    /// Renders the patch of a job object that preempts the job, as a scheduler would; `None` when this API has none.
    fn preemption(&self, _reason: &str) -> Option<Value> {
        None
    }

    /// Renders the patch of a job object that writes notes, at this time.
    fn notes_patch(&self, _source: RenderInput<'_>, _notes: &AnnotationChanges, _at: Timestamp) -> Value {
        json!({})
    }

    /// Returns the Kubernetes Events that report written notes.
    fn notes_events(&self, _notes: &AnnotationChanges) -> Vec<ReportedEvent> {
        Vec::new()
    }

    /// Renders the patch of a pod that puts a mark on it.
    fn pod_mark(&self, _mark: &PodMark) -> Value {
        json!({})
    }
}
