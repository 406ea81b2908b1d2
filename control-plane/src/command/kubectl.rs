//! `kubectl`: becomes kubectl, as administrator of the control plane that is up.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::state::{self, State};
use super::{Failure, failed};

pub(crate) fn run(words: &[String]) -> Result<ExitCode, Failure> {
    let directory = state::directory();
    let state = State::read(&directory)?.filter(|state| state.ready && state.holder.is_alive());
    let Some(state) = state else {
        return Err(Failure::Other("the control plane is not up; `cargo xtask cluster up` starts it".into()));
    };
    // Only an error comes back.
    Err(failed("running kubectl")(command(&state, &directory, words).exec()))
}

/// A call of kubectl; nothing of it is kept in the user's home directory.
pub(crate) fn command<A: AsRef<str>>(state: &State, directory: &Path, words: &[A]) -> Command {
    let (program, first) = state.kubectl.split_first().map_or(("kubectl", [].as_slice()), |(p, f)| (p.as_str(), f));
    let mut command = Command::new(program);
    command.args(first).args(words.iter().map(AsRef::as_ref));
    command.env("KUBECONFIG", directory.join("kubeconfig"));
    command.env("KUBECACHEDIR", directory.join("kubectl-cache")).env("KUBERC", "off");
    command
}
