//! Jobs whose endings are known beforehand, and every pod that was ever seen of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::common::{Cluster, until};

/// What a job does and how it must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs until it is deleted.
    Healthy,
    /// Both pods succeed.
    Succeeds,
    /// Both pods fail with a code that nothing restarts.
    Fails,
    /// Both pods fail with a code that is restarted; twice, then the limit is reached.
    Restarts,
    /// Runs until its time limit.
    TimesOut,
}

/// Pods of every job here.
pub(crate) const PODS: usize = 2;

impl Kind {
    pub(crate) fn phase(self) -> &'static str {
        match self {
            Self::Healthy => "Running",
            Self::Succeeds => "Succeed",
            Self::Fails | Self::Restarts => "Failed",
            Self::TimesOut => "Timeout",
        }
    }

    /// Restarts that its status must show at the end.
    pub(crate) fn restarts(self) -> u64 {
        if self == Self::Restarts { 2 } else { 0 }
    }

    /// How many pods must have existed in its whole life.
    pub(crate) fn pods_ever(self) -> usize {
        PODS * if self == Self::Restarts { 3 } else { 1 }
    }

    pub(crate) fn job(self, namespace: &str, name: &str) -> Value {
        let (run_for, code, spec) = match self {
            Self::Healthy => (None, "0", json!({})),
            Self::Succeeds => (Some("6s"), "0", json!({})),
            Self::Fails => (Some("5s"), "4", json!({})),
            Self::Restarts => (Some("4s"), "3", json!({"restartingExitCode": "3"})),
            Self::TimesOut => (None, "0", json!({"timeLimit": 8})),
        };
        let mut annotations = json!({"trainyard.dev/kwok-exit-code": code, "trainyard.dev/kwok-stop-for": "500ms"});
        if let Some(time) = run_for {
            annotations["trainyard.dev/kwok-run-for"] = json!(time);
        }
        let group = json!({"replicas": PODS, "restartPolicy": "ExitCode", "restartScope": "All", "restartLimit": 2,
            "template": {"metadata": {"annotations": annotations},
                "spec": {"containers": [{"name": "aitj-main", "image": "none"}]}}});
        let mut spec = spec;
        spec["replicaSpecs"] = json!({"w": group});
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    }
}

/// Named jobs of known endings in one namespace.
pub(crate) struct Jobs<'a> {
    cluster: &'a Cluster,
    pub(crate) namespace: &'static str,
    kinds: BTreeMap<String, Kind>,
}

impl<'a> Jobs<'a> {
    /// A namespace without jobs.
    pub(crate) fn new(cluster: &'a Cluster, namespace: &'static str) -> Self {
        cluster.kubectl(&["create", "namespace", namespace]);
        // Pods are refused until their namespace has the account they run as.
        until("the namespace's service account", || {
            cluster.try_kubectl(&["get", "serviceaccount", "default", "--namespace", namespace])
        });
        Self { cluster, namespace, kinds: BTreeMap::new() }
    }

    /// Creates so many jobs of each kind, named by it.
    pub(crate) fn create(&mut self, wanted: &[(Kind, usize)]) {
        let manifests = self.plan(wanted);
        self.cluster.apply(&manifests);
    }

    /// The manifests of so many jobs of each kind, which somebody is to apply.
    pub(crate) fn plan(&mut self, wanted: &[(Kind, usize)]) -> String {
        let mut items = Vec::new();
        for (kind, count) in wanted {
            for _ in 0..*count {
                let name = format!("{kind:?}-{}", self.kinds.len()).to_lowercase();
                items.push(kind.job(self.namespace, &name));
                self.kinds.insert(name, *kind);
            }
        }
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    }

    /// The names of all jobs.
    pub(crate) fn names(&self) -> Vec<String> {
        self.kinds.keys().cloned().collect()
    }

    /// Every job's status by name.
    fn statuses(&self) -> BTreeMap<String, Value> {
        let list = self.cluster.get(self.namespace, &["aitrainingjobs"]);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let name = |job: &Value| job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        items.into_iter().map(|job| (name(&job), job["status"].clone())).collect()
    }

    /// The jobs of which something does not hold, in words.
    fn not(&self, holds: impl Fn(Kind, &Value) -> bool) -> Vec<String> {
        let statuses = self.statuses();
        let wrong = self.kinds.iter().filter(|(name, kind)| !statuses.get(*name).is_some_and(|s| holds(**kind, s)));
        wrong.map(|(name, _)| format!("{name}: {}", statuses.get(name).unwrap_or(&Value::Null))).collect()
    }

    /// Whether every job shows its last phase.
    pub(crate) fn all_ended(&self) -> bool {
        self.not(|kind, status| status["phase"] == kind.phase()).is_empty()
    }

    /// Waits until every job shows its last phase; gives what the statuses are.
    pub(crate) fn until_ended(&self) -> BTreeMap<String, Value> {
        let mut marked = BTreeSet::new();
        until("every job is where it must end", || {
            marked = self.finish_deletions(&marked);
            let wrong = self.not(|kind, status| status["phase"] == kind.phase());
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        });
        self.statuses()
    }

    /// Does what a kubelet does and kwok does not. The API server deletes a pod that ended in two steps: it marks it with a grace
    /// period of zero, then removes it. When whoever asked is killed in between, the second step is left out, and a kubelet does it.
    /// `marked` are the pods that stood so the last time; gives those that stand so now.
    fn finish_deletions(&self, marked: &BTreeSet<String>) -> BTreeSet<String> {
        let list = self.cluster.get(self.namespace, &["pods"]);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let half = items.iter().filter(|pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0);
        let mut stand = BTreeSet::new();
        for pod in half {
            let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
            let (name, uid) = (name.as_str().unwrap_or_default(), uid.as_str().unwrap_or_default());
            if !marked.contains(uid) {
                stand.insert(uid.to_owned());
                continue;
            }
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": uid}});
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), options.to_string()).unwrap();
            let path = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
            // Refused when it is gone by now, or another of that name is there.
            let done = self.cluster.try_kubectl(&["delete", "--raw", &path, "-f", &file.path().display().to_string()]);
            eprintln!("{name} was left half deleted; removed: {}", done.is_ok());
        }
        stand
    }

    pub(crate) fn until_running(&self) {
        until("every job runs", || {
            let wrong = self.not(|_, status| status["phase"] == "Running");
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        });
    }

    /// Waits until the first pods run: later faults hit jobs in the middle of their lives.
    pub(crate) fn until_some_run(&self) {
        until("a job runs", || {
            let waiting = self.not(|_, status| status["phase"] == "Running");
            if waiting.len() < self.kinds.len() { Ok(()) } else { Err(waiting.join("\n")) }
        });
    }

    /// Name and uid of every pod there is.
    pub(crate) fn pods(&self) -> BTreeSet<(String, String)> {
        let list = self.cluster.get(self.namespace, &["pods"]);
        let text = |pod: &Value, member: &str| pod["metadata"][member].as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|pod| (text(pod, "name"), text(pod, "uid"))).collect()
    }

    /// Checks phases and restart counts.
    pub(crate) fn check_statuses(&self) {
        let counted = |kind: Kind, status: &Value| {
            let shown = status["RestartCount"]["w"].as_u64().unwrap_or_default();
            shown == kind.restarts() && status["phase"] == kind.phase()
        };
        let wrong = self.not(counted);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Checks phases and restart counts, and that no job had a pod more or fewer than its life asks for.
    pub(crate) fn check(&self, seen: &Seen) {
        self.check_statuses();
        let seen = seen.pods();
        for (name, kind) in &self.kinds {
            let of = |pod: &str| pod.rsplit_once("-w-").is_some_and(|(job, _)| job == name);
            let pods: Vec<_> = seen.iter().filter(|(pod, _)| of(pod)).collect();
            assert_eq!(pods.len(), kind.pods_ever(), "pods that existed of {name}: {pods:?}");
        }
    }
}

/// Every pod of a namespace, as a watch tells of them.
pub(crate) struct Seen {
    watch: Child,
    file: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Seen {
    /// Begins before the first pod is created.
    pub(crate) fn begin(cluster: &Cluster, namespace: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pods");
        let line = r#"jsonpath={.metadata.name} {.metadata.uid}{"\n"}"#;
        let mut command = cluster.plane.kubectl(["get", "pods", "--namespace", namespace, "--watch", "--output", line]);
        let watch = command.stdin(Stdio::null()).stdout(File::create(&file).unwrap()).spawn().unwrap();
        Self { watch, file, _directory: directory }
    }

    /// Name and uid of each.
    fn pods(&self) -> BTreeSet<(String, String)> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, uid)| (name.to_owned(), uid.to_owned())).collect()
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}
