//! Pods by themselves: binding to nodes with room, and the runtime's reports.
//!
//! Owns one round of scheduler and kubelet. It looks at requests, `nodeSelector`, Ready and `unschedulable`; affinity, taints
//! and priorities are not judged. Tests: `tests/cluster/auto.rs`.

use std::collections::BTreeMap;

use serde_json::Value;
use settings::Quantity;

use crate::cluster::{Cluster, Mode};
use crate::kinds::KindId;
use crate::merge::{at, items, text};
use crate::node::is_ready;
use crate::pod_status;
use crate::runtime::PodReport;
use crate::store::{Key, is_deleting, pod_has_ended};

/// Amounts of resources, in thousandths.
type Amounts = BTreeMap<String, i128>;

/// Resources of which a node that does not name them has no end.
const UNLIMITED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Returns a container's requests, or its limits where it requests nothing.
fn container_requests(container: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    for field in ["limits", "requests"] {
        if let Some(Value::Object(named)) = at(container, &["resources", field]) {
            amounts.extend(
                named.iter().filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli()))),
            );
        }
    }
    amounts
}

/// Returns a pod's requests: those of its containers together, or of one init container where that requests more.
fn pod_requests(pod: &Value) -> Amounts {
    let mut sum = Amounts::from([("pods".to_owned(), 1000)]);
    for container in items(pod, &["spec", "containers"]) {
        add(&mut sum, &container_requests(container));
    }
    for container in items(pod, &["spec", "initContainers"]) {
        for (resource, amount) in container_requests(container) {
            let most = sum.entry(resource).or_default();
            *most = amount.max(*most);
        }
    }
    sum
}

/// A node that takes pods.
struct Room {
    name: String,
    allocatable: Amounts,
    used: Amounts,
    labels: Value,
}

impl Room {
    /// The resource this pod wants more of than is left; `None` when it fits.
    fn lacks(&self, wanted: &Amounts) -> Option<String> {
        let short = |(resource, amount): (&String, &i128)| {
            let used = self.used.get(resource).copied().unwrap_or_default();
            match self.allocatable.get(resource) {
                Some(all) => used.saturating_add(*amount) > *all,
                None => *amount > 0 && !UNLIMITED.contains(&resource.as_str()),
            }
        };
        wanted.iter().find(|entry| short(*entry)).map(|(resource, _)| resource.clone())
    }

    fn selected_by(&self, pod: &Value) -> bool {
        match at(pod, &["spec", "nodeSelector"]) {
            Some(Value::Object(selector)) => selector.iter().all(|(key, value)| self.labels.get(key) == Some(value)),
            _ => true,
        }
    }
}

impl Cluster {
    /// One round in [`Mode::Automatic`]: takes the runtime's reports, ends pods whose processes ended after their deletion,
    /// binds waiting pods (oldest first, to the first node by name with room) and starts them. Returns whether anything changed.
    /// In [`Mode::Manual`] only the runtime's reports are taken.
    pub fn tick(&mut self) -> bool {
        let before = self.revision();
        for report in self.runtime.poll() {
            self.take_report(&report);
        }
        if self.mode == Mode::Automatic {
            self.expire_events();
        }
        if self.mode == Mode::Automatic && std::mem::take(&mut self.binding_due) {
            self.collect_lost_pods();
            self.bind_waiting();
            // Binding is itself a change of pods, but none that makes room.
            self.binding_due = false;
        }
        self.revision() != before
    }

    fn take_report(&mut self, report: &PodReport) {
        let key = Key::new(KindId::POD, &report.namespace, &report.name);
        let Some(pod) = self.store.get(&key) else { return };
        if text(pod, &["metadata", "uid"]) != report.uid {
            return;
        }
        // What a node says of a pod that has already ended, for example by eviction, comes too late.
        let (late, deleting) = (pod_has_ended(pod), is_deleting(pod));
        if !late {
            self.write_status(&key, &report.status);
        }
        if !report.ended {
            return;
        }
        match self.kind_of(&key) {
            Some(kind) if deleting => {
                self.finish(&kind, &key);
            }
            _ => {
                self.ended.insert(report.uid.as_str().into());
            }
        }
    }

    /// Ends pods that are being deleted on deleted nodes: no kubelet does.
    fn collect_lost_pods(&mut self) {
        let lost = |pod: &Value| {
            let node = text(pod, &["spec", "nodeName"]);
            is_deleting(pod) && !node.is_empty() && self.store.get(&Key::new(KindId::NODE, "", node)).is_none()
        };
        let pods = self.store.of_kind(KindId::POD).filter(|(_, pod)| lost(pod));
        let keys: Vec<Key> = pods.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.gone(&key.namespace, &key.name);
        }
    }

    fn bind_waiting(&mut self) {
        let waiting = self.store.unbound();
        if waiting.is_empty() {
            return;
        }
        let mut rooms = self.rooms();
        for key in waiting {
            let Some(pod) = self.store.get(&key) else { continue };
            let wanted = pod_requests(pod);
            let fits = |room: &&mut Room| room.selected_by(pod) && room.lacks(&wanted).is_none();
            if let Some(room) = rooms.iter_mut().find(fits) {
                add(&mut room.used, &wanted);
                let node = room.name.clone();
                self.bind(&key, &node, &Value::Null);
            } else {
                let status = pod_status::unschedulable(pod, self.now, &why_nowhere(&rooms, pod, &wanted));
                self.write_status(&key, &status);
            }
        }
    }

    /// The nodes that take pods, with what is in use on them.
    fn rooms(&self) -> Vec<Room> {
        let takes = |node: &Value| is_ready(node) && at(node, &["spec", "unschedulable"]) != Some(&Value::Bool(true));
        let nodes = self.store.of_kind(KindId::NODE).filter(|(_, node)| takes(node));
        let room = |(key, node): (&Key, &std::sync::Arc<Value>)| {
            let amounts = at(node, &["status", "allocatable"]).or_else(|| at(node, &["status", "capacity"]));
            let amounts = amounts.and_then(Value::as_object).into_iter().flatten();
            let mut used = Amounts::new();
            for pod in self.store.pods_on(&key.name).filter(|pod| !pod_has_ended(pod)) {
                add(&mut used, &pod_requests(pod));
            }
            Room {
                name: key.name.to_string(),
                allocatable: amounts
                    .filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli())))
                    .collect(),
                used,
                labels: at(node, &["metadata", "labels"]).cloned().unwrap_or_default(),
            }
        };
        nodes.map(room).collect()
    }
}

/// The scheduler's words for a pod that fits nowhere.
fn why_nowhere(rooms: &[Room], pod: &Value, wanted: &Amounts) -> String {
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    for room in rooms {
        let reason = match room.lacks(wanted) {
            _ if !room.selected_by(pod) => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Some(resource) => format!("Insufficient {resource}"),
            None => continue,
        };
        let count = reasons.entry(reason).or_default();
        *count = count.saturating_add(1);
    }
    let reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if rooms.is_empty() {
        "no nodes available to schedule pods".to_owned()
    } else {
        format!("0/{} nodes are available: {}.", rooms.len(), reasons.join(", "))
    }
}
