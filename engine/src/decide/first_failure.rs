//! The order of failures: which pod failed first, and which ones only followed.
//!
//! A worker whose peer is gone fails as well, often within milliseconds and with a lower index. By facts alone: the time a
//! container ended and the kind of its failure. Old logs have neither, and keep the order of the indices.

use model::{ContainerState, PodPhase, Timestamp};

use super::Report;
use crate::classify::DecisionContext;
use crate::job::{Job, Pod};

/// The place of a failure among those of a job; the least came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// It followed from another failure, whenever it was.
    followed: bool,
    /// The end of its first container that failed; `None` for a pod that failed as a whole.
    at: Option<Timestamp>,
}

impl Rank {
    /// Comes after every failure of a pod.
    pub(super) const LAST: Self = Self { followed: true, at: Some(Timestamp(u64::MAX)) };

    /// Returns the rank of a pod that failed.
    pub(super) fn of(pod: &Pod) -> Self {
        let failed = pod.fact.containers.iter().filter_map(|container| match &container.state {
            ContainerState::Terminated(end) if end.code != 0 => Some((end.lost_peer, end.finished)),
            ContainerState::Terminated(_) | ContainerState::Waiting { .. } | ContainerState::Running => None,
        });
        let (followed, at) = failed.min().unwrap_or_default();
        Self { followed, at }
    }
}

/// Returns true while a failure has to wait, because an earlier one may still be observed.
pub(super) fn is_awaited(context: &DecisionContext<'_>, job: &Job, reports: &[(usize, Report)]) -> bool {
    let failed = reports.iter().any(|(_, report)| matches!(report, Report::Restart { .. } | Report::Failed { .. }));
    failed && until(job, context.config.failure_window_ms).is_some_and(|until| context.now < until)
}

/// Returns the end of the window after the first failure that is known, while pods are left that may fail in it.
pub(crate) fn until(job: &Job, window_ms: u64) -> Option<Timestamp> {
    if window_ms == 0 {
        return None;
    }
    let staying = || job.pods.values().map(|pod| &**pod).filter(|pod| !pod.is_leaving());
    // The end that the container shows survives a lost log. A node's clock may be ahead: it does not lengthen the window.
    let failed_at = |pod: &Pod| match (pod.failed_at, Rank::of(pod).at) {
        (Some(seen), Some(ended)) => Some(seen.min(ended)),
        (seen, _) => seen,
    };
    let first = staying().filter(|pod| pod.fact.phase == PodPhase::Failed).filter_map(failed_at).min()?;
    // One that starts may run before it is seen to.
    let starts = |pod: &Pod| pod.fact.phase == PodPhase::Pending && pod.fact.node.is_some();
    let may_fail = staying().any(|pod| pod.fact.phase == PodPhase::Running || starts(pod));
    may_fail.then(|| first.plus_ms(window_ms))
}
