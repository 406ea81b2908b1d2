//! Streams: what one consumer watches as one, and which changes of the store are changes there.
//!
//! A stream has a label selector, as a watch of an API server has. An object whose labels come to fit is added to it, and one
//! whose labels no longer fit is deleted from it, although the object still exists. Tests: `tests/cluster/watch.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apis::{Observation, Resource, Selector, WatchTarget};
use model::{Kind, Text, Timestamp};
use serde_json::Value;

use crate::kinds::{self, group_of};
use crate::merge::{at, object_mut, text};

/// A consumer of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherId(u64);

/// Progress of a stream.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    /// A list is due, not before `at`; `failures` lists in a row have failed.
    Listing { at: Timestamp, failures: u32 },
    /// Listed; these changes wait, oldest first, each with its resourceVersion.
    Following(VecDeque<(u64, Observation)>),
}

impl Progress {
    pub(super) const fn begin(at: Timestamp) -> Self {
        Self::Listing { at, failures: 0 }
    }
}

/// Objects that are watched as one.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    /// Their type; `None` for every type that is delivered as this kind.
    resource: Option<Resource>,
    selector: Selector,
    /// Its target's name; `None` for the whole kind.
    pub(super) of: Option<Text>,
    pub(super) progress: Progress,
}

impl Stream {
    /// Every object of a kind.
    pub(super) fn of_kind(kind: Kind) -> Self {
        Self { kind, resource: None, selector: Selector::default(), of: None, progress: Progress::begin(Timestamp(0)) }
    }

    /// The objects of a target.
    pub(super) fn of_target(target: &WatchTarget) -> Self {
        let (resource, selector) = (Some(target.resource.clone()), target.selector.clone());
        Self { kind: target.kind, resource, selector, of: target.of.clone(), progress: Progress::begin(Timestamp(0)) }
    }

    /// Returns true if objects of a served kind are watched.
    pub(super) fn covers(&self, kind: &kinds::ServedKind) -> bool {
        let is_type = |r: &Resource| r.kind == kind.name && group_of(&r.api_version) == &*kind.group;
        // A type of custom resource may be jobs to one consumer and objects that jobs own to another.
        self.resource.as_ref().map_or_else(|| kind.watch == Some(self.kind), is_type)
    }

    /// Returns true if it shows the object, which is of a kind it covers.
    pub(super) fn selects(&self, object: &Value) -> bool {
        self.selector.selects(object)
    }
}

/// Change of an object.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// It was created.
    Created,
    /// It was edited; these were its labels before.
    Edited {
        /// `metadata.labels`, if a stream asks for any.
        labels: Option<Value>,
    },
    /// It was removed; this is how it last was.
    Removed,
}

/// Every consumer's streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchers {
    next: u64,
    pub(super) streams: BTreeMap<WatcherId, Vec<Stream>>,
    pub(super) held: BTreeSet<Kind>,
}

impl Watchers {
    /// A new consumer of these streams.
    pub(super) fn add(&mut self, streams: Vec<Stream>) -> WatcherId {
        let id = WatcherId(self.next);
        self.next = self.next.saturating_add(1);
        self.streams.insert(id, streams);
        id
    }

    /// Returns true if a stream of such objects asks for labels.
    pub(crate) fn select(&self, kind: &kinds::ServedKind) -> bool {
        self.streams.values().flatten().any(|stream| !stream.selector.is_empty() && stream.covers(kind))
    }

    /// Reports a change to every consumer that follows such objects.
    pub(crate) fn notify(&mut self, kind: &kinds::ServedKind, revision: u64, object: &Arc<Value>, change: &Change) {
        for stream in self.streams.values_mut().flatten().filter(|stream| stream.covers(kind)) {
            let before = match change {
                Change::Created => false,
                Change::Edited { labels } => stream.selector.selects_labels(labels.as_ref()),
                Change::Removed => stream.selects(object),
            };
            let after = !matches!(change, Change::Removed) && stream.selects(object);
            let observation = match (before, after, change) {
                (_, true, _) => Observation::Applied(Arc::clone(object)),
                (true, false, Change::Edited { labels }) => Observation::Deleted(with_labels(object, labels.as_ref())),
                (true, false, _) => Observation::Deleted(Arc::clone(object)),
                (false, false, _) => continue,
            };
            if let Progress::Following(waiting) = &mut stream.progress {
                waiting.push_back((revision, observation));
            }
        }
    }

    /// Breaks streams of a kind for every consumer: a list is due at once.
    pub(super) fn restart(&mut self, which: impl Fn(&Stream) -> bool, at: Timestamp) {
        for stream in self.streams.values_mut().flatten().filter(|stream| which(stream)) {
            stream.progress = Progress::begin(at);
        }
    }
}

/// An object as an API server reports it when its labels no longer fit: with the labels it had, at its new version.
fn with_labels(object: &Arc<Value>, labels: Option<&Value>) -> Arc<Value> {
    let mut object = Arc::clone(object);
    let metadata = object_mut(Arc::make_mut(&mut object), "metadata");
    match labels {
        Some(labels) => metadata.insert("labels".into(), labels.clone()),
        None => metadata.remove("labels"),
    };
    object
}

/// An object's labels.
pub(crate) fn labels(object: &Value) -> Option<Value> {
    at(object, &["metadata", "labels"]).cloned()
}

/// Drops every change but the newest of each object.
pub(super) fn coalesce(waiting: &mut VecDeque<(u64, Observation)>) {
    let uid = |object: &Arc<Value>| Text::from(text(object, &["metadata", "uid"]));
    let mut newer: BTreeSet<Text> = BTreeSet::new();
    let mut kept = VecDeque::new();
    while let Some((revision, observation)) = waiting.pop_back() {
        let keep = match &observation {
            Observation::Applied(object) | Observation::Deleted(object) => newer.insert(uid(object)),
            Observation::Listed { .. } => true,
        };
        if keep {
            kept.push_front((revision, observation));
        }
    }
    *waiting = kept;
}
