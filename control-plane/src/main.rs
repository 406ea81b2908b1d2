//! `control-plane`: a control plane that stays up in the background, for manual trials of the operator.
//!
//! Owns the words of the command line; `cargo xtask cluster` and `cargo xtask kubectl` call it. Exit codes: 0 fine, 1 it is not up or
//! a part of it has ended, 2 usage or something is missing. What it does stands in `command/`.

mod command;

use std::env;
use std::process::ExitCode;

use control_plane::{Binaries, MpiOperator};

use command::{Failure, arguments, down, hold, kubectl, status, up};

const USAGE: &str = "usage: cargo xtask cluster up [--nodes N] [--gpus G] [--process-nodes P] [--node-grace SECONDS]
       cargo xtask cluster build | mpi-operator | down | status
       cargo xtask kubectl -- ARGUMENT...

  up      starts a control plane in the background: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok
            --nodes N           simulated nodes (20; 0 if there are process nodes)
            --gpus G            nvidia.com/gpu of each node (8)
            --process-nodes P   nodes whose pods are processes of this machine (0)
            --node-grace S      seconds without heartbeat after which a node counts as not ready (50, more with many nodes)
  build   builds the programs, if they are not there yet; `up` and the tests do so by themselves
  mpi-operator  builds Kubeflow's MPI operator, if it is not there yet, and prints where it and its definition are
  down    ends it, and forgets everything in it
  status  prints what runs";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let (name, rest) = words.split_first().map_or(("", words.as_slice()), |(name, rest)| (name.as_str(), rest));
    let outcome = match name {
        "up" => arguments::parse(rest).and_then(|wanted| up::run(&wanted)),
        "hold" => arguments::parse(rest).and_then(|wanted| hold::run(&wanted)),
        "build" | "mpi-operator" | "down" | "status" if !rest.is_empty() => {
            Err(Failure::Usage(format!("`{name}` takes no arguments")))
        }
        "build" => Binaries::ensure().map(|_| ExitCode::SUCCESS).map_err(Failure::Error),
        "mpi-operator" => mpi_operator(),
        "down" => down::run(),
        "status" => status::run(),
        "kubectl" => kubectl::run(rest),
        "help" | "--help" | "-h" => {
            command::say(USAGE);
            Ok(ExitCode::SUCCESS)
        }
        "" => Err(Failure::Usage("which command?".into())),
        other => Err(Failure::Usage(format!("no command `{other}`"))),
    };
    outcome.unwrap_or_else(|failure| {
        match failure {
            Failure::Usage(text) => eprintln!("{text}\n{USAGE}"),
            Failure::Error(error) => eprintln!("control-plane: {error}"),
            Failure::Other(text) => eprintln!("control-plane: {text}"),
        }
        ExitCode::from(2)
    })
}

fn mpi_operator() -> Result<ExitCode, Failure> {
    let MpiOperator { program, definition } = MpiOperator::ensure()?;
    command::say(program.display());
    command::say(definition.display());
    Ok(ExitCode::SUCCESS)
}
