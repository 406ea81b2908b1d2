//! Kubernetes Events about jobs: objects created, deleted or rejected. Best effort. An Event's name follows from its content,
//! so that the same one reported twice is one Event.

use apis::{ApiAnswer, ApiCall, JobStep, ReportedEvent, Resource, Verb, objects};
use model::{Command, JobEvent, JobFact, JobKey, ObjectRef, Phase, Uid};
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::render::call;

impl Operator {
    /// Creates a Kubernetes Event about the answer to a command, where users expect one.
    pub(crate) fn announce(&mut self, key: &JobKey, command: &Command, answer: &ApiAnswer) {
        if let (Command::WriteAnnotations { notes, .. }, Ok(_)) = (command, answer) {
            let reported = self.registry.api_of(key).and_then(|api| Some(api.annotations()?.notes_events(notes)));
            return self.emit_all(key, reported.unwrap_or_default());
        }
        if let (Command::DeletePod { name, grace_seconds: Some(0), uid }, Ok(_)) = (command, answer) {
            // docs/failure-modes.md says what protects the files.
            let message = format!(
                "Deleted pod {name} without grace, because its node is lost. Its process may still run there until the node \
                 is off: it can write to volumes that both it and its replacement mount"
            );
            return self.emit(key, "Warning", "ForcedDeletePod", &message, fnv(&uid.0));
        }
        let Some(api) = self.registry.api_of(key) else { return };
        let (what, kind, name, salt) = match command {
            Command::CreatePod { slot, incarnation, .. } => ("Create", "Pod", api.slot_name(key, slot), incarnation.0),
            Command::CreateService { slot } => ("Create", "Service", api.slot_name(key, slot), 0),
            Command::DeletePod { name, grace_seconds, uid } if *grace_seconds != Some(0) => {
                ("Delete", "Pod", name.clone(), fnv(&uid.0))
            }
            Command::DeleteService { name, uid } => ("Delete", "Service", name.clone(), fnv(&uid.0)),
            Command::DeleteJob => ("Delete", "Job", key.name.clone(), 0),
            Command::CreateOwned { object } => ("Create", &*object.kind, object.name.clone(), 0),
            Command::DeleteOwned { object, uid } => ("Delete", &*object.kind, object.name.clone(), fnv(&uid.0)),
            Command::DeletePod { .. }
            | Command::ReadPod { .. }
            | Command::ReadOwned { .. }
            | Command::UpdateOwned { .. }
            | Command::ReportOwned { .. }
            | Command::SetFinalizer { .. }
            | Command::ReleasePod { .. }
            | Command::WriteEndAnnotation
            | Command::WriteAnnotations { .. }
            | Command::ReadLog { .. }
            | Command::FindNode
            | Command::MarkPod { .. }
            | Command::WriteStatus { .. } => return,
        };
        let (kind_of_event, reason, message) = match answer {
            Ok(_) => ("Normal", format!("Successful{what}{kind}"), format!("{}d {} {name}", what, kind.to_lowercase())),
            Err(error) if matches!(error.code, 404 | 409) => return,
            Err(error) => {
                ("Warning", format!("Failed{what}{kind}"), format!("{} {name}: {error}", kind.to_lowercase()))
            }
        };
        self.emit(key, kind_of_event, &reason, &message, salt);
    }

    /// Creates a Kubernetes Event about a name that another object holds, or an object of the job without its label.
    pub(crate) fn announce_taken(&mut self, key: &JobKey, command: &Command, held: &Value, unseen: bool) {
        let object = command.object();
        let kind = if let ObjectRef::Owned(object) = &object {
            &*object.kind
        } else if matches!(object, ObjectRef::Service(_)) {
            "Service"
        } else {
            "Pod"
        };
        let what =
            if unseen { "its labels were changed so that it is not watched" } else { "does not belong to this job" };
        let message = format!("{} {} exists and {what}", kind.to_lowercase(), objects::name(held));
        self.emit(key, "Warning", &format!("FailedCreate{kind}"), &message, 0);
    }

    /// Creates Kubernetes Events about a record: what needs the user (a spec that cannot be accepted, a container that cannot be created,
    /// a job that can never end), and what the job's API reports in its own words.
    pub(crate) fn announce_step(&mut self, key: &JobKey, from: Phase, facts: &[JobFact], events: &[JobEvent]) {
        for fact in facts {
            if let JobFact::Spec(fact) = fact
                && let Err(errors) = &fact.spec
            {
                let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                self.emit(key, "Warning", "InvalidSpec", &message, 0);
            }
            if let JobFact::Pod(pod) = fact
                && pod.deleting.is_none()
                && let Some((reason, message)) = engine::pod_trouble(pod)
                && (pod.node.is_some() || self.names_unplaced(key, &pod.uid))
            {
                self.emit(key, "Warning", &reason, &message, pod.incarnation.0);
            }
        }
        for event in events {
            if let JobEvent::Stalled { message: Some(message) } = event {
                self.emit(key, "Warning", "CannotEnd", message, 0);
            }
        }
        let (Some(api), Some(job)) = (self.registry.api_of(key), self.state.job(key)) else { return };
        let predecessor = self.recent_ends.of_name(key, self.state.at);
        let reported = api.events(&JobStep { key, from, job: &job, facts, events, predecessor });
        drop(job);
        self.emit_all(key, reported);
    }

    /// Returns true for the pod that stands for all of a job that cannot be placed.
    fn names_unplaced(&self, key: &JobKey, pod: &Uid) -> bool {
        self.state.job(key).is_some_and(|job| job.unschedulable.as_ref().is_some_and(|(named, _)| named == pod))
    }

    fn emit_all(&mut self, key: &JobKey, reported: Vec<ReportedEvent>) {
        for ReportedEvent { warning, reason, message, salt } in reported {
            self.emit(key, if warning { "Warning" } else { "Normal" }, &reason, &message, salt);
        }
    }

    /// Creates a Kubernetes Event about a job.
    pub(crate) fn emit(&mut self, key: &JobKey, kind: &str, reason: &str, message: &str, salt: u32) {
        // An Event about a job that does not exist has no reader.
        if !self.state.jobs.summary(key).is_some_and(|job| job.known && !job.gone) {
            return;
        }
        let Some(api) = self.registry.api_of(key) else { return };
        let resource = api.resource();
        let name = format!("{}.{:08x}{:08x}", key.name, fnv(&format!("{}{reason}{message}", key.uid)), salt);
        let at = self.state.at.to_rfc3339();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": &*key.namespace},
            "involvedObject": {
                "apiVersion": &*resource.api_version,
                "kind": &*resource.kind,
                "namespace": &*key.namespace,
                "name": &*key.name,
                "uid": &*key.uid.0,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": api.descriptor().event_component},
            "reportingComponent": api.descriptor().event_component,
            "reportingInstance": "",
        });
        let event = ApiCall { body: Some(body), ..call(Verb::Create, Resource::new("v1", "Event"), key, &name) };
        self.events.push(event);
    }
}

/// Returns the FNV-1a hash in 32 bits (Fowler, Noll, Vo): part of an Event's name, the same in every process.
pub(crate) fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
