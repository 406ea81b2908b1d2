//! Nodes whose pods are processes of this machine: `trainyard node-agent`, one for each.
//!
//! Owns how agents are started. They belong to the control plane's processes and end with it.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control_plane::{ControlPlane, ProcessId};

use super::arguments::Wanted;
use super::{Failure, failed};

/// Interval between two looks at the agents.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit of the agents to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The agents that run.
#[derive(Debug)]
pub(crate) struct ProcessNodes {
    agents: Vec<(String, Child)>,
}

impl ProcessNodes {
    /// Starts as many as are wanted, `process-0` and so on, and waits until their nodes are ready.
    pub(crate) fn start(plane: &ControlPlane, wanted: &Wanted) -> Result<Self, Failure> {
        let mut agents = Vec::new();
        for index in 0..wanted.process_nodes {
            let name = format!("process-{index}");
            let mut command = Command::new(trainyard()?);
            command.arg("node-agent").arg("--node-name").arg(&name).arg("--gpus").arg(wanted.gpus.to_string());
            command.arg("--kubeconfig").arg(plane.kubeconfig());
            command.arg("--data-directory").arg(plane.directory().join("nodes").join(&name));
            let agent = plane.spawn(&name, command)?;
            agents.push((name, agent));
        }
        let start = Instant::now();
        for (name, agent) in &mut agents {
            while !is_ready(plane, name) {
                let ended = agent.try_wait().map_err(failed("a node agent"))?;
                if ended.is_some() || start.elapsed() > STOP_TIMEOUT {
                    let log = plane.directory().join("logs").join(format!("{name}.log"));
                    let said = fs::read_to_string(&log).unwrap_or_default();
                    let what = ended.map_or_else(|| "is not ready".to_owned(), |status| format!("ended ({status})"));
                    return Err(Failure::Other(format!("node agent {name} {what}:\n{}", said.trim_end())));
                }
                sleep(POLL_INTERVAL);
            }
        }
        Ok(Self { agents })
    }

    /// Their processes, by name.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (String, ProcessId)> {
        self.agents.iter().filter_map(|(name, agent)| Some((name.clone(), ProcessId::of(agent.id())?)))
    }
}

fn is_ready(plane: &ControlPlane, name: &str) -> bool {
    const STATUS: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.spec.taints[*].key}";
    // It does not exist at first.
    plane.run_kubectl(["get", "node", name, "-o", STATUS]).is_ok_and(|text| text.trim() == "True")
}

/// `trainyard`, which cargo puts beside this program.
fn trainyard() -> Result<PathBuf, Failure> {
    let own = env::current_exe().map_err(failed("finding this program"))?;
    let program = own.with_file_name("trainyard");
    if program.exists() {
        return Ok(program);
    }
    Err(Failure::Other(format!("process nodes need {}: `cargo build` makes it", program.display())))
}
