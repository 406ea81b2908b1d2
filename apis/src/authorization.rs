//! Authorization of writes outside of a job's namespace: what is read before a write, and what was found.
//!
//! The operator may write objects that the users of a namespace may not. An API says which objects decide whether the namespace of a
//! job may have one ([`JobApi::authorization_reads`]), and decides ([`JobApi::authorize`]). It must not read anything itself. Tests:
//! `torchrunqueue/parent.rs`, and the scenarios `modelversion/namespace-forbids-*`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{JobKey, OwnedRef, Text};
use serde_json::Value;

use crate::call::{ApiError, Resource};
use crate::namespace;

#[cfg(doc)]
use crate::api::JobApi;

/// An object without a namespace: its type and name.
pub type ClusterObject = (Resource, Text);

/// Objects that are read before a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationReads {
    /// Objects without a namespace, each read from the API server.
    pub objects: Vec<ClusterObject>,
    /// True to count objects of the same type that other jobs of the namespace have: [`OwnedWrite::others`].
    pub others: bool,
}

/// Objects that were read before a write; `None` for one that does not exist.
pub type Found = BTreeMap<ClusterObject, Option<Arc<Value>>>;

/// A write of an object that a job owns.
#[derive(Debug, Clone, Copy)]
pub struct OwnedWrite<'a> {
    /// The job.
    pub job: &'a JobKey,
    /// The object.
    pub object: &'a OwnedRef,
    /// True for its creation, false for a patch of it.
    pub creates: bool,
    /// The object as it is created, or the patch.
    pub body: &'a Value,
    /// Objects of the same type, as they are rendered, that other jobs of the namespace have; empty unless they were asked for.
    pub others: &'a [Value],
    /// Objects that were read from the API server.
    pub found: &'a Found,
}

impl<'a> OwnedWrite<'a> {
    /// Returns an object that was read; `None` for one that does not exist.
    pub fn found(&self, resource: Resource, name: &str) -> Option<&'a Value> {
        self.found.get(&(resource, Text::from(name)))?.as_deref()
    }

    /// Returns the namespace of the job.
    pub fn namespace(&self) -> Option<&'a Value> {
        self.found(namespace_type(), &self.job.namespace)
    }
}

/// Returns the namespace of a job as an object to read.
pub fn namespace_of(job: &JobKey) -> ClusterObject {
    (namespace_type(), job.namespace.clone())
}

/// Returns the answer to a write that is not sent because the namespace may not have the object.
pub fn forbidden(message: String) -> ApiError {
    ApiError { code: 403, reason: Text::from("Forbidden"), message }
}

fn namespace_type() -> Resource {
    Resource::new(namespace::TYPE.0, namespace::TYPE.1)
}
