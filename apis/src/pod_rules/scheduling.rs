//! Rules for what a pod requires of its node: selectors, tolerations, affinity, spreading.

use serde_json::Value;

use super::Judge::{Key, Needed, Number, Other, Text, Word};
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_LABEL_KEY, NOT_LABEL_VALUE, is_label_key, is_label_value};

/// Writes the paths of a member of each term that selects pods.
macro_rules! of_pod_terms {
    ($member:literal) => {
        &[
            concat!("spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[].", $member),
            concat!("spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[].", $member),
            concat!(
                "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm.",
                $member
            ),
            concat!(
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm.",
                $member
            ),
        ]
    };
}

/// Writes the paths of a member of each requirement on the labels of pods.
macro_rules! of_pod_requirements {
    ($member:literal) => {
        &[
            concat!(
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[].labelSelector.matchExpressions[]",
                $member
            ),
            concat!(
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[].labelSelector.matchExpressions[]",
                $member
            ),
            concat!("spec.topologySpreadConstraints[].labelSelector.matchExpressions[]", $member),
        ]
    };
}

/// Writes the paths of a member of each requirement on the labels of nodes.
macro_rules! of_node_requirements {
    ($member:literal) => {
        &[
            concat!(
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[]",
                $member
            ),
            concat!(
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchExpressions[]",
                $member
            ),
        ]
    };
}

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("node-selector-key", &["spec.nodeSelector{}"], Key(is_label_key, NOT_LABEL_KEY)),
    rule("node-selector-value", &["spec.nodeSelector{}"], Text(is_label_value, NOT_LABEL_VALUE)),
    rule("toleration-key", &["spec.tolerations[].key"], Text(is_label_key, NOT_LABEL_KEY)),
    rule("toleration-without-key", &["spec.tolerations[].key"], Other(without_key)),
    rule("toleration-operator", &["spec.tolerations[].operator"], Word(&["Equal", "Exists", "Gt", "Lt"])),
    rule("toleration-value", &["spec.tolerations[].value"], Other(toleration_value)),
    rule("toleration-effect", &["spec.tolerations[].effect"], Word(&["NoExecute", "NoSchedule", "PreferNoSchedule"])),
    rule("toleration-seconds", &["spec.tolerations[].tolerationSeconds"], Other(toleration_seconds)),
    rule(
        "node-affinity-terms",
        &["spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"],
        Needed("needs at least one term"),
    ),
    rule("node-requirement-key-missing", of_node_requirements!(".key"), Needed("must name a label")),
    rule("node-requirement-key", of_node_requirements!(".key"), Text(is_label_key, NOT_LABEL_KEY)),
    rule(
        "node-requirement-operator-missing",
        of_node_requirements!(".operator"),
        Needed("needs an operator, such as In"),
    ),
    rule(
        "node-requirement-operator",
        of_node_requirements!(".operator"),
        Word(&["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]),
    ),
    rule("node-requirement-values", of_node_requirements!(".values"), Other(values)),
    rule(
        "node-requirement-value",
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].values[]",
        ],
        Text(is_label_value, NOT_LABEL_VALUE),
    ),
    rule(
        "affinity-weight",
        &[
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight",
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight",
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight",
        ],
        Number(1, 100),
    ),
    rule("pod-affinity-topology", of_pod_terms!("topologyKey"), Needed("must name a label of nodes")),
    rule("pod-affinity-topology-key", of_pod_terms!("topologyKey"), Text(is_label_key, NOT_LABEL_KEY)),
    rule("pod-requirement-key", of_pod_requirements!(".key"), Text(is_label_key, NOT_LABEL_KEY)),
    rule(
        "pod-requirement-operator",
        of_pod_requirements!(".operator"),
        Word(&["DoesNotExist", "Exists", "In", "NotIn"]),
    ),
    rule("pod-requirement-values", of_pod_requirements!(".values"), Other(values)),
    rule("spread-skew", &["spec.topologySpreadConstraints[].maxSkew"], Number(1, i32::MAX as i64)),
    rule("spread-skew-missing", &["spec.topologySpreadConstraints[].maxSkew"], Needed("must be at least 1")),
    rule("spread-topology", &["spec.topologySpreadConstraints[].topologyKey"], Needed("must name a label of nodes")),
    rule(
        "spread-unsatisfiable-missing",
        &["spec.topologySpreadConstraints[].whenUnsatisfiable"],
        Needed("must be DoNotSchedule or ScheduleAnyway"),
    ),
    rule(
        "spread-unsatisfiable",
        &["spec.topologySpreadConstraints[].whenUnsatisfiable"],
        Word(&["DoNotSchedule", "ScheduleAnyway"]),
    ),
    rule("spread-twice", &["spec.topologySpreadConstraints[].topologyKey"], Other(spread_twice)),
    rule("spread-min-domains", &["spec.topologySpreadConstraints[].minDomains"], Other(min_domains)),
];

fn without_key(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.is_empty() && place.beside("operator") != "Exists" {
        faults.error(place, "a toleration without a key needs operator: Exists, and tolerates everything");
    }
}

fn toleration_value(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let Some(text) = place.text() else { return };
    match place.beside("operator").as_str().unwrap_or_default() {
        "Exists" => faults.error(place, "must be empty with operator Exists"),
        "Equal" | "" if !is_label_value(text) => faults.error(place, NOT_LABEL_VALUE),
        _ => {}
    }
}

fn toleration_seconds(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if !place.value.is_null() && place.beside("effect") != "NoExecute" {
        faults.error(place, "is for effect NoExecute alone");
    }
}

/// Judges the values of a requirement by its operator.
fn values(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let count = place.value.as_array().map_or(0, Vec::len);
    match place.beside("operator").as_str().unwrap_or_default() {
        operator @ ("In" | "NotIn") if count == 0 => {
            faults.error(place, format!("{operator} needs at least one value"));
        }
        operator @ ("Exists" | "DoesNotExist") if count > 0 => {
            faults.error(place, format!("{operator} takes no values"));
        }
        operator @ ("Gt" | "Lt") if count != 1 => faults.error(place, format!("{operator} needs exactly one value")),
        _ => {}
    }
}

/// A constraint is known by its topology and what it does where it cannot be met.
fn spread_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let own = place.around();
    let known = |constraint: &Value| (place.value.clone(), constraint.get("whenUnsatisfiable").cloned());
    let same =
        |constraint: &&Value| constraint.get("topologyKey") == Some(place.value) && known(constraint) == known(own);
    let mut earlier = place.siblings().iter().take_while(|constraint| !std::ptr::eq(*constraint, own));
    if place.text().is_some() && earlier.any(|constraint| same(&constraint)) {
        faults.error(place, "another constraint has the same topologyKey and whenUnsatisfiable");
    }
}

fn min_domains(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if place.value.as_i64().is_some_and(|number| number < 1) {
        faults.error(place, "must be at least 1");
    } else if !place.value.is_null() && place.beside("whenUnsatisfiable") != "DoNotSchedule" {
        faults.error(place, "is for whenUnsatisfiable: DoNotSchedule alone");
    }
}
