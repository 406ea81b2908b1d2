//! Scenarios: the test language, the simulation they run in, and the report of a run.
//!
//! Owns reading a scenario, driving the embedded cluster and the operator through it, faults included, and comparing the
//! outcome with what the scenario expects. It must not decide anything itself: everything a job does comes from
//! `operator`. Tests: beside each module, and every scenario of `fixtures` through the `snapshots` package.

pub mod audit;
pub mod backend;
pub mod check;
pub mod controllers;
pub mod crash;
pub mod expect;
pub mod from_log;
pub mod pattern;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod simulation;
pub mod state;
pub mod sweep;
pub mod text;
pub mod trainer;
mod verbs;

pub use backend::ClusterBackend;
pub use runner::{Conditions, ScenarioOutcome, run, run_on, run_serving, run_under};
pub use scenario::{Scenario, load, parse};
