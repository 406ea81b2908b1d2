//! Every pod that ever was in a namespace, as a watch reports them.
//!
//! A watch that ends continues from the last version it reported, so that nothing is missed. A reader waits until the watch has
//! reported a pod that was created for the purpose.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use control_plane::until;
use serde_json::{Value, json};

use crate::common::Cluster;

/// Prefix of the names of pods without a job.
const MARK: &str = "seen-";

/// The pods of a namespace from some moment on.
pub(crate) struct PodWatch<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    /// Name and uid of each.
    pods: BTreeSet<(String, String)>,
    version: String,
    /// Error that ended the watch.
    broken: Option<String>,
    child: Option<Child>,
    over: bool,
    marks: u32,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> PodWatch<'a> {
    /// Begins before the first pod is created.
    pub(crate) fn begin(cluster: &'a Cluster, namespace: &'a str) -> Self {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let list: Value = serde_json::from_str(&cluster.kubectl(&["get", "--raw", &path])).unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let shared = Arc::new(Shared(Mutex::new(State { version, ..State::default() })));
        let kubectl = Kubectl::new(cluster);
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || watch(&kubectl, &path, &shared)
        });
        Self { cluster, namespace, shared, thread: Some(thread) }
    }

    /// Name and uid of each pod that existed so far.
    pub(crate) fn pods(&self) -> BTreeSet<(String, String)> {
        let mark = {
            let mut state = self.shared.state();
            state.marks += 1;
            format!("{MARK}{}", state.marks)
        };
        // It is not scheduled, so it is removed at once when it is deleted.
        let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]});
        let metadata = json!({"name": mark, "namespace": self.namespace});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.cluster.apply(&pod.to_string());
        self.cluster.kubectl(&["delete", "pod", &mark, "--namespace", self.namespace]);
        until("the watch has reported everything", || {
            let state = self.shared.state();
            assert_eq!(state.broken, None, "the watch of pods");
            if state.pods.iter().any(|(name, _)| *name == mark) { Ok(()) } else { Err(state.version.clone()) }
        });
        self.shared.state().pods.iter().filter(|(name, _)| !name.starts_with(MARK)).cloned().collect()
    }
}

impl Drop for PodWatch<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.over = true;
            if let Some(child) = &mut state.child {
                let _ = child.kill();
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Command line of kubectl, for a thread that outlives its caller.
struct Kubectl {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Kubectl {
    fn new(cluster: &Cluster) -> Self {
        let command = cluster.plane.kubectl(["get", "--raw"]);
        let set =
            |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| Some((name.to_owned(), value?.to_owned()));
        Self {
            program: command.get_program().to_owned(),
            arguments: command.get_args().map(ToOwned::to_owned).collect(),
            environment: command.get_envs().filter_map(set).collect(),
        }
    }

    fn raw(&self, path: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(path).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

/// Watches until it is over or broken, again and again from where it was.
fn watch(kubectl: &Kubectl, path: &str, shared: &Shared) {
    loop {
        let output = {
            let mut state = shared.state();
            if state.over || state.broken.is_some() {
                return;
            }
            let from = format!("{path}?watch=true&resourceVersion={}", state.version);
            let mut child = kubectl.raw(&from).spawn().unwrap();
            let output = child.stdout.take().unwrap();
            state.child = Some(child);
            output
        };
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The last line of a watch that was cut off is none.
            let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
            let metadata = &event["object"]["metadata"];
            let text = |member: &str| metadata[member].as_str().unwrap_or_default().to_owned();
            let mut state = shared.state();
            if event["type"] == "ERROR" {
                state.broken = Some(event["object"].to_string());
                break;
            }
            state.version = text("resourceVersion");
            state.pods.insert((text("name"), text("uid")));
        }
        let child = shared.state().child.take();
        if let Some(mut child) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
        sleep(Duration::from_millis(200));
    }
}
