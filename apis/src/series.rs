//! Metrics of an original operator about its jobs: their names, and what each of them counts.
//!
//! Owns the step from phases to counters. It must not keep a figure: the driver does. Tests: at the end of this file.

use model::Phase;

/// Names of the metrics of one API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Value of their label `kind`.
    pub kind: &'static str,
    /// Jobs that were seen first.
    pub created: &'static str,
    /// Jobs whose object is gone.
    pub deleted: &'static str,
    /// Jobs that succeeded.
    pub successful: &'static str,
    /// Jobs that failed, and the first of a series of restarts.
    pub failed: &'static str,
    /// Jobs that began to restart.
    pub restarted: &'static str,
    /// Jobs that run now.
    pub running: &'static str,
    /// Jobs that have not run yet.
    pub pending: &'static str,
    /// Value of the label `kind` of the two below.
    pub delays_kind: &'static str,
    /// Seconds from when a job was seen first until its first pod ran.
    pub first_pod_delay: &'static str,
    /// Seconds from then until all its pods ran at once.
    pub all_pods_delay: &'static str,
}

/// Change of a job by a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Course {
    /// Phase before it.
    pub from: Phase,
    /// Phase after it.
    pub to: Phase,
    /// Set if the job was taken over from its object: what it shows was counted before.
    pub adopted: bool,
    /// Set if its object is gone.
    pub gone: bool,
}

impl Series {
    /// Returns the counters that a record increases.
    pub fn counted(&self, course: Course) -> Vec<&'static str> {
        let Course { from, to, adopted, gone } = course;
        let mut names = Vec::new();
        names.extend(gone.then_some(self.deleted));
        if adopted || from == to {
            return names;
        }
        names.extend((from == Phase::New).then_some(self.created));
        match to {
            Phase::Succeeded => names.push(self.successful),
            Phase::Restarting => names.extend([self.failed, self.restarted]),
            to if to.is_terminal() => names.push(self.failed),
            _ => {}
        }
        names
    }

    /// Returns the figure in which a job of this phase counts.
    pub const fn present(&self, phase: Phase) -> Option<&'static str> {
        match phase {
            Phase::Running => Some(self.running),
            Phase::New | Phase::Pending | Phase::Queued | Phase::Preparing | Phase::Creating => Some(self.pending),
            Phase::Restarting
            | Phase::Terminating
            | Phase::Succeeded
            | Phase::Failed
            | Phase::TimedOut
            | Phase::Preempted
            | Phase::NodeFailed
            | Phase::Suspended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: Series = Series {
        kind: "job",
        created: "created",
        deleted: "deleted",
        successful: "successful",
        failed: "failed",
        restarted: "restarted",
        running: "running",
        pending: "pending",
        delays_kind: "Job",
        first_pod_delay: "first_pod",
        all_pods_delay: "all_pods",
    };

    #[test]
    fn each_change_is_counted_once() {
        use Phase::{Failed, New, Pending, Restarting, Running, Succeeded, TimedOut};
        let plain = Course { from: New, to: New, adopted: false, gone: false };
        for (course, want) in [
            (Course { to: Pending, ..plain }, vec!["created"]),
            (Course { to: Failed, ..plain }, vec!["created", "failed"]),
            (Course { from: Pending, to: Pending, ..plain }, vec![]),
            (Course { from: Pending, to: Running, ..plain }, vec![]),
            (Course { from: Running, to: Restarting, ..plain }, vec!["failed", "restarted"]),
            (Course { from: Running, to: Succeeded, ..plain }, vec!["successful"]),
            (Course { from: Running, to: TimedOut, ..plain }, vec!["failed"]),
            (Course { to: Succeeded, adopted: true, ..plain }, vec![]),
            (Course { from: Succeeded, to: Succeeded, gone: true, ..plain }, vec!["deleted"]),
        ] {
            assert_eq!(SERIES.counted(course), want, "{course:?}");
        }
        let present: Vec<Option<&str>> =
            [Pending, Running, Restarting, Failed].map(|phase| SERIES.present(phase)).to_vec();
        assert_eq!(present, [Some("pending"), Some("running"), None, None]);
    }
}
