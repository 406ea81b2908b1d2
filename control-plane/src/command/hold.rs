//! `hold`: the process in the background that owns the control plane. `up` starts it; it is not for users.
//!
//! When it ends, however that happens, everything that it started ends too: the library sees to that. It ends by itself when
//! the state that it wrote is gone, for example because the target directory was removed.

use std::process::{self, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use control_plane::{Component, ControlPlane, Options, ProcessId};

use super::arguments::Wanted;
use super::process_nodes::ProcessNodes;
use super::state::{self, State};
use super::{Failure, failed};

const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(wanted: &Wanted) -> Result<ExitCode, Failure> {
    let directory = state::directory();
    std::fs::create_dir_all(&directory).map_err(failed(directory.display()))?;
    let holder = ProcessId::of(process::id()).ok_or_else(|| Failure::Other("/proc cannot be read".into()))?;
    let starting = State { holder, ready: false, processes: Vec::new(), kubectl: Vec::new() };
    starting.write(&directory)?;
    let plane = ControlPlane::start(Options {
        nodes: wanted.nodes,
        gpus: wanted.gpus,
        directory: Some(directory.clone()),
        node_grace: wanted.node_grace.map(|seconds| Duration::from_secs(seconds.into())),
        ..Options::default()
    })?;
    let agents = ProcessNodes::start(&plane, wanted)?;
    let mut processes = Vec::new();
    for component in Component::ALL {
        processes.push((component.program().to_owned(), plane.process(component)?));
    }
    processes.extend(agents.processes());
    let state = State { ready: true, processes, kubectl: kubectl(&plane), ..starting };
    state.write(&directory)?;
    let mut ended: Vec<String> = Vec::new();
    while State::read(&directory).is_ok_and(|now| now.as_ref() == Some(&state)) {
        sleep(EVERY);
        for (name, id) in &state.processes {
            if !id.is_alive() && !ended.contains(name) {
                eprintln!("{name} (process {}) has ended", id.pid);
                ended.push(name.clone());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kubectl(plane: &ControlPlane) -> Vec<String> {
    let command = plane.kubectl::<&str>([]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}
