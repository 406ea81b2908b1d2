//! Kubernetes Events that several APIs report in the same words.
//!
//! Must not know what an API decides. Tests: `elasticjob/tests/events.rs`.

use model::{ContainerState, Decision, JobEvent, Phase, PodFact, SpecFact};

use crate::api::{JobStep, ReportedEvent};

/// Returns an Event of type Normal.
pub fn normal(reason: &str, message: String) -> ReportedEvent {
    ReportedEvent { warning: false, reason: reason.to_owned(), message, salt: 0 }
}

/// Returns an Event of type Warning.
pub fn warning(reason: &str, message: String) -> ReportedEvent {
    ReportedEvent { warning: true, ..normal(reason, message) }
}

/// Reports restarts and failed ends, with what led to them.
pub fn failures(step: &JobStep<'_>) -> Vec<ReportedEvent> {
    let decisions =
        step.events.iter().filter_map(|event| if let JobEvent::Decided(one) = event { Some(one) } else { None });
    let reported = decisions.filter_map(|decision| {
        let message = decision.cause().message.to_string();
        match &**decision {
            Decision::Restart { failures, .. } => {
                Some(ReportedEvent { salt: *failures, ..warning("JobRestarting", message) })
            }
            Decision::End { phase, .. } if *phase != Phase::Succeeded => Some(warning("JobFailed", message)),
            Decision::End { .. } | Decision::Halt { .. } => None,
        }
    });
    reported.collect()
}

/// Returns the exit code of the first main container of a pod that ended.
pub fn exit_code(pod: &PodFact) -> Option<i32> {
    pod.containers.iter().filter(|container| container.main).find_map(|container| match container.state {
        ContainerState::Terminated(ref end) => Some(end.code),
        ContainerState::Waiting { .. } | ContainerState::Running => None,
    })
}

/// Reports the exit code of a pod; `None` while no main container of it has ended.
pub fn exit(namespace: &str, pod: &PodFact) -> Option<ReportedEvent> {
    let code = exit_code(pod)?;
    let message = format!("Pod: {namespace}.{} exited with code {code}", pod.name);
    Some(ReportedEvent { salt: pod.incarnation.0, ..normal("ExitedWithCode", message) })
}

/// Reports restart policies of pod templates that do not count: remarks on fields whose paths end like this.
pub fn overridden_policies<'a>(spec: &'a SpecFact, path: &'a str) -> impl Iterator<Item = ReportedEvent> + 'a {
    let overridden = spec.warnings.iter().filter(move |field| field.path.ends_with(path));
    overridden.map(|field| warning("SettedPodTemplateRestartPolicy", field.to_string()))
}
