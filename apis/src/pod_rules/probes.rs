//! Rules for probes, and the actions that probes and hooks take.

use serde_json::Value;

use super::Judge::{Needed, Number, Other, Text, Word};
use super::ports::PORT_MAX;
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_PORT_NAME, is_header_name, is_port_name};

const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
/// Members of a probe besides its handler.
const NUMBERS: [&str; 6] = [
    "failureThreshold",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
];

/// Writes the paths of a member of each kind of probe.
macro_rules! of_probes {
    ($($member:literal),+) => {
        &[$(
            concat!("spec.container[].livenessProbe", $member),
            concat!("spec.container[].readinessProbe", $member),
            concat!("spec.container[].startupProbe", $member),
        )+]
    };
}

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("probe-handler", of_probes!(""), Other(|place, faults| one_handler(place, &HANDLERS, faults))),
    rule(
        "probe-number",
        of_probes!(
            ".failureThreshold",
            ".initialDelaySeconds",
            ".periodSeconds",
            ".successThreshold",
            ".timeoutSeconds"
        ),
        Number(0, i32::MAX as i64),
    ),
    rule(
        "probe-success-threshold",
        &["spec.container[].livenessProbe.successThreshold", "spec.container[].startupProbe.successThreshold"],
        Number(0, 1),
    ),
    rule(
        "probe-grace-period",
        &[
            "spec.container[].livenessProbe.terminationGracePeriodSeconds",
            "spec.container[].startupProbe.terminationGracePeriodSeconds",
        ],
        Number(1, i64::MAX),
    ),
    rule(
        "readiness-grace-period",
        &["spec.container[].readinessProbe.terminationGracePeriodSeconds"],
        Other(readiness_grace),
    ),
    rule("probe-command", of_probes!(".exec.command"), Needed("must name a program")),
    rule("probe-port", of_probes!(".httpGet.port", ".tcpSocket.port", ".grpc.port"), Other(port)),
    rule("probe-scheme", of_probes!(".httpGet.scheme"), Word(&["HTTP", "HTTPS"])),
    rule(
        "probe-header",
        of_probes!(".httpGet.httpHeaders[].name"),
        Text(is_header_name, "must be letters, digits and hyphens"),
    ),
];

/// Judges the handlers of a probe or a hook: exactly one. A member that is not known may be one of a newer server.
pub(super) fn one_handler(place: &Place<'_, '_>, handlers: &[&str], faults: &mut Faults<'_>) {
    let Some(object) = place.value.as_object() else { return };
    let given = |handler: &&&str| object.get(**handler).is_some_and(|value| !value.is_null());
    let count = handlers.iter().filter(given).count();
    let is_newer = object.keys().any(|key| !handlers.contains(&key.as_str()) && !NUMBERS.contains(&key.as_str()));
    if count > 1 || count == 0 && !is_newer {
        faults.error(place, format!("must have exactly one of {}", handlers.join(", ")));
    }
}

fn port(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    match place.value {
        Value::Null => faults.error(place, "must be the number or the name of a port"),
        Value::Number(number) if !number.as_i64().is_some_and(|n| (1..=PORT_MAX).contains(&n)) => {
            faults.error(place, format!("must be from 1 to {PORT_MAX}"));
        }
        Value::String(name) if !is_port_name(name) => faults.error(place, NOT_PORT_NAME),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {}
    }
}

fn readiness_grace(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if !place.value.is_null() {
        faults.error(place, "a readinessProbe ends no container: leave it out");
    }
}
