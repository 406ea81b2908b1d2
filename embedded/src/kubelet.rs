//! Pods in virtual time: they start, run for a while, end and are removed without a scenario's step. Containers that the pod's
//! `restartPolicy` restarts run again after the kubelet's back-off.
//!
//! Owns when a virtual pod does what. The cluster's own verbs do it. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use apis::Resource;
use cluster::Cluster;
use model::Timestamp;
use serde_json::Value;

/// Annotation on a pod: its running time, for example `90s`.
pub const DURATION: &str = "trainyard.dev/simulate-duration";
/// Annotation on a pod: the code it exits with.
pub const EXIT_CODE: &str = "trainyard.dev/simulate-exit-code";

/// Time, in milliseconds, before the first restart of a container; it doubles with each one after. The kubelet's own.
const RESTART_DELAY_MS: u64 = 10_000;
/// Longest time, in milliseconds, before a restart of a container.
const MAX_RESTART_DELAY_MS: u64 = 300_000;

/// Default behaviour of virtual pods; annotations override it per pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodBehaviour {
    /// Time from bound to running, in milliseconds.
    pub start_ms: u64,
    /// Time from running to its end, in milliseconds.
    pub run_ms: u64,
    /// Time from deletion to removal, in milliseconds.
    pub stop_ms: u64,
}

impl Default for PodBehaviour {
    /// 1 s, 60 s, 1 s.
    fn default() -> Self {
        Self { start_ms: 1000, run_ms: 60_000, stop_ms: 1000 }
    }
}

/// An action of a pod's node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Run,
    Exit { code: i32 },
    Remove,
}

/// The agents of all nodes.
#[derive(Debug, Default)]
pub struct Kubelet {
    behaviour: PodBehaviour,
    due: BTreeSet<(Timestamp, Pod, Action)>,
    known: BTreeMap<String, (bool, bool)>,
    /// Failing image pulls to come, by pod name: for how many milliseconds.
    image_faults: BTreeMap<String, Option<u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    namespace: String,
    name: String,
    uid: String,
}

impl Kubelet {
    /// Creates agents whose pods behave like this.
    pub fn new(behaviour: PodBehaviour) -> Self {
        Self { behaviour, ..Self::default() }
    }

    /// Makes the image pull of the next pod of this name fail, for `for_ms` milliseconds or for ever.
    pub fn fail_image_pull(&mut self, pod: &str, for_ms: Option<u64>) {
        self.image_faults.insert(pod.to_owned(), for_ms);
    }

    /// Returns whether the failing image pull of a pod of this name is still to come.
    pub fn awaits_image_fault(&self, pod: &str) -> bool {
        self.image_faults.contains_key(pod)
    }

    /// Reads every pod, and plans the actions for pods newly bound or newly deleted.
    pub fn plan(&mut self, cluster: &mut Cluster) {
        let now = cluster.now();
        let mut failing = Vec::new();
        let mut existing = BTreeSet::new();
        for object in cluster.objects_of(&Resource::new("v1", "Pod")) {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let pod = Pod {
                namespace: text("/metadata/namespace").to_owned(),
                name: text("/metadata/name").to_owned(),
                uid: text("/metadata/uid").to_owned(),
            };
            existing.insert(pod.uid.clone());
            let bound = !text("/spec/nodeName").is_empty();
            let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
            let (seen_bound, seen_deleting) = self.known.get(&pod.uid).copied().unwrap_or_default();
            self.known.insert(pod.uid.clone(), (bound, deleting));
            if deleting && !seen_deleting && is_reachable(cluster, text("/spec/nodeName")) {
                self.due.insert((now.plus_ms(self.behaviour.stop_ms), pod, Action::Remove));
            } else if bound && !seen_bound {
                let failing_for = self.image_faults.remove(&pod.name);
                if failing_for.is_some() {
                    failing.push(pod.clone());
                }
                if failing_for == Some(None) {
                    continue;
                }
                let runs = now.plus_ms(self.behaviour.start_ms).plus_ms(failing_for.flatten().unwrap_or_default());
                self.plan_run(pod, &object, runs);
            }
        }
        self.known.retain(|uid, _| existing.contains(uid));
        self.due.retain(|(_, pod, _)| existing.contains(&pod.uid));
        for pod in failing {
            // The pod exists: it was read above. A pod removed meanwhile needs no image.
            let _ = cluster.wait(&pod.namespace, &pod.name, "ErrImagePull", None);
        }
    }

    /// Plans one run of a pod's containers.
    fn plan_run(&mut self, pod: Pod, object: &Value, start: Timestamp) {
        let annotation = |key: &str| object.pointer("/metadata/annotations").and_then(|a| a.get(key)?.as_str());
        let run_ms = annotation(DURATION).and_then(|t| settings::duration::parse_ms(t).ok());
        let code = annotation(EXIT_CODE).and_then(|t| t.parse().ok()).unwrap_or(0);
        self.due.insert((start, pod.clone(), Action::Run));
        self.due.insert((start.plus_ms(run_ms.unwrap_or(self.behaviour.run_ms)), pod, Action::Exit { code }));
    }

    /// Ends a pod's containers, and plans their next run if the pod continues.
    fn exit(&mut self, cluster: &mut Cluster, pod: Pod, code: i32) -> Result<(), cluster::Error> {
        cluster.exit_and_wait(&pod.namespace, &pod.name, code)?;
        let Some(object) = cluster.get(&Resource::new("v1", "Pod"), &pod.namespace, &pod.name) else { return Ok(()) };
        if object.pointer("/status/phase").and_then(Value::as_str) == Some("Running") {
            let start = cluster.now().plus_ms(restart_delay_ms(&object));
            self.plan_run(pod, &object, start);
        }
        Ok(())
    }

    /// Performs the actions that are due by the cluster's clock.
    pub fn act(&mut self, cluster: &mut Cluster) {
        while let Some(entry) = self.due.first().filter(|(at, ..)| *at <= cluster.now()).cloned() {
            self.due.remove(&entry);
            let (_, pod, action) = entry;
            let current = cluster.get(&Resource::new("v1", "Pod"), &pod.namespace, &pod.name);
            let Some(current) =
                current.filter(|c| c.pointer("/metadata/uid").and_then(Value::as_str) == Some(&*pod.uid))
            else {
                continue;
            };
            let phase = current.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            let node = current.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            if !is_reachable(cluster, node) || (matches!(phase, "Succeeded" | "Failed") && action != Action::Remove) {
                continue;
            }
            // Each verb fails only for a pod that does not exist, and this one does.
            let done = match action {
                Action::Run => cluster.run(&pod.namespace, &pod.name),
                Action::Exit { code } => self.exit(cluster, pod, code),
                Action::Remove => {
                    cluster.gone(&pod.namespace, &pod.name);
                    Ok(())
                }
            };
            debug_assert!(done.is_ok(), "{action:?}: {done:?}");
        }
    }

    /// Returns the time of the next action.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }
}

/// Returns the time before a pod's containers run again: it doubles with the restarts so far.
fn restart_delay_ms(pod: &Value) -> u64 {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let restarts = statuses.into_iter().flatten().filter_map(|status| status.get("restartCount")?.as_u64()).max();
    let doublings = u32::try_from(restarts.unwrap_or_default()).unwrap_or(u32::MAX);
    RESTART_DELAY_MS.saturating_mul(2_u64.saturating_pow(doublings)).min(MAX_RESTART_DELAY_MS)
}

/// Returns whether a node's agent can be reached.
fn is_reachable(cluster: &Cluster, node: &str) -> bool {
    let Some(node) = cluster.get(&Resource::new("v1", "Node"), "", node) else { return node.is_empty() };
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use cluster::{Mode, Options};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_runs_as_long_as_it_says_and_exits_as_it_says() {
        let mut cluster = Cluster::new(&Options { mode: Mode::Automatic, ..Options::default() });
        let start = cluster.now();
        let annotations = json!({DURATION: "5s", EXIT_CODE: "3"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.apply(&pod).unwrap();
        let mut kubelet = Kubelet::default();
        let phase = |cluster: &Cluster| {
            let pod = cluster.get(&Resource::new("v1", "Pod"), "default", "p").unwrap();
            pod["status"]["phase"].as_str().unwrap_or("Pending").to_owned()
        };
        for (at_ms, want) in [(0, "Pending"), (1000, "Running"), (5999, "Running"), (6000, "Failed")] {
            cluster.set_now(start.plus_ms(at_ms));
            cluster.tick();
            kubelet.plan(&mut cluster);
            kubelet.act(&mut cluster);
            assert_eq!(phase(&cluster), want, "{at_ms} ms");
        }
        assert_eq!(kubelet.next_wake(), None);
    }

    #[test]
    fn containers_run_again_where_their_policy_says_so() {
        let mut cluster = Cluster::new(&Options { mode: Mode::Automatic, ..Options::default() });
        let start = cluster.now();
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "annotations": {DURATION: "5s", EXIT_CODE: "3"}},
            "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}});
        cluster.apply(&pod).unwrap();
        let mut kubelet = Kubelet::default();
        // Start at 1 s; each run lasts 5 s; 10 s before the second, 20 s before the third.
        for (at_ms, restarts, running) in
            [(0, 0, false), (1000, 0, true), (6000, 0, false), (16_000, 1, true), (21_000, 1, false), (41_000, 2, true)]
        {
            cluster.set_now(start.plus_ms(at_ms));
            cluster.tick();
            kubelet.plan(&mut cluster);
            kubelet.act(&mut cluster);
            let pod = cluster.get(&Resource::new("v1", "Pod"), "default", "p").unwrap();
            let status = pod.pointer("/status/containerStatuses/0").cloned().unwrap_or_default();
            assert_eq!(status["restartCount"].as_u64().unwrap_or_default(), restarts, "{at_ms} ms");
            assert_eq!(status["state"]["running"].is_object(), running, "{at_ms} ms");
            assert_ne!(pod["status"]["phase"], "Failed", "{at_ms} ms");
        }
    }
}
