//! Selects the pods and services to report when a label selector narrows the jobs.
//!
//! Owns the set of selected jobs. A pod whose job is unknown counts as an orphan, and orphans are deleted in the end. With a label
//! selector the pods of all other jobs would be orphans. So pods and services are reported only if their job is selected; they
//! need no label of their own. When a job leaves the selection, pods and services are relisted. Those missing from the new lists are
//! forgotten, not deleted.
//!
//! Without a selector every object is reported. Tests: `watch/tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apis::ObservedObject;
use model::Uid;
use tokio::sync::watch;

/// The selected jobs.
#[derive(Debug)]
pub struct Selection {
    /// Selected jobs by source; `None` if all are.
    selected: Option<Mutex<BTreeMap<String, BTreeSet<Uid>>>>,
    /// Number of sources of jobs.
    sources: usize,
    /// Sources of jobs that were listed. Pods and services wait for all of them.
    listed: watch::Sender<BTreeSet<String>>,
    /// Number of jobs that left the selection without being deleted.
    departures: watch::Sender<u64>,
}

impl Selection {
    /// Selects all jobs, or the jobs that `sources` sources list and watch.
    pub fn new(only_some: bool, sources: usize) -> Self {
        let selected = only_some.then(Mutex::default);
        Self { selected, sources, listed: watch::Sender::default(), departures: watch::Sender::new(0) }
    }

    /// Returns true if only some jobs are selected.
    pub const fn is_some(&self) -> bool {
        self.selected.is_some()
    }

    /// Waits until every source of jobs was listed.
    pub async fn wait_until_listed(&self) {
        if self.is_some() {
            // The sender is here; it cannot be gone.
            let _ = self.listed.subscribe().wait_for(|listed| listed.len() >= self.sources).await;
        }
    }

    /// Returns the counter of jobs that left the selection. Pods and services are relisted after each change.
    pub fn departures(&self) -> watch::Receiver<u64> {
        self.departures.subscribe()
    }

    /// Replaces the selected jobs of a source by a list.
    pub fn listed(&self, source: &str, jobs: &[ObservedObject]) {
        if let Some(mut selected) = self.selected() {
            let now: BTreeSet<Uid> = jobs.iter().filter_map(job).cloned().collect();
            let before = selected.entry(source.to_owned()).or_default();
            // Missing jobs were deleted or left the selection. Their pods are not reported any more in both cases.
            if !before.is_subset(&now) {
                self.departures.send_modify(|departures| *departures += 1);
            }
            *before = now;
        }
        self.listed.send_if_modified(|listed| listed.insert(source.to_owned()));
    }

    /// Adds a job that a source reports.
    pub fn add(&self, source: &str, seen: &ObservedObject) {
        if let (Some(mut selected), Some(uid)) = (self.selected(), job(seen)) {
            selected.entry(source.to_owned()).or_default().insert(uid.clone());
        }
    }

    /// Removes a job. `exists` is true if it was not deleted.
    pub fn remove(&self, seen: &ObservedObject, exists: bool) {
        if let (Some(mut selected), Some(uid)) = (self.selected(), job(seen)) {
            selected.values_mut().for_each(|jobs| {
                jobs.remove(uid);
            });
        }
        if exists {
            self.departures.send_modify(|departures| *departures += 1);
        }
    }

    /// Returns true if the object is to be reported.
    pub fn includes(&self, seen: &ObservedObject) -> bool {
        let owner = match seen {
            ObservedObject::Pod(key, _) | ObservedObject::Service(key, _) | ObservedObject::Owned(key, _) => key,
            ObservedObject::Job(..)
            | ObservedObject::Node(_)
            | ObservedObject::Class(_)
            | ObservedObject::Quota(_)
            | ObservedObject::Namespace(_)
            | ObservedObject::Foreign(_) => return true,
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
        ObservedObject::Pod(..)
        | ObservedObject::Service(..)
        | ObservedObject::Owned(..)
        | ObservedObject::Node(_)
        | ObservedObject::Class(_)
        | ObservedObject::Quota(_)
        | ObservedObject::Namespace(_)
        | ObservedObject::Foreign(_) => None,
    }
}
