//! Scenarios on a real API server: the same runner, the same operator, and what the driver sends and sees over the network.
//!
//! Owns a [`simulator::ClusterBackend`] on a real control plane, and the comparison of the outcomes on both backends. A difference
//! is a defect of the embedded cluster (or of the driver): there is no list of tolerated differences. It must not know rules.
//!
//! * [`server`] requests, one at a time; [`names`] keeps scenarios that run side by side apart; [`watches`] the driver's watches,
//!   and the certainty that they reported everything; [`manual`] scheduler, kubelets and nodes, worked out on a copy;
//! * [`real`] the backend made of these; [`compare`] what has to come out the same.
//!
//! [`types`] is apart: the types that manifests are checked against, as the API server publishes them.
//!
//! Tests: `tests/pod_templates.rs` compares what `apis` refuses in a pod template with what the API server refuses;
//! `tests/scenarios.rs` runs every scenario that a real API server can express.

pub mod compare;
pub mod manual;
pub mod names;
pub mod real;
pub mod server;
pub mod types;
pub mod watches;
