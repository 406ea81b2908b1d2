//! API calls, their answers, and observations: the one language between `operator` and the executors of its calls
//! (`cluster` in memory, `k8s-driver` over the network).

use std::sync::Arc;

use model::{JobKey, Kind, ObjectRef, ResourceVersion, Stamp, Text, Uid};
use serde_json::Value;

/// Number of a call within one operator process.
pub type CallId = u64;

/// A type of object: its API version and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// For example `v1` or `elasticdeeplearning.ai/v1`.
    pub api_version: Text,
    /// For example `Pod`.
    pub kind: Text,
}

impl Resource {
    /// Returns the resource of an API version and a kind.
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self { api_version: Text::from(api_version), kind: Text::from(kind) }
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the resource that an object names; a missing name is empty.
    pub fn of(object: &Value) -> Self {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        Self::new(text("apiVersion"), text("kind"))
    }
}

/// Operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Create `body`.
    Create,
    /// Delete, with [`ApiCall::uid`] as precondition and [`ApiCall::grace_seconds`] as grace period (absent: the pod's own).
    Delete,
    /// Merge-patch the main resource with `body` (RFC 7386).
    Patch,
    /// Merge-patch the status with `body.status` through the status subresource.
    PatchStatus,
    /// Replace the status by `body.status` through the status subresource, with [`ApiCall::rv`] as precondition.
    ApplyStatus,
    /// Read; changes nothing.
    Get,
    /// Read the end of a pod's log; changes nothing. The body names the container, and the answer is a text.
    Log,
    /// List a type of object, a page at a time; changes nothing. The body is the query: `continue` and `fieldSelector`. An empty
    /// namespace stands for all.
    List,
}

impl Verb {
    /// Returns true if calls of this verb change nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Log | Self::List)
    }
}

/// One call to the API server. Every write is idempotent by construction: fixed name, uid or resourceVersion precondition.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiCall {
    /// Number within this operator process; answers name it.
    pub id: CallId,
    /// The job it is for.
    pub job: JobKey,
    /// The job's object it is about; `None` for Kubernetes Events, whose answers are not awaited.
    pub object: Option<ObjectRef>,
    /// The record it follows from: the last one about its job at dispatch. Executors write it beside what they write; it
    /// decides nothing.
    pub cause: Stamp,
    /// The operation.
    pub verb: Verb,
    /// The type of object.
    pub resource: Resource,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Text,
    /// Name of the object.
    pub name: Text,
    /// The object to create, or the patch.
    pub body: Option<Value>,
    /// Precondition: the object has this uid.
    pub uid: Option<Uid>,
    /// Precondition: the object has this resourceVersion.
    pub rv: Option<ResourceVersion>,
    /// Grace period of a delete; `Some(0)` is at once, `None` is the object's own.
    pub grace_seconds: Option<u32>,
}

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct ApiError {
    /// HTTP status code; 0 when there was no answer.
    pub code: u16,
    /// Machine-readable reason, for example `AlreadyExists`, `Conflict`, `NotFound`, `Invalid`, `Forbidden`.
    pub reason: Text,
    /// Message for users.
    pub message: String,
}

/// The answer to a call: the object as it stands afterwards (for a delete that removed it: as it last was), or an error.
pub type ApiAnswer = Result<Arc<Value>, ApiError>;

/// A watch event or a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation<O = Arc<Value>> {
    /// An object was added or modified.
    Applied(O),
    /// An object is gone; this is how it last was.
    Deleted(O),
    /// A list of one kind, or of those of its objects that one source shows.
    Listed {
        /// The kind.
        kind: Kind,
        /// The source's name, as in [`crate::WatchTarget::of`]; `None` for the whole kind.
        of: Option<Text>,
        /// resourceVersion of the list.
        rv: ResourceVersion,
        /// Every object of the list.
        items: Vec<O>,
    },
}

impl<O> Observation<O> {
    /// Maps the objects of the observation, for example to what was read of them. Objects mapped to `None` are left out.
    pub fn filter_map<P>(self, mut read: impl FnMut(O) -> Option<P>) -> Option<Observation<P>> {
        Some(match self {
            Self::Applied(object) => Observation::Applied(read(object)?),
            Self::Deleted(object) => Observation::Deleted(read(object)?),
            Self::Listed { kind, of, rv, items } => {
                Observation::Listed { kind, of, rv, items: items.into_iter().filter_map(read).collect() }
            }
        })
    }
}
