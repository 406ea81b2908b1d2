//! Pods that live by themselves in virtual time: started, run for a while, ended, gone.
//!
//! Owns when a virtual pod does what. The cluster's own verbs do it. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use apis::Resource;
use cluster::Cluster;
use model::Timestamp;
use serde_json::Value;

/// Annotation on a pod: how long it runs, for example `90s`.
pub const DURATION: &str = "trainyard.dev/simulate-duration";
/// Annotation on a pod: the code it exits with.
pub const EXIT_CODE: &str = "trainyard.dev/simulate-exit-code";

/// How virtual pods behave unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// From being bound to running, in milliseconds.
    pub start_ms: u64,
    /// From running to ending, in milliseconds.
    pub run_ms: u64,
    /// From being told to stop to being gone, in milliseconds.
    pub stop_ms: u64,
}

impl Default for Habits {
    /// 1 s, 60 s, 1 s.
    fn default() -> Self {
        Self { start_ms: 1000, run_ms: 60_000, stop_ms: 1000 }
    }
}

/// Something a pod's node does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Run,
    Exit { code: i32 },
    Gone,
}

/// The nodes' agents, all of them.
#[derive(Debug, Default)]
pub struct Kubelet {
    habits: Habits,
    due: BTreeSet<(Timestamp, Pod, Act)>,
    known: BTreeMap<String, (bool, bool)>,
    stuck: BTreeMap<String, Option<u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    namespace: String,
    name: String,
    uid: String,
}

impl Kubelet {
    /// Agents with these habits.
    pub fn new(habits: Habits) -> Self {
        Self { habits, ..Self::default() }
    }

    /// The image of the next pod of this name cannot be pulled for so long (milliseconds), or for good.
    pub fn spoil_image(&mut self, pod: &str, for_ms: Option<u64>) {
        self.stuck.insert(pod.to_owned(), for_ms);
    }

    /// Whether a pod of this name is still to meet an image that cannot be pulled.
    pub fn is_spoilt(&self, pod: &str) -> bool {
        self.stuck.contains_key(pod)
    }

    /// Looks at every pod and plans what will become of those it sees for the first time, or dying for the first time.
    pub fn look(&mut self, cluster: &mut Cluster) {
        let now = cluster.now();
        let mut spoilt = Vec::new();
        let mut there = BTreeSet::new();
        for object in cluster.objects_of(&Resource::new("v1", "Pod")) {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let pod = Pod {
                namespace: text("/metadata/namespace").to_owned(),
                name: text("/metadata/name").to_owned(),
                uid: text("/metadata/uid").to_owned(),
            };
            there.insert(pod.uid.clone());
            let bound = !text("/spec/nodeName").is_empty();
            let dying = object.pointer("/metadata/deletionTimestamp").is_some();
            let (seen_bound, seen_dying) = self.known.get(&pod.uid).copied().unwrap_or_default();
            self.known.insert(pod.uid.clone(), (bound, dying));
            if dying && !seen_dying && is_reachable(cluster, text("/spec/nodeName")) {
                self.due.insert((now.plus_ms(self.habits.stop_ms), pod, Act::Gone));
            } else if bound && !seen_bound {
                let spoilt_for = self.stuck.remove(&pod.name);
                if spoilt_for.is_some() {
                    spoilt.push(pod.clone());
                }
                if spoilt_for == Some(None) {
                    continue;
                }
                let annotation = |key: &str| object.pointer("/metadata/annotations").and_then(|a| a.get(key)?.as_str());
                let run_ms = annotation(DURATION)
                    .and_then(|t| settings::duration::parse_ms(t).ok())
                    .unwrap_or(self.habits.run_ms);
                let code = annotation(EXIT_CODE).and_then(|t| t.parse().ok()).unwrap_or(0);
                let runs = now.plus_ms(self.habits.start_ms).plus_ms(spoilt_for.flatten().unwrap_or_default());
                self.due.insert((runs, pod.clone(), Act::Run));
                self.due.insert((runs.plus_ms(run_ms), pod, Act::Exit { code }));
            }
        }
        self.known.retain(|uid, _| there.contains(uid));
        self.due.retain(|(_, pod, _)| there.contains(&pod.uid));
        for pod in spoilt {
            // The pod was just seen, so it is there; a pod gone meanwhile needs no image.
            let _ = cluster.wait(&pod.namespace, &pod.name, "ErrImagePull", None);
        }
    }

    /// Does what is due by the cluster's clock.
    pub fn act(&mut self, cluster: &mut Cluster) {
        while let Some(entry) = self.due.first().filter(|(at, ..)| *at <= cluster.now()).cloned() {
            self.due.remove(&entry);
            let (_, pod, act) = entry;
            let current = cluster.get(&Resource::new("v1", "Pod"), &pod.namespace, &pod.name);
            let Some(current) =
                current.filter(|c| c.pointer("/metadata/uid").and_then(Value::as_str) == Some(&*pod.uid))
            else {
                continue;
            };
            let phase = current.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            let node = current.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            if !is_reachable(cluster, node) || (matches!(phase, "Succeeded" | "Failed") && act != Act::Gone) {
                continue;
            }
            // Each verb fails only for a pod that is not there, and this one is.
            let _ = match act {
                Act::Run => cluster.run(&pod.namespace, &pod.name),
                Act::Exit { code } => cluster.exit(&pod.namespace, &pod.name, code, None),
                Act::Gone => {
                    cluster.gone(&pod.namespace, &pod.name);
                    Ok(())
                }
            };
        }
    }

    /// When something is due next.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }
}

/// Whether a node's agent still does what it is told.
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
            kubelet.look(&mut cluster);
            kubelet.act(&mut cluster);
            assert_eq!(phase(&cluster), want, "{at_ms} ms");
        }
        assert_eq!(kubelet.next_wake(), None);
    }
}
