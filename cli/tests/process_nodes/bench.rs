//! A control plane, node agents and an operator as processes; waiting for what is to come.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use control_plane::{Component, ControlPlane, Identity, Options, until};
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

/// The text at a JSON pointer; empty when there is none.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A control plane with the job kinds.
pub(crate) struct Bench {
    plane: ControlPlane,
    directory: tempfile::TempDir,
    // Given back last.
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    pub(crate) fn start(options: Options) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
        let bench = Self { plane, directory: tempfile::tempdir().unwrap(), _turn: turn };
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base/crds");
        bench.kubectl(&["apply", "-k", &definitions.to_string_lossy()]);
        bench.plane.wait_for_definitions().unwrap();
        // Pods are refused until their namespace has the account they run as.
        until("there is a service account", || self_has(&bench, "serviceaccount", "default").ok_or_else(String::new));
        bench
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.plane.run_kubectl(words).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Runs kubectl with an input. Returns its exit code, and its output and errors.
    pub(crate) fn kubectl_with(&self, words: &[&str], input: &[u8]) -> (Option<i32>, String) {
        let mut command = self.plane.kubectl(words);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        answer_of(command, input)
    }

    /// Runs this program as a plugin of kubectl, with an input. Returns its exit code, and its output and errors.
    pub(crate) fn plugin(&self, directory: &Path, words: &[&str], input: &[u8]) -> (Option<i32>, String) {
        answer_of(&mut self.plugin_command(directory, words), input)
    }

    /// The plugin in a working directory.
    pub(crate) fn plugin_command(&self, directory: &Path, words: &[&str]) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(PROGRAM);
        command.arg0("kubectl-torchrun").args(words).env("KUBECONFIG", self.plane.kubeconfig());
        command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Kills a component and starts it again.
    pub(crate) fn restart(&self, component: Component) {
        self.plane.kill(component).unwrap();
        self.plane.start_again(component).unwrap();
    }

    pub(crate) fn create(&self, object: &Value) {
        self.plane.apply(&object.to_string()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Creates an object that the API server may refuse.
    pub(crate) fn try_create(&self, object: &Value) -> Result<String, String> {
        self.plane.apply(&object.to_string()).map_err(|error| error.to_string())
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        self.get_in("default", kind, name)
    }

    pub(crate) fn get_in(&self, namespace: &str, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, name, "-n", namespace, "-o", "json"])).unwrap()
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.kubectl(&["get", "pods", "-o", "json"])).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until an object is as it is to be; gives it as it then was.
    pub(crate) fn wait(&self, kind: &str, name: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{kind} {name} is {what}"), || {
            let object = self_has(self, kind, name).unwrap_or_default();
            if good(&object) { Ok(object) } else { Err(format!("{:#}", object["status"])) }
        })
    }

    pub(crate) fn wait_phase(&self, pod: &str, phase: &str) -> Value {
        self.wait("pod", pod, phase, |pod| text(pod, "/status/phase") == phase)
    }

    /// Runs this program. Returns its exit code, its output and its errors.
    pub(crate) fn trainyard(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(PROGRAM);
        command.args(words).env("KUBECONFIG", self.plane.kubeconfig()).current_dir(self.directory.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// An operator with no more rights than `deploy/` gives it; it ends with what is returned.
    pub(crate) fn operator(&self) -> Process {
        self.operator_at("none")
    }

    /// The same, and it serves its log. Returns once it does.
    pub(crate) fn operator_with_log(&self) -> Process {
        let operator = self.operator_at("127.0.0.1:0");
        until("the operator serves its log", || match self.trainyard(&["ps", "--server", "auto"]) {
            (Some(0), ..) => Ok(()),
            (_, _, error) => Err(error),
        });
        operator
    }

    fn operator_at(&self, log_address: &str) -> Process {
        for file in ["namespace", "service-account", "roles", "rbac"] {
            self.plane.apply(&deployed(&format!("{file}.yaml"))).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        let account = Identity::ServiceAccount { namespace: "trainyard-system", name: "trainyard" };
        let mut command = Command::new(PROGRAM);
        command.arg("operator").arg("--kubeconfig").arg(self.plane.kubeconfig_for(account).unwrap());
        command.arg("--data-directory").arg(self.directory.path().join("operator"));
        // The control plane waits before it says that a node is not ready; a test does not wait twice.
        command.args(["--leader-elect-resource-namespace=trainyard-system", "--node-grace-period=0s"]);
        command.args(["--health-address=none", &format!("--log-address={log_address}")]);
        Process(self.plane.spawn("operator", command).unwrap())
    }
}

/// Runs a command with an input to its end.
fn answer_of(command: &mut Command, input: &[u8]) -> (Option<i32>, String) {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A file of `deploy/base`.
fn deployed(file: &str) -> String {
    let path = format!("{}/../deploy/base/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn self_has(bench: &Bench, kind: &str, name: &str) -> Option<Value> {
    let words = ["get", kind, name, "-o", "json", "--ignore-not-found"];
    serde_json::from_str(&bench.plane.run_kubectl(words).ok()?).ok()
}

/// A process that is killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    fn signal(&mut self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success(), "kill {signal}");
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node agent.
pub(crate) struct Node<'a> {
    bench: &'a Bench,
    name: String,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl<'a> Node<'a> {
    pub(crate) fn start(bench: &'a Bench, name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut node = Self { bench, name: name.to_owned(), arguments, process: None };
        node.start_again();
        node
    }

    fn directory(&self) -> PathBuf {
        self.bench.directory.path().join(&self.name)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["node-agent", "--node-name", name, "--heartbeat=2"]).args(&self.arguments);
        command.arg("--kubeconfig").arg(self.bench.plane.kubeconfig());
        command.arg("--data-directory").arg(self.directory());
        // The agent's own, which no pod is to see.
        command.env("KUBECONFIG", self.bench.plane.kubeconfig());
        command.env("AWS_SECRET_ACCESS_KEY", "of-the-agent");
        command
    }

    /// The status code with which the node itself answers a request for a container's output: to a user with a certificate of the
    /// cluster, or to a user without it.
    pub(crate) fn answers(&self, user: Option<&str>, path: &str) -> u16 {
        let node = self.bench.get("node", &self.name);
        let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64).unwrap();
        let identity = Identity::User { name: user.unwrap_or("nobody"), group: None };
        let kubeconfig = Kubeconfig::read_from(self.bench.plane.kubeconfig_for(identity).unwrap()).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
            (config.root_cert, config.accept_invalid_certs) = (None, true);
            if user.is_none() {
                config.auth_info = AuthInfo::default();
            }
            let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
            kube::Client::try_from(config).unwrap().send(request).await.unwrap().status().as_u16()
        })
    }

    /// Starts the agent, the first time or after it was killed.
    pub(crate) fn start_again(&mut self) {
        let child = self.bench.plane.spawn(&self.name, self.command(&self.name)).unwrap();
        self.process = Some(Process(child));
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().signal("-KILL");
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.process.take().unwrap().signal("-TERM");
    }

    /// Returns the error of another agent in the same directory.
    pub(crate) fn twin_says(&self, name: &str) -> String {
        let output = self.command(name).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn wait_ready(&self, ready: bool) {
        let want = if ready { "True" } else { "False" };
        self.bench.wait("node", &self.name, &format!("Ready={want}"), |node| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == want)
        });
    }

    /// The directory of a claim.
    pub(crate) fn claim(&self, name: &str) -> PathBuf {
        self.directory().join("claims/default").join(name)
    }

    /// Returns the output of a container; `file` is its name and the number of the run.
    pub(crate) fn output(&self, pod: &str, file: &str) -> String {
        let path = self.directory().join("logs/default").join(pod).join(format!("{file}.log"));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Returns the output of every container of every pod of a name.
    pub(crate) fn outputs(&self, pod: &str) -> Vec<String> {
        let Ok(files) = fs::read_dir(self.directory().join("logs/default").join(pod)) else { return Vec::new() };
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    }

    pub(crate) fn wait_output(&self, pod: &str, file: &str, want: &str) {
        until(&format!("{pod} prints {want:?}"), || {
            let printed = self.output(pod, file);
            if printed == want { Ok(()) } else { Err(format!("{printed:?}")) }
        });
    }

    /// Waits until no process but the agent itself holds a file of its directory open: what pods print goes to files there.
    pub(crate) fn wait_no_process(&self) {
        let directory = self.directory();
        let own = self.process.as_ref().map(|process| process.0.id());
        until("no process is left", || {
            let holds = |pid: u32| {
                let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
                targets.any(|target| target.starts_with(&directory))
            };
            let left: Vec<(u32, String)> =
                processes().into_iter().filter(|(pid, _)| Some(*pid) != own && holds(*pid)).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("still there: {left:?}")) }
        });
    }
}

/// Number and command line of every process.
fn processes() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}
