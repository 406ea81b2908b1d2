//! Rules for containers: names, images, and what they do at their start and end.

use serde_json::Value;

use super::Judge::{Needed, Other, Text, Word};
use super::place::containers;
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_DNS_LABEL, is_dns_label};
use crate::objects::at;

/// Seconds that a pod has to end where its spec names none.
const GRACE_S: i64 = 30;

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("container", &["spec.containers"], Needed("a pod template needs at least one container")),
    rule("container-name-missing", &["spec.container[].name"], Needed("a container needs a name")),
    rule("container-name", &["spec.container[].name"], Text(is_dns_label, NOT_DNS_LABEL)),
    rule("container-name-twice", &["spec.container[].name"], Other(name_twice)),
    rule("image-missing", &["spec.container[].image"], Needed("a container needs an image")),
    rule("image-space", &["spec.container[].image"], Text(is_trimmed, "must have no space before or after it")),
    rule("image-pull-policy", &["spec.container[].imagePullPolicy"], Word(&["Always", "IfNotPresent", "Never"])),
    rule(
        "termination-message-policy",
        &["spec.container[].terminationMessagePolicy"],
        Word(&["FallbackToLogsOnError", "File"]),
    ),
    rule(
        "init-container-restart-policy",
        &["spec.initContainers[].restartPolicy"],
        Word(&["Always", "Never", "OnFailure"]),
    ),
    rule(
        "init-container-probe",
        &[
            "spec.initContainers[].lifecycle",
            "spec.initContainers[].livenessProbe",
            "spec.initContainers[].readinessProbe",
            "spec.initContainers[].startupProbe",
        ],
        Other(of_init_container),
    ),
    rule(
        "lifecycle-handler",
        &["spec.container[].lifecycle.postStart", "spec.container[].lifecycle.preStop"],
        Other(|place, faults| super::probes::one_handler(place, &["exec", "httpGet", "tcpSocket", "sleep"], faults)),
    ),
    rule(
        "lifecycle-command",
        &["spec.container[].lifecycle.postStart.exec.command", "spec.container[].lifecycle.preStop.exec.command"],
        Needed("must name a program"),
    ),
    rule(
        "sleep-seconds",
        &["spec.container[].lifecycle.postStart.sleep.seconds", "spec.container[].lifecycle.preStop.sleep.seconds"],
        Other(sleep_seconds),
    ),
    rule("ephemeral-containers", &["spec.ephemeralContainers[]"], Other(ephemeral_container)),
];

fn is_trimmed(text: &str) -> bool {
    text.trim() == text
}

fn name_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_repeated(containers(place.spec())) {
        faults.error(place, "is the name of another container of this pod");
    }
}

/// Sidecars alone have probes and hooks.
fn of_init_container(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let is_sidecar = place.beside("restartPolicy") == "Always";
    if !place.value.is_null() && !is_sidecar {
        faults.error(place, "an init container has this only with restartPolicy: Always, as a sidecar");
    }
}

fn sleep_seconds(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let grace = at(place.spec(), &["terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(GRACE_S);
    // A server takes a negative grace period as 1.
    let grace = if grace < 0 { 1 } else { grace };
    match place.value.as_i64() {
        Some(seconds) if seconds < 0 => faults.error(place, "must be at least 0"),
        Some(seconds) if seconds > grace => {
            faults.error(place, format!("must be at most terminationGracePeriodSeconds, which is {grace}"));
        }
        Some(_) | None => {}
    }
}

fn ephemeral_container(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    faults.error(place, "cannot be there when a pod is created: kubectl debug adds them to one that runs");
}
