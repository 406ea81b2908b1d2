//! The object map with its indices and counters.
//!
//! Owns the objects and their indices. It must not know API rules or watches:
//! every change goes through [`crate::Cluster`], which reports it. Tests: through `tests/cluster/*.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ResourceVersion, Text, Timestamp};
use serde_json::Value;

use crate::kinds::KindId;
use crate::merge::{at, items, object_mut, text};

/// Address of an object. Cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: KindId,
    pub(crate) namespace: Text,
    pub(crate) name: Text,
}

impl Key {
    pub(crate) fn new(kind: KindId, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: Text::from(namespace), name: Text::from(name) }
    }
}

/// An object and what the indices know of it.
#[derive(Debug, Clone)]
struct Stored {
    object: Arc<Value>,
    uid: Text,
    /// Revision of its creation: the order in which objects came.
    created: u64,
    /// Uids of its owners.
    owners: Vec<Text>,
    /// The node a pod is bound to.
    node: Option<Text>,
    /// True if it is a pod that waits for a node.
    unbound: bool,
    /// Last time a Kubernetes Event was written.
    written: Option<Timestamp>,
}

/// Changes since they were taken last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// Objects that came or changed, or whose applied manifest did, by address.
    pub(crate) keys: BTreeSet<Key>,
    /// Uids of objects that went.
    pub(crate) gone: Vec<Text>,
}

/// Objects in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Stored>,
    uids: BTreeMap<Text, Key>,
    dependents: BTreeMap<Text, BTreeSet<Key>>,
    on_node: BTreeMap<Text, BTreeSet<Key>>,
    /// Pods that wait for a node, oldest first.
    unbound: BTreeMap<u64, Key>,
    /// Kubernetes Events, oldest first.
    events: BTreeMap<u64, Key>,
    /// Kubernetes Events by the time they were written last.
    events_by_age: BTreeSet<(Timestamp, Key)>,
    /// Recorded changes; absent while they are not recorded.
    changes: Option<Changes>,
    /// Number of objects in each namespace.
    population: BTreeMap<Text, usize>,
    /// The newest resourceVersion.
    pub(crate) revision: u64,
    /// The newest uid of each kind.
    pub(crate) uid_counts: BTreeMap<String, u64>,
}

/// Returns whether a pod has ended.
pub(crate) fn pod_has_ended(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Returns whether an object has a deletionTimestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some_and(|v| !v.is_null())
}

/// Returns whether an object has finalizers.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    !items(object, &["metadata", "finalizers"]).is_empty()
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key).map(|stored| &stored.object)
    }

    pub(crate) fn key_of_uid(&self, uid: &str) -> Option<&Key> {
        self.uids.get(uid)
    }

    /// Objects of one kind, by namespace and name.
    pub(crate) fn of_kind(&self, kind: KindId) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let first = Key::new(kind, "", "");
        self.objects.range(first..).take_while(move |(key, _)| key.kind == kind).map(|(key, s)| (key, &s.object))
    }

    /// Every object with the revision of its creation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<Value>, u64)> {
        self.objects.iter().map(|(key, stored)| (key, &stored.object, stored.created))
    }

    /// Objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.dependents.get(uid).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// Pods bound to a node, by namespace and name.
    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.on_node.get(node).into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// Pods that wait for a node, oldest first.
    pub(crate) fn unbound(&self) -> Vec<Key> {
        self.unbound.values().cloned().collect()
    }

    /// Kubernetes Events created after a revision, oldest first.
    pub(crate) fn events_after(&self, revision: u64) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let newer = self.events.range(revision.saturating_add(1)..);
        newer.filter_map(|(_, key)| self.get(key).map(|object| (key, object)))
    }

    /// The oldest Kubernetes Event, if there are more than `most`.
    pub(crate) fn surplus_event(&self, most: usize) -> Option<Key> {
        let oldest = self.events.values().next();
        oldest.filter(|_| self.events.len() > most).cloned()
    }

    /// A Kubernetes Event that was last written before a time.
    pub(crate) fn event_written_before(&self, time: Timestamp) -> Option<Key> {
        self.events_by_age.first().filter(|(written, _)| *written < time).map(|(_, key)| key.clone())
    }

    /// Records changes from now on.
    pub(crate) fn record_changes(&mut self) {
        self.changes = Some(Changes::default());
    }

    /// Takes the changes since the last call; absent while they are not recorded.
    pub(crate) fn take_changes(&mut self) -> Option<Changes> {
        self.changes.as_mut().map(std::mem::take)
    }

    /// Records that something about an object changed.
    pub(crate) fn touch(&mut self, key: &Key) {
        if let Some(changes) = &mut self.changes {
            changes.keys.insert(key.clone());
        }
    }

    /// An object with the revision of its creation.
    pub(crate) fn get_with_creation(&self, key: &Key) -> Option<(&Arc<Value>, u64)> {
        self.objects.get(key).map(|stored| (&stored.object, stored.created))
    }

    /// Number of objects in a namespace.
    pub(crate) fn population(&self, namespace: &str) -> usize {
        self.population.get(namespace).copied().unwrap_or_default()
    }

    /// The next uid of a kind.
    pub(crate) fn next_uid(&mut self, kind: &str) -> String {
        let kind = kind.to_lowercase();
        let count = self.uid_counts.entry(kind.clone()).or_default();
        *count = count.saturating_add(1);
        format!("{kind}-{count:06}")
    }

    /// Gives an object the next resourceVersion.
    fn stamp(&mut self, object: &mut Value) -> u64 {
        self.revision = self.revision.saturating_add(1);
        object_mut(object, "metadata").insert("resourceVersion".into(), self.revision.to_string().into());
        self.revision
    }

    /// Stores a new object, which has its uid, under the next resourceVersion.
    pub(crate) fn insert(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        let created = self.stamp(&mut object);
        self.restore(key, Arc::new(object), created)
    }

    /// Stores an object as it is: read back from a file.
    pub(crate) fn restore(&mut self, key: &Key, object: Arc<Value>, created: u64) -> Arc<Value> {
        let uid = Text::from(text(&object, &["metadata", "uid"]));
        self.uids.insert(uid.clone(), key.clone());
        let count = self.population.entry(key.namespace.clone()).or_default();
        *count = count.saturating_add(1);
        let stored = Stored {
            object: Arc::clone(&object),
            uid,
            created,
            owners: Vec::new(),
            node: None,
            unbound: false,
            written: None,
        };
        if key.kind == KindId::EVENT {
            self.events.insert(created, key.clone());
        }
        self.objects.insert(key.clone(), stored);
        self.index(key);
        self.touch(key);
        object
    }

    /// Edits an object under the next resourceVersion. Copies it only if the old version is still referenced.
    pub(crate) fn edit(&mut self, key: &Key, edit: impl FnOnce(&mut Value)) -> Option<Arc<Value>> {
        let mut shared = std::mem::take(&mut self.objects.get_mut(key)?.object);
        let object = Arc::make_mut(&mut shared);
        edit(object);
        self.stamp(object);
        if let Some(stored) = self.objects.get_mut(key) {
            stored.object = Arc::clone(&shared);
        }
        self.index(key);
        self.touch(key);
        Some(shared)
    }

    /// Takes an object out; what is returned carries the resourceVersion of its deletion.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let stored = self.objects.remove(key)?;
        self.uids.remove(&stored.uid);
        self.unindex(key, &stored);
        if let Some(changes) = &mut self.changes {
            changes.keys.remove(key);
            changes.gone.push(stored.uid.clone());
        }
        if let Some(count) = self.population.get_mut(&key.namespace) {
            *count = count.saturating_sub(1);
        }
        let mut object = stored.object;
        self.stamp(Arc::make_mut(&mut object));
        Some(object)
    }

    fn unindex(&mut self, key: &Key, stored: &Stored) {
        for owner in &stored.owners {
            remove_from(&mut self.dependents, owner, key);
        }
        if let Some(node) = &stored.node {
            remove_from(&mut self.on_node, node, key);
        }
        if stored.unbound {
            self.unbound.remove(&stored.created);
        }
        if key.kind == KindId::EVENT {
            self.events.remove(&stored.created);
        }
        if let Some(written) = stored.written {
            self.events_by_age.remove(&(written, key.clone()));
        }
    }

    /// Updates the indices for the object.
    fn index(&mut self, key: &Key) {
        let Some(stored) = self.objects.get_mut(key) else { return };
        let object = &stored.object;
        let refs = items(object, &["metadata", "ownerReferences"]);
        if refs.iter().map(|r| text(r, &["uid"])).ne(stored.owners.iter().map(|o| &**o)) {
            for owner in &stored.owners {
                remove_from(&mut self.dependents, owner, key);
            }
            stored.owners = refs.iter().map(|r| Text::from(text(r, &["uid"]))).collect();
            for owner in &stored.owners {
                self.dependents.entry(owner.clone()).or_default().insert(key.clone());
            }
        }
        if key.kind == KindId::EVENT {
            let times = [&["lastTimestamp"][..], &["eventTime"], &["metadata", "creationTimestamp"]];
            let written = times.iter().filter_map(|path| Timestamp::parse_rfc3339(text(object, path))).max();
            if let Some(old) = std::mem::replace(&mut stored.written, written) {
                self.events_by_age.remove(&(old, key.clone()));
            }
            self.events_by_age.extend(written.map(|written| (written, key.clone())));
        }
        if key.kind != KindId::POD {
            return;
        }
        let node = Some(text(object, &["spec", "nodeName"])).filter(|node| !node.is_empty());
        if node != stored.node.as_deref() {
            if let Some(old) = &stored.node {
                remove_from(&mut self.on_node, old, key);
            }
            stored.node = node.map(Text::from);
            if let Some(new) = &stored.node {
                self.on_node.entry(new.clone()).or_default().insert(key.clone());
            }
        }
        let unbound = stored.node.is_none() && !pod_has_ended(object) && !is_deleting(object);
        if unbound != stored.unbound {
            stored.unbound = unbound;
            if unbound {
                self.unbound.insert(stored.created, key.clone());
            } else {
                self.unbound.remove(&stored.created);
            }
        }
    }

    /// The newest resourceVersion.
    pub(crate) const fn resource_version(&self) -> ResourceVersion {
        ResourceVersion(self.revision)
    }
}

fn remove_from(index: &mut BTreeMap<Text, BTreeSet<Key>>, at: &Text, key: &Key) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}
