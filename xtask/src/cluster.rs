//! `cargo xtask cluster` and `cargo xtask kubectl`: the local control plane, by way of the program of crate `control-plane`.
//!
//! Owns what has to be built before. What the words mean is that program's to say.

use std::env;

use crate::run::{Problem, cargo, io, root, status, succeed, target};

/// `up`, `down` or `status`, with arguments.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    if words.iter().any(|word| word.starts_with("--process-nodes")) {
        // Its node agents are `trainyard node-agent`.
        succeed(&mut cargo(&["build", "--quiet", "--package", "trainyard"]))?;
    }
    control_plane(words)
}

/// Builds the programs of the control plane, if they are not there yet.
pub(crate) fn build() -> Result<(), Problem> {
    let mut command = cargo(&["run", "--quiet", "--package", "control-plane", "--", "build"]);
    command.env("CARGO_TARGET_DIR", target());
    succeed(&mut command)
}

/// kubectl on the control plane that is up.
pub(crate) fn kubectl(words: &[String]) -> Result<(), Problem> {
    let words = words.strip_prefix(&["--".to_owned()]).unwrap_or(words);
    let mut all = vec!["kubectl".to_owned()];
    all.extend_from_slice(words);
    control_plane(&all)
}

/// It has said itself what is wrong; its exit code is passed on as it is.
fn control_plane(words: &[String]) -> Result<(), Problem> {
    let mut command = cargo(&["run", "--quiet", "--package", "control-plane", "--manifest-path"]);
    command.arg(root().join("Cargo.toml")).arg("--").args(words);
    // Files that kubectl is given are named from where one stands.
    command.current_dir(env::current_dir().map_err(io("the current directory"))?).env("CARGO_TARGET_DIR", target());
    let status = status(&mut command)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => Err(Problem::failed(format!("the program of the control plane ended with {status}"))),
    }
}
