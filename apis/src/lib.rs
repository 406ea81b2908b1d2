//! Pure translation between the API server's objects and the engine's vocabulary.
//!
//! Owns: object -> fact, command -> [`ApiCall`], job state -> status, and the CRDs of the served APIs, one folder each.
//! It must not do IO, keep state, or decide anything about a job's life.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::todo,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic
)]

mod adopt;
pub mod aitrainingjob;
pub mod api;
pub mod authorization;
pub mod bounds;
pub mod call;
pub mod checkpoint;
pub mod class;
pub mod conditions;
pub mod crd;
pub mod demand;
pub mod elasticjob;
pub mod events;
pub mod fields;
pub mod foreign;
pub mod free_storage;
pub mod jobqueue;
pub mod kruise;
pub mod kubernetes;
pub mod kueue;
mod labels;
pub mod manifest;
pub mod models;
pub mod modelversion;
pub mod mpijob;
pub mod names;
pub mod namespace;
mod namespace_selector;
pub mod nearest;
pub mod node;
pub mod objects;
pub mod observed;
pub mod owned;
pub mod pod;
mod pod_rules;
pub mod progress;
pub mod quota;
pub mod registry;
pub mod remarks;
pub mod replicas;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod series;
mod served;
pub mod service;
mod shell;
mod summary;
mod synonyms;
pub mod template;
#[cfg(test)]
mod testing;
pub mod torchjob;
pub mod torchrunjob;
pub mod torchrunqueue;
pub mod trainingqueue;
pub mod translation;
pub mod watched;

pub use api::{JobApi, JobStep, Referenced, ReportedEvent, Upload};
pub use call::{ApiAnswer, ApiCall, ApiError, CallId, Observation, Resource, Verb};
pub use fields::{Finding, Severity};
pub use foreign::{ForeignPod, PodAmounts};
pub use free_storage::FreeStorage;
pub use observed::ObservedObject;
pub use owned::OwnedType;
pub use registry::Registry;
pub use resources::{Right, ServedResource};
pub use selector::Selector;
pub use series::{Course, Series};
pub use watched::{JobSources, WatchTarget};
