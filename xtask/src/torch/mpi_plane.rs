//! Processes that the test of `MPIJob`s runs beside the control plane: the genuine MPI operator, a watch of the jobs, and the figures of Trainyard's operator.
//!
//! Owns these processes and ends them. What is done to the jobs is `mpijob`'s.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::plane::Plane;
use crate::cluster;
use crate::run::{KillOnDrop, Problem, Scratch, io, output, root};

/// Port that the MPI operator listens on for its health, whatever its flags say.
const HEALTH_PORT: u16 = 8080;
/// Calls a second. With the 5 that are its own default, a sync of a job lasts so long that dozens of events of its pods come meanwhile. Each
/// doubles the time after which the job is looked at again once a write of its status meets one of another client: up to 1,000 s.
const RATES: [&str; 2] = ["-kube-api-qps=100", "-kube-api-burst=200"];
/// Fields that the watch prints of a job at each change.
const COLUMNS: &str = concat!(
    r"jsonpath={.metadata.name}|{.metadata.generation}|{.spec.mpiReplicaSpecs.Worker.replicas}|{.spec.runPolicy.suspend}|",
    r"{.metadata.annotations.trainyard\.dev/phase}|{.status.conditions[?(@.type=='Succeeded')].status}|",
    r"{.spec.mpiReplicaSpecs.Worker.template.spec.affinity..values[*]}{'\n'}"
);

/// Seconds since the epoch.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs_f64()).unwrap_or_default()
}

/// Builds the MPI operator if it is not there yet, installs its definition and starts it, as its own deployment does but for the flags
/// that a process outside of a pod needs.
pub(super) fn start_mpi_operator(plane: &Plane, scratch: &Scratch) -> Result<KillOnDrop, Problem> {
    let built = output(cluster::program().arg("mpi-operator").stderr(Stdio::inherit()))?;
    let paths = String::from_utf8_lossy(&built.stdout).into_owned();
    let Some((program, definition)) = paths.trim().split_once('\n').filter(|_| built.status.success()) else {
        return Err(Problem::failed("the MPI operator could not be built"));
    };
    // An `apply` would keep the whole definition in an annotation, and it is too long for one.
    plane.kubectl(&["create", "-f", definition])?;
    let established = ["wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org", "--timeout=60s"];
    // kubectl takes a definition that has no conditions yet for a broken one.
    if plane.kubectl(&established).is_err() {
        thread::sleep(Duration::from_secs(1));
        plane.kubectl(&established)?;
    }
    if TcpListener::bind((Ipv4Addr::UNSPECIFIED, HEALTH_PORT)).is_err() {
        let remedy = format!("port {HEALTH_PORT} is in use, and the MPI operator needs it: end what listens there");
        return Err(Problem::Missing(remedy));
    }
    let log = scratch.join("mpi-operator.log");
    let file = File::create(&log).map_err(io(log.display()))?;
    let mut command = Command::new(program);
    command.args(["-alsologtostderr", "-lock-namespace=default"]).args(RATES);
    command.arg("-kubeConfig").arg(plane.kubeconfig());
    // It would win over the flag.
    command.env_remove("KUBECONFIG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    Ok(KillOnDrop(command.spawn().map_err(io(program))?))
}

/// A job as it was at some time.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Seconds since the epoch.
    pub(super) at: f64,
    pub(super) job: String,
    /// Number of changes of its spec.
    pub(super) generation: u32,
    /// Workers that were decided; 0 while it is suspended.
    pub(super) size: u32,
    /// Its phase, as Trainyard says.
    pub(super) phase: String,
    /// The MPI operator says that it has succeeded.
    pub(super) succeeded: bool,
    /// The nodes that were decided.
    pub(super) nodes: String,
}

/// A watch of all `MPIJob`s, kept by kubectl.
pub(super) struct Watch {
    _child: KillOnDrop,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Watch {
    pub(super) fn start() -> Result<Self, Problem> {
        let mut command = cluster::program();
        command.args(["kubectl", "get", "mpijobs", "--watch", "-o", COLUMNS]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(io("kubectl get --watch"))?;
        let changes: Arc<Mutex<Vec<Change>>> = Arc::default();
        if let Some(stdout) = child.stdout.take() {
            let seen = Arc::clone(&changes);
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).extend(change(&line));
                }
            });
        }
        Ok(Self { _child: KillOnDrop(child), changes })
    }

    /// Every change so far, in their order.
    pub(super) fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn change(line: &str) -> Option<Change> {
    let mut parts = line.split('|');
    let job = parts.next()?.to_owned();
    let generation = parts.next()?.parse().ok()?;
    let replicas = parts.next()?.parse().ok()?;
    let size = if parts.next()? == "true" { 0 } else { replicas };
    let phase = parts.next()?.to_owned();
    let succeeded = parts.next()? == "True";
    Some(Change { at: now(), job, generation, size, phase, succeeded, nodes: parts.next()?.to_owned() })
}

/// Address of the operator's health server and figures: a port that is free now.
pub(super) fn free_address() -> Result<String, Problem> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("a free port"))?;
    listener.local_addr().map(|address| address.to_string()).map_err(io("a free port"))
}

/// Calls that Trainyard's operator has made so far: verb, kind and number of each.
pub(super) fn calls(address: &str) -> Result<Vec<(String, u64)>, Problem> {
    let mut stream = TcpStream::connect(address).map_err(io(address))?;
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut text = String::new();
    stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut text)).map_err(io(address))?;
    let counted = text.lines().filter_map(|line| {
        let (labels, number) = line.strip_prefix("trainyard_calls_total{")?.split_once("} ")?;
        Some((labels.replace('"', ""), number.trim().parse::<f64>().ok()?))
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are small whole numbers")]
    Ok(counted.map(|(labels, number)| (labels, number as u64)).collect())
}

/// Runs the stand-in for a training with these arguments, and returns what it prints.
pub(super) fn stand_in(arguments: &[String]) -> Result<String, Problem> {
    let mut command = Command::new("python3");
    let done = output(command.arg("deploy/samples/mpi_elastic.py").args(arguments).current_dir(root()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(Problem::failed(format!("mpi_elastic.py: {}", String::from_utf8_lossy(&done.stderr))))
}
