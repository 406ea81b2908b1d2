//! Holds jobs by key: live ones, and finished ones in a compact form.
//!
//! Most jobs that a cluster knows have ended, and nothing is to be done about them. [`crate::state`] decides which job is finished; the
//! form it is held in changes nothing that can be observed here. Tests: at the end of this file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use model::{JobKey, OwnedFact, OwnedRef, Phase, ResourceVersion, Stamp, Uid};

use crate::finished::FinishedJob;
use crate::job::{Job, Owned, Pod, Service};
use crate::text::share;
use crate::wire::job_value;

/// Jobs by key.
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    all: BTreeMap<JobKey, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Live(Box<Job>),
    Finished(Box<FinishedJob>),
}

/// Members that live and finished jobs show at once.
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

impl Jobs {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    /// Returns true if the job is finished.
    pub fn is_finished(&self, key: &JobKey) -> bool {
        matches!(self.all.get(key), Some(Entry::Finished(_)))
    }

    /// Returns the job of that key if it is live. There is nothing to be done about any other.
    pub fn live(&self, key: &JobKey) -> Option<&Job> {
        self.all.get(key).and_then(Entry::live)
    }

    /// Returns the live jobs from a key on, in the order of their keys.
    pub fn live_from(&self, first: Option<&JobKey>) -> impl Iterator<Item = (&JobKey, &Job)> {
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        self.all.range((from, Bound::Unbounded)).filter_map(|(key, entry)| Some((key, entry.live()?)))
    }

    /// Returns the summary of the job of that key.
    pub fn summary(&self, key: &JobKey) -> Option<JobSummary> {
        self.all.get(key).map(Entry::summary)
    }

    /// Returns the summaries of all jobs, in the order of their keys.
    pub fn summaries(&self) -> impl Iterator<Item = (&JobKey, JobSummary)> {
        self.all.iter().map(|(key, entry)| (key, entry.summary()))
    }

    /// Returns the job of that key as it is when live.
    pub(crate) fn get(&self, key: &JobKey) -> Option<Cow<'_, Job>> {
        self.all.get(key).map(Entry::job)
    }

    /// Returns all jobs as they are when live, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&JobKey, Cow<'_, Job>)> {
        self.all.iter().map(|(key, entry)| (key, entry.job()))
    }

    /// Returns the pods of all jobs.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&JobKey, &Pod)> {
        let pods = self.all.iter().filter_map(|(key, entry)| Some((key, entry.pods()?)));
        pods.flat_map(|(key, pods)| pods.values().map(move |pod| (key, &**pod)))
    }

    /// Returns the services of all jobs, with their uids.
    pub(crate) fn services(&self) -> impl Iterator<Item = (&JobKey, &Uid, &Service)> {
        let services = self.all.iter().filter_map(|(key, entry)| Some((key, entry.services()?)));
        services.flat_map(|(key, services)| services.iter().map(move |(uid, service)| (key, uid, &**service)))
    }

    /// Returns the objects that all jobs own, as last observed.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (&JobKey, &OwnedFact)> {
        let owned = self.all.iter().filter_map(|(key, entry)| Some((key, entry.owned()?)));
        owned.flat_map(|(key, owned)| owned.values().filter_map(move |owned| Some((key, owned.fact.as_ref()?))))
    }

    /// Returns the job of that key to be changed. A finished job wakes: it is live again.
    pub(crate) fn get_mut(&mut self, key: &JobKey) -> Option<&mut Job> {
        let entry = self.all.get_mut(key)?;
        if let Entry::Finished(finished) = entry {
            *entry = Entry::Live(Box::new(finished.job()));
        }
        match entry {
            Entry::Live(job) => Some(job),
            Entry::Finished(_) => None,
        }
    }

    /// Returns the job of that key to be changed, or a new one. A new key shares the texts of the key next to it: most jobs of a
    /// namespace are of one kind.
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

    /// Returns the key as it is held here.
    pub(crate) fn key(&self, key: &JobKey) -> Option<&JobKey> {
        self.all.get_key_value(key).map(|(key, _)| key)
    }

    pub(crate) fn remove(&mut self, key: &JobKey) {
        self.all.remove(key);
    }

    /// Holds a live job as a finished one. It shares what equals the job next to it.
    pub(crate) fn finish(&mut self, key: &JobKey) {
        let Some(Entry::Live(job)) = self.all.get_mut(key) else { return };
        debug_assert_eq!(job_value(&FinishedJob::of((**job).clone()).job()), job_value(job), "nothing is lost");
        let mut finished = FinishedJob::of(std::mem::take(job));
        let before = self.all.range(..key).next_back();
        let near = before.or_else(|| self.all.range((Bound::Excluded(key), Bound::Unbounded)).next());
        match near.map(|(_, entry)| entry) {
            Some(Entry::Finished(near)) => finished.share(near),
            Some(Entry::Live(near)) => near.spec.iter().for_each(|spec| finished.share_spec(spec)),
            None => {}
        }
        if let Some(entry) = self.all.get_mut(key) {
            *entry = Entry::Finished(Box::new(finished));
        }
    }
}

impl FromIterator<(JobKey, Box<Job>)> for Jobs {
    fn from_iter<I: IntoIterator<Item = (JobKey, Box<Job>)>>(jobs: I) -> Self {
        Self { all: jobs.into_iter().map(|(key, job)| (key, Entry::Live(job))).collect() }
    }
}

impl Entry {
    fn live(&self) -> Option<&Job> {
        match self {
            Self::Live(job) => Some(job),
            Self::Finished(_) => None,
        }
    }

    fn job(&self) -> Cow<'_, Job> {
        match self {
            Self::Live(job) => Cow::Borrowed(job),
            Self::Finished(finished) => Cow::Owned(finished.job()),
        }
    }

    fn summary(&self) -> JobSummary {
        match self {
            Self::Live(job) => JobSummary {
                known: job.object.is_known(),
                gone: job.object.is_gone(),
                phase: job.phase,
                rv: job.object.rv(),
                acked_stamp: job.stamps.acknowledged(),
            },
            Self::Finished(finished) => finished.summary(),
        }
    }

    fn pods(&self) -> Option<&BTreeMap<Uid, Box<Pod>>> {
        match self {
            Self::Live(job) => Some(&job.pods),
            Self::Finished(finished) => finished.pods(),
        }
    }

    fn services(&self) -> Option<&BTreeMap<Uid, Box<Service>>> {
        match self {
            Self::Live(job) => Some(&job.services),
            Self::Finished(finished) => finished.services(),
        }
    }

    fn owned(&self) -> Option<&BTreeMap<OwnedRef, Box<Owned>>> {
        match self {
            Self::Live(job) => Some(&job.owned),
            Self::Finished(finished) => finished.owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::SpecFact;

    use super::*;
    use crate::object_state::ObjectState;

    fn key(name: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "AITrainingJob".into(), uid: name.into() }
    }

    /// Jobs `a`, `b` and `c` with specs of their own that are equal; `a` and `c` are finished.
    fn jobs() -> Jobs {
        let mut jobs = Jobs::default();
        for (name, rv) in [("a", 0), ("b", 1), ("c", 2)] {
            let fact = SpecFact::refused(Vec::new());
            let spec = Some(Arc::new(fact));
            let new = || Job {
                object: ObjectState::present(ResourceVersion(rv)),
                phase: Phase::Succeeded,
                valid: spec.clone(),
                spec,
                ..Job::default()
            };
            jobs.get_or_insert(&key(name), new).unwrap();
        }
        jobs.finish(&key("a"));
        jobs.finish(&key("c"));
        jobs
    }

    #[test]
    fn finished_jobs_can_be_looked_at_and_wake_when_changed() {
        let mut jobs = jobs();
        let names = |jobs: &Jobs, first: Option<&str>| {
            let first = first.map(key);
            jobs.live_from(first.as_ref()).map(|(key, _)| key.name.to_string()).collect::<String>()
        };
        assert!(jobs.is_finished(&key("a")) && !jobs.is_finished(&key("b")) && !jobs.is_finished(&key("d")));
        assert_eq!([None, Some("b"), Some("c")].map(|first| names(&jobs, first)), ["b", "b", ""]);
        assert!(jobs.live(&key("b")).is_some() && jobs.live(&key("a")).is_none() && jobs.live(&key("d")).is_none());
        assert_eq!(jobs.summaries().map(|(_, job)| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.iter().map(|(_, job)| job.object.rv().0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.get(&key("a")).unwrap().object.rv().0, 0);
        assert!(jobs.is_finished(&key("a")), "to be looked at changes nothing");
        assert!(jobs.get_mut(&key("c")).unwrap().object.observe_version(ResourceVersion(7)));
        assert_eq!((names(&jobs, None), jobs.get(&key("c")).unwrap().object.rv().0), ("bc".to_owned(), 7));
        jobs.remove(&key("b"));
        assert_eq!((jobs.len(), jobs.summary(&key("b")), jobs.keys().count()), (2, None, 2));
    }

    #[test]
    fn equal_specs_of_neighbours_are_held_once() {
        let jobs = jobs();
        let spec = |name: &str| jobs.get(&key(name)).unwrap().spec.clone().unwrap();
        let valid = |name: &str| jobs.get(&key(name)).unwrap().valid.clone().unwrap();
        assert!(["a", "c"].into_iter().all(|name| Arc::ptr_eq(&spec(name), &spec("b"))));
        assert!(Arc::ptr_eq(&spec("c"), &valid("c")));
    }
}
