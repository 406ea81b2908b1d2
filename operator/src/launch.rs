//! Launches: how long jobs take from when they were seen first until their pods run.
//!
//! Owns which jobs are between their first pod and their last one. That is not in the log: a job that another process saw begin is
//! left out. Tests: `embedded/src/session.rs`.

use std::collections::BTreeSet;

use engine::Job;
use engine::job::MAX_MILESTONES;
use model::{JobKey, Phase, Timestamp};

/// Delays of a job's launch that a record ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launch {
    /// Milliseconds until its first pod ran.
    pub first_pod_ms: Option<u64>,
    /// Milliseconds until all its pods ran at once, for the first time and without a restart.
    pub all_pods_ms: Option<u64>,
}

/// Jobs that have begun to run.
#[derive(Debug, Default)]
pub(crate) struct Launches(BTreeSet<JobKey>);

impl Launches {
    /// Takes in a job as a record left it, and returns what ended with it. `had_run` is whether the job had run before.
    pub(crate) fn take(&mut self, key: &JobKey, had_run: bool, job: &Job, now: Timestamp) -> Launch {
        // The first of many milestones may be dropped.
        let seen = job.milestones.front().filter(|_| job.milestones.len() < MAX_MILESTONES).map(|first| first.at);
        let since = |at: Timestamp| seen.map(|seen| at.0.saturating_sub(seen.0));
        let first = job.first_running_at.filter(|_| !had_run);
        if first.is_some() {
            self.0.insert(key.clone());
        }
        if job.phase == Phase::Restarting || job.phase.is_terminal() || job.object.is_gone() {
            self.0.remove(key);
        }
        let runs = self.0.contains(key) && all_run(job);
        if runs {
            self.0.remove(key);
        }
        Launch { first_pod_ms: first.and_then(since), all_pods_ms: Some(now).filter(|_| runs).and_then(since) }
    }
}

fn all_run(job: &Job) -> bool {
    let groups = job.spec().map(|spec| &*spec.groups).unwrap_or_default();
    let active = |name: &model::Text| job.groups.get(name).map_or(0, |group| group.counters.active);
    groups.iter().all(|group| active(&group.name) >= group.replicas)
}
