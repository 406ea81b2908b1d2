//! Slot -> Service: a name for a pod, the same as the pod's. That of the master is an object of the job, because it changes. Tests:
//! `tests/pods.rs`.

use model::{CleanPodPolicy, CreatePhase, FieldError, OwnedSpec, ReadinessGate, Retain, SlotId};
use serde_json::{Value, json};

use super::constants::{API_VERSION, PORT_NAME, TYPE_LABEL, Task};
use super::elastic;
use super::network::Network;
use super::pods::slot_labels;
use super::tasks::declared_port;
use crate::api::RenderInput;
use crate::objects::{at, label};
use crate::owned::{self, SERVICE};
use crate::replicas::slot_name;

/// Returns the master's service as an object that the job owns: it follows the generation of an elastic job.
pub(super) fn owned(job: &str, body: &Value, clean: CleanPodPolicy) -> OwnedSpec {
    OwnedSpec {
        object: SERVICE.named(&slot_name(job, Task::Master.lower(), 0)),
        when: CreatePhase::Accepted,
        awaits: ReadinessGate::Nothing,
        keep: if clean == CleanPodPolicy::None { Retain::WithJob } else { Retain::UntilEnd },
        digest: Some(owned::digest(body)),
        follows: None,
        pods: None,
    }
}

/// Renders the master's service.
///
/// # Errors
/// As for [`service`].
pub(super) fn of_master(source: RenderInput<'_>) -> Result<Value, FieldError> {
    let master = SlotId { group: Task::Master.lower().into(), index: 0 };
    let mut service = service(source, &master)?;
    elastic::follow_generation(&mut service, elastic::of(source.manifest));
    Ok(service)
}

/// Returns true for a service of the master.
pub(super) fn is_of_master(service: &Value) -> bool {
    label(service, TYPE_LABEL) == Some(Task::Master.lower())
}

/// Renders the service of a slot.
///
/// # Errors
/// Returns an error if the template of the slot's type declares no port.
pub(super) fn service(source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
    let job = source.job;
    let labels = slot_labels(&job.name, slot);
    let name = Task::of_group(&slot.group).map_or("", Task::name);
    let template = at(source.manifest, &["spec", "replicaSpecs", name, "template"]);
    let Some(port) = template.and_then(declared_port) else {
        let path = format!("spec.torchTaskSpecs.{name}.template.spec.containers");
        return Err(FieldError::new(path, "missing", format!("a service needs a port {PORT_NAME} of its pod")));
    };
    let network = Network::of(source);
    let target = network.host_port(slot).filter(|_| network.translates_ports()).unwrap_or_else(|| u64::from(port));
    let mut spec = json!({"ports": [{"name": PORT_NAME, "port": port, "targetPort": target}]});
    if let Some(spec) = spec.as_object_mut().filter(|_| !network.translates_ports()) {
        spec.insert("clusterIP".to_owned(), json!("None"));
    }
    Ok(crate::template::service(API_VERSION, job, slot, &labels, spec))
}
