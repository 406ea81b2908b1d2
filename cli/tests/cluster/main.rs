//! The binary on a real control plane that nothing disturbs: manifests of `deploy/`, kubectl, failover. One program for all.
//!
//! Tests with faults are in `faults/`, those of the node agent in `process_nodes/`: the former share one control plane, the
//! latter start one at a time, and beside these they would have too little of a small machine.

mod chart;
#[path = "../common/mod.rs"]
mod common;
mod deploy;
mod elastic;
mod failover;
mod from_voda;
mod kubectl;
mod namespace_limits;
mod operator;
#[path = "../common/probe.rs"]
mod probe;
mod rights;
mod validate;
