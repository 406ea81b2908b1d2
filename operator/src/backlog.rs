//! Backlog: the jobs with commands that wait to be dispatched.
//!
//! Owns the order in which jobs are dispatched. Where few calls may be in flight, each job gets its turn. Tests: at the end
//! of this file, `snapshots/tests/limits.rs`.

use std::collections::BTreeSet;
use std::ops::Bound;

use model::JobKey;

/// Minimum share of a job, in calls: what its pods have in common is rendered once for all of them.
const MIN_SHARE: usize = 16;

/// Jobs to dispatch.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    jobs: BTreeSet<JobKey>,
    /// The job that was dispatched last in this round.
    last_dispatched: Option<JobKey>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds jobs; one that waits already keeps its place.
    pub(crate) fn add(&mut self, jobs: impl IntoIterator<Item = JobKey>) {
        self.jobs.extend(jobs);
    }

    /// Takes out the next job: the first one after the job dispatched last, in key order and around. Thousands may wait, so
    /// they are not walked.
    pub(crate) fn next(&mut self) -> Option<JobKey> {
        let after = self.last_dispatched.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.jobs.range((after, Bound::Unbounded)).next().or_else(|| self.jobs.first());
        let next = next.cloned()?;
        self.jobs.remove(&next);
        self.last_dispatched = Some(next.clone());
        Some(next)
    }

    /// Returns how many of `free` calls the job taken last may use, so that the jobs after it get their share in the same turn.
    pub(crate) fn share(&self, free: usize) -> usize {
        free.checked_div(self.jobs.len().saturating_add(1)).unwrap_or(free).max(MIN_SHARE)
    }

    /// Ends the dispatch of a turn. Jobs with commands left wait on; an empty backlog starts again with the first job.
    pub(crate) fn put_back(&mut self, unfinished: Vec<JobKey>) {
        self.jobs.extend(unfinished);
        if self.jobs.is_empty() {
            self.last_dispatched = None;
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
        assert_eq!(turn(&mut backlog, 2), ["c", "a"], "the round goes on; a job that is new waits for its place");
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
}
