//! Facts as text. Decides nothing. Tests: the golden outputs of `explain` and `history`.

use std::fmt::Write as _;

use engine::nodes::OUT_OF_SERVICE;
use engine::{BlockedBy, Job, amount_words, with_message};
use model::command::Outcome;
use model::{ClusterFact, ContainerState, JobFact, ObjectRef, OwnedFact, PodFact, Uid};

use crate::events::share_words;

/// Returns a fact about the cluster as text; `None` for those that matter to bookkeeping only.
pub(crate) fn cluster_fact_words(fact: &ClusterFact) -> Option<String> {
    Some(match fact {
        ClusterFact::TermBegan { term } => format!("term {term} began"),
        ClusterFact::Configured(_) => "configuration recorded".to_owned(),
        ClusterFact::Node(node) if node.conditions.iter().any(|condition| &**condition == OUT_OF_SERVICE) => {
            format!("node {} is out of service", node.name)
        }
        ClusterFact::Node(node) => format!("node {} is {}", node.name, if node.ready { "ready" } else { "not ready" }),
        ClusterFact::ForeignUse { node, gpus, requests } => {
            let gpus: Vec<String> = gpus.iter().map(|(resource, count)| format!("{count} {resource}")).collect();
            let gpus = if gpus.is_empty() { "no GPUs".to_owned() } else { gpus.join(", ") };
            let requests =
                requests.iter().map(|(resource, amount)| format!(", {resource} {}", amount_words(resource, *amount)));
            format!("pods of others hold {gpus}{} on node {node}", requests.collect::<String>())
        }
        ClusterFact::NodeGone { name } => format!("node {name} is gone"),
        ClusterFact::Class(class) => format!("priority class {} has the value {}", class.name, class.value),
        ClusterFact::ClassGone { name } => format!("priority class {name} is gone"),
        ClusterFact::Quota(quota) => format!("ResourceQuota {} of namespace {} changed", quota.name, quota.namespace),
        ClusterFact::QuotaGone { namespace, name } => format!("ResourceQuota {name} of namespace {namespace} is gone"),
        ClusterFact::Namespace(namespace) => format!("the labels of namespace {} changed", namespace.name),
        ClusterFact::NamespaceGone { name } => format!("namespace {name} is gone"),
        ClusterFact::Relisted { .. } => return None,
    })
}

/// Returns a fact about a job as text; `None` for those that matter to bookkeeping only. `job`: the job before the fact, which has the
/// names of objects that the fact identifies by uid.
pub(crate) fn job_fact_words(job: Option<&Job>, fact: &JobFact) -> Option<String> {
    let pod = |uid: &Uid| Some(format!("pod {}", job?.pods.get(uid)?.fact.name));
    let service = |uid: &Uid| Some(format!("service {}", job?.services.get(uid)?.name));
    Some(match fact {
        JobFact::Object(job) if job.deleting => "the job object is being deleted".to_owned(),
        JobFact::Object(job) if !job.end_requests.is_empty() => {
            let end_requests: Vec<String> =
                job.end_requests.iter().map(|(request, value)| format!("{request:?}={value}")).collect();
            format!("the job object carries marks: {}", end_requests.join(", "))
        }
        JobFact::Object(_) | JobFact::Published { .. } | JobFact::Due => return None,
        JobFact::ShareChanged(change) => share_words(change),
        JobFact::WaitReported(why) => format!("waits: {}", why.as_ref()?),
        JobFact::QueueReported(report) => format!("{} jobs hold places, {} wait", report.admitted, report.pending),
        JobFact::Spec(spec) => match &spec.spec {
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
        JobFact::Gone => "the job object is gone".to_owned(),
        JobFact::Pod(pod) => pod_words(pod),
        JobFact::PodGone { uid, .. } => {
            format!("{} is gone", pod(uid).unwrap_or_else(|| format!("pod with uid {uid}")))
        }
        JobFact::Service(service) => format!("service {} seen", service.name),
        JobFact::ServiceGone { uid } => {
            format!("{} is gone", service(uid).unwrap_or_else(|| format!("service with uid {uid}")))
        }
        JobFact::Owned(owned) => {
            let state = match (&owned.failed, owned.deleting, owned.ready) {
                _ if owned.gate.is_some() && !owned.deleting => gate_words(owned),
                (Some(why), ..) => format!("cannot be used: {why}"),
                (None, true, _) => "is being deleted".to_owned(),
                (None, false, true) => "is ready".to_owned(),
                (None, false, false) => "exists".to_owned(),
            };
            format!("{} {state}", owned.object)
        }
        JobFact::OwnedGone { uid } => format!("an object of the job, with uid {uid}, is gone"),
        JobFact::Dequeued => "the coordinator dequeued the job".to_owned(),
        JobFact::Measured { latency_us: Some(us) } => format!("a step of the training took {} ms", us / 1000),
        JobFact::Measured { latency_us: None } => "the log of the pod shows no time of a step".to_owned(),
        JobFact::NodeFound { node } if node.is_empty() => "no node shows how much storage it has".to_owned(),
        JobFact::NodeFound { node } => format!("node {node} has the most free storage"),
        JobFact::NodeChanged { name } => format!("node {name} changed"),
        JobFact::Answered { object, outcome } => {
            let named = if let ObjectRef::PodUid(uid) = object {
                pod(uid)
            } else if let ObjectRef::ServiceUid(uid) = object {
                service(uid)
            } else {
                None
            };
            named.map_or_else(
                || answer_words(object, outcome),
                |name| outcome_words(&format!("delete of {name}"), outcome),
            )
        }
        JobFact::Adopted(adopted) => format!("adopted from its object, mirror {}", adopted.mirror.stamp),
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
