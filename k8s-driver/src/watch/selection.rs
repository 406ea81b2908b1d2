//! Whose pods and services are looked at when only some jobs are served.
//!
//! A pod whose job this process does not know counts as an orphan, and orphans are deleted in the end. With a label selector
//! the pods of all the other jobs would look like that. So pods and services are passed on only if their job is one of the
//! chosen; they need no label of their own for it. A job that leaves the selection takes its pods along: every kind that
//! belongs to jobs is then listed again, and what is not in those views is forgotten, not deleted.
//!
//! Without a selector everything is passed on. Tests: `watch/tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apis::ObservedObject;
use model::Uid;
use tokio::sync::watch;

/// The chosen jobs.
#[derive(Debug)]
pub struct Selection {
    /// By the source that shows them.
    selected: Option<Mutex<BTreeMap<String, BTreeSet<Uid>>>>,
    /// Number of sources of jobs.
    sources: usize,
    /// Sources of jobs that were listed; pods and services wait for all of them.
    listed: watch::Sender<BTreeSet<String>>,
    /// How many jobs left the selection without being deleted.
    departures_count: watch::Sender<u64>,
}

impl Selection {
    /// All jobs, or those that are listed and watched by so many sources.
    pub fn new(only_some: bool, sources: usize) -> Self {
        let selected = only_some.then(Mutex::default);
        Self { selected, sources, listed: watch::Sender::default(), departures_count: watch::Sender::new(0) }
    }

    /// Whether only some jobs are served.
    pub const fn is_some(&self) -> bool {
        self.selected.is_some()
    }

    /// Waits until it is known which jobs are chosen.
    pub async fn wait_until_listed(&self) {
        if self.is_some() {
            // The sender is here; it cannot be gone.
            let _ = self.listed.subscribe().wait_for(|listed| listed.len() >= self.sources).await;
        }
    }

    /// Told how many jobs left the selection: what belongs to jobs is then to be listed again.
    pub fn departures(&self) -> watch::Receiver<u64> {
        self.departures_count.subscribe()
    }

    /// A complete view of the chosen jobs of a source.
    pub fn listed(&self, source: &str, jobs: &[ObservedObject]) {
        if let Some(mut selected) = self.selected() {
            let now: BTreeSet<Uid> = jobs.iter().filter_map(job).cloned().collect();
            let before = selected.entry(source.to_owned()).or_default();
            // Those that are missing may have been deleted or have left; either way their pods are not looked at any more.
            if !before.is_subset(&now) {
                self.departures_count.send_modify(|departures_count| *departures_count += 1);
            }
            *before = now;
        }
        self.listed.send_if_modified(|listed| listed.insert(source.to_owned()));
    }

    /// A source shows that a job is chosen.
    pub fn add(&self, source: &str, seen: &ObservedObject) {
        if let (Some(mut selected), Some(uid)) = (self.selected(), job(seen)) {
            selected.entry(source.to_owned()).or_default().insert(uid.clone());
        }
    }

    /// A job is not chosen any more; `exists` when it was not deleted.
    pub fn remove(&self, seen: &ObservedObject, exists: bool) {
        if let (Some(mut selected), Some(uid)) = (self.selected(), job(seen)) {
            selected.values_mut().for_each(|jobs| {
                jobs.remove(uid);
            });
        }
        if exists {
            self.departures_count.send_modify(|departures_count| *departures_count += 1);
        }
    }

    /// Whether an object is to be passed on.
    pub fn includes(&self, seen: &ObservedObject) -> bool {
        let owner = match seen {
            ObservedObject::Pod(key, _) | ObservedObject::Service(key, _) => key,
            ObservedObject::Job(..) | ObservedObject::Node(_) => return true,
        };
        self.selected().is_none_or(|selected| selected.values().any(|jobs| jobs.contains(&owner.uid)))
    }

    fn selected(&self) -> Option<MutexGuard<'_, BTreeMap<String, BTreeSet<Uid>>>> {
        // A set is whole after every single change of it.
        self.selected.as_ref().map(|selected| selected.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn job(seen: &ObservedObject) -> Option<&Uid> {
    match seen {
        ObservedObject::Job(key, _) => Some(&key.uid),
        ObservedObject::Pod(..) | ObservedObject::Service(..) | ObservedObject::Node(_) => None,
    }
}
