//! Kubernetes Events in this API's reasons, as its users look for them.
//!
//! Must not report created and deleted objects: those Events are common to all APIs. Tests: the scenarios of this API.

use std::collections::BTreeMap;

use model::{Decision, JobEvent, JobFact, OwnedFact, Phase, SlotId};
use serde_json::{Value, json};

use super::model_output;
use super::tasks::TEMPLATE_POLICY;
use crate::api::{JobStep, ReportedEvent};
use crate::events::{exit, exit_code, normal, overridden_policies, warning};
use crate::kruise::REQUEST;
use crate::modelversion;

/// Returns the Events that report a record.
pub(super) fn events(step: &JobStep<'_>) -> Vec<ReportedEvent> {
    let mut found = Vec::new();
    for fact in step.facts {
        match fact {
            // The exit code counts while a sidecar still runs.
            JobFact::Pod(pod) if pod.deleting.is_none() => found.extend(exit(&step.key.namespace, pod)),
            JobFact::Owned(request) if &*request.object.kind == REQUEST.kind => found.extend(restarted(request)),
            JobFact::Spec(spec) => found.extend(overridden_policies(spec, TEMPLATE_POLICY)),
            _ => {}
        }
    }
    found.extend(step.events.iter().filter_map(|event| decision(step, event)));
    found.extend(step.events.iter().filter_map(|event| short_quota(step, event)));
    found
}

/// Reports the end of a request to restart the containers of a pod.
fn restarted(request: &OwnedFact) -> Option<ReportedEvent> {
    let name = &request.object.name;
    let event = match &request.failed {
        Some(why) => warning("FailedRestartContainer", format!("pod {name}: {why}; it is created again")),
        None if request.ready => {
            normal("ContainerRecreateSucceed", format!("pod {name}: its containers were restarted"))
        }
        None => return None,
    };
    Some(ReportedEvent { salt: salt(request.rv.0), ..event })
}

/// Returns the salt of an Event that is distinguished by a number.
fn salt(number: u64) -> u32 {
    u32::try_from(number.checked_rem(u64::from(u32::MAX)).unwrap_or_default()).unwrap_or_default()
}

/// Reports a quota that has no room for the job.
fn short_quota(step: &JobStep<'_>, event: &JobEvent) -> Option<ReportedEvent> {
    step.job.quota_short.as_ref()?;
    match event {
        JobEvent::PhaseChanged { to: Phase::Pending, message } | JobEvent::MessageChanged { message } => {
            Some(normal("QuotaNotSatisfied", message.to_string()))
        }
        _ => None,
    }
}

fn decision(step: &JobStep<'_>, event: &JobEvent) -> Option<ReportedEvent> {
    match event {
        JobEvent::Replaced { group, slots } => {
            let names = slots.iter().map(|slot| format!("{group}-{}", slot.index)).collect::<Vec<_>>().join(", ");
            let salt = slots.iter().fold(0, |sum: u32, slot| sum.wrapping_add(slot.failures));
            Some(ReportedEvent { salt, ..warning("JobRestarting", format!("replacing failed pods: {names}")) })
        }
        JobEvent::OwnedPlanned { objects } => {
            let is_version = objects.iter().any(|object| &*object.kind == modelversion::KIND);
            let manifest = step.job.valid.as_ref().filter(|_| is_version)?.manifest.parse::<Value>().ok()?;
            let (written, found) = model_output::moved(&manifest, step.job)?;
            let message =
                format!("the master wrote the model on node {found}, not {written}; its version names {found}");
            Some(warning("ModelVersionNodeChanged", message))
        }
        JobEvent::OwnedDropped { objects } if objects.iter().any(|object| &*object.kind != REQUEST.kind) => {
            Some(normal("JobTerminated", "the job has ended; its pod groups go".to_owned()))
        }
        JobEvent::NodeDropped => Some(warning("StorageNodeDropped", engine::storage::DROPPED.to_owned())),
        JobEvent::Lost { slots } => Some(failed(step, slots.iter().map(|(slot, _)| slot))),
        JobEvent::PhaseChanged { to, message } => phase_changed(step, *to, message),
        JobEvent::Decided(decision) => {
            let message = decision.cause().message.to_string();
            match &**decision {
                Decision::End { phase: Phase::Succeeded, .. } => Some(normal("JobSucceeded", message)),
                Decision::End { .. } => Some(normal("JobFailed", message)),
                Decision::Restart { .. } => Some(warning("JobRestarting", message)),
                Decision::Halt { .. } => None,
            }
        }
        _ => None,
    }
}

/// Reports pods that failed for good, by the reason and exit code of each.
fn failed<'a>(step: &JobStep<'a>, slots: impl Iterator<Item = &'a SlotId>) -> ReportedEvent {
    let mut pods: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut salt = 0u32;
    for slot in slots {
        let pod = step.job.slot(slot).and_then(|slot| step.job.pods.get(slot.pod.as_ref()?));
        let Some(pod) = pod.map(|pod| &pod.fact) else { continue };
        let code = exit_code(pod).map_or_else(String::new, |code| format!("-{code}"));
        let reason = pod.reason.as_deref().unwrap_or("Error");
        pods.entry(format!("{reason}{code}")).or_default().push(&pod.name);
        salt = salt.wrapping_add(pod.incarnation.0);
    }
    ReportedEvent { salt, ..warning("PodFailed", json!(pods).to_string()) }
}

fn phase_changed(step: &JobStep<'_>, to: Phase, message: &str) -> Option<ReportedEvent> {
    let at = step.job.milestones.back().map(|last| last.at.0).unwrap_or_default();
    let event = match to {
        Phase::Pending => normal("JobEnqueued", message.to_owned()),
        Phase::Queued => normal("JobDequeued", "pods may be created".to_owned()),
        Phase::Running if step.from == Phase::Restarting => {
            normal("FailoverSucceed", "the failed pods are replaced".to_owned())
        }
        _ => return None,
    };
    Some(ReportedEvent { salt: salt(at), ..event })
}
