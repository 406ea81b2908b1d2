//! The runner's end of one pod supervisor: one thread per pod that starts it, listens to it and cleans up after it.
//!
//! Must not decide about pods: it passes on the supervisor's reports, and reports for it when the supervisor
//! cannot any more. Tests: `tests/local/processes.rs`.

use std::fs;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cluster::runtime::PodReport;
use serde_json::Value;

use crate::clock::now;
use crate::leftovers::{self, Mark};
use crate::options::Waker;
use crate::tail::{Label, Tail};
use crate::tree::{self, Process};
use crate::wire::{self, Note, Order, Plan};
use crate::{SUPERVISOR_COMMAND, status};

/// Timeout for the processes of a pod whose supervisor was killed.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(20);

/// State shared by the threads of pods.
#[derive(Clone)]
pub(crate) struct Hub {
    pub(crate) program: PathBuf,
    /// Identifies the data directory in the mark of every process.
    pub(crate) directory: Arc<str>,
    /// Variables of this process that pods get; absent: all of them.
    pub(crate) inherited_variables: Option<Arc<[String]>>,
    /// The environment that the pod's processes inherit instead of this one's.
    pub(crate) environment: Option<Arc<[(String, String)]>>,
    pub(crate) reports: Sender<PodReport>,
    pub(crate) tail: Option<Arc<Tail>>,
    pub(crate) waker: Option<Waker>,
    /// Every thread holds one; the runtime knows that all are done when the last is dropped.
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub(crate) alive: Sender<()>,
}

impl Hub {
    /// Returns the command that starts this binary for a pod: marked, with the environment that pods inherit.
    pub(crate) fn command(&self, namespace: &str, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(environment) = &self.environment {
            command.env_clear();
            command.envs(environment.iter().map(|(name, value)| (name, value)));
        } else if let Some(inherited) = &self.inherited_variables {
            command.env_clear();
            command.envs(inherited.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        let mark = Mark::of_pod(&self.directory, namespace, name);
        // Out of reach of the terminal's interrupt key: the runner decides what that means.
        command.env(leftovers::VARIABLE, mark.value()).arg0("trainyard").process_group(0);
        command
    }

    /// Passes a report on.
    pub(crate) fn report(&self, report: PodReport) {
        // Without a receiver the runtime is being dropped.
        let _ = self.reports.send(report);
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}

/// The pipe to a supervisor, which may not be there yet.
#[derive(Debug)]
enum Control {
    NotYet(Vec<Order>),
    Open(ChildStdin),
    Closed,
}

/// A pod that was started.
#[derive(Debug)]
pub(crate) struct Handle {
    control: Arc<Mutex<Control>>,
}

impl Handle {
    /// Starts a pod; returns at once. `pod_dir` is removed when the pod has ended.
    pub(crate) fn start(hub: Hub, plan: Plan, pod_dir: PathBuf) -> Self {
        let control = Arc::new(Mutex::new(Control::NotYet(Vec::new())));
        let pod =
            Running { hub, plan, pod_dir, control: Arc::clone(&control), last_status: Value::Null, shims: Vec::new() };
        thread::spawn(move || pod.run());
        Self { control }
    }

    /// Passes an order on, now or as soon as there is a supervisor.
    pub(crate) fn order(&self, order: Order) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *control {
            Control::NotYet(orders) => orders.push(order),
            // One that is gone has ended its pod; its thread reports that.
            Control::Open(pipe) => drop(wire::send(pipe, &order)),
            Control::Closed => {}
        }
    }

    /// Makes the supervisor end the pod at once and exit.
    pub(crate) fn abandon(&self) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Control::Closed;
    }
}

struct Running {
    hub: Hub,
    plan: Plan,
    pod_dir: PathBuf,
    control: Arc<Mutex<Control>>,
    last_status: Value,
    shims: Vec<Process>,
}

impl Running {
    fn run(mut self) {
        let last = match self.supervise() {
            Ok(status) => status,
            Err(error) => status::of_failed("RunError", &format!("cannot start the pod supervisor: {error}")),
        };
        if let Some(tail) = &self.hub.tail {
            tail.drain(&self.plan.uid, true);
        }
        // Nothing uses it any more; if it cannot be removed it is only in the way.
        let _ = fs::remove_dir_all(&self.pod_dir);
        self.report(last, true);
    }

    /// Runs the supervisor to its end; the pod's last status.
    fn supervise(&mut self) -> io::Result<Value> {
        let mut child = {
            let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
            let Control::NotYet(orders) = &mut *control else {
                return Ok(status::of_failed("Shutdown", "the runner is ending"));
            };
            let orders = std::mem::take(orders);
            let mut child = self
                .hub
                .command(&self.plan.namespace, &self.plan.name)
                // The second argument is for who looks at `ps`.
                .args([SUPERVISOR_COMMAND, &format!("{}/{}", self.plan.namespace, self.plan.name)])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut pipe = child.stdin.take().ok_or_else(|| io::Error::other("no pipe"))?;
            // A supervisor that is gone already is noticed below.
            let _ = wire::send(&mut pipe, &self.plan);
            for order in orders {
                let _ = wire::send(&mut pipe, &order);
            }
            *control = Control::Open(pipe);
            child
        };
        let notes = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let ended = self.listen(notes);
        let exit = child.wait();
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Control::Closed;
        Ok(ended.unwrap_or_else(|| {
            self.wait_for_shims();
            let how = exit.map_or_else(|error| error.to_string(), |status| status.to_string());
            status::lost(&self.last_status, &format!("the pod's supervisor ended ({how})"), now())
        }))
    }

    /// The last status, or nothing if the supervisor ended without having reported one.
    fn listen(&mut self, notes: ChildStdout) -> Option<Value> {
        let mut notes = BufReader::new(notes);
        loop {
            match wire::receive::<Note>(&mut notes) {
                Ok(Some(Note::Starting { container, log, log_from, shim_pid, shim_start_ticks })) => {
                    self.shims.retain(|shim| tree::process(shim.pid) == Some(*shim));
                    self.shims.push(Process { pid: shim_pid, start_ticks: shim_start_ticks });
                    if let Some(tail) = &self.hub.tail {
                        let (namespace, pod) = (self.plan.namespace.clone(), self.plan.name.clone());
                        tail.follow(&self.plan.uid, Label { namespace, pod, container }, &log, log_from);
                    }
                }
                Ok(Some(Note::Status { status, ended: true })) => return Some(status),
                Ok(Some(Note::Status { status, ended: false })) => {
                    self.last_status = status.clone();
                    // What a container wrote before it ended is shown before its end.
                    if let Some(tail) = &self.hub.tail {
                        tail.drain(&self.plan.uid, false);
                    }
                    self.report(status, false);
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Shims whose supervisor is gone end their containers by themselves; a pod counts as ended when they have.
    fn wait_for_shims(&self) {
        let deadline = Instant::now() + ORPHAN_TIMEOUT;
        while self.shims.iter().any(|shim| tree::process(shim.pid) == Some(*shim)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn report(&self, status: Value, ended: bool) {
        self.hub.report(PodReport {
            namespace: self.plan.namespace.clone(),
            name: self.plan.name.clone(),
            uid: self.plan.uid.clone(),
            status,
            ended,
        });
    }
}
