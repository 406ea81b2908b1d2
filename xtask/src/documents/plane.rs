//! The control plane for documents whose commands need a cluster.
//!
//! Owns its start, its end, and the operator on it. When a section may have that of another one is said in `leftovers`. It is not that of `cargo xtask cluster`, which may be up meanwhile.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster;
use crate::run::{KillOnDrop, Problem, argument, built, io, output, root, target, text};

/// Simulated nodes, of 8 GPUs each.
const NODES: u32 = 4;
/// Addresses that an operator listens on, unless a flag or its environment names others.
const PORTS: [(u16, &str); 2] = [(8080, "TRAINYARD_HEALTH_ADDRESS"), (8443, "TRAINYARD_LOG_ADDRESS")];
/// Any free port.
const ANY: &str = "127.0.0.1:0";
/// An operator that does not lead by then never will.
const LIMIT: Duration = Duration::from_secs(60);

/// It and what runs on it; ended when dropped.
#[derive(Debug)]
pub(super) struct Plane {
    /// Ends it when its input ends, so that it does not outlive this process.
    guard: Child,
    directory: PathBuf,
    /// The program and first words of kubectl.
    kubectl: Vec<String>,
    operator: Option<KillOnDrop>,
}

impl Plane {
    /// Starts it, one for each lane at a time; if `is_served`, with Trainyard installed as in `deploy/base`, and an operator.
    pub(super) fn start(lane: usize, is_served: bool) -> Result<Self, Problem> {
        // One that a killed test left.
        call(lane, &["down"])?;
        let guard = guard(lane)?;
        call(lane, &["up", &format!("--nodes={NODES}")])?;
        let directory = home(lane).join("cluster");
        let path = directory.join("state.json");
        let kubectl = words_of_kubectl(&fs::read_to_string(&path).map_err(io(path.display()))?);
        let mut plane = Self { guard, directory, kubectl, operator: None };
        if is_served {
            // Without a check of each object before, which takes longer than all else.
            let apply = ["kubectl", "apply", "--server-side", "--validate=false", "-k"];
            call(lane, &[&apply[..], &[argument(&root().join("deploy/base"))]].concat())?;
            plane.operator = Some(plane.operator()?);
        }
        Ok(plane)
    }

    /// Its kubeconfig and its logs.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What kubectl or helm is called by; none if by its name alone.
    pub(super) fn program(&self, name: &str) -> Option<Vec<String>> {
        program(&self.kubectl, name)
    }

    /// Calls kubectl, and returns what it prints.
    pub(super) fn kubectl(&self, words: &[&str]) -> Result<String, Problem> {
        let [program, first @ ..] = self.kubectl.as_slice() else {
            return Err(Problem::failed("the control plane does not say which kubectl it has"));
        };
        let mut command = Command::new(program);
        command.args(first).args(words).envs(self.environment()).stdin(Stdio::null());
        let output = output(&mut command)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Problem::failed(format!("`kubectl {}` failed:\n{}", words.join(" "), text(&output))))
    }

    /// What commands see of it.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| argument(&self.directory.join(name)).to_owned();
        let mut all = vec![
            ("KUBECONFIG", path("kubeconfig")),
            ("KUBECACHEDIR", path("kubectl-cache")),
            ("KUBERC", "off".to_owned()),
            ("HELM_CACHE_HOME", path("helm/cache")),
            ("HELM_CONFIG_HOME", path("helm/config")),
            ("HELM_DATA_HOME", path("helm/data")),
        ];
        // An operator of a document listens where its user finds it, unless something else does so already.
        let taken = PORTS.iter().filter(|(port, _)| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err());
        all.extend(taken.map(|(_, variable)| (*variable, ANY.to_owned())));
        all
    }

    /// Starts an operator where `--server auto` looks for one, and waits until it leads.
    fn operator(&self) -> Result<KillOnDrop, Problem> {
        let log = self.directory.join("operator.log");
        let file = File::create(&log).map_err(io(log.display()))?;
        let mut command = Command::new(built("trainyard"));
        command.args(["operator", "--health-address", ANY, "--log-address", ANY]);
        command.args(["--leader-elect-resource-namespace", "trainyard-system"]);
        command.arg("--kubeconfig").arg(self.directory.join("kubeconfig"));
        command.arg("--data-directory").arg(self.directory.join("operator"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut operator = KillOnDrop(command.spawn().map_err(io("trainyard operator"))?);
        let begin = Instant::now();
        loop {
            let said = fs::read_to_string(&log).map_err(io(log.display()))?;
            if said.contains("standing=leading") {
                return Ok(operator);
            }
            let has_ended = operator.0.try_wait().map_err(io("trainyard operator"))?.is_some();
            if has_ended || begin.elapsed() > LIMIT {
                return Err(Problem::failed(format!("the operator on the control plane does not lead:\n{said}")));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.operator = None;
        self.guard.stdin = None;
        // What it could not end is ended before the next start.
        let _ = self.guard.wait();
    }
}

/// Takes the place of the target directory for the control plane's program.
fn home(lane: usize) -> PathBuf {
    target().join(format!("documents/{lane}"))
}

/// Waits for the end of its input, and ends the control plane then. Signals from the terminal do not reach it.
fn guard(lane: usize) -> Result<Child, Problem> {
    let down = program_of(lane);
    let mut command = Command::new("sh");
    command.args(["-c", "read -r _; exec \"$0\" down"]).arg(down.get_program());
    command.envs(down.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(io("sh"))
}

fn program_of(lane: usize) -> Command {
    let mut command = cluster::program();
    if std::env::var_os("TRAINYARD_CONTROL_PLANE_CACHE").is_none() {
        command.env("TRAINYARD_CONTROL_PLANE_CACHE", target().join("control-plane"));
    }
    command.env("CARGO_TARGET_DIR", home(lane));
    command
}

/// Calls that program, and shows what it says only if it fails.
fn call(lane: usize, words: &[&str]) -> Result<(), Problem> {
    let output = output(program_of(lane).args(words))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Problem::failed(format!("`control-plane {}` failed:\n{}", words.join(" "), text(&output))))
}

/// What a program beside kubectl is called by; none if it is not there.
fn program(kubectl: &[String], name: &str) -> Option<Vec<String>> {
    match kubectl {
        // One file that is every program.
        [file, own] if own == "kubectl" => Some(vec![file.clone(), name.to_owned()]),
        [file, ..] => {
            let path = Path::new(file).with_file_name(name);
            path.is_file().then(|| vec![argument(&path).to_owned()])
        }
        [] => None,
    }
}

/// Reads the words from the state that the program writes.
fn words_of_kubectl(state: &str) -> Vec<String> {
    let list = state.split_once("\"kubectl\": [").and_then(|(_, rest)| rest.split_once(']'));
    let Some((list, _)) = list else { return Vec::new() };
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_kubectl_are_read() {
        let state = "{\n  \"kubectl\": [\n    \"/a b/control-plane\",\n    \"kubectl\"\n  ],\n  \"ready\": true\n}\n";
        assert_eq!(words_of_kubectl(state), ["/a b/control-plane", "kubectl"]);
        assert_eq!(program(&words_of_kubectl(state), "helm").unwrap(), ["/a b/control-plane", "helm"]);
        assert_eq!(program(&["/no/kubectl".to_owned()], "helm"), None);
    }
}
