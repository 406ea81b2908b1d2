//! Slot -> Service: a headless name for each pod. Tests: `tests/pods.rs`.

use model::{FieldError, GroupSpec, SlotId};
use serde_json::{Map, Value, json};

use super::constants::API_VERSION;
use super::pods::slot_labels;
use super::template::{Port, group_ports};
use crate::api::RenderInput;
use crate::replicas::template_of;
use crate::template;

/// Renders the service of a slot.
///
/// # Errors
/// Returns an error if the spec or the manifest lacks the group.
pub(super) fn service(source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
    let group: &GroupSpec = source.spec.group(&slot.group).ok_or_else(|| {
        FieldError::new(format!("spec.replicaSpecs.{}", slot.group), "missing", "the spec in force has no such group")
    })?;
    let template = template_of(source.manifest, group)?;
    let labels: Map<String, Value> =
        slot_labels(&source.job.name, slot).into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    // Peers that start together resolve each other before any of them is ready.
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "ports": service_ports(&group_ports(template)),
    });
    Ok(template::service(API_VERSION, source.job, slot, &labels, spec))
}

/// Returns one port per number and protocol. Names are distinct even where protocols share a number.
fn service_ports(ports: &[Port<'_>]) -> Vec<Value> {
    let mut seen: Vec<Port<'_>> = Vec::with_capacity(ports.len());
    let mut rendered = Vec::with_capacity(ports.len());
    for port in ports {
        if seen.contains(port) {
            continue;
        }
        let name = if seen.iter().any(|other| other.number == port.number) {
            format!("aitj-{}-{}", port.number, port.protocol.to_ascii_lowercase())
        } else {
            format!("aitj-{}", port.number)
        };
        seen.push(*port);
        rendered.push(json!({"name": name, "port": port.number, "protocol": port.protocol}));
    }
    rendered
}
