//! Jobs whose endings are known beforehand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use control_plane::{Component, until};
use serde_json::{Value, json};

use crate::common::Cluster;
use crate::seen::PodWatch;

/// Kind of a job, and the end it must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
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

impl JobKind {
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

    /// Returns the numbers of pods that may have existed in its whole life. A pod that fails while no operator runs can do so
    /// before the pods after it are created: then they never are.
    pub(crate) fn pods_ever(self) -> RangeInclusive<usize> {
        match self {
            Self::Healthy | Self::Succeeds | Self::TimesOut => PODS..=PODS,
            Self::Fails => 1..=PODS,
            Self::Restarts => 3..=3 * PODS,
        }
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
    kinds: BTreeMap<String, JobKind>,
    labels: Value,
}

impl<'a> Jobs<'a> {
    /// A namespace without jobs.
    pub(crate) fn new(cluster: &'a Cluster, namespace: &'static str) -> Self {
        cluster.kubectl(&["create", "namespace", namespace]);
        // Pods are refused until their namespace has the account they run as.
        until("the namespace's service account", || {
            cluster.try_kubectl(&["get", "serviceaccount", "default", "--namespace", namespace])
        });
        Self { cluster, namespace, kinds: BTreeMap::new(), labels: json!({}) }
    }

    /// Jobs that carry a label.
    pub(crate) fn labelled(self, key: &str, value: &str) -> Self {
        Self { labels: json!({key: value}), ..self }
    }

    /// Creates `count` jobs of each kind, named by it.
    pub(crate) fn create(&mut self, wanted: &[(JobKind, usize)]) {
        let manifests = self.plan(wanted);
        self.cluster.apply(&manifests);
    }

    /// Returns the manifests of `count` jobs of each kind, to be applied.
    pub(crate) fn plan(&mut self, wanted: &[(JobKind, usize)]) -> String {
        let mut items = Vec::new();
        for (kind, count) in wanted {
            for _ in 0..*count {
                let name = format!("{kind:?}-{}", self.kinds.len()).to_lowercase();
                let mut job = kind.job(self.namespace, &name);
                job["metadata"]["labels"] = self.labels.clone();
                items.push(job);
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
    pub(crate) fn statuses(&self) -> BTreeMap<String, Value> {
        let list = self.cluster.get(self.namespace, &["aitrainingjobs"]);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let name = |job: &Value| job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        items.into_iter().map(|job| (name(&job), job["status"].clone())).collect()
    }

    /// The jobs of which something does not hold, in words.
    fn not(&self, holds: impl Fn(JobKind, &Value) -> bool) -> Vec<String> {
        let statuses = self.statuses();
        let wrong = self.kinds.iter().filter(|(name, kind)| !statuses.get(*name).is_some_and(|s| holds(**kind, s)));
        wrong.map(|(name, _)| format!("{name}: {}", statuses.get(name).unwrap_or(&Value::Null))).collect()
    }

    /// Returns whether every job shows its last phase.
    pub(crate) fn all_ended(&self) -> bool {
        self.not(|kind, status| status["phase"] == kind.phase()).is_empty()
    }

    /// Waits until every job shows its last phase; gives what the statuses are.
    pub(crate) fn until_ended(&self) -> BTreeMap<String, Value> {
        until("every job is where it must end", || {
            // kube-scheduler ends itself when the answer to a binding got lost with its server ("Scheduler cache is corrupted"), and
            // counts on being started again. One that runs refuses this.
            let _ = self.cluster.plane.start_again(Component::Scheduler);
            let wrong = self.not(|kind, status| status["phase"] == kind.phase());
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        });
        self.statuses()
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
        let counted = |kind: JobKind, status: &Value| {
            let shown = status["RestartCount"]["w"].as_u64().unwrap_or_default();
            shown == kind.restarts() && status["phase"] == kind.phase()
        };
        let wrong = self.not(counted);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Checks phases and restart counts, and that no job had a pod more or fewer than its life asks for.
    pub(crate) fn check(&self, seen: &PodWatch<'_>) {
        self.check_statuses();
        let seen = seen.pods();
        for (name, kind) in &self.kinds {
            let of = |pod: &str| pod.rsplit_once("-w-").is_some_and(|(job, _)| job == name);
            let pods: Vec<_> = seen.iter().filter(|(pod, _)| of(pod)).collect();
            let may = kind.pods_ever();
            assert!(may.contains(&pods.len()), "pods that existed of {name}, not {may:?}: {pods:?}");
        }
    }
}
