//! Jobs by key. Those at rest are packed, and opened when somebody looks at them.
//!
//! Most jobs that a cluster knows are over: as maps and texts each would take several times what it takes packed. Whether a
//! job is at rest is judged in [`crate::state`]; packing changes nothing that can be observed here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{JobKey, Phase, ResourceVersion, Stamp};

use crate::job::Job;
use crate::observe::share;
use crate::rest::{Resting, Templates};

/// Jobs by key.
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    all: BTreeMap<JobKey, Entry>,
    templates: Templates,
}

#[derive(Debug, Clone)]
enum Entry {
    Awake(Box<Job>),
    Resting(Box<Resting>),
}

/// What can be said of a job without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brief {
    /// Whether its object has been seen.
    pub known: bool,
    /// Whether its object is gone.
    pub gone: bool,
    /// Phase shown.
    pub phase: Phase,
    /// Version of its object last observed.
    pub rv: ResourceVersion,
    /// Newest stamp known to be in the object's mirror.
    pub acked: Stamp,
}

impl Brief {
    pub(crate) const fn of(job: &Job) -> Self {
        Self { known: job.known, gone: job.gone, phase: job.phase, rv: job.rv, acked: job.acked }
    }
}

impl Jobs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is one of that key.
    pub fn contains_key(&self, key: &JobKey) -> bool {
        self.all.contains_key(key)
    }

    /// Whether the job is packed.
    pub fn is_resting(&self, key: &JobKey) -> bool {
        matches!(self.all.get(key), Some(Entry::Resting(_)))
    }

    /// The job of that key; one at rest is opened for it.
    pub fn get(&self, key: &JobKey) -> Option<Cow<'_, Job>> {
        self.all.get(key).map(Entry::open)
    }

    /// The job of that key, unless it is at rest or not known: in either case there is nothing to be done about it.
    pub fn awake(&self, key: &JobKey) -> Option<&Job> {
        self.all.get(key).and_then(Entry::awake)
    }

    /// What can be said of a job without opening it.
    pub fn brief(&self, key: &JobKey) -> Option<Brief> {
        self.all.get(key).map(Entry::brief)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    /// Every job, in the order of their keys; each one at rest is opened when its turn comes.
    pub fn iter(&self) -> impl Iterator<Item = (&JobKey, Cow<'_, Job>)> {
        self.all.iter().map(|(key, entry)| (key, entry.open()))
    }

    /// [`Jobs::iter`] without the keys.
    pub fn values(&self) -> impl Iterator<Item = Cow<'_, Job>> {
        self.all.values().map(Entry::open)
    }

    /// Those that are not at rest: all that have pods, services or anything to be done.
    pub fn all_awake(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.iter().filter_map(|(key, entry)| Some((key, entry.awake()?)))
    }

    /// [`Jobs::all_awake`] from a key on.
    pub fn awake_from(&self, first: &JobKey) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.range(first..).filter_map(|(key, entry)| Some((key, entry.awake()?)))
    }

    /// What can be said of every job without opening any.
    pub fn briefs(&self) -> impl Iterator<Item = (&JobKey, Brief)> {
        self.all.iter().map(|(key, entry)| (key, entry.brief()))
    }

    /// The job of that key, to be changed: it is at rest no more.
    pub(crate) fn get_mut(&mut self, key: &JobKey) -> Option<&mut Job> {
        let entry = self.all.get_mut(key)?;
        if let Entry::Resting(resting) = entry {
            *entry = Entry::Awake(resting.open());
        }
        match entry {
            Entry::Awake(job) => Some(job),
            Entry::Resting(_) => None,
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
            self.all.insert(key, Entry::Awake(Box::new(new())));
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

    /// Packs a job that is at rest.
    pub(crate) fn rest(&mut self, key: &JobKey) {
        if let Some(entry) = self.all.get_mut(key)
            && let Entry::Awake(job) = entry
            && let Some(resting) = self.templates.pack(job)
        {
            *entry = Entry::Resting(Box::new(resting));
        }
    }
}

impl FromIterator<(JobKey, Box<Job>)> for Jobs {
    fn from_iter<I: IntoIterator<Item = (JobKey, Box<Job>)>>(jobs: I) -> Self {
        let all = jobs.into_iter().map(|(key, job)| (key, Entry::Awake(job))).collect();
        Self { all, ..Self::default() }
    }
}

impl Entry {
    fn awake(&self) -> Option<&Job> {
        match self {
            Self::Awake(job) => Some(job),
            Self::Resting(_) => None,
        }
    }

    fn open(&self) -> Cow<'_, Job> {
        match self {
            Self::Awake(job) => Cow::Borrowed(job),
            Self::Resting(resting) => Cow::Owned(*resting.open()),
        }
    }

    fn brief(&self) -> Brief {
        match self {
            Self::Awake(job) => Brief::of(job),
            Self::Resting(resting) => resting.brief(),
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
        jobs.rest(&key("a"));
        jobs.rest(&key("c"));
        assert!(jobs.is_resting(&key("a")) && !jobs.is_resting(&key("b")) && !jobs.is_resting(&key("d")));
        assert_eq!(jobs.all_awake().map(|(key, _)| &*key.name).collect::<Vec<_>>(), ["b"]);
        assert_eq!((jobs.awake_from(&key("b")).count(), jobs.awake_from(&key("c")).count()), (1, 0));
        assert!(jobs.awake(&key("b")).is_some() && jobs.awake(&key("a")).is_none() && jobs.awake(&key("d")).is_none());
        assert_eq!(jobs.briefs().map(|(_, job)| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.values().map(|job| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(jobs.get(&key("a")).unwrap().rv.0, 0);
        assert!(jobs.is_resting(&key("a")), "to be looked at changes nothing");
        jobs.get_mut(&key("c")).unwrap().rv.0 = 7;
        assert!(!jobs.is_resting(&key("c")));
        // Resting changes nothing of what is written.
        let written = |jobs: &Jobs| jobs.values().map(|job| crate::wire::job_value(&job)).collect::<Vec<_>>();
        let before = written(&jobs);
        jobs.rest(&key("b"));
        jobs.get_mut(&key("a")).unwrap();
        assert_eq!(written(&jobs), before);
        jobs.remove(&key("b"));
        assert_eq!((jobs.len(), jobs.contains_key(&key("b")), jobs.keys().count()), (2, false, 2));
    }
}
