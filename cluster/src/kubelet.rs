//! Manual scheduler and kubelets: a scenario says what they do to pods.
//!
//! Owns the verbs; what they write is `pod_status`'s. A user's or a kubelet's doing is no API call of the operator, so
//! rules of [`Cluster::fail`] do not meet it. Tests: `tests/cluster/kubelet.rs`.

use std::sync::Arc;

use model::Text;
use model::json::merge_patch;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::kinds::KindId;
use crate::merge::{changes_nothing, object_mut, text};
use crate::pod_status::{self, Ending, Refused};
use crate::room::{Room, Unnamed, Wanted, preferred, why_nowhere};
use crate::store::{Key, is_deleting, pod_has_ended};

/// Returns why none of the nodes takes a pod.
fn refusal(wanted: &Wanted<'_>, rooms: &[Room]) -> Option<String> {
    if wanted.is_gated() {
        return Some("it waits for a scheduling gate".to_owned());
    }
    let refused = rooms.iter().all(|room| room.refuses(wanted).is_some());
    refused.then(|| why_nowhere(rooms, wanted))
}

fn no_room(namespace: &str, name: &str, why: String) -> Error {
    Error::NoRoom { namespace: namespace.to_owned(), name: name.to_owned(), why }
}

impl Cluster {
    /// Binds a pod to a node; nothing happens if it is there already.
    ///
    /// # Errors
    /// When pod or node do not exist, the node does not take the pod, or the pod has ended or is on another node.
    pub fn schedule(&mut self, namespace: &str, name: &str, node: &str) -> Result<(), Error> {
        let (key, pod) = self.live_pod(namespace, name)?;
        match text(&pod, &["spec", "nodeName"]) {
            "" => {}
            same if same == node => return Ok(()),
            other => {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                return Err(Error::AlreadyPlaced { namespace, name, node: other.to_owned() });
            }
        }
        let room = self.room(node).ok_or_else(|| Error::NoSuchNode { name: node.to_owned() })?;
        let wanted = Wanted::of(&pod, Unnamed::Unjudged, &self.rooms());
        if let Some(why) = refusal(&wanted, &[room]) {
            return Err(no_room(namespace, name, why));
        }
        drop(pod);
        self.bind(&key, node, &Value::Null);
        Ok(())
    }

    /// Starts a pod's containers, on the first node that takes it (by name, a Ready one if there is any) if it has none yet.
    /// Containers that ended run again only where the pod's `restartPolicy` says so.
    ///
    /// # Errors
    /// When the pod does not exist or has ended, or no node takes it.
    pub fn run(&mut self, namespace: &str, name: &str) -> Result<(), Error> {
        let (key, pod) = self.live_pod(namespace, name)?;
        let status = pod_status::running(&pod, self.now);
        self.place_and_write(&key, pod, &status)
    }

    /// Starts every pod that has neither ended nor is being deleted.
    ///
    /// # Errors
    /// When there is such a pod without a node and no node to place it on.
    pub fn run_all(&mut self) -> Result<(), Error> {
        let startable = |pod: &Value| !pod_has_ended(pod) && !is_deleting(pod);
        let pods = self.store.of_kind(KindId::POD).filter(|(_, pod)| startable(pod));
        let keys: Vec<Key> = pods.map(|(key, _)| key.clone()).collect();
        keys.iter().try_for_each(|key| self.run(&key.namespace, &key.name))
    }

    /// Makes every container of a pod wait for a reason such as `ErrImagePull`, the pod Pending, and its start `since_ms` ago
    /// (`None`: it stays what it was, or is now). Places the pod as [`Cluster::run`] does; may be repeated.
    ///
    /// # Errors
    /// When the pod does not exist or has ended, or there is no node.
    pub fn wait(&mut self, namespace: &str, name: &str, reason: &str, since_ms: Option<u64>) -> Result<(), Error> {
        let (key, pod) = self.live_pod(namespace, name)?;
        let status = pod_status::waiting(&pod, self.now, reason, since_ms);
        self.place_and_write(&key, pod, &status)
    }

    /// Ends one container of a pod, or all that have not ended. A container that the pod's `restartPolicy` restarts runs again at once,
    /// and its `restartCount` grows by 1. When all have ended and none is restarted, the phase becomes Succeeded or Failed (any
    /// code but 0). A pod that is being deleted stays until [`Cluster::gone`]. A pod without a node is placed first.
    ///
    /// # Errors
    /// When pod or container do not exist or have ended, or there is no node.
    pub fn exit(&mut self, namespace: &str, name: &str, code: i32, container: Option<&str>) -> Result<(), Error> {
        self.end(namespace, name, code, container, true)
    }

    /// [`Cluster::exit`], but a container that the pod's `restartPolicy` restarts waits for [`Cluster::run`].
    ///
    /// # Errors
    /// As for [`Cluster::exit`].
    pub fn exit_and_wait(&mut self, namespace: &str, name: &str, code: i32) -> Result<(), Error> {
        self.end(namespace, name, code, None, false)
    }

    fn end(
        &mut self,
        namespace: &str,
        name: &str,
        code: i32,
        container: Option<&str>,
        restart: bool,
    ) -> Result<(), Error> {
        let (key, pod) = self.live_pod(namespace, name)?;
        let which = container.map_or(Ending::All, Ending::One);
        let mut status = pod_status::exited(&pod, self.now, code, which).map_err(|refused| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let container = container.unwrap_or_default().to_owned();
            match refused {
                Refused::Unknown => Error::NoSuchContainer { namespace, name, container },
                Refused::Ended => Error::ContainerEnded { namespace, name, container },
            }
        })?;
        if restart {
            let mut ended = Value::clone(&pod);
            merge_patch(&mut ended, &json!({"status": status}));
            if !pod_has_ended(&ended)
                && let Some(again) = pod_status::restarted(&ended, self.now)
            {
                merge_patch(&mut status, &again);
            }
        }
        self.place_and_write(&key, pod, &status)
    }

    /// Makes `line` the last line that a pod printed.
    ///
    /// # Errors
    /// When the pod does not exist or has ended.
    pub fn print(&mut self, namespace: &str, name: &str, line: &str) -> Result<(), Error> {
        let (_, pod) = self.live_pod(namespace, name)?;
        self.logs.insert(Text::from(text(&pod, &["metadata", "uid"])), line.to_owned());
        Ok(())
    }

    /// Throws a pod out as a node short of memory does: phase Failed, reason Evicted, no container statuses.
    ///
    /// # Errors
    /// When the pod does not exist or has ended.
    pub fn evict(&mut self, namespace: &str, name: &str) -> Result<(), Error> {
        let (key, pod) = self.live_pod(namespace, name)?;
        if !text(&pod, &["spec", "nodeName"]).is_empty() {
            self.runtime.stop(namespace, name, text(&pod, &["metadata", "uid"]), 0);
        }
        let status = pod_status::evicted(&pod, self.now);
        drop(pod);
        self.write_status(&key, &status);
        Ok(())
    }

    /// A pod that is being deleted is ended by its node and vanishes (unless finalizers keep it). Nothing happens to others.
    pub fn gone(&mut self, namespace: &str, name: &str) {
        let key = Key::new(KindId::POD, namespace, name);
        if self.store.get(&key).is_some_and(|pod| is_deleting(pod))
            && let Some(kind) = self.kind_of(&key)
        {
            self.finish(&kind, &key);
        }
    }

    /// [`Cluster::gone`] for every pod.
    pub fn gone_all(&mut self) {
        let pods = self.store.of_kind(KindId::POD).filter(|(_, pod)| is_deleting(pod));
        let keys: Vec<Key> = pods.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.gone(&key.namespace, &key.name);
        }
    }

    /// A pod that exists and has not ended.
    fn live_pod(&self, namespace: &str, name: &str) -> Result<(Key, Arc<Value>), Error> {
        let key = Key::new(KindId::POD, namespace, name);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match self.store.get(&key) {
            None => Err(Error::NoSuchPod { namespace, name }),
            Some(pod) if pod_has_ended(pod) => {
                Err(Error::PodEnded { namespace, name, phase: text(pod, &["status", "phase"]).to_owned() })
            }
            Some(pod) => Ok((key, Arc::clone(pod))),
        }
    }

    /// Writes a pod's status, and the node as well if it has none, in one write.
    fn place_and_write(&mut self, key: &Key, pod: Arc<Value>, status: &Value) -> Result<(), Error> {
        let placed = !text(&pod, &["spec", "nodeName"]).is_empty();
        if placed {
            // Let go, so that the write need not copy.
            drop(pod);
            self.write_status(key, status);
        } else {
            let node = self.first_node(key, &pod)?;
            drop(pod);
            self.bind(key, &node, status);
        }
        Ok(())
    }

    /// Returns the node that takes the pod: one that it prefers, a Ready one if there is any, the first by name.
    fn first_node(&self, key: &Key, pod: &Value) -> Result<String, Error> {
        let mut rooms = self.rooms();
        if rooms.is_empty() {
            return Err(Error::NoNodes);
        }
        rooms.sort_by_key(|room| !room.is_ready());
        let wanted = Wanted::of(pod, Unnamed::Unjudged, &rooms);
        if let Some(why) = refusal(&wanted, &rooms) {
            return Err(no_room(&key.namespace, &key.name, why));
        }
        let takes = |room: &Room| room.refuses(&wanted).is_none();
        preferred(rooms.iter().filter(|room| takes(room)), &wanted).map(|room| room.name.clone()).ok_or(Error::NoNodes)
    }

    /// Binds a pod to a node, merges `status` in, and hands the pod to the runtime.
    pub(crate) fn bind(&mut self, key: &Key, node: &str, status: &Value) {
        let Some(kind) = self.kind_of(key) else { return };
        let now = self.now;
        let bound = self.commit_edit(&kind, key, |pod| {
            object_mut(pod, "spec").insert("nodeName".into(), node.into());
            let scheduled = pod_status::scheduled(pod, now);
            merge_patch(pod, &json!({"status": scheduled}));
            if status.is_object() {
                merge_patch(pod, &json!({"status": status}));
            }
        });
        if let Some(pod) = bound {
            self.runtime.start(&pod);
        }
    }

    /// Merges into a pod's status; no change is no write.
    pub(crate) fn write_status(&mut self, key: &Key, status: &Value) {
        let (Some(kind), Some(pod)) = (self.kind_of(key), self.store.get(key)) else { return };
        if !changes_nothing(pod.get("status").unwrap_or(&Value::Null), status) {
            self.commit_edit(&kind, key, |pod| {
                object_mut(pod, "status");
                if let Some(present) = pod.get_mut("status") {
                    merge_patch(present, status);
                }
            });
        }
    }
}
