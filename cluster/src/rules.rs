//! Checks on metadata, pods and services, as far as a training operator can run into them.
//!
//! Owns which names, labels, containers and ports a real API server refuses, in its words. Images, volumes and security
//! contexts are not checked. Tests: `tests/cluster/rules.rs`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::{KindId, ServedKind};
use crate::merge::{at, items, text};

/// Maximum size of all annotations of one object, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Description of a DNS label, for messages.
pub(crate) const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character, and be no more than 63 characters";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character, and be no more than 253 characters";
const SERVICE_NAME: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character, and be no more than 63 characters";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character, and be no more than 63 characters";

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Returns whether the text is a DNS label (RFC 1123).
pub(crate) fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|c| is_plain(c) || c == '-')
        && text.starts_with(is_plain)
        && text.ends_with(is_plain)
}

fn is_dns_subdomain(text: &str) -> bool {
    let label = |part: &str| {
        part.chars().all(|c| is_plain(c) || c == '-') && part.starts_with(is_plain) && part.ends_with(is_plain)
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn is_label_text(text: &str) -> bool {
    let outer = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.chars().all(|c| outer(c) || matches!(c, '-' | '_' | '.'))
        && text.starts_with(outer)
        && text.ends_with(outer)
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_text(name),
        None => is_label_text(key),
    }
}

fn invalid(path: &str, value: &str, why: &str) -> String {
    format!("{path}: Invalid value: {value:?}: {why}")
}

/// Checks name, labels, annotations, owner references and finalizers.
pub(crate) fn check_metadata(kind: &ServedKind, name: &str, object: &Value, problems: &mut Vec<String>) {
    let (good, why): (fn(&str) -> bool, &str) = match kind.id {
        KindId::SERVICE => (|n| is_dns_label(n) && n.starts_with(|c: char| c.is_ascii_lowercase()), SERVICE_NAME),
        KindId::NAMESPACE => (is_dns_label, DNS_LABEL),
        _ => (is_dns_subdomain, DNS_SUBDOMAIN),
    };
    if name.is_empty() {
        problems.push("metadata.name: Required value: name or generateName is required".to_owned());
    } else if !good(name) {
        problems.push(invalid("metadata.name", name, why));
    }
    check_labels(object, &["metadata", "labels"], problems);
    let mut bytes = 0_usize;
    if let Some(Value::Object(annotations)) = at(object, &["metadata", "annotations"]) {
        for (key, value) in annotations {
            let path = format!("metadata.annotations.{key}");
            if !is_label_key(&key.to_lowercase()) {
                problems.push(invalid("metadata.annotations", key, "name part must be a qualified name"));
            }
            match value.as_str() {
                Some(value) => bytes = bytes.saturating_add(key.len()).saturating_add(value.len()),
                None => problems.push(invalid(&path, &value.to_string(), "must be a string")),
            }
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        problems.push(format!("metadata.annotations: Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"));
    }
    let mut controllers = 0_u32;
    for (n, reference) in items(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(reference, &[field]).is_empty() {
                problems.push(format!("metadata.ownerReferences[{n}].{field}: Required value: must not be empty"));
            }
        }
        controllers += u32::from(at(reference, &["controller"]) == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        problems.push(invalid(
            "metadata.ownerReferences",
            &controllers.to_string(),
            "only one reference can have controller set to true",
        ));
    }
    for (n, finalizer) in items(object, &["metadata", "finalizers"]).iter().enumerate() {
        if !finalizer.as_str().is_some_and(|f| is_label_key(&f.to_lowercase())) {
            let path = format!("metadata.finalizers[{n}]");
            problems.push(invalid(&path, &finalizer.to_string(), "name part must be a qualified name"));
        }
    }
}

fn check_labels(object: &Value, at_path: &[&str], problems: &mut Vec<String>) {
    let Some(Value::Object(labels)) = at(object, at_path) else { return };
    let path = at_path.join(".");
    for (key, value) in labels {
        if !is_label_key(key) {
            problems.push(invalid(&path, key, "name part must be a qualified name"));
        }
        match value.as_str() {
            Some(value) if value.is_empty() || is_label_text(value) => {}
            Some(value) => problems.push(invalid(&path, value, LABEL_VALUE)),
            None => problems.push(invalid(&format!("{path}.{key}"), &value.to_string(), "must be a string")),
        }
    }
}

/// Checks a pod's containers.
pub(crate) fn check_pod(pod: &Value, problems: &mut Vec<String>) {
    if items(pod, &["spec", "containers"]).is_empty() {
        problems.push("spec.containers: Required value".to_owned());
    }
    let mut names = BTreeSet::new();
    for field in ["initContainers", "containers"] {
        for (n, container) in items(pod, &["spec", field]).iter().enumerate() {
            let path = format!("spec.{field}[{n}]");
            let name = text(container, &["name"]);
            if name.is_empty() {
                problems.push(format!("{path}.name: Required value"));
            } else if !is_dns_label(name) {
                problems.push(invalid(&format!("{path}.name"), name, DNS_LABEL));
            } else if !names.insert(name) {
                problems.push(format!("{path}.name: Duplicate value: {name:?}"));
            }
            check_container_ports(container, &path, problems);
            for (m, env) in items(container, &["env"]).iter().enumerate() {
                let value_path = format!("{path}.env[{m}].value");
                if text(env, &["name"]).is_empty() {
                    problems.push(format!("{path}.env[{m}].name: Required value"));
                }
                if at(env, &["value"]).is_some_and(|v| !v.is_string() && !v.is_null()) {
                    problems.push(invalid(&value_path, &env["value"].to_string(), "must be a string"));
                }
            }
        }
    }
    let policy = text(pod, &["spec", "restartPolicy"]);
    if !matches!(policy, "" | "Always" | "OnFailure" | "Never") {
        problems.push(format!(
            "spec.restartPolicy: Unsupported value: {policy:?}: supported values: \"Always\", \"OnFailure\", \"Never\""
        ));
    }
    if let Some(grace) = at(pod, &["spec", "terminationGracePeriodSeconds"]).filter(|v| !v.is_null() && !v.is_u64()) {
        let path = "spec.terminationGracePeriodSeconds";
        problems.push(invalid(path, &grace.to_string(), "must be an integer greater than or equal to 0"));
    }
}

fn check_container_ports(container: &Value, path: &str, problems: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    for (n, port) in items(container, &["ports"]).iter().enumerate() {
        check_port_number(port, "containerPort", &format!("{path}.ports[{n}]"), problems);
        let name = text(port, &["name"]);
        if name.is_empty() {
            continue;
        }
        let letters = name.chars().any(|c| c.is_ascii_lowercase());
        if name.len() > 15 || !is_dns_label(name) || !letters || name.contains("--") {
            let why = "must be a port name: at most 15 lower case alphanumeric characters or '-', at least one letter";
            problems.push(invalid(&format!("{path}.ports[{n}].name"), name, why));
        } else if !names.insert(name) {
            problems.push(format!("{path}.ports[{n}].name: Duplicate value: {name:?}"));
        }
    }
}

fn check_port_number(port: &Value, field: &str, path: &str, problems: &mut Vec<String>) {
    match port.get(field) {
        None | Some(Value::Null) => problems.push(format!("{path}.{field}: Required value")),
        Some(value) if value.as_u64().is_some_and(|n| (1..=65_535).contains(&n)) => {}
        Some(value) => problems.push(invalid(
            &format!("{path}.{field}"),
            &value.to_string(),
            "must be between 1 and 65535, inclusive",
        )),
    }
}

/// Checks a service's ports.
pub(crate) fn check_service(service: &Value, problems: &mut Vec<String>) {
    let ports = items(service, &["spec", "ports"]);
    let headless = text(service, &["spec", "clusterIP"]) == "None";
    if ports.is_empty() && !headless && text(service, &["spec", "type"]) != "ExternalName" {
        problems.push("spec.ports: Required value".to_owned());
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (n, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{n}]");
        check_port_number(port, "port", &path, problems);
        let name = text(port, &["name"]);
        if name.is_empty() && ports.len() > 1 {
            problems.push(format!("{path}.name: Required value"));
        } else if !name.is_empty() && !is_dns_label(name) {
            problems.push(invalid(&format!("{path}.name"), name, DNS_LABEL));
        } else if !names.insert(name) {
            problems.push(format!("{path}.name: Duplicate value: {name:?}"));
        }
        let protocol = match text(port, &["protocol"]) {
            "" => "TCP",
            named => named,
        };
        if !numbers.insert((port.get("port").and_then(Value::as_u64), protocol)) {
            problems.push(format!("{path}: Duplicate value: {}", port.get("port").unwrap_or(&Value::Null)));
        }
    }
    if let Some(Value::Object(_)) = at(service, &["spec", "selector"]) {
        check_labels(service, &["spec", "selector"], problems);
    }
}

/// Why a change of a pod's spec is refused: only a few of its fields can change once it exists.
pub(crate) fn forbidden_pod_change(old: &Value, new: &Value) -> Option<String> {
    if old.get("spec") == new.get("spec") {
        return None;
    }
    let settled = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            for free in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
                spec.remove(free);
            }
            for field in ["containers", "initContainers"] {
                let containers = spec.get_mut(field).and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                    container.remove("image");
                }
            }
        }
        spec
    };
    (settled(old) != settled(new)).then(|| {
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`, \
         `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` or \
         `spec.terminationGracePeriodSeconds`"
            .to_owned()
    })
}
