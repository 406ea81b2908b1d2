//! Containers and ports of a pod template that take part in the job.
//!
//! Owns the rule by which they count: the `aitj-` prefix. The checks of templates are common to all APIs
//! ([`crate::template`]). Tests: `tests/spec.rs`, `tests/pods.rs`.

use serde_json::Value;

use crate::objects::{list_at, text_at};
use crate::template::containers;

/// Containers and ports with this prefix take part in the job.
pub(super) const PREFIX: &str = "aitj-";

/// A port that takes part in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port<'a> {
    /// Its number.
    pub number: u16,
    /// Its protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: &'a str,
}

/// Returns true if a container takes part in the job.
pub(super) fn takes_part(container: &Value) -> bool {
    text_at(container, &["name"]).is_some_and(|name| name.starts_with(PREFIX))
}

/// Returns the ports of one container that take part in the job, in its order.
pub(super) fn ports(container: &Value) -> Vec<Port<'_>> {
    if !takes_part(container) {
        return Vec::new();
    }
    list_at(container, &["ports"])
        .iter()
        .filter(|port| text_at(port, &["name"]).is_some_and(|name| name.starts_with(PREFIX)))
        .filter_map(|port| {
            let number = port.get("containerPort").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok())?;
            let protocol = text_at(port, &["protocol"]).filter(|text| !text.is_empty()).unwrap_or("TCP");
            Some(Port { number, protocol })
        })
        .collect()
}

/// Returns the ports of a template's containers that take part in the job, in container order.
pub(super) fn group_ports(template: &Value) -> Vec<Port<'_>> {
    containers(template).iter().flat_map(ports).collect()
}
