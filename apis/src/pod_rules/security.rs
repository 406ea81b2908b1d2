//! Rules for the security contexts of pods and containers.

use serde_json::Value;

use super::Judge::{Number, Other, Word};
use super::{Faults, Place, Rule, rule};

/// Highest number of a user or group.
const ID_MAX: i64 = i32::MAX as i64;

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("user", &["spec.container[].securityContext.runAsUser", "spec.securityContext.runAsUser"], Number(0, ID_MAX)),
    rule(
        "group",
        &[
            "spec.container[].securityContext.runAsGroup",
            "spec.securityContext.fsGroup",
            "spec.securityContext.runAsGroup",
            "spec.securityContext.supplementalGroups[]",
        ],
        Number(0, ID_MAX),
    ),
    rule("privilege-escalation", &["spec.container[].securityContext.allowPrivilegeEscalation"], Other(escalation)),
    rule("fs-group-change-policy", &["spec.securityContext.fsGroupChangePolicy"], Word(&["Always", "OnRootMismatch"])),
    rule(
        "seccomp-type",
        &["spec.container[].securityContext.seccompProfile.type", "spec.securityContext.seccompProfile.type"],
        Word(&["Localhost", "RuntimeDefault", "Unconfined"]),
    ),
    rule(
        "seccomp-profile",
        &["spec.container[].securityContext.seccompProfile", "spec.securityContext.seccompProfile"],
        Other(seccomp),
    ),
];

fn escalation(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value == &Value::Bool(false) && place.beside("privileged") == &Value::Bool(true) {
        faults.error(place, "must not be false where privileged is true");
    }
}

/// A profile is named where it is a file of the node, and only there.
fn seccomp(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let member = |key: &str| place.value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (member("type"), member("localhostProfile")) {
        (Some("Localhost"), None) => faults.error(place, "needs a localhostProfile with type Localhost"),
        (Some("RuntimeDefault" | "Unconfined"), Some(_)) => {
            faults.error(place, "has a localhostProfile only with type Localhost");
        }
        _ => {}
    }
}
