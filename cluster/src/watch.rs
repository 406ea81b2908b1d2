//! Watches: what each consumer has been told and has yet to be told.
//!
//! Owns delivery: a full list per kind first, then every change in order; kinds that stand still; lists that fail. It must
//! not know what objects mean. Tests: `tests/cluster/watch.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apis::Observation;
use model::{Kind, ResourceVersion, Text, Timestamp};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::fault::{FailRule, FailVerb};
use crate::merge::text;

/// First delay before a list that failed is tried again, in milliseconds; it doubles up to [`LIST_RETRY_MAX_MS`].
const LIST_RETRY_MS: u64 = 1_000;
const LIST_RETRY_MAX_MS: u64 = 30_000;

/// A consumer of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherId(u64);

/// How a released watch catches up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// Every change, in order.
    #[default]
    InOrder,
    /// Of each object only its newest version, as after a slow consumer; deletions stay.
    Coalesced,
}

/// One kind's watch of one consumer.
#[derive(Debug, Clone)]
enum Stream {
    /// A list is due, not before `at`; `failures` lists in a row have failed.
    Listing { at: Timestamp, failures: u32 },
    /// Listed; these changes wait, oldest first, each with its resourceVersion.
    Following(VecDeque<(u64, Observation)>),
}

/// Every consumer's watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchers {
    next: u64,
    streams: BTreeMap<WatcherId, BTreeMap<Kind, Stream>>,
    held: BTreeSet<Kind>,
}

impl Watchers {
    /// Tells every consumer that follows the kind.
    pub(crate) fn notify(&mut self, kind: Kind, revision: u64, observation: &Observation) {
        for streams in self.streams.values_mut() {
            if let Some(Stream::Following(waiting)) = streams.get_mut(&kind) {
                waiting.push_back((revision, observation.clone()));
            }
        }
    }

    /// Breaks the watch of a kind for everybody: a list is due at once.
    fn restart(&mut self, kind: Kind, at: Timestamp) {
        for streams in self.streams.values_mut() {
            streams.insert(kind, Stream::Listing { at, failures: 0 });
        }
    }
}

fn coalesce(waiting: &mut VecDeque<(u64, Observation)>) {
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

impl Cluster {
    /// A new consumer: its first [`Cluster::watch`] yields a full list of every kind.
    pub fn subscribe(&mut self) -> WatcherId {
        let id = WatcherId(self.watchers.next);
        self.watchers.next = self.watchers.next.saturating_add(1);
        let listing = Stream::Listing { at: Timestamp(0), failures: 0 };
        self.watchers.streams.insert(id, Kind::ALL.iter().map(|kind| (*kind, listing.clone())).collect());
        id
    }

    /// Ends a consumer's watches; what it had yet to be told is forgotten.
    pub fn unsubscribe(&mut self, id: WatcherId) {
        self.watchers.streams.remove(&id);
    }

    /// What a consumer has yet to be told: lists that are due, then changes of all kinds in the order they happened.
    /// Kinds on hold say nothing. Nothing at all for a consumer that unsubscribed.
    pub fn watch(&mut self, id: WatcherId) -> Vec<Observation> {
        let mut told = Vec::new();
        let mut changes = Vec::new();
        for kind in Kind::ALL {
            if self.watchers.held.contains(&kind) {
                continue;
            }
            let stream = self.watchers.streams.get_mut(&id).and_then(|streams| streams.get_mut(&kind));
            match stream {
                Some(Stream::Following(waiting)) => changes.extend(waiting.drain(..)),
                Some(Stream::Listing { at, failures }) if *at <= self.now => {
                    let failures = *failures;
                    let next = if self.list_fails(kind) {
                        let delay = LIST_RETRY_MS.saturating_mul(1_u64 << failures.min(10)).min(LIST_RETRY_MAX_MS);
                        Stream::Listing { at: self.now.plus_ms(delay), failures: failures.saturating_add(1) }
                    } else {
                        told.push(self.list(kind));
                        Stream::Following(VecDeque::new())
                    };
                    if let Some(streams) = self.watchers.streams.get_mut(&id) {
                        streams.insert(kind, next);
                    }
                }
                Some(Stream::Listing { .. }) | None => {}
            }
        }
        changes.sort_by_key(|(revision, _)| *revision);
        told.extend(changes.into_iter().map(|(_, observation)| observation));
        told
    }

    /// Whether a call of [`Cluster::watch`] would report, or try, something now.
    pub fn has_news(&self, id: WatcherId) -> bool {
        self.watchers.streams.get(&id).is_some_and(|streams| {
            streams.iter().any(|(kind, stream)| {
                !self.watchers.held.contains(kind)
                    && match stream {
                        Stream::Following(waiting) => !waiting.is_empty(),
                        Stream::Listing { at, .. } => *at <= self.now,
                    }
            })
        })
    }

    /// When a list that failed is tried again: the earliest time at which [`Cluster::watch`] has more to say by itself.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let streams = self.watchers.streams.values().flatten();
        let due = streams.filter_map(|(kind, stream)| match stream {
            Stream::Listing { at, .. } if !self.watchers.held.contains(kind) => Some(*at),
            Stream::Listing { .. } | Stream::Following(_) => None,
        });
        due.filter(|at| *at > self.now).min()
    }

    /// A complete view of one kind as it stands.
    pub fn list(&self, kind: Kind) -> Observation {
        let kinds = self.kinds.iter().filter(|served| served.watch == Some(kind));
        let items =
            kinds.flat_map(|served| self.store.of_kind(served.id).map(|(_, object)| Arc::clone(object))).collect();
        Observation::Listed { kind, rv: self.revision(), items }
    }

    /// The resourceVersion of the newest change. It moves exactly when something changed.
    pub fn revision(&self) -> ResourceVersion {
        self.store.resource_version()
    }

    /// The watches of a kind stand still, for every consumer, until [`Cluster::release`].
    pub fn hold(&mut self, kind: Kind) {
        self.watchers.held.insert(kind);
    }

    /// The watches of a kind go on. Nothing happens if they were not held.
    pub fn release(&mut self, kind: Kind, catch_up: CatchUp) {
        if !self.watchers.held.remove(&kind) || catch_up == CatchUp::InOrder {
            return;
        }
        for streams in self.watchers.streams.values_mut() {
            if let Some(Stream::Following(waiting)) = streams.get_mut(&kind) {
                coalesce(waiting);
            }
        }
    }

    /// Whether the watches of a kind stand still.
    pub fn is_held(&self, kind: Kind) -> bool {
        self.watchers.held.contains(&kind)
    }

    /// The watches of a kind start anew: what was not delivered is dropped, and a fresh full list comes instead.
    pub fn relist(&mut self, kind: Kind) {
        self.watchers.restart(kind, self.now);
    }

    /// Makes the next calls that fit fail. A rule for [`FailVerb::List`] also breaks the watch of its kind at once.
    ///
    /// # Errors
    /// [`Error::NotWatched`] for a list rule on a kind that has no watch (or on no kind).
    pub fn fail(&mut self, rule: FailRule) -> Result<(), Error> {
        if rule.verb == FailVerb::List {
            let name = rule.kind.as_deref().unwrap_or_default();
            let kind = self.watch_kind(name).ok_or_else(|| Error::NotWatched { kind: name.to_owned() })?;
            self.watchers.restart(kind, self.now);
        }
        self.faults.add(rule);
        Ok(())
    }

    /// The rules that have failures left.
    pub fn failures_left(&self) -> &[FailRule] {
        self.faults.left()
    }

    /// Takes back every rule: calls succeed again.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Which watch delivers objects of a kind name: `Pod`, `Service`, `Node`, the kind of any registered definition, or `Job`
    /// for all of those together.
    pub fn watch_kind(&self, name: &str) -> Option<Kind> {
        if name == "Job" {
            return Some(Kind::Job);
        }
        self.kinds.iter().find(|kind| &*kind.name == name).and_then(|kind| kind.watch)
    }

    fn list_fails(&mut self, kind: Kind) -> bool {
        let mut names: Vec<Text> =
            self.kinds.iter().filter(|k| k.watch == Some(kind)).map(|k| k.name.clone()).collect();
        if kind == Kind::Job {
            names.push(Text::from("Job"));
        }
        names.iter().any(|name| self.faults.strike_verb(FailVerb::List, name).is_some())
    }
}
