//! Counts the jobs whose specs reference another job's object.
//!
//! Derived from the jobs at the end of each record; never stored. The counts that an object shows are recorded when it changes. Must
//! not know an API. Tests: the scenarios of TorchrunQueue.

use std::collections::{BTreeMap, BTreeSet};

use model::{JobEvent, JobKey, Text, UserCounts};

use crate::job::Job;
use crate::state::State;

/// Namespace, kind and name of an object.
type Name = (Text, Text, Text);

/// Jobs that reference other objects, and the counts of each object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Referrers {
    /// Each job that references others, with what it counts as.
    jobs: BTreeMap<JobKey, Referrer>,
    /// Sums by object. The object may not exist.
    counts: BTreeMap<Name, UserCounts>,
    /// Objects that show their counts.
    show_counts: BTreeSet<JobKey>,
}

/// A job that references others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Referrer {
    needs: BTreeSet<(Text, Text)>,
    counts: UserCounts,
}

impl Referrer {
    fn of(job: &Job) -> Option<Self> {
        if !job.object.exists() {
            return None;
        }
        let specs = [&job.spec, &job.valid].into_iter().flatten();
        let needs: BTreeSet<(Text, Text)> = specs.flat_map(|spec| &spec.needs).cloned().collect();
        (!needs.is_empty()).then(|| Self { needs, counts: counts_of(job) })
    }
}

/// Returns what one job counts as.
fn counts_of(job: &Job) -> UserCounts {
    let mut counts = UserCounts::default();
    if job.phase.is_terminal() {
        counts.finished = 1;
    } else if job.phase.is_waiting() {
        counts.pending = 1;
    } else {
        counts.running = 1;
    }
    let pods = job.pods.values().filter(|pod| pod.fact.node.is_some() && !pod.fact.is_finished());
    let requests = pods.filter_map(|pod| job.spec()?.group(&pod.fact.slot.as_ref()?.group)?.gpu_request.as_ref());
    counts.gpus = requests.map(|request| request.count).fold(0, u32::saturating_add);
    counts
}

impl Referrers {
    /// Notes what a record changed of a job; `None` when it is forgotten.
    pub(crate) fn note(&mut self, key: &JobKey, job: Option<&Job>) {
        let shows = job.is_some_and(|job| job.object.exists() && job.spec().is_some_and(|spec| spec.counts_referrers));
        if !shows {
            self.show_counts.remove(key);
        } else if !self.show_counts.contains(key) {
            self.show_counts.insert(key.clone());
        }
        let referrer = job.and_then(Referrer::of);
        if self.jobs.get(key) == referrer.as_ref() {
            return;
        }
        let old = match referrer.clone() {
            Some(referrer) => self.jobs.insert(key.clone(), referrer),
            None => self.jobs.remove(key),
        };
        if let Some(old) = old {
            self.add(key, &old, u32::saturating_sub);
        }
        if let Some(new) = referrer {
            self.add(key, &new, u32::saturating_add);
        }
    }

    /// Adds what a job counts as to each object that it references, or takes it away.
    fn add(&mut self, key: &JobKey, referrer: &Referrer, sum: fn(u32, u32) -> u32) {
        for (kind, name) in &referrer.needs {
            let name = (key.namespace.clone(), kind.clone(), name.clone());
            let old = self.counts.get(&name).copied().unwrap_or_default();
            let new = UserCounts {
                pending: sum(old.pending, referrer.counts.pending),
                running: sum(old.running, referrer.counts.running),
                finished: sum(old.finished, referrer.counts.finished),
                gpus: sum(old.gpus, referrer.counts.gpus),
            };
            if new == UserCounts::default() {
                self.counts.remove(&name);
            } else {
                self.counts.insert(name, new);
            }
        }
    }
}

impl State {
    /// Returns the counts of the jobs that reference an object.
    pub(crate) fn referrer_counts(&self, key: &JobKey) -> UserCounts {
        let name = (key.namespace.clone(), key.kind.clone(), key.name.clone());
        self.referrers.counts.get(&name).copied().unwrap_or_default()
    }

    /// Returns the number of jobs that have not ended and reference an object.
    pub(crate) fn needed_by(&self, key: &JobKey) -> u32 {
        let counts = self.referrer_counts(key);
        counts.pending.saturating_add(counts.running)
    }

    /// Returns the objects whose counts of referrers differ from those that they show.
    pub fn with_changed_referrers(&self) -> impl Iterator<Item = &JobKey> {
        self.referrers
            .show_counts
            .iter()
            .filter(|key| self.jobs.live(key).is_some_and(|job| self.differs_from_reported(key, job)))
    }

    fn differs_from_reported(&self, key: &JobKey, job: &Job) -> bool {
        job.users != self.referrer_counts(key)
    }

    /// Decides the counts that an object shows.
    pub(crate) fn count_referrers(&self, key: &JobKey, job: &Job) -> Option<JobEvent> {
        let shows = job.spec().is_some_and(|spec| spec.counts_referrers) && self.differs_from_reported(key, job);
        shows.then(|| JobEvent::UsersCounted(self.referrer_counts(key)))
    }
}
