//! Backlog: the jobs with commands that wait to be dispatched.
//!
//! Owns the order in which jobs are dispatched. Where few calls may be in flight, each namespace gets its turn, and in it each job: one
//! with a thousand jobs does not hold up the one job of another. Tests: at the end of this file, `snapshots/tests/limits.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::{JobKey, Text};

/// Minimum share of a job, in calls: what its pods have in common is rendered once for all of them.
const MIN_SHARE: usize = 16;

/// Jobs to dispatch.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Namespaces with jobs that wait.
    waiting: BTreeMap<Text, BTreeSet<JobKey>>,
    /// The jobs that were dispatched last in this round, the one of each namespace.
    last_jobs: BTreeMap<Text, JobKey>,
    /// The namespace of the job that was dispatched last in this round.
    last_namespace: Option<Text>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds jobs; one that waits already keeps its place.
    pub(crate) fn add(&mut self, jobs: impl IntoIterator<Item = JobKey>) {
        for job in jobs {
            self.waiting.entry(job.namespace.clone()).or_default().insert(job);
        }
    }

    /// Takes out the next job: of the namespace after the one dispatched last the job after its last one, both in key order and
    /// around. Thousands may wait, so they are not walked.
    pub(crate) fn next(&mut self) -> Option<JobKey> {
        let after = self.last_namespace.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (namespace, jobs) =
            self.waiting.range::<Text, _>((after, Bound::Unbounded)).next().or_else(|| self.waiting.iter().next())?;
        let after = self.last_jobs.get(namespace).map_or(Bound::Unbounded, Bound::Excluded);
        let next = jobs.range::<JobKey, _>((after, Bound::Unbounded)).next().or_else(|| jobs.first())?.clone();
        let namespace = namespace.clone();
        if let Some(jobs) = self.waiting.get_mut(&namespace) {
            jobs.remove(&next);
            if jobs.is_empty() {
                self.waiting.remove(&namespace);
            }
        }
        self.last_jobs.insert(namespace.clone(), next.clone());
        self.last_namespace = Some(namespace);
        Some(next)
    }

    /// Returns how many of `free` calls the job taken last may use, so that the namespaces after it, and the jobs of its own, get their
    /// share in the same turn.
    pub(crate) fn share(&self, free: usize) -> usize {
        let own = self.last_namespace.as_ref().and_then(|namespace| self.waiting.get(namespace));
        let namespaces = self.waiting.len().saturating_add(usize::from(own.is_none()));
        let jobs = own.map_or(0, BTreeSet::len).saturating_add(1);
        free.checked_div(namespaces.saturating_mul(jobs)).unwrap_or(free).max(MIN_SHARE)
    }

    /// Ends the dispatch of a turn. Jobs with commands left wait on; an empty backlog starts again with the first job.
    pub(crate) fn put_back(&mut self, unfinished: Vec<JobKey>) {
        self.add(unfinished);
        self.last_jobs.retain(|namespace, _| self.waiting.contains_key(namespace));
        if self.waiting.is_empty() {
            self.last_namespace = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "AITrainingJob".into(), uid: name.into() }
    }

    /// Dispatches up to `limit` jobs in a turn, none of which finishes.
    fn turn(backlog: &mut Backlog, limit: usize) -> Vec<String> {
        let taken: Vec<JobKey> = std::iter::from_fn(|| backlog.next()).take(limit).collect();
        let names = taken.iter().map(|key| key.name.to_string()).collect();
        backlog.put_back(taken);
        names
    }

    #[test]
    fn jobs_take_turns_after_the_one_dispatched_last() {
        let mut backlog = Backlog::default();
        assert!(backlog.is_empty() && backlog.next().is_none());
        backlog.add(["a", "b", "c"].map(key));
        assert_eq!(turn(&mut backlog, 2), ["a", "b"]);
        backlog.add([key("aa")]);
        assert_eq!(turn(&mut backlog, 2), ["c", "a"], "the round continues; a job that is new waits for its place");
        assert_eq!(turn(&mut backlog, 4), ["aa", "b", "c", "a"], "each job once in a turn");
        assert_eq!(turn(&mut backlog, 1), ["aa"]);
        assert!(!backlog.is_empty());
        while backlog.next().is_some() {}
        backlog.put_back(Vec::new());
        backlog.add(["a", "z"].map(key));
        assert_eq!(turn(&mut backlog, 1), ["a"], "an empty backlog begins at its first job");
    }

    #[test]
    fn calls_are_shared_among_the_jobs_that_wait() {
        let mut backlog = Backlog::default();
        backlog.add(["a", "b", "c", "d"].map(key));
        backlog.next();
        assert_eq!(backlog.share(128), 32);
        assert_eq!(backlog.share(20), MIN_SHARE, "a share below it would render what pods share for a few calls");
        while backlog.next().is_some() {}
        assert_eq!(backlog.share(128), 128, "the last job takes what is left");
    }

    #[test]
    fn namespaces_take_turns_however_many_jobs_they_have() {
        let of = |namespace: &str, name: &str| JobKey { namespace: namespace.into(), ..key(name) };
        let mut backlog = Backlog::default();
        backlog.add((0..1000).map(|n| of("many", &format!("j{n:03}"))));
        backlog.add([of("one", "j"), of("two", "a"), of("two", "b")]);
        let mut taken = Vec::new();
        let mut shares = Vec::new();
        for _ in 0..6 {
            taken.extend(backlog.next().map(|key| key.to_string()));
            shares.push(backlog.share(600));
        }
        assert_eq!(taken, ["many/j000", "one/j", "two/a", "many/j001", "two/b", "many/j002"]);
        assert_eq!(shares, [MIN_SHARE, 200, 150, MIN_SHARE, 300, MIN_SHARE]);
        backlog.put_back(vec![of("many", "j000"), of("one", "j")]);
        assert_eq!(backlog.next(), Some(of("one", "j")), "the round continues");
        assert_eq!(backlog.next(), Some(of("many", "j003")));
    }
}
