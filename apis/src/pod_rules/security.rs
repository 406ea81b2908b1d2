//! Rules for the security contexts of pods and containers.

use serde_json::Value;

use super::Judge::{Needed, Number, Other, Text, Word};
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
    rule(
        "app-armor-type",
        &["spec.container[].securityContext.appArmorProfile.type", "spec.securityContext.appArmorProfile.type"],
        Word(&["Localhost", "RuntimeDefault", "Unconfined"]),
    ),
    rule(
        "app-armor-profile",
        &["spec.container[].securityContext.appArmorProfile", "spec.securityContext.appArmorProfile"],
        Other(seccomp),
    ),
    rule("supplemental-groups-policy", &["spec.securityContext.supplementalGroupsPolicy"], Word(&["Merge", "Strict"])),
    rule(
        "sysctl-name-missing",
        &["spec.securityContext.sysctls[].name"],
        Needed("must name a parameter of the kernel, for example net.core.somaxconn"),
    ),
    rule("sysctl-name", &["spec.securityContext.sysctls[].name"], Text(is_sysctl, SYSCTL)),
    rule("sysctl-twice", &["spec.securityContext.sysctls[].name"], Other(sysctl_twice)),
    rule("sysctl-of-host", &["spec.securityContext.sysctls[].name"], Other(sysctl_of_host)),
];

/// Most characters of the name of a parameter of the kernel.
const SYSCTL_MAX: usize = 253;
const SYSCTL: &str = "must be parts between dots or slashes, each of lower-case letters, digits and inner -_";
/// Starts of the names of parameters that a pod shares with the node, and the field that has it share them.
const SHARED: [(&str, &str); 5] = [
    ("net.", "hostNetwork"),
    ("kernel.sem", "hostIPC"),
    ("kernel.shm", "hostIPC"),
    ("kernel.msg", "hostIPC"),
    ("fs.mqueue.", "hostIPC"),
];

fn is_sysctl(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_part = |part: &str| {
        is_end(part.chars().next())
            && is_end(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(is_part)
}

fn sysctl_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(place.siblings()) {
        faults.error(place, "is set already by another item");
    }
}

fn sysctl_of_host(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let shared = place.text().and_then(|name| SHARED.iter().find(|(start, _)| name.starts_with(start)));
    if let Some((_, field)) = shared.filter(|(_, field)| place.spec().get(*field) == Some(&Value::Bool(true))) {
        faults.error(place, format!("is the node's own with {field}: true, and must not be set"));
    }
}

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
