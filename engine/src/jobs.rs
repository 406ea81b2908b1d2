//! Holds jobs by key. Finished ones are packed, and opened to be read.
//!
//! Most jobs that a cluster knows are over: as maps and texts each would take several times what it takes packed. [`crate::state`] decides
//! which job is finished; packing changes nothing that can be observed here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{JobKey, Phase, ResourceVersion, Stamp};

use crate::job::Job;
use crate::rest::{FinishedJob, Templates};
use crate::text::share;

/// Jobs by key.
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    all: BTreeMap<JobKey, Entry>,
    templates: Templates,
}

#[derive(Debug, Clone)]
enum Entry {
    Live(Box<Job>),
    Finished(Box<FinishedJob>),
}

/// Members of a job that are known without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobSummary {
    /// Set if its object has been seen.
    pub known: bool,
    /// Set if its object is gone.
    pub gone: bool,
    /// Phase shown.
    pub phase: Phase,
    /// Version of its object last observed.
    pub rv: ResourceVersion,
    /// Newest stamp known to be in the object's mirror.
    pub acked_stamp: Stamp,
}

impl JobSummary {
    pub(crate) const fn of(job: &Job) -> Self {
        Self { known: job.known, gone: job.gone, phase: job.phase, rv: job.rv, acked_stamp: job.acked_stamp }
    }
}

impl Jobs {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if there is one of that key.
    pub fn contains_key(&self, key: &JobKey) -> bool {
        self.all.contains_key(key)
    }

    /// Returns true if the job is finished, and so packed.
    pub fn is_finished(&self, key: &JobKey) -> bool {
        matches!(self.all.get(key), Some(Entry::Finished(_)))
    }

    /// Returns the job of that key; a finished one is opened for it.
    pub fn get(&self, key: &JobKey) -> Option<Cow<'_, Job>> {
        self.all.get(key).map(Entry::open)
    }

    /// Returns the job of that key, unless it is finished or not known: in either case there is nothing to be done about it.
    pub fn live(&self, key: &JobKey) -> Option<&Job> {
        self.all.get(key).and_then(Entry::live)
    }

    /// Members of a job that are known without opening it.
    pub fn summary(&self, key: &JobKey) -> Option<JobSummary> {
        self.all.get(key).map(Entry::summary)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    /// Iterates over every job in the order of their keys; each finished one is opened in its turn.
    pub fn iter(&self) -> impl Iterator<Item = (&JobKey, Cow<'_, Job>)> {
        self.all.iter().map(|(key, entry)| (key, entry.open()))
    }

    /// [`Jobs::iter`] without the keys.
    pub fn values(&self) -> impl Iterator<Item = Cow<'_, Job>> {
        self.all.values().map(Entry::open)
    }

    /// Iterates over the live jobs: all that have pods, services or anything to be done.
    pub fn all_live(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.iter().filter_map(|(key, entry)| Some((key, entry.live()?)))
    }

    /// [`Jobs::all_live`] from a key on.
    pub fn live_from(&self, first: &JobKey) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.range(first..).filter_map(|(key, entry)| Some((key, entry.live()?)))
    }

    /// Iterates over the summaries of every job.
    pub fn summaries(&self) -> impl Iterator<Item = (&JobKey, JobSummary)> {
        self.all.iter().map(|(key, entry)| (key, entry.summary()))
    }

    /// Returns the job of that key, to be changed: it is live again.
    pub(crate) fn get_mut(&mut self, key: &JobKey) -> Option<&mut Job> {
        let entry = self.all.get_mut(key)?;
        if let Entry::Finished(resting) = entry {
            *entry = Entry::Live(resting.open());
        }
        match entry {
            Entry::Live(job) => Some(job),
            Entry::Finished(_) => None,
        }
    }

    /// The job of that key; a new one if there is none. The new one's key shares the texts of the key next to it: most jobs of a namespace
    /// are of one kind.
    pub(crate) fn get_or_insert(&mut self, key: &JobKey, new: impl FnOnce() -> Job) -> Option<&mut Job> {
        if !self.all.contains_key(key) {
            let mut key = key.clone();
            let before = self.all.range(..&key).next_back();
            if let Some((near, _)) = before.or_else(|| self.all.range(&key..).next()) {
                share(&mut key.namespace, &near.namespace);
                share(&mut key.kind, &near.kind);
            }
            self.all.insert(key, Entry::Live(Box::new(new())));
        }
        self.get_mut(key)
    }

    /// The key as it is held here.
    pub(crate) fn key(&self, key: &JobKey) -> Option<&JobKey> {
        self.all.get_key_value(key).map(|(key, _)| key)
    }

    pub(crate) fn remove(&mut self, key: &JobKey) {
        self.all.remove(key);
    }

    /// Packs a finished job.
    pub(crate) fn finish(&mut self, key: &JobKey) {
        if let Some(entry) = self.all.get_mut(key)
            && let Entry::Live(job) = entry
            && let Some(resting) = self.templates.pack(job)
        {
            *entry = Entry::Finished(Box::new(resting));
        }
    }
}

impl FromIterator<(JobKey, Box<Job>)> for Jobs {
    fn from_iter<I: IntoIterator<Item = (JobKey, Box<Job>)>>(jobs: I) -> Self {
        let all = jobs.into_iter().map(|(key, job)| (key, Entry::Live(job))).collect();
        Self { all, ..Self::default() }
    }
}

impl Entry {
    fn live(&self) -> Option<&Job> {
        match self {
            Self::Live(job) => Some(job),
            Self::Finished(_) => None,
        }
    }

    fn open(&self) -> Cow<'_, Job> {
        match self {
            Self::Live(job) => Cow::Borrowed(job),
            Self::Finished(resting) => Cow::Owned(*resting.open()),
        }
    }

    fn summary(&self) -> JobSummary {
        match self {
            Self::Live(job) => JobSummary::of(job),
            Self::Finished(resting) => resting.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "AITrainingJob".into(), uid: name.into() }
    }

    #[test]
    fn jobs_at_rest_are_opened_to_be_looked_at_and_wake_when_changed() {
        let mut jobs = Jobs::default();
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            let job = jobs.get_or_insert(&key(name), || Job { known: true, ..Job::default() }).unwrap();
            job.rv.0 = n as u64;
        }
        jobs.finish(&key("a"));
        jobs.finish(&key("c"));
        assert!(jobs.is_finished(&key("a")) && !jobs.is_finished(&key("b")) && !jobs.is_finished(&key("d")));
        assert_eq!(jobs.all_live().map(|(key, _)| &*key.name).collect::<Vec<_>>(), ["b"]);
        assert_eq!((jobs.live_from(&key("b")).count(), jobs.live_from(&key("c")).count()), (1, 0));
        assert!(jobs.live(&key("b")).is_some() && jobs.live(&key("a")).is_none() && jobs.live(&key("d")).is_none());
        assert_eq!(jobs.summaries().map(|(_, job)| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.values().map(|job| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.get(&key("a")).unwrap().rv.0, 0);
        assert!(jobs.is_finished(&key("a")), "to be looked at changes nothing");
        jobs.get_mut(&key("c")).unwrap().rv.0 = 7;
        assert!(!jobs.is_finished(&key("c")));
        // Resting changes nothing of what is written.
        let written = |jobs: &Jobs| jobs.values().map(|job| crate::wire::job_value(&job)).collect::<Vec<_>>();
        let before = written(&jobs);
        jobs.finish(&key("b"));
        jobs.get_mut(&key("a")).unwrap();
        assert_eq!(written(&jobs), before);
        jobs.remove(&key("b"));
        assert_eq!((jobs.len(), jobs.contains_key(&key("b")), jobs.keys().count()), (2, false, 2));
    }
}
