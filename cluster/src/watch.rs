//! Watches: observations that each consumer has had, and those still to come.
//!
//! Owns delivery: a full list per stream first, then every change in order; kinds that stand still; lists that fail. Which
//! changes a stream has is `streams`'. It must not know what objects mean. Tests: `tests/cluster/watch.rs`.

pub(crate) mod streams;

use std::collections::VecDeque;
use std::sync::Arc;

use apis::{Observation, WatchTarget};
use model::{Kind, ResourceVersion, Timestamp};

use self::streams::{Progress, Stream, WatcherId, coalesce};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::fault::{FailRule, FailVerb};

/// First delay before a list that failed is tried again, in milliseconds; it doubles up to [`LIST_RETRY_MAX_MS`].
const LIST_RETRY_MS: u64 = 1_000;
const LIST_RETRY_MAX_MS: u64 = 30_000;

/// Catching up of a released watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// Every change, in order.
    #[default]
    InOrder,
    /// Of each object only its newest version, as after a slow consumer; deletions stay.
    Coalesced,
}

impl Cluster {
    /// A new consumer of every object of every kind: its first [`Cluster::watch`] yields a full list of each kind.
    pub fn subscribe(&mut self) -> WatcherId {
        self.watchers.add(Kind::ALL.into_iter().map(Stream::of_kind).collect())
    }

    /// A new consumer of some objects, as an operator is one: its first [`Cluster::watch`] yields a full list of each target.
    pub fn subscribe_to(&mut self, targets: &[WatchTarget]) -> WatcherId {
        self.watchers.add(targets.iter().map(Stream::of_target).collect())
    }

    /// Ends a consumer's watches; its undelivered observations are dropped.
    pub fn unsubscribe(&mut self, id: WatcherId) {
        self.watchers.streams.remove(&id);
    }

    /// Returns the observations a consumer has not had yet: lists that are due, then changes of all kinds in the order they happened.
    /// Kinds on hold say nothing. Nothing at all for a consumer that unsubscribed.
    pub fn watch(&mut self, id: WatcherId) -> Vec<Observation> {
        let mut observations = Vec::new();
        let mut changes = Vec::new();
        let Some(mut streams) = self.watchers.streams.remove(&id) else { return observations };
        for stream in &mut streams {
            if self.watchers.held.contains(&stream.kind) {
                continue;
            }
            match &mut stream.progress {
                Progress::Following(waiting) => changes.extend(waiting.drain(..)),
                Progress::Listing { at, failures } if *at <= self.now => {
                    let failures = *failures;
                    stream.progress = if self.list_fails(stream) {
                        let delay = LIST_RETRY_MS.saturating_mul(1_u64 << failures.min(10)).min(LIST_RETRY_MAX_MS);
                        Progress::Listing { at: self.now.plus_ms(delay), failures: failures.saturating_add(1) }
                    } else {
                        observations.push(self.list(stream));
                        Progress::Following(VecDeque::new())
                    };
                }
                Progress::Listing { .. } => {}
            }
        }
        self.watchers.streams.insert(id, streams);
        changes.sort_by_key(|(revision, _)| *revision);
        observations.extend(changes.into_iter().map(|(_, observation)| observation));
        observations
    }

    /// Returns the time at which a failed list is retried: the earliest at which [`Cluster::watch`] has more without any write.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let streams = self.watchers.streams.values().flatten();
        let due = streams.filter_map(|stream| match &stream.progress {
            Progress::Listing { at, .. } if !self.watchers.held.contains(&stream.kind) => Some(*at),
            Progress::Listing { .. } | Progress::Following(_) => None,
        });
        due.filter(|at| *at > self.now).min()
    }

    /// A complete view of what a stream shows, as it stands.
    fn list(&self, stream: &Stream) -> Observation {
        let kinds = self.kinds.iter().filter(|kind| stream.covers(kind));
        let objects = kinds.flat_map(|kind| self.store.of_kind(kind.id)).map(|(_, object)| object);
        let items = objects.filter(|object| stream.selects(object)).map(Arc::clone).collect();
        Observation::Listed { kind: stream.kind, of: stream.of.clone(), rv: self.revision(), items }
    }

    /// The resourceVersion of the newest change. It moves exactly when something changed.
    pub fn revision(&self) -> ResourceVersion {
        self.store.resource_version()
    }

    /// The watches of a kind stand still, for every consumer, until [`Cluster::release`].
    pub fn hold(&mut self, kind: Kind) {
        self.watchers.held.insert(kind);
    }

    /// Returns true while the watches of a kind are held.
    pub fn holds(&self, kind: Kind) -> bool {
        self.watchers.held.contains(&kind)
    }

    /// The watches of a kind continue. Nothing happens if they were not held.
    pub fn release(&mut self, kind: Kind, catch_up: CatchUp) {
        if !self.watchers.held.remove(&kind) || catch_up == CatchUp::InOrder {
            return;
        }
        for stream in self.watchers.streams.values_mut().flatten().filter(|stream| stream.kind == kind) {
            if let Progress::Following(waiting) = &mut stream.progress {
                coalesce(waiting);
            }
        }
    }

    /// Starts the watches of a kind over: undelivered observations are dropped, and a complete list comes instead.
    pub fn relist(&mut self, kind: Kind) {
        self.watchers.restart(|stream| stream.kind == kind, self.now);
    }

    /// Makes the next calls that fit fail. A rule for [`FailVerb::List`] also breaks the watch of its kind at once.
    ///
    /// # Errors
    /// [`Error::NotWatched`] for a list rule on a kind that has no watch (or on no kind).
    pub fn fail(&mut self, rule: FailRule) -> Result<(), Error> {
        if rule.verb == FailVerb::List {
            let name = rule.kind.as_deref().unwrap_or_default();
            let kind = self.watch_kind(name).ok_or_else(|| Error::NotWatched { kind: name.to_owned() })?;
            let named: Vec<_> = self.kinds.iter().filter(|kind| &*kind.name == name || name == "Job").collect();
            let fails = |stream: &Stream| stream.kind == kind && named.iter().any(|kind| stream.covers(kind));
            self.watchers.restart(fails, self.now);
        }
        self.faults.add(rule);
        Ok(())
    }

    /// Drops every rule: calls succeed again.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Returns the watch that delivers objects of a kind name: `Pod`, `Service`, `Node`, the kind of any registered definition, or `Job`
    /// for all of those together.
    pub fn watch_kind(&self, name: &str) -> Option<Kind> {
        if name == "Job" {
            return Some(Kind::Job);
        }
        self.kinds.iter().find(|kind| &*kind.name == name).and_then(|kind| kind.watch)
    }

    fn list_fails(&mut self, stream: &Stream) -> bool {
        let covered = self.kinds.iter().filter(|kind| stream.covers(kind)).map(|kind| &*kind.name);
        let general = (stream.kind == Kind::Job).then_some("Job");
        let faults = &mut self.faults;
        covered.chain(general).any(|name| faults.inject_list(name, stream.of.as_ref()))
    }
}
