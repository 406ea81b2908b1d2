//! Pods by themselves: binding to nodes with room, and the runtime's reports.
//!
//! Owns one round of scheduler and kubelet. Whether a node takes a pod is `room`'s. Tests: `tests/cluster/auto.rs`.

use serde_json::Value;

use crate::cluster::{Cluster, Mode};
use crate::kinds::KindId;
use crate::merge::text;
use crate::pod_status;
use crate::room::{Room, Unnamed, Wanted, preferred, why_nowhere};
use crate::runtime::PodReport;
use crate::store::{Key, is_deleting, pod_has_ended};

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
        rooms.retain(Room::is_open);
        for key in waiting {
            let Some(pod) = self.store.get(&key).cloned() else { continue };
            let wanted = Wanted::of(&pod, Unnamed::Lacking, &rooms);
            if wanted.is_gated() {
                continue;
            }
            if let Some(room) = preferred(rooms.iter_mut().filter(|room| room.refuses(&wanted).is_none()), &wanted) {
                room.take(&wanted);
                let node = room.name.clone();
                self.bind(&key, &node, &Value::Null);
            } else {
                let why = why_nowhere(&rooms, &wanted);
                let status = pod_status::unschedulable(&pod, self.now, &why);
                self.write_status(&key, &status);
            }
        }
    }
}
