//! Decisions in words: messages that name pods, containers, nodes, reasons and codes.

use std::fmt::Write as _;

use model::fact::EndRequest;
use model::{
    Cause, CauseKind, ContainerEnd, ContainerFact, ContainerState, LossKind, PodFact, PodPhase, RestartScope,
    ShareLoss, SlotId, Text, exit,
};

use crate::job::{Job, Pod};
use crate::slots::{any_creation_error, creation_error};

/// Pods named in one message; more are counted.
pub(crate) const MAX_NAMED: usize = 8;

/// Reason of a pod that the scheduler cannot place.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Returns what is known of a container, followed by its message on one line.
pub fn with_message(what: &str, message: Option<&Text>) -> String {
    let lines = message.into_iter().flat_map(|message| message.lines());
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { what.to_owned() } else { format!("{what}: {}", lines.join(" | ")) }
}

/// Returns why the queues took places away: one text for the job that loses and the job that gains. `queue`: that of the places.
pub(crate) fn loss_words(loss: &ShareLoss, queue: Option<&Text>) -> String {
    let queue = queue.map_or_else(String::new, |queue| format!(" in queue {queue}"));
    let job = loss.job.as_deref().unwrap_or("the job");
    let gainer = loss.beneficiary.as_deref();
    let to = gainer.unwrap_or("another job");
    match loss.kind {
        LossKind::Preempted => format!("{job} is preempted{queue}: its GPUs go to {to}"),
        LossKind::Reclaimed => format!("{job} is preempted{queue}: the GPUs that it borrowed go to {to}"),
        LossKind::Moved => format!("pods of {job} move to other nodes"),
        LossKind::Resized => {
            let to = gainer.map_or_else(String::new, |gainer| format!(": GPUs go to {gainer}"));
            format!("the number of pods of {job} changes{queue}{to}")
        }
        LossKind::NodesLost => format!("{job} lost nodes, and the others have no room for its pods"),
    }
}

/// Returns the outcome of one pod in words.
pub(crate) fn pod_outcome(pod: &Pod, kind: CauseKind) -> String {
    let fact = &pod.fact;
    let mut out = format!("pod {}", fact.name);
    let node = fact.node.as_deref();
    match kind {
        CauseKind::NodeLost => {
            let _ = write!(out, " lost its node {}", node.unwrap_or("(none)"));
        }
        CauseKind::CreationFailed => {
            let (container, trouble) = creation_error(&pod.fact)
                .map_or_else(|| ("", "creation failed".to_owned()), |(c, r, m)| (c, with_message(r, m)));
            let _ = write!(out, ", container {container}, on node {}: {trouble}", node.unwrap_or("(none)"));
        }
        CauseKind::Completed => out.push_str(" succeeded"),
        CauseKind::Exited | CauseKind::GpuFault => {
            if kind == CauseKind::GpuFault {
                out.push_str(" had a GPU fault");
            }
            out.push_str(&ends(fact));
            if let Some(node) = node {
                let _ = write!(out, ", on node {node}");
            }
        }
        CauseKind::PodFailed
        | CauseKind::EndRequested(_)
        | CauseKind::TimeLimit
        | CauseKind::NoPods
        | CauseKind::BudgetSpent
        | CauseKind::Resized
        | CauseKind::Suspended
        | CauseKind::ShareLost(_)
        | CauseKind::NotStarted
        | CauseKind::Invalid
        | CauseKind::NotAdmitted => {
            let _ = write!(out, " failed");
            if let Some(node) = node {
                let _ = write!(out, " on node {node}");
            }
            if let Some(reason) = &fact.reason {
                let _ = write!(out, ": {reason}");
            }
            if let Some(message) = &fact.message {
                let _ = write!(out, ": {message}");
            }
            out.push_str(&ends_of_init(fact));
        }
    }
    out
}

/// Returns how the containers of a pod ended, each after a comma: in their present run, or in the one before if that failed.
fn ends(fact: &PodFact) -> String {
    let end = |container: &ContainerFact| {
        let end = match &container.state {
            ContainerState::Terminated(end) => Some(end),
            ContainerState::Waiting { .. } | ContainerState::Running => container.failure(),
        };
        Some(end_words("container", &container.name, end?))
    };
    let ends: String = fact.containers.iter().filter_map(end).collect();
    ends_of_init(fact) + &ends
}

/// Returns how the init containers of a pod failed, each after a comma.
fn ends_of_init(fact: &PodFact) -> String {
    fact.init.iter().filter_map(|each| Some(end_words("init container", &each.name, each.failure()?))).collect()
}

fn end_words(what: &str, name: &Text, end: &ContainerEnd) -> String {
    with_message(&format!(", {what} {name} {}", exit::words(end.code, &end.reason)), end.message.as_ref())
}

/// A cause made of what became of some pods.
pub(crate) fn cause_of_pods(job: &Job, lead: &str, found: &[(SlotId, CauseKind)]) -> Cause {
    let mut message = String::from(lead);
    for (n, (id, kind)) in found.iter().take(MAX_NAMED).enumerate() {
        message.push_str(if n == 0 { if lead.is_empty() { "" } else { ": " } } else { "; " });
        match job.slot(id).and_then(|s| s.pod.as_ref()).and_then(|uid| job.pods.get(uid)) {
            Some(pod) => message.push_str(&pod_outcome(pod, *kind)),
            None => {
                let _ = write!(message, "{id}");
            }
        }
    }
    if let Some(more) = found.len().checked_sub(MAX_NAMED).filter(|n| *n > 0) {
        let _ = write!(message, "; and {more} more");
    }
    Cause {
        kind: found.first().map_or(CauseKind::NoPods, |(_, kind)| *kind),
        slots: found.iter().take(MAX_NAMED).map(|(id, _)| id.clone()).collect(),
        message: Text::from(message),
    }
}

/// Returns the cause that an end request on the job is.
pub(crate) fn cause_of_end_request(request: EndRequest, value: &str) -> Cause {
    let what = match request {
        EndRequest::Preempted => "marked as preempted",
        EndRequest::Failed => "marked as failed",
        EndRequest::NodeFailed => "marked as failed by its node",
        EndRequest::Stopped => "stopped by its user",
    };
    let message = if value.is_empty() { what.to_owned() } else { format!("{what}: {value}") };
    Cause { kind: CauseKind::EndRequested(request), slots: Vec::new(), message: Text::from(message) }
}

/// Returns what a restart takes along, in words.
pub(crate) fn scope_words(scope: RestartScope, group: &str, slot: &SlotId) -> String {
    match scope {
        RestartScope::Pod | RestartScope::Each => format!("pod {slot}"),
        RestartScope::Replica => format!("every pod of {group}"),
        RestartScope::All => "every pod of the job".to_owned(),
    }
}

/// Returns what keeps pods of a job from starting: one that cannot be placed, containers that cannot be created. Empty where nothing
/// is known to.
pub fn trouble(job: &Job) -> String {
    let creation = creation_trouble(job);
    let known = unplaced_pod(job).into_iter().chain((!creation.is_empty()).then(|| creation.to_string()));
    known.collect::<Vec<_>>().join("; ")
}

/// Returns the pod that the scheduler cannot place, and why, in words.
pub fn unplaced_pod(job: &Job) -> Option<String> {
    let (uid, why) = job.unschedulable.as_ref()?;
    // The scheduler's words change with the cluster.
    let pod = job.pods.get(uid).map(|pod| &pod.fact);
    let why = pod.and_then(|pod| pod.message.as_ref()).unwrap_or(why);
    Some(pod.map_or_else(|| format!("no node: {why}"), |pod| unplaced_words(pod, why)))
}

/// Returns a pod that cannot be placed, and why, in words.
fn unplaced_words(pod: &PodFact, why: &Text) -> String {
    format!("pod {} cannot be placed: {why}", pod.name)
}

/// Returns what keeps a pod from starting: a reason as Kubernetes spells it, and the pod, container and reason in words. `None` where
/// nothing is known to.
pub fn pod_trouble(pod: &PodFact) -> Option<(Text, String)> {
    let is_unplaced = pod.phase == PodPhase::Pending && pod.node.is_none();
    let unplaced = pod.message.as_ref().filter(|_| is_unplaced);
    let unplaced = unplaced.map(|why| (Text::from(UNSCHEDULABLE), unplaced_words(pod, why)));
    unplaced.or_else(|| creation_error_words(pod).map(|(reason, words)| (reason.clone(), words)))
}

/// Returns what the job's starting pods wait for, as far as it is known.
pub fn creation_trouble(job: &Job) -> Text {
    let mut out = String::new();
    for (name, group) in &job.groups {
        for index in group.to_evaluate.iter().take(MAX_NAMED) {
            let pod = group.slot(*index).and_then(|s| s.pod.as_ref()).and_then(|uid| job.pods.get(uid));
            let words = pod.filter(|pod| !pod.is_leaving()).and_then(|pod| creation_error_words(&pod.fact));
            if let Some((_, words)) = words {
                out.push_str(if out.is_empty() { "" } else { "; " });
                out.push_str(&words);
            }
            if out.len() > 1024 {
                let _ = write!(out, "; more of {name}");
                return Text::from(out);
            }
        }
    }
    Text::from(out)
}

/// Returns the reason for which a container of a pod cannot be created, and the pod, container and reason in words; `None` where all can.
fn creation_error_words(pod: &PodFact) -> Option<(&Text, String)> {
    let (container, reason, message) = any_creation_error(pod)?;
    Some((reason, format!("pod {}, container {container}: {}", pod.name, with_message(reason, message))))
}

/// Writes an amount in thousandths as Kubernetes does. Whole bytes have the largest unit that leaves no fraction.
pub fn amount_words(name: &str, milli: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let (Some(whole), Some(0)) = (milli.checked_div(1000), milli.checked_rem(1000)) else { return format!("{milli}m") };
    let is_bytes = name.ends_with("memory") || name.ends_with("storage");
    let in_unit = |(unit, bytes): &(&str, u64)| {
        let count = whole.checked_div(*bytes).filter(|count| *count > 0)?;
        (whole.checked_rem(*bytes) == Some(0)).then(|| format!("{count}{unit}"))
    };
    UNITS.iter().filter(|_| is_bytes).find_map(in_unit).unwrap_or_else(|| whole.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_as_kubernetes_does() {
        for (resource, milli, want) in [
            ("cpu", 8000, "8"),
            ("cpu", 1500, "1500m"),
            ("memory", 8 * (1 << 30) * 1000, "8Gi"),
            ("limits.memory", 1000, "1"),
            ("rdma/ib", 2000, "2"),
        ] {
            assert_eq!(amount_words(resource, milli), want, "{resource} {milli}");
        }
    }
}
