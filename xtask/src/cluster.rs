//! `cargo xtask cluster` and `cargo xtask kubectl`: the local control plane, by way of the program of crate `control-plane`.
//!
//! Owns what has to be built before. What the words mean is that program's to say.

use std::process::Command;

use crate::run::{KillOnDrop, Problem, build_quietly, built, cargo_build, io, status, succeed, target};

/// `up`, `down` or `status`, with arguments.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    let mut programs = vec!["control-plane"];
    if words.iter().any(|word| word.starts_with("--process-nodes")) {
        // Its node agents are `trainyard node-agent`.
        programs.push("trainyard");
    }
    if words.first().is_some_and(|word| word == "up") {
        // The first time this takes minutes, in which one wants to see how far it is.
        succeed(&mut cargo_build(&programs))?;
    } else {
        build_quietly(&programs)?;
    }
    control_plane(words)
}

/// The program of the control plane; keeps its cache in the same target directory as everything else.
pub(crate) fn program() -> Command {
    let mut command = Command::new(built("control-plane"));
    command.env("CARGO_TARGET_DIR", target());
    command
}

/// Builds the programs of the control plane, if they are not there yet.
pub(crate) fn build() -> Result<(), Problem> {
    begin_build()?.finish()
}

/// The programs of the control plane while they are being built. What is not waited for is ended.
#[derive(Debug)]
pub(crate) struct Building(KillOnDrop);

/// Begins to build the programs of the control plane, if they are not there yet: minutes the first time.
pub(crate) fn begin_build() -> Result<Building, Problem> {
    build_quietly(&["control-plane"])?;
    Ok(Building(KillOnDrop(program().arg("build").spawn().map_err(io("starting control-plane"))?)))
}

impl Building {
    /// Waits until they are built.
    pub(crate) fn finish(mut self) -> Result<(), Problem> {
        let status = self.0.0.wait().map_err(io("waiting for a process"))?;
        // It has said itself why.
        if status.success() { Ok(()) } else { Err(Problem::failed(format!("`control-plane build` failed ({status})"))) }
    }
}

/// kubectl on the control plane that is up.
pub(crate) fn kubectl(words: &[String]) -> Result<(), Problem> {
    let words = words.strip_prefix(&["--".to_owned()]).unwrap_or(words);
    let mut all = vec!["kubectl".to_owned()];
    all.extend_from_slice(words);
    build_quietly(&["control-plane"])?;
    control_plane(&all)
}

/// It has said itself what is wrong; its exit code is passed on as it is.
fn control_plane(words: &[String]) -> Result<(), Problem> {
    // Where one stands: files that kubectl is given are named from there.
    let status = status(program().args(words))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => Err(Problem::failed(format!("the program of the control plane ended with {status}"))),
    }
}
