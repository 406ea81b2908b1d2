//! A control plane, operators in this process, and what the tests ask of both.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use apis::Registry;
use control_plane::{ControlPlane, Options as PlaneOptions, until};
use k8s_driver::{Handles, JobFilter, LeaseSettings, Options, ProcessState, api_server, run};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The control plane of these tests, with our definitions installed.
pub(crate) fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| {
        let options = PlaneOptions { nodes: 8, gpus: 8, ..PlaneOptions::default() };
        let plane = ControlPlane::start(options).expect("a control plane");
        for api in Registry::all().iter() {
            plane.apply(&api.crd().to_string()).expect("the definition is accepted");
        }
        plane.wait_for_definitions().expect("it is served");
        plane
    })
}

/// Returns a job of pods that run for a while, or for ever.
pub(crate) fn job(replicas: u32, restart: &str, run_for: Option<&str>) -> Value {
    let mut annotations = json!({});
    if let Some(time) = run_for {
        annotations["trainyard.dev/kwok-run-for"] = json!(time);
    }
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "metadata": {"name": "j"},
        "spec": {"replicaSpecs": {"trainer": {"replicas": replicas, "restartPolicy": restart, "restartScope": "Pod",
            "template": {"metadata": {"annotations": annotations}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                {"name": "aitj-main", "image": "none", "ports": [{"name": "aitj-ring", "containerPort": 29400}]}]}}}}}})
}

/// A namespace for one test.
pub(crate) struct Space {
    pub(crate) name: String,
}

impl Space {
    pub(crate) fn new(test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{test}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        plane().run_kubectl(["create", "namespace", &name]).expect("a namespace");
        Self { name }
    }

    /// Applies a manifest in this namespace.
    pub(crate) fn apply(&self, manifest: &Value) {
        let mut manifest = manifest.clone();
        manifest["metadata"]["namespace"] = Value::from(self.name.as_str());
        plane().apply(&manifest.to_string()).expect("it is accepted");
    }

    /// kubectl in this namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let all = ["--namespace", &self.name].into_iter().chain(arguments.iter().copied());
        plane().run_kubectl(all).expect("kubectl does it")
    }

    /// Everything of a kind, by name.
    pub(crate) fn all(&self, kind: &str) -> Vec<Value> {
        let text = self.kubectl(&["get", kind, "--output=json", "--show-managed-fields"]);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        items.sort_by_key(|item| item["metadata"]["name"].to_string());
        items
    }

    pub(crate) fn job(&self, name: &str) -> Value {
        let text = self.kubectl(&["get", "aitrainingjob", name, "--output=json", "--show-managed-fields"]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits until a job's phase is this, and gives the job.
    pub(crate) fn until_phase(&self, job: &str, phase: &str) -> Value {
        until(&format!("{job} is {phase}"), || {
            let job = self.job(job);
            (job["status"]["phase"] == phase).then_some(job).ok_or_else(|| self.describe())
        })
    }

    /// Waits until that many pods are in a phase and none in another. Returns them.
    pub(crate) fn until_pods(&self, phase: &str, count: usize) -> Vec<Value> {
        until(&format!("{count} pods are {phase}"), || {
            let pods = self.all("pods");
            let right = pods.len() == count && pods.iter().all(|pod| pod["status"]["phase"] == phase);
            right.then_some(pods).ok_or_else(|| self.describe())
        })
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for job in self.all("aitrainingjobs") {
            let _ = writeln!(text, "job {}: {}", job["metadata"]["name"], job["status"]);
        }
        for pod in self.all("pods") {
            let _ = writeln!(text, "pod {}: {}", pod["metadata"]["name"], pod["status"]["phase"]);
        }
        text
    }
}

/// An operator in this process, for one namespace.
pub(crate) struct Operator {
    pub(crate) handles: Handles,
    task: Option<JoinHandle<Result<(), k8s_driver::Error>>>,
    runtime: Runtime,
}

impl Operator {
    /// Starts one that keeps its log in `data`, and waits until it leads.
    pub(crate) fn start(space: &Space, data: &Path) -> Self {
        let operator = Self::start_with(options(space, data));
        operator.until_leading();
        operator
    }

    pub(crate) fn start_with(options: Options) -> Self {
        Self::serving(Registry::all(), options)
    }

    /// Starts one that serves these APIs.
    pub(crate) fn serving(registry: Registry, options: Options) -> Self {
        static LOGGING: OnceLock<()> = OnceLock::new();
        LOGGING.get_or_init(|| {
            let level = std::env::var("TRAINYARD_LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
            let filter = tracing_subscriber::EnvFilter::new(level);
            let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let handles = Handles { registry, ..Handles::new(None) };
        let task = runtime.spawn(run(options, handles.clone()));
        Self { handles, task: Some(task), runtime }
    }

    pub(crate) fn until_leading(&self) {
        until("it leads", || match self.handles.status.get() {
            ProcessState::Leading { .. } => Ok(()),
            other => Err(other.to_string()),
        });
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(mut self) {
        self.handles.stop.cancel();
        let task = self.task.take().expect("it is stopped once");
        self.runtime.block_on(task).expect("it does not panic").expect("it ends well");
    }

    /// Ends it without any last act, as a crash does.
    pub(crate) fn kill(mut self) {
        self.task.take().expect("it is stopped once").abort();
        let Self { runtime, .. } = self;
        runtime.shutdown_timeout(Duration::from_secs(10));
    }
}

/// The usual options for a namespace.
pub(crate) fn options(space: &Space, data: &Path) -> Options {
    let kubeconfig = Some(plane().kubeconfig().to_owned());
    Options {
        connection: api_server::Options { kubeconfig, ..api_server::Options::default() },
        scope: JobFilter { namespace: Some(space.name.clone()), label_selector: String::new() },
        data_directory: data.to_owned(),
        // Short, so that what a crash leaves behind is over soon.
        lease: Some(LeaseSettings {
            namespace: Some(space.name.clone()),
            duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_secs(1),
            ..LeaseSettings::default()
        }),
        ..Options::default()
    }
}

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}
