//! Facts as text. Decides nothing. Tests: the golden outputs of `explain` and `history`.

use std::fmt::Write as _;

use engine::nodes::OUT_OF_SERVICE;
use engine::{BlockedBy, Job, amount_words, with_message};
use model::command::Outcome;
use model::{ContainerState, Fact, ObjectRef, OwnedFact, PodFact};

use crate::events::share_words;

/// Returns a fact about an object of a job as text with the object's name, where the fact has its uid only.
pub(crate) fn named(job: Option<&Job>, fact: &Fact) -> Option<String> {
    let job = job?;
    let pod = |uid| job.pods.get(uid).map(|p| format!("pod {}", p.fact.name));
    let service = |uid| job.services.get(uid).map(|s| format!("service {}", s.name));
    match fact {
        Fact::PodGone { uid, .. } => Some(format!("{} is gone", pod(uid)?)),
        Fact::ServiceGone { uid } => Some(format!("{} is gone", service(uid)?)),
        Fact::Answered { object: ObjectRef::PodUid(uid), outcome } => {
            Some(outcome_words(&format!("delete of {}", pod(uid)?), outcome))
        }
        Fact::Answered { object: ObjectRef::ServiceUid(uid), outcome } => {
            Some(outcome_words(&format!("delete of {}", service(uid)?), outcome))
        }
        Fact::TermBegan { .. }
        | Fact::Configured(_)
        | Fact::Job(_)
        | Fact::Spec(_)
        | Fact::JobGone
        | Fact::Pod(_)
        | Fact::Service(_)
        | Fact::Owned(_)
        | Fact::OwnedGone { .. }
        | Fact::Node(_)
        | Fact::NodeGone { .. }
        | Fact::ForeignUse { .. }
        | Fact::Class(_)
        | Fact::ClassGone { .. }
        | Fact::Quota(_)
        | Fact::QuotaGone { .. }
        | Fact::Namespace(_)
        | Fact::NamespaceGone { .. }
        | Fact::NodeChanged { .. }
        | Fact::Relisted { .. }
        | Fact::Answered { .. }
        | Fact::Published { .. }
        | Fact::Due
        | Fact::Adopted(_)
        | Fact::SchedulingCycle { .. }
        | Fact::ShareChanged(_)
        | Fact::WaitReported(_)
        | Fact::Dequeued
        | Fact::Measured { .. }
        | Fact::NodeFound { .. }
        | Fact::QueueReported(_) => None,
    }
}

/// Returns a fact as text; `None` for those that matter to bookkeeping only.
pub(crate) fn fact_words(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::TermBegan { term } => format!("term {term} began"),
        Fact::Configured(_) => "configuration recorded".to_owned(),
        Fact::Job(job) if job.deleting => "the job object is being deleted".to_owned(),
        Fact::Job(job) if !job.end_requests.is_empty() => {
            let end_requests: Vec<String> =
                job.end_requests.iter().map(|(request, value)| format!("{request:?}={value}")).collect();
            format!("the job object carries marks: {}", end_requests.join(", "))
        }
        Fact::Job(_) | Fact::Published { .. } | Fact::Due | Fact::Relisted { .. } | Fact::SchedulingCycle { .. } => {
            return None;
        }
        Fact::ShareChanged(change) => share_words(change),
        Fact::WaitReported(why) => format!("waits: {}", why.as_ref()?),
        Fact::QueueReported(report) => format!("{} jobs hold places, {} wait", report.admitted, report.pending),
        Fact::Spec(spec) => match &spec.spec {
            Ok(spec) => {
                let groups: Vec<String> =
                    spec.groups.iter().map(|g| format!("{} x{}", g.display(), g.replicas)).collect();
                format!("spec seen: {}", groups.join(", "))
            }
            Err(_) if !spec.missing.is_empty() => {
                let missing: Vec<String> =
                    spec.missing.iter().map(|missing| BlockedBy::Missing(missing).to_string()).collect();
                missing.join("; ")
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("spec cannot be accepted: {}", errors.join("; "))
            }
        },
        Fact::JobGone => "the job object is gone".to_owned(),
        Fact::Pod(pod) => pod_words(pod),
        Fact::PodGone { uid, .. } => format!("pod with uid {uid} is gone"),
        Fact::Service(service) => format!("service {} seen", service.name),
        Fact::ServiceGone { uid } => format!("service with uid {uid} is gone"),
        Fact::Owned(owned) => {
            let state = match (&owned.failed, owned.deleting, owned.ready) {
                _ if owned.gate.is_some() && !owned.deleting => gate_words(owned),
                (Some(why), ..) => format!("cannot be used: {why}"),
                (None, true, _) => "is being deleted".to_owned(),
                (None, false, true) => "is ready".to_owned(),
                (None, false, false) => "exists".to_owned(),
            };
            format!("{} {state}", owned.object)
        }
        Fact::OwnedGone { uid } => format!("an object of the job, with uid {uid}, is gone"),
        Fact::Node(node) if node.conditions.iter().any(|condition| &**condition == OUT_OF_SERVICE) => {
            format!("node {} is out of service", node.name)
        }
        Fact::Node(node) => format!("node {} is {}", node.name, if node.ready { "ready" } else { "not ready" }),
        Fact::ForeignUse { node, gpus, requests } => {
            let gpus: Vec<String> = gpus.iter().map(|(resource, count)| format!("{count} {resource}")).collect();
            let gpus = if gpus.is_empty() { "no GPUs".to_owned() } else { gpus.join(", ") };
            let requests =
                requests.iter().map(|(resource, amount)| format!(", {resource} {}", amount_words(resource, *amount)));
            format!("pods of others hold {gpus}{} on node {node}", requests.collect::<String>())
        }
        Fact::NodeGone { name } => format!("node {name} is gone"),
        Fact::Class(class) => format!("priority class {} has the value {}", class.name, class.value),
        Fact::ClassGone { name } => format!("priority class {name} is gone"),
        Fact::Quota(quota) => format!("ResourceQuota {} of namespace {} changed", quota.name, quota.namespace),
        Fact::QuotaGone { namespace, name } => format!("ResourceQuota {name} of namespace {namespace} is gone"),
        Fact::Namespace(namespace) => format!("the labels of namespace {} changed", namespace.name),
        Fact::NamespaceGone { name } => format!("namespace {name} is gone"),
        Fact::Dequeued => "the coordinator dequeued the job".to_owned(),
        Fact::Measured { latency_us: Some(us) } => format!("a step of the training took {} ms", us / 1000),
        Fact::Measured { latency_us: None } => "the log of the pod shows no time of a step".to_owned(),
        Fact::NodeFound { node } if node.is_empty() => "no node shows how much storage it has".to_owned(),
        Fact::NodeFound { node } => format!("node {node} has the most free storage"),
        Fact::NodeChanged { name } => format!("node {name} changed"),
        Fact::Answered { object, outcome } => answer_words(object, outcome),
        Fact::Adopted(adopted) => format!("adopted from its object, mirror {}", adopted.mirror.stamp),
    })
}

pub(crate) fn answer_words(object: &ObjectRef, outcome: &Outcome) -> String {
    outcome_words(&object.to_string(), outcome)
}

fn outcome_words(object: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done | Outcome::Forced => format!("{object}: done"),
        Outcome::Gone => format!("{object}: not there"),
        Outcome::Taken { waiting: true, .. } => {
            format!("{object}: the name is still held by an object that is going away")
        }
        Outcome::Taken { unseen: true, .. } => {
            format!("{object}: it is there, but its labels were changed so that it is not watched")
        }
        Outcome::Taken { .. } => format!("{object}: the name belongs to something else"),
        Outcome::Refused { code, message } => format!("{object}: refused ({code} {message})"),
        Outcome::Unknown { code } => format!("{object}: no clear answer ({code})"),
    }
}

pub(crate) fn pod_words(pod: &PodFact) -> String {
    let mut text = format!("pod {} is {:?}", pod.name, pod.phase);
    if let Some(node) = &pod.node {
        let _ = write!(text, " on {node}");
    }
    for container in pod.init.iter().chain(&pod.containers) {
        match &container.state {
            ContainerState::Waiting { reason, message } => {
                let reason = with_message(reason, message.as_ref());
                let _ = write!(text, ", {} waits: {reason}", container.name);
            }
            ContainerState::Terminated(end) => {
                let code = with_message(&end.code.to_string(), end.message.as_ref());
                let _ = write!(text, ", {} exited {code}", container.name);
            }
            ContainerState::Running => {}
        }
        // Of one that has ended again, its newest end is shown.
        let is_over = matches!(container.state, ContainerState::Terminated(_));
        if let Some(last) = container.last.as_ref().filter(|_| !is_over) {
            let code = with_message(&last.code.to_string(), last.message.as_ref());
            let _ = write!(text, ", the last run of {} exited {code}", container.name);
        }
    }
    if let Some(reason) = &pod.reason {
        let _ = write!(text, ", {reason}");
    }
    if pod.deleting.is_some() {
        text.push_str(", being deleted");
    }
    text
}

/// Returns the state of an object that admits the pods of a job, as text.
fn gate_words(owned: &OwnedFact) -> String {
    let why = owned.gate.as_ref().and_then(|gate| gate.message.as_deref());
    match (owned.ready, why) {
        (true, _) => "admits the pods".to_owned(),
        (false, Some(why)) => format!("does not admit the pods: {why}"),
        (false, None) => "does not admit the pods".to_owned(),
    }
}
