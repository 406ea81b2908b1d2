//! Pod groups of Volcano: which a job owns, what they hold, and how a pod joins its own.
//!
//! A cluster without Volcano has none, and the job's pods are scheduled one by one. AIMaster is in no group. It must not know when a
//! group is created: the engine decides that. Tests: `tests/pods.rs`, scenarios `pod-group-*`.

use std::collections::BTreeMap;

use kube_model::resources::{amounts, totals};
use model::{CreatePhase, FieldError, GroupSpec, OwnedRef, OwnedSpec, ReadinessGate, Retain, SlotId};
use serde_json::{Map, Value, json};

use super::constants::{GROUP, GROUP_LABEL, Task};
use crate::api::RenderInput;
use crate::objects::{at, text_at};
use crate::owned::{self, Access, OwnedType, Pods};

/// Type of the groups.
pub(super) const POD_GROUP: OwnedType = OwnedType {
    api_version: "scheduling.volcano.sh/v1beta1",
    kind: "PodGroup",
    plural: "podgroups",
    namespaced: true,
    optional: true,
    access: Access::Managed,
    reports: None,
    pods: Pods::Dependents,
    reason: "Volcano starts the pods of a job's types together.",
};

/// Label of a group: its job.
const JOB_LABEL: &str = "distributed.io/gang-job-name";
/// Label of a group: its type of task.
const TYPE_LABEL: &str = "task-type";
/// Annotation of a pod: its group.
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// Scheduler of pods in a group.
const VOLCANO: &str = "volcano";
/// Scheduler of AIMaster, which starts before all others.
const DEFAULT: &str = "default-scheduler";

/// Returns the groups that a job owns.
pub(super) fn objects(manifest: &Value, groups: &[GroupSpec]) -> Vec<OwnedSpec> {
    let mut names: Vec<String> = Vec::new();
    for group in groups.iter().filter(|group| group.replicas > 0) {
        names.extend(name_of(manifest, &group.name).filter(|name| !names.contains(name)));
    }
    let owned = |name: &String| OwnedSpec {
        object: POD_GROUP.named(name),
        when: CreatePhase::Accepted,
        awaits: ReadinessGate::ExistsIfServed,
        keep: Retain::UntilEnd,
        digest: Some(owned::digest(&body(manifest, groups, name))),
        follows: None,
        pods: None,
    };
    names.iter().map(owned).collect()
}

/// Returns the name of the group of a type's pods.
fn name_of(manifest: &Value, group: &str) -> Option<String> {
    let gang = at(manifest, &["gang"]).filter(|gang| gang.is_object())?;
    let job = text_at(manifest, &["name"])?;
    if group == Task::AiMaster.lower() {
        return None;
    }
    let is_per_type = gang.get("perType").and_then(Value::as_bool).unwrap_or_default();
    Some(if is_per_type { format!("{job}-{group}") } else { job.to_owned() })
}

/// Renders a group.
///
/// # Errors
/// Returns an error for an object that is no pod group.
pub(super) fn pod_group(source: RenderInput<'_>, object: &OwnedRef) -> Result<Value, FieldError> {
    if &*object.kind != POD_GROUP.kind {
        return Err(FieldError::new("kind", object.kind.to_string(), "jobs of this API own pod groups only"));
    }
    Ok(body(source.manifest, &source.spec.groups, &object.name))
}

fn body(manifest: &Value, groups: &[GroupSpec], name: &str) -> Value {
    let gang = at(manifest, &["gang"]).unwrap_or(&Value::Null);
    let is_member = |group: &&GroupSpec| name_of(manifest, &group.name).as_deref() == Some(name);
    let members: Vec<&GroupSpec> = groups.iter().filter(is_member).collect();
    let is_per_type = gang.get("perType").and_then(Value::as_bool).unwrap_or_default();
    let mut labels = Map::new();
    // The watch of this API's objects selects them by it.
    labels.insert(GROUP_LABEL.to_owned(), json!(GROUP));
    labels.insert(JOB_LABEL.to_owned(), at(manifest, &["name"]).cloned().unwrap_or_default());
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let mut resources: BTreeMap<String, i128> = BTreeMap::new();
    let mut least = 0u32;
    for group in members {
        let count = if is_per_type {
            labels.insert(TYPE_LABEL.to_owned(), json!(&*group.name));
            number(at(gang, &["minMembers", &group.name])).unwrap_or(group.replicas)
        } else {
            let spot = at(manifest, &["spec", "replicaSpecs", group.display(), "spot", "numSpotTasks"]);
            group.replicas.saturating_sub(number(spot).unwrap_or_default())
        };
        least = least.saturating_add(if is_per_type { count } else { group.replicas });
        let template = at(manifest, &["spec", "replicaSpecs", group.display(), "template", "spec"]);
        for (resource, amount) in template.map(requests).unwrap_or_default() {
            let all = resources.entry(resource).or_default();
            *all = all.saturating_add(amount.saturating_mul(i128::from(count)));
        }
    }
    if !is_per_type {
        least = number(gang.get("minAvailable")).unwrap_or(least);
    }
    let resources: Map<String, Value> =
        resources.into_iter().map(|(name, amount)| (name, json!(quantity(amount)))).collect();
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "minMember": least,
            "minResources": resources,
            "queue": gang.get("queue").and_then(Value::as_str).unwrap_or_default(),
            "priorityClassName": gang.get("priorityClass").and_then(Value::as_str).unwrap_or_default(),
        },
    })
}

/// Returns what a pod requests, in thousandths.
fn requests(spec: &Value) -> BTreeMap<String, i128> {
    totals(spec, |container| amounts(at(container, &["resources", "requests"])))
}

/// Writes an amount in thousandths exactly.
fn quantity(milli: i128) -> String {
    match (milli.checked_div(1000), milli.checked_rem(1000)) {
        (Some(whole), Some(0)) => whole.to_string(),
        _ => format!("{milli}m"),
    }
}

/// Has a pod join its group, if that exists.
pub(super) fn join(source: RenderInput<'_>, job: &engine::Job, slot: &SlotId, pod: &mut Value) {
    let is_on = at(source.manifest, &["gang"]).is_some_and(Value::is_object);
    let Some(name) = name_of(source.manifest, &slot.group) else {
        if is_on && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("schedulerName".to_owned(), json!(DEFAULT));
        }
        return;
    };
    let found = job.owned.get(&POD_GROUP.named(&name)).and_then(|owned| owned.fact.as_ref());
    let Some(group) = found.filter(|fact| !fact.deleting) else { return };
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(all) = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut() {
            all.insert(GROUP_NAME.to_owned(), json!(name));
        }
        if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            let owner = json!({
                "apiVersion": POD_GROUP.api_version,
                "kind": POD_GROUP.kind,
                "name": name,
                "uid": &*group.uid.0,
                "controller": false,
                "blockOwnerDeletion": true,
            });
            owners.insert(0, owner);
        }
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let scheduler = spec.entry("schedulerName").or_insert(Value::Null);
        if scheduler.as_str().is_none_or(str::is_empty) {
            *scheduler = json!(VOLCANO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_requests_what_its_containers_do_together() {
        let of = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        for (spec, want) in [
            (json!({"containers": [of("500m"), of("1")]}), "1500m"),
            (json!({"containers": [of("500m")], "initContainers": [of("2"), of("1")]}), "2"),
            (json!({"containers": [of("500m")], "overhead": {"cpu": "500m"}}), "1"),
        ] {
            assert_eq!(requests(&spec).get("cpu").map(|milli| quantity(*milli)).as_deref(), Some(want), "{spec}");
        }
        assert!(requests(&json!({"containers": [{}]})).is_empty());
    }
}
