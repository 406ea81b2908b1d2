//! Deletion and what follows from it.
//!
//! Owns grace periods, finalizers, namespaces going with all they hold, and the collection of objects whose owners are gone.
//! Propagation is always background. Tests: `tests/cluster/deletion.rs`.

use std::sync::Arc;

use apis::{ApiAnswer, ApiError};
use model::{Text, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, address};
use crate::error::refusal;
use crate::execute::Preconditions;
use crate::kinds::{KindId, ServedKind, group_of};
use crate::merge::{at, items, object_mut, text};
use crate::rules;
use crate::store::{Key, has_finalizers, is_deleting, pod_has_ended};

/// Grace period of a pod that does not name one, in seconds.
const DEFAULT_GRACE_SECONDS: u64 = 30;

/// Options of a delete.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeleteOptions<'a> {
    pub(crate) preconditions: Preconditions<'a>,
    /// Absent: the object's own.
    pub(crate) grace_seconds: Option<u32>,
}

/// Seconds of grace left to an object that is being deleted.
pub(crate) fn grace_of(object: &Value) -> u64 {
    at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_u64).unwrap_or_default()
}

/// Returns whether the runtime has, or may have, something running for the pod.
fn may_run(pod: &Value) -> bool {
    !text(pod, &["spec", "nodeName"]).is_empty() && !pod_has_ended(pod)
}

impl Cluster {
    pub(crate) fn delete(&mut self, kind: &Arc<ServedKind>, key: &Key, options: DeleteOptions<'_>) -> ApiAnswer {
        let object = self.stored(kind, key)?;
        options.preconditions.check(kind, key, &object)?;
        if is_deleting(&object) {
            return Ok(self.shorten_grace(kind, key, object, options.grace_seconds));
        }
        if kind.id == KindId::NAMESPACE {
            return Ok(self.delete_namespace(kind, key, object));
        }
        let grace = match kind.id {
            KindId::POD if may_run(&object) => {
                let own = at(&object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_u64);
                options.grace_seconds.map_or_else(|| own.unwrap_or(DEFAULT_GRACE_SECONDS), u64::from)
            }
            _ => 0,
        };
        let grace = if self.ended.contains(text(&object, &["metadata", "uid"])) { 0 } else { grace };
        self.stop_pod(kind, &object, grace);
        if grace == 0 && !self.is_kept(key, &object) {
            return Ok(self.remove(key).unwrap_or(object));
        }
        Ok(self.mark_deleted(kind, key, grace, self.now.plus_ms(grace.saturating_mul(1000))).unwrap_or(object))
    }

    /// A further delete can only make the grace period shorter.
    fn shorten_grace(&mut self, kind: &ServedKind, key: &Key, object: Arc<Value>, wanted: Option<u32>) -> Arc<Value> {
        let (current, Some(wanted)) = (grace_of(&object), wanted.map(u64::from)) else {
            return object;
        };
        if wanted >= current || kind.id != KindId::POD {
            return object;
        }
        self.stop_pod(kind, &object, wanted);
        if wanted == 0 {
            return self.finish(kind, key).unwrap_or(object);
        }
        let deadline = Timestamp::parse_rfc3339(text(&object, &["metadata", "deletionTimestamp"])).unwrap_or(self.now);
        let asked = Timestamp(deadline.0.saturating_sub(current.saturating_mul(1000)));
        self.mark_deleted(kind, key, wanted, asked.plus_ms(wanted.saturating_mul(1000))).unwrap_or(object)
    }

    fn mark_deleted(&mut self, kind: &ServedKind, key: &Key, grace: u64, deadline: Timestamp) -> Option<Arc<Value>> {
        self.commit_edit(kind, key, |object| {
            let metadata = object_mut(object, "metadata");
            metadata.insert("deletionTimestamp".into(), deadline.to_rfc3339().into());
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        })
    }

    /// Ends the grace period of an object that is being deleted: it goes, unless finalizers keep it.
    pub(crate) fn finish(&mut self, kind: &ServedKind, key: &Key) -> Option<Arc<Value>> {
        let object = self.store.get(key)?;
        if !self.is_kept(key, object) {
            return self.remove(key);
        }
        if grace_of(object) == 0 {
            return Some(Arc::clone(object));
        }
        self.mark_deleted(kind, key, 0, self.now)
    }

    /// Takes an object out, and what only existed because of it.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let kind = self.kind_of(key)?;
        let object = self.commit_removal(&kind, key)?;
        let uid = text(&object, &["metadata", "uid"]);
        self.ended.remove(uid);
        self.logs.remove(uid);
        for dependent in self.store.dependents(uid) {
            self.collect(&dependent);
        }
        if key.kind == KindId::POD {
            self.free_claims(&key.namespace, &object);
        }
        self.finish_namespace(&key.namespace);
        Some(object)
    }

    /// Returns true for an object that stays when it is deleted: it has finalizers, or is a claim that a pod on a node uses. Claims
    /// have their protection without the finalizer that an API server shows.
    pub(crate) fn is_kept(&self, key: &Key, object: &Value) -> bool {
        let uses = |pod: &Value| {
            let is_placed = !text(pod, &["spec", "nodeName"]).is_empty();
            is_placed && claims_of(pod).any(|name| name == &*key.name)
        };
        let is_used = || self.store.of_kind(KindId::POD).any(|(pod, it)| pod.namespace == key.namespace && uses(it));
        has_finalizers(object) || (key.kind == KindId::CLAIM && is_used())
    }

    /// Removes the claims that were deleted while a pod used them that is gone now.
    fn free_claims(&mut self, namespace: &Text, pod: &Value) {
        for name in claims_of(pod) {
            let key = Key::new(KindId::CLAIM, namespace, name);
            if self.store.get(&key).is_some_and(|claim| is_deleting(claim) && !self.is_kept(&key, claim)) {
                self.remove(&key);
            }
        }
    }

    fn stop_pod(&mut self, kind: &ServedKind, pod: &Value, grace: u64) {
        if kind.id == KindId::POD && may_run(pod) {
            let of = |name: &str| text(pod, &["metadata", name]);
            let grace = u32::try_from(grace).unwrap_or(u32::MAX);
            self.runtime.stop(of("namespace"), of("name"), of("uid"), grace);
        }
    }

    /// Collects an object that names owners none of which exists.
    pub(crate) fn collect_if_ownerless(&mut self, key: &Key) {
        let named =
            self.store.get(key).is_some_and(|object| !items(object, &["metadata", "ownerReferences"]).is_empty());
        if named {
            self.collect(key);
        }
    }

    /// Deletes an object if none of its owners exists; otherwise removes the references to those that do not.
    fn collect(&mut self, key: &Key) {
        let (Some(kind), Some(object)) = (self.kind_of(key), self.store.get(key)) else { return };
        let references = items(object, &["metadata", "ownerReferences"]);
        let present: Vec<Value> = references.iter().filter(|r| self.owner_exists(&key.namespace, r)).cloned().collect();
        if present.len() == references.len() {
            return;
        }
        if present.is_empty() {
            // Nothing is asked of the object, so this cannot be refused; one that is going already just continues.
            let _ = self.delete(&kind, key, DeleteOptions::default());
            return;
        }
        self.commit_edit(&kind, key, |object| {
            object_mut(object, "metadata").insert("ownerReferences".into(), present.into());
        });
    }

    /// Returns whether an owner exists. Of kinds that are not served nothing is known, so their objects count as existing.
    fn owner_exists(&self, namespace: &Text, reference: &Value) -> bool {
        let Some(kind) = self.kinds.find(group_of(text(reference, &["apiVersion"])), text(reference, &["kind"])) else {
            return true;
        };
        let owner = address(kind, namespace, text(reference, &["name"]));
        self.store.key_of_uid(text(reference, &["uid"])) == Some(&owner)
    }

    /// Makes sure the namespace of a new object is there and not on its way out.
    pub(crate) fn enter_namespace(&mut self, kind: &ServedKind, key: &Key) -> Result<(), ApiError> {
        if !kind.namespaced {
            return Ok(());
        }
        let namespace = Key::new(KindId::NAMESPACE, "", &key.namespace);
        match self.store.get(&namespace) {
            Some(object) if is_deleting(object) => {
                let problem = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    key.namespace
                );
                Err(refusal::forbidden(kind, &key.name, &problem))
            }
            Some(_) => Ok(()),
            None if !rules::is_dns_label(&key.namespace) => {
                Err(refusal::bad_request(format!("{:?} is not a namespace: {}", key.namespace, rules::DNS_LABEL)))
            }
            None => {
                let uid = self.store.next_uid("Namespace");
                let metadata = json!({
                    "name": &*key.namespace,
                    "uid": uid,
                    "creationTimestamp": self.now.to_rfc3339(),
                    "labels": {"kubernetes.io/metadata.name": &*key.namespace},
                });
                let object = json!({
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": metadata,
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                });
                if let Some(kind) = self.kind_of(&namespace) {
                    self.commit_new(&kind, &namespace, object);
                }
                Ok(())
            }
        }
    }

    /// Deletes everything in a namespace; the namespace goes when it is empty.
    fn delete_namespace(&mut self, kind: &ServedKind, key: &Key, object: Arc<Value>) -> Arc<Value> {
        let marked = self.commit_edit(kind, key, |object| {
            object_mut(object, "status").insert("phase".into(), "Terminating".into());
        });
        let marked = marked.and_then(|_| self.mark_deleted(kind, key, 0, self.now)).unwrap_or(object);
        let inside = |(held, _, _): &(&Key, &Arc<Value>, u64)| held.namespace == key.name;
        let held: Vec<Key> = self.store.iter().filter(inside).map(|(held, _, _)| held.clone()).collect();
        for held in held {
            if let Some(kind) = self.kind_of(&held) {
                // Gone already when the collector was faster; nothing else can be refused.
                let _ = self.delete(&kind, &held, DeleteOptions::default());
            }
        }
        self.finish_namespace(&key.name);
        marked
    }

    /// Lets a namespace go that is being deleted and has become empty.
    fn finish_namespace(&mut self, namespace: &Text) {
        if namespace.is_empty() || self.store.population(namespace) > 0 {
            return;
        }
        let key = Key::new(KindId::NAMESPACE, "", namespace);
        if self.store.get(&key).is_some_and(|object| is_deleting(object)) {
            self.remove(&key);
        }
    }
}

/// Returns the names of the claims that a pod uses.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(pod, &["spec", "volumes"]).iter();
    volumes.map(|volume| text(volume, &["persistentVolumeClaim", "claimName"])).filter(|name| !name.is_empty())
}
