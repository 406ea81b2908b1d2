//! Rules for the environment of containers, and where its values come from.

use super::Judge::{Needed, Other, Text};
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_DNS_SUBDOMAIN, is_config_key, is_dns_subdomain, is_variable_name};

/// Sources of the value of a variable.
const SOURCES: [&str; 5] = ["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
/// Sources of many variables.
const SOURCES_OF_MANY: [&str; 2] = ["configMapRef", "secretRef"];
/// Fields of a pod that a variable can have.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const VARIABLE: &str = "must be printable ASCII without =";
const KEY: &str = "must be letters, digits and -_. without .. at its start, at most 253";

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("env-name-missing", &["spec.container[].env[].name"], Needed("a variable needs a name")),
    rule("env-name", &["spec.container[].env[].name"], Text(is_variable_name, VARIABLE)),
    rule("env-value-twice", &["spec.container[].env[].value"], Other(value_twice)),
    rule("env-source", &["spec.container[].env[].valueFrom"], Other(|place, faults| one(place, &SOURCES, faults))),
    rule("env-field", &["spec.container[].env[].valueFrom.fieldRef.fieldPath"], Other(field_path)),
    rule(
        "env-resource",
        &["spec.container[].env[].valueFrom.resourceFieldRef.resource"],
        Needed("must name a resource, for example limits.memory"),
    ),
    rule(
        "env-key-missing",
        &["spec.container[].env[].valueFrom.configMapKeyRef.key", "spec.container[].env[].valueFrom.secretKeyRef.key"],
        Needed("must name a key of the object"),
    ),
    rule(
        "env-key",
        &["spec.container[].env[].valueFrom.configMapKeyRef.key", "spec.container[].env[].valueFrom.secretKeyRef.key"],
        Text(is_config_key, KEY),
    ),
    rule(
        "env-object-missing",
        &[
            "spec.container[].env[].valueFrom.configMapKeyRef.name",
            "spec.container[].env[].valueFrom.secretKeyRef.name",
            "spec.container[].envFrom[].configMapRef.name",
            "spec.container[].envFrom[].secretRef.name",
        ],
        Needed("must name an object"),
    ),
    rule(
        "env-object",
        &[
            "spec.container[].env[].valueFrom.configMapKeyRef.name",
            "spec.container[].env[].valueFrom.secretKeyRef.name",
        ],
        Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN),
    ),
    rule(
        "env-from-source",
        &["spec.container[].envFrom[]"],
        Other(|place, faults| one(place, &SOURCES_OF_MANY, faults)),
    ),
    rule("env-from-prefix", &["spec.container[].envFrom[].prefix"], Text(is_variable_name, VARIABLE)),
];

/// Judges an object that must have exactly one of these members. A member that is not known may be one of a newer server.
fn one(place: &Place<'_, '_>, members: &[&str], faults: &mut Faults<'_>) {
    let Some(object) = place.value.as_object() else { return };
    let given = |member: &&&str| object.get(**member).is_some_and(|value| !value.is_null());
    let count = members.iter().filter(given).count();
    let is_newer = object.keys().any(|key| !members.contains(&key.as_str()) && key != "prefix");
    if count > 1 || count == 0 && !is_newer {
        faults.error(place, format!("must have exactly one of {}", members.join(", ")));
    }
}

fn value_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.text().is_some() && place.beside("valueFrom").as_object().is_some_and(|from| !from.is_empty()) {
        faults.error(place, "a variable has a value or a valueFrom, not both");
    }
}

fn field_path(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    match place.text() {
        None if place.value.is_null() || place.value == "" => {
            faults.error(place, "must name a field of the pod, for example metadata.name");
        }
        Some(path @ ("metadata.labels" | "metadata.annotations")) => {
            faults.error(place, format!("must name one of them, for example {path}['example.com/name']"));
        }
        // A key in brackets is the user's.
        Some(path) if !path.contains('[') && !FIELDS.contains(&path) => faults.word(place, path, &FIELDS),
        Some(_) | None => {}
    }
}
