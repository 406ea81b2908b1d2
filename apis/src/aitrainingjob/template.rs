//! The pod template of a replica group: its validation, and the members that are read from it.
//!
//! Owns the rule by which containers and ports count (the `aitj-` prefix). Everything that is not read here stays as the user
//! wrote it, for any version of Kubernetes. Tests: `tests/refusals.rs`, `tests/spec.rs`.

use std::collections::BTreeSet;

use serde_json::Value;
use settings::Quantity;

use crate::fields::{Findings, join, type_of};
use crate::names::is_dns_label;
use crate::objects::{list_at, text_at};

/// Containers and ports with this prefix take part in the job.
pub(super) const PREFIX: &str = "aitj-";

/// Members of a template that the engine needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Template {
    /// Its pods get services: a container takes part in the job.
    pub services: bool,
    /// Its pods request GPUs.
    pub gpus: bool,
}

/// A port that takes part in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port<'a> {
    /// Its number.
    pub number: u16,
    /// Its protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: &'a str,
}

/// Checks the template of a replica spec.
pub(super) fn check(replica: &Value, path: &str, findings: &mut Findings) -> Template {
    let path = join(path, "template");
    let Some(template) = replica.get("template").filter(|template| !template.is_null()) else {
        findings.error(path, None, "a group of replicas needs a pod template");
        return Template::default();
    };
    if !template.is_object() {
        findings.error(path, Some(template), format!("must be an object, not {}", type_of(template)));
        return Template::default();
    }
    if findings.object(template, &path, "metadata").is_some() {
        let metadata = template.get("metadata").unwrap_or(&Value::Null);
        let path = join(&path, "metadata");
        findings.check_text_map(metadata, &path, "labels");
        findings.check_text_map(metadata, &path, "annotations");
        findings.list(metadata, &path, "finalizers");
    }
    if findings.object(template, &path, "spec").is_none() {
        let value = template.get("spec").filter(|spec| !spec.is_null());
        if value.is_none() {
            findings.error(join(&path, "spec.containers"), None, "a pod template needs at least one container");
        }
        return Template::default();
    }
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let path = join(&path, "spec");
    let mut names = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        let containers = findings.list(spec, &path, key);
        if key == "containers"
            && containers.is_empty()
            && spec.get(key).is_none_or(|value| value.is_null() || value.is_array())
        {
            findings.error(join(&path, key), spec.get(key), "a pod template needs at least one container");
        }
        for (n, container) in containers.iter().enumerate() {
            check_container(container, &format!("{path}.{key}[{n}]"), &mut names, findings);
        }
    }
    Template { services: containers(template).iter().any(takes_part), gpus: asks_for_gpus(spec) }
}

fn check_container<'a>(container: &'a Value, path: &str, names: &mut BTreeSet<&'a str>, findings: &mut Findings) {
    if !container.is_object() {
        findings.error(path, Some(container), "must be an object");
        return;
    }
    match findings.text(container, path, "name") {
        Some(name) if !is_dns_label(name) => {
            let problem = "must be lower-case letters, digits and inner hyphens, at most 63";
            findings.error(join(path, "name"), container.get("name"), problem);
        }
        Some(name) if !names.insert(name) => {
            findings.error(join(path, "name"), container.get("name"), "is the name of another container of this pod");
        }
        None if container.get("name").is_none_or(Value::is_null) => {
            findings.error(join(path, "name"), None, "a container needs a name");
        }
        Some(_) | None => {} // good, or no text, which the reader noted
    }
    findings.list(container, path, "env");
    let mut port_names = BTreeSet::new();
    for (n, port) in findings.list(container, path, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{n}]");
        if !port.is_object() {
            findings.error(path, Some(port), "must be an object");
            continue;
        }
        if port.get("containerPort").is_none_or(Value::is_null) {
            findings.error(join(&path, "containerPort"), None, "a port needs a number");
        }
        findings.integer(port, &path, "containerPort", 1, 65_535);
        if let Some(name) = findings.text(port, &path, "name").filter(|name| !name.is_empty())
            && !port_names.insert(name)
        {
            findings.error(join(&path, "name"), port.get("name"), "is the name of another port of this container");
        }
        if let Some(protocol) = findings.text(port, &path, "protocol")
            && !["", "TCP", "UDP", "SCTP"].contains(&protocol)
        {
            findings.error(join(&path, "protocol"), port.get("protocol"), "must be one of TCP, UDP, SCTP");
        }
    }
}

/// Returns the normal containers of a template.
pub(super) fn containers(template: &Value) -> &[Value] {
    list_at(template, &["spec", "containers"])
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

fn asks_for_gpus(spec: &Value) -> bool {
    ["containers", "initContainers"].iter().flat_map(|key| list_at(spec, &[key])).any(|container| {
        ["limits", "requests"].iter().any(|kind| {
            let resources =
                container.get("resources").and_then(|resources| resources.get(*kind)).and_then(Value::as_object);
            let mut amounts = resources.into_iter().flatten().filter(|(name, _)| is_gpu(name));
            amounts.any(|(_, amount)| Quantity::read(amount).is_some_and(|amount| amount > Quantity::whole(0)))
        })
    })
}

/// Returns true if a resource is a GPU or a slice of one, going by the device plugins in use.
fn is_gpu(resource: &str) -> bool {
    resource.ends_with("gpu") || resource.ends_with("gpu.shared") || resource.starts_with("nvidia.com/mig-")
}
