//! Constants of a served API.
//!
//! Owns names, verbs and types. It must not hold what depends on an object or a setting: that is a method of [`crate::JobApi`].

use model::Phase;
use serde_json::Value;

use crate::call::{Resource, Verb};
use crate::owned::OwnedType;
use crate::selector::Selector;
use crate::series::Series;

/// Constants of one API. [`Descriptor::new`] has the least that every API has.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Group and version of the type.
    pub api_version: &'static str,
    /// Kind of the type.
    pub kind: &'static str,
    /// Plural name of the resource, as in URLs.
    pub plural: &'static str,
    /// `source.component` of Kubernetes Events about its jobs.
    pub event_component: &'static str,
    /// Makes the `CustomResourceDefinition`.
    pub crd: fn() -> Value,
    /// Spells a phase as the API does; empty for a job nothing was decided for.
    pub phase_word: fn(Phase) -> &'static str,
    /// Label, with its value, that pods and services of its jobs carry; `None` where none of them has to.
    pub label: Option<(&'static str, &'static str)>,
    /// False if its objects have no namespace.
    pub namespaced: bool,
    /// True if its objects are queues. What queues decide by is watched only then.
    pub is_queue: bool,
    /// True for the former name of a kind: its successor is preferred where both can stand.
    pub is_former: bool,
    /// Operations on job objects besides reading them and writing their status.
    pub verbs: &'static [Verb],
    /// Finalizer that this API puts on job objects.
    pub finalizer: Option<&'static str>,
    /// Finalizer that this API puts on pods.
    pub pod_finalizer: Option<&'static str>,
    /// Types of the objects that its jobs own besides pods and services of slots.
    pub owned_types: &'static [OwnedType],
    /// Kinds of the objects that its specs reference: those of other served APIs.
    pub referenced_kinds: &'static [&'static str],
    /// Names of the metrics that its original operator had.
    pub series: Option<&'static Series>,
}

impl Descriptor {
    /// Returns the constants of a namespaced type whose objects are read, and whose status is written.
    pub const fn new(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        event_component: &'static str,
        crd: fn() -> Value,
        phase_word: fn(Phase) -> &'static str,
    ) -> Self {
        Self {
            api_version,
            kind,
            plural,
            event_component,
            crd,
            phase_word,
            label: None,
            namespaced: true,
            is_queue: false,
            is_former: false,
            verbs: &[],
            finalizer: None,
            pod_finalizer: None,
            owned_types: &[],
            referenced_kinds: &[],
            series: None,
        }
    }

    /// Returns the `CustomResourceDefinition`.
    pub fn crd(&self) -> Value {
        (self.crd)()
    }

    /// Returns its type of object.
    pub fn resource(&self) -> Resource {
        Resource::new(self.api_version, self.kind)
    }

    /// Selects the pods and services of its jobs; every object where they carry no label.
    pub fn selector(&self) -> Selector {
        self.label.map_or_else(Selector::default, |(key, value)| Selector::label(key, value))
    }
}
