//! `cargo xtask bench cluster`: the operator on a real control plane beside a bare client.
//!
//! Owns what has to be built before: the programs of the control plane, the bench, and what makes the log for the cold start.
//! What is measured, and what may be asked for, is the bench's own (`bench`): words are passed on as they are.

use std::process::Command;

use crate::run::{Problem, cargo, succeed, target};

/// Builds, and measures what the words ask for.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    if !words.iter().any(|word| word == "--help" || word == "-h") {
        println!("building");
        crate::cluster::build()?;
        succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "simulator", "--example", "bench"]))?;
    }
    succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "trainyard", "--package", "bench"]))?;
    let release = target().join("release");
    let mut bench = Command::new(release.join("bench-cluster"));
    bench.arg("--log-maker").arg(release.join("examples").join("bench"));
    succeed(bench.args(words))
}
