//! Events as text. Decides nothing. Tests: the golden outputs of `explain` and `history`.

use std::fmt::Write as _;

use engine::{scaling_words, storage};
use model::{Decision, JobEvent, JobKey, LossKind, QueueEvent, ScalingStep, ShareChange, ShareTarget, UserCounts};

/// Returns an event of the queues as text; `None` for those that a job's record says better.
pub(crate) fn queue_event_words(event: &QueueEvent) -> Option<String> {
    Some(match event {
        QueueEvent::Allocated(update) => {
            let target = |(job, target): &(JobKey, ShareTarget)| {
                format!("{}/{} shall run {}", job.namespace, job.name, target.share)
            };
            let targets: Vec<String> = update.targets.iter().map(target).collect();
            if targets.is_empty() {
                return None;
            }
            targets.join("; ")
        }
        QueueEvent::Shared { changes } => {
            let change = |(job, change): &(JobKey, ShareChange)| {
                format!("{}/{} {}", job.namespace, job.name, share_words(change))
            };
            changes.iter().map(change).collect::<Vec<_>>().join("; ")
        }
        QueueEvent::Dequeued { job, .. } => format!("{}/{} is dequeued", job.namespace, job.name),
        QueueEvent::Reported { .. } | QueueEvent::WaitsReported { .. } => return None,
    })
}

/// Returns an event of a job as text; `None` for those that a phase change beside them says better.
pub(crate) fn job_event_words(event: &JobEvent) -> Option<String> {
    Some(match event {
        JobEvent::Fenced => "this term takes the job over: its mirror is written first".to_owned(),
        JobEvent::PodsPlanned { slots } => {
            format!("create pods {}", named_list(&slots.iter().map(|(s, _)| s.to_string()).collect::<Vec<_>>()))
        }
        JobEvent::ServicesPlanned { slots } => {
            format!("create services {}", named_list(&slots.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        JobEvent::OwnedPlanned { objects } => {
            format!("create {}", named_list(&objects.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        JobEvent::OwnedDropped { objects } => {
            format!("delete {}", named_list(&objects.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        JobEvent::Achieved { group, run } => format!("{group} completed run {run}"),
        JobEvent::PodsDropped { uids } => format!("delete {} surplus pods", uids.len()),
        JobEvent::ServicesDropped { uids } => format!("delete {} services", uids.len()),
        JobEvent::Decided(decision) => match &**decision {
            Decision::Restart { group, scope, cause, retry_at, .. } => {
                let wait = retry_at.map(|at| format!(", not before {}", at.to_rfc3339())).unwrap_or_default();
                format!("restart (scope {scope:?}, charged to {group}{wait}): {}", cause.message)
            }
            Decision::End { phase, cause, clean, live_only } => {
                let pods = match (clean, live_only) {
                    (true, false) => "pods deleted",
                    (true, true) => "pods that have not ended deleted",
                    (false, _) => "pods kept",
                };
                format!("end as {phase:?}, {pods}: {}", cause.message)
            }
            Decision::Halt { cause } => format!("halt: {}", cause.message),
        },
        JobEvent::Replaced { group, slots } => {
            let names: Vec<String> = slots.iter().map(|each| format!("{group}-{}", each.index)).collect();
            let last = slots.iter().filter_map(|each| each.retry_at).max();
            let wait = last.map(|at| format!(", not before {}", at.to_rfc3339())).unwrap_or_default();
            format!("replace pods {} (charged to {group}{wait})", named_list(&names))
        }
        JobEvent::Lost { slots } => {
            let names: Vec<String> = slots.iter().map(|(slot, _)| slot.to_string()).collect();
            format!("pods {} failed for good: not created again", named_list(&names))
        }
        JobEvent::RestartCleared => "the old pods are gone".to_owned(),
        JobEvent::Ended { phase } => format!("phase {phase:?}: ended"),
        JobEvent::PhaseChanged { to, message } if message.is_empty() => format!("phase {to:?}"),
        JobEvent::PhaseChanged { to, message } => format!("phase {to:?}: {message}"),
        JobEvent::Autoscaled(step) => match &step.scaling {
            Some(scaling) => scaling_words(scaling),
            None => format!("autoscaler: {}", step_words(step.next)),
        },
        JobEvent::NodeDropped => storage::DROPPED.to_owned(),
        JobEvent::UsersCounted(UserCounts { pending, running, finished, gpus }) => {
            format!("its jobs: {pending} pending, {running} running on {gpus} GPUs, {finished} finished")
        }
        JobEvent::Stalled { message: Some(message) } => message.to_string(),
        JobEvent::Stalled { message: None } | JobEvent::MessageChanged { .. } => return None,
    })
}

/// Returns a change of a share, or of its target, as text.
pub(crate) fn share_words(change: &ShareChange) -> String {
    let mut text =
        if change.share.is_empty() { "holds no place".to_owned() } else { format!("may run {}", change.share) };
    if let Some(target) = &change.target {
        let _ = write!(text, ", and shall run {target} once there is room");
    }
    if let Some(loss) = &change.why {
        let gainer = loss.beneficiary.as_ref().map(|gainer| format!(" for {gainer}")).unwrap_or_default();
        let _ = write!(text, " ({}{gainer})", loss_words(loss.kind));
    }
    text
}

/// Returns the next step of an autoscaler as text.
const fn step_words(next: ScalingStep) -> &'static str {
    match next {
        ScalingStep::Look { .. } => "measures again later",
        ScalingStep::AwaitPods { .. } => "waits for pending pods",
        ScalingStep::ReadLog | ScalingStep::Judge { .. } => "reads the log of a pod",
        ScalingStep::RestartPods => "has pods restarted that were started for another number of pods",
        ScalingStep::Rest => "ends",
    }
}

const fn loss_words(kind: LossKind) -> &'static str {
    match kind {
        LossKind::Preempted => "preempted",
        LossKind::Reclaimed => "reclaimed",
        LossKind::Moved => "moved",
        LossKind::Resized => "resized",
        LossKind::NodesLost => "nodes are lost",
    }
}

/// Joins names. Of more than a line holds, it gives the first ones and their number.
pub(crate) fn named_list(names: &[String]) -> String {
    match names.len() {
        0..=6 => names.join(", "),
        n => format!("{}, ... ({n} in all)", names.get(..4).unwrap_or_default().join(", ")),
    }
}
