//! Jobs by key. Those at rest are packed, and opened when somebody looks at them.
//!
//! Most jobs that a cluster knows are over: as maps and texts each would take several times what it takes packed. Whether a
//! job is at rest is judged in [`crate::state`]; packing changes nothing that can be observed here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{JobKey, Phase, ResourceVersion, Stamp};

use crate::job::Job;
use crate::observe::share;
use crate::rest::{Resting, Templates};

/// Jobs by key.
#[derive(Debug, Default)]
pub struct Jobs {
    all: BTreeMap<JobKey, Entry>,
    templates: Templates,
    /// Whether any job at rest may be open.
    opened: AtomicBool,
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

impl Clone for Jobs {
    fn clone(&self) -> Self {
        let opened = AtomicBool::new(self.opened.load(Ordering::Relaxed));
        Self { all: self.all.clone(), templates: self.templates.clone(), opened }
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

    /// The job of that key. One at rest is opened, and stays so until [`Jobs::close`].
    pub fn get(&self, key: &JobKey) -> Option<&Job> {
        self.all.get(key).map(|entry| self.look(entry))
    }

    /// What can be said of a job without opening it.
    pub fn brief(&self, key: &JobKey) -> Option<Brief> {
        self.all.get(key).map(Entry::brief)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    /// Every job, in the order of their keys. Those at rest are opened, and stay so until [`Jobs::close`].
    pub fn iter(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.iter().map(|(key, entry)| (key, self.look(entry)))
    }

    /// [`Jobs::iter`] without the keys.
    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.iter().map(|(_, job)| job)
    }

    /// [`Jobs::iter`] from a key on.
    pub fn iter_from(&self, first: &JobKey) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.range(first..).map(|(key, entry)| (key, self.look(entry)))
    }

    /// Those that are not at rest: all that have pods, services or anything to be done.
    pub fn awake(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.all.iter().filter_map(|(key, entry)| match entry {
            Entry::Awake(job) => Some((key, &**job)),
            Entry::Resting(_) => None,
        })
    }

    /// What can be said of every job without opening any.
    pub fn briefs(&self) -> impl Iterator<Item = (&JobKey, Brief)> {
        self.all.iter().map(|(key, entry)| (key, entry.brief()))
    }

    /// Closes the jobs at rest that were opened.
    pub fn close(&mut self) {
        if !std::mem::take(self.opened.get_mut()) {
            return;
        }
        for entry in self.all.values_mut() {
            if let Entry::Resting(resting) = entry {
                resting.close();
            }
        }
    }

    /// Closes one job, if it is at rest.
    pub fn close_one(&mut self, key: &JobKey) {
        if let Some(Entry::Resting(resting)) = self.all.get_mut(key) {
            resting.close();
        }
    }

    /// The job of that key, to be changed: it is at rest no more.
    pub(crate) fn get_mut(&mut self, key: &JobKey) -> Option<&mut Job> {
        let entry = self.all.get_mut(key)?;
        if let Entry::Resting(resting) = entry {
            *entry = Entry::Awake(resting.take());
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

    /// The jobs as they stand in a checkpoint: those at rest as they were packed.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&JobKey, Written<'_>)> {
        self.all.iter().map(|(key, entry)| match entry {
            Entry::Awake(job) => (key, Written::Awake(job)),
            Entry::Resting(resting) => {
                (key, resting.text().map_or_else(|| Written::Awake(self.look(entry)), Written::Resting))
            }
        })
    }

    fn look<'a>(&'a self, entry: &'a Entry) -> &'a Job {
        match entry {
            Entry::Awake(job) => job,
            Entry::Resting(resting) => {
                self.opened.store(true, Ordering::Relaxed);
                resting.open()
            }
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
    fn brief(&self) -> Brief {
        match self {
            Self::Awake(job) => Brief::of(job),
            Self::Resting(resting) => resting.brief(),
        }
    }
}

/// A job as it stands in a checkpoint.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub(crate) enum Written<'a> {
    Awake(&'a Job),
    Resting(Box<serde_json::value::RawValue>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "AITrainingJob".into(), uid: name.into() }
    }

    fn open(jobs: &Jobs, key: &JobKey) -> bool {
        matches!(&jobs.all[key], Entry::Resting(resting) if resting.is_open())
    }

    #[test]
    fn jobs_at_rest_open_when_looked_at_close_again_and_wake_when_changed() {
        let mut jobs = Jobs::default();
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            let job = jobs.get_or_insert(&key(name), || Job { known: true, ..Job::default() }).unwrap();
            job.rv.0 = n as u64;
        }
        jobs.rest(&key("a"));
        jobs.rest(&key("c"));
        assert!(jobs.is_resting(&key("a")) && !jobs.is_resting(&key("b")) && !jobs.is_resting(&key("d")));
        assert_eq!(jobs.awake().map(|(key, _)| &*key.name).collect::<Vec<_>>(), ["b"]);
        assert_eq!(jobs.briefs().map(|(_, job)| job.rv.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!open(&jobs, &key("a")), "a brief opens nothing");
        assert_eq!(jobs.get(&key("a")).unwrap().rv.0, 0);
        assert_eq!(jobs.iter_from(&key("b")).map(|(_, job)| job.rv.0).collect::<Vec<_>>(), [1, 2]);
        assert!(open(&jobs, &key("a")) && open(&jobs, &key("c")));
        jobs.close_one(&key("a"));
        assert!(!open(&jobs, &key("a")) && open(&jobs, &key("c")));
        jobs.close();
        assert!(!open(&jobs, &key("c")));
        jobs.get_mut(&key("c")).unwrap().rv.0 = 7;
        assert!(!jobs.is_resting(&key("c")));
        // Resting changes nothing of what is written.
        let written = |jobs: &Jobs| serde_json::to_string(&jobs.written().collect::<Vec<_>>()).unwrap();
        let before = written(&jobs);
        jobs.rest(&key("b"));
        jobs.get_mut(&key("a")).unwrap();
        assert_eq!(written(&jobs), before);
        jobs.remove(&key("b"));
        assert_eq!((jobs.len(), jobs.contains_key(&key("b")), jobs.keys().count()), (2, false, 2));
    }
}
