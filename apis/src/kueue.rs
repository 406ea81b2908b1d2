//! Kueue (`kueue.x-k8s.io`): the `Workload` by which it admits a job that names one of its queues, and what admitted pods get.
//!
//! Owns what is written into a Workload and read from it, alike for every API whose pods are created here. It must not decide: the
//! engine creates and deletes the Workload, and halts the job. Version v1beta1 is served by every release that has Workloads so far;
//! all members used here are the same in v1beta2. Source: `apis/kueue` and `pkg/controller/jobframework` of kubernetes-sigs/kueue.
//! Tests: `kueue/tests.rs`, the scenarios `kueue-*`.

use engine::Job;
use model::{
    CreatePhase, FieldError, GateFact, GateReport, JobKey, OwnedRef, OwnedSpec, ReadinessGate, Retain, SpecFact, Text,
    Timestamp,
};
use serde_json::{Map, Value, json};

use crate::api::{JobApi, RenderInput};
use crate::demand;
use crate::objects::{DIGEST, annotation, at, label, list_at, text_at, text_members};
use crate::owned::{self, Access, OwnedType, Pods};

/// Label of a job that names a queue of Kueue.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// Label of a job that names one of Kueue's classes of priorities.
pub(crate) const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Label of a Workload: uid of its job.
const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Label of a pod: its pod set.
const POD_SET: &str = "kueue.x-k8s.io/podset";

const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";

/// Most pod sets of a Workload that every release of Kueue takes.
const MAX_POD_SETS: usize = 8;

/// Objects by which Kueue admits jobs.
pub const WORKLOAD: OwnedType = OwnedType {
    api_version: API_VERSION,
    kind: "Workload",
    plural: "workloads",
    namespaced: true,
    optional: true,
    access: Access::Managed,
    reason: "Kueue admits a job that names one of its queues by a Workload.",
    reports: Some("Kueue reads that a job has ended, that its pods run, and that an evicted one is gone."),
    pods: Pods::Unrelated,
};

/// Kinds of nodes that Kueue assigns.
pub const RESOURCE_FLAVOR: OwnedType = OwnedType {
    api_version: API_VERSION,
    kind: "ResourceFlavor",
    plural: "resourceflavors",
    namespaced: false,
    optional: true,
    access: Access::Read,
    reason: "Pods that Kueue admits run on nodes of the flavors that it assigned.",
    reports: None,
    pods: Pods::Unrelated,
};

/// Members of a pod's spec that Kueue counts and places by.
const COUNTED: [&str; 10] = [
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
];
/// Members of a container of it.
const COUNTED_OF_CONTAINER: [&str; 4] = ["image", "name", "resources", "restartPolicy"];

/// Adds the Workload of a job that names a queue of Kueue to its translated spec. Groups that run once prepare the job before it is
/// admitted, and have no pod set.
pub(crate) fn add(api: &dyn JobApi, key: &JobKey, object: &Value, fact: &mut SpecFact) {
    let Some(queue) = label(object, QUEUE_NAME).filter(|queue| !queue.is_empty()) else { return };
    let Ok(spec) = fact.spec.clone() else { return };
    if !api.descriptor().owned_types.contains(&WORKLOAD) {
        return;
    }
    let mut manifest: Value = serde_json::from_str(&fact.manifest).unwrap_or_default();
    let (priority, _) = demand::priority(object, api.scheduling().and_then(|scheduling| scheduling.priority(object)));
    if let Some(members) = manifest.as_object_mut() {
        members.insert("kueue".to_owned(), json!({"queueName": queue, "priority": priority.unwrap_or_default()}));
    }
    let contents = spec_of(api, RenderInput { job: key, spec: &spec, manifest: &manifest });
    let pod_sets = list_at(&contents, &["podSets"]);
    let path = format!("metadata.labels.{QUEUE_NAME}");
    if pod_sets.len() > MAX_POD_SETS {
        let count = pod_sets.len();
        let problem = format!("Kueue admits jobs of at most {MAX_POD_SETS} groups of pods; this one has {count}");
        fact.spec = Err(vec![FieldError::new(path, format!("{queue:?}"), problem)]);
        return;
    }
    let mut remark = |label_key: &str, problem: &str| {
        if let Some(value) = label(object, label_key) {
            let path = format!("metadata.labels.{label_key}");
            fact.warnings.push(FieldError::new(path, format!("{value:?}"), problem));
        }
    };
    remark(demand::QUEUE, "is not used while Kueue admits the job, which the label kueue.x-k8s.io/queue-name asks for");
    remark(PRIORITY_CLASS, "is not read: give the priority as a number, by the label trainyard.dev/priority");
    if pod_sets.is_empty() {
        return;
    }
    let pods = owned::digest(at(&contents, &["podSets"]).unwrap_or(&Value::Null));
    let rest = owned::digest(&json!([contents.get("queueName"), contents.get("priority")]));
    if let Ok(spec) = &mut fact.spec {
        // Kueue admits a job whole.
        spec.groups.iter_mut().for_each(|group| group.sizes = None);
        spec.owned.push(OwnedSpec {
            object: WORKLOAD.named(&format!("{}-{}", key.kind.to_lowercase(), key.name)),
            when: CreatePhase::Accepted,
            awaits: ReadinessGate::Admitted,
            keep: Retain::WithJob,
            digest: Some(Text::from(format!("{pods}-{rest}"))),
            follows: None,
            pods: Some(pods),
        });
    }
    fact.manifest = Text::from(model::json::canonical(&manifest));
}

/// Renders the Workload of a job, without what [`owned::complete`] adds.
///
/// # Errors
/// Returns an error if the manifest names no queue.
pub(crate) fn workload(api: &dyn JobApi, input: RenderInput<'_>) -> Result<Value, FieldError> {
    if at(input.manifest, &["kueue"]).is_none() {
        let path = format!("metadata.labels.{QUEUE_NAME}");
        return Err(FieldError::new(path, "missing", "the spec in force names no queue of Kueue"));
    }
    // The watch of the API's objects selects them by its labels.
    let own = api.selector();
    let labels = own.labels().map(|(key, value)| (key.to_string(), json!(&**value)));
    let labels: Map<String, Value> = labels.chain([(JOB_UID.to_owned(), json!(&*input.job.uid.0))]).collect();
    Ok(json!({"metadata": {"labels": labels}, "spec": spec_of(api, input)}))
}

/// Returns the `spec` of a Workload.
fn spec_of(api: &dyn JobApi, input: RenderInput<'_>) -> Value {
    let groups = input.spec.groups.iter().filter(|group| !group.once && group.replicas > 0);
    let pod_sets: Vec<Value> = groups
        .filter_map(|group| {
            let pod = demand::first_pod(api, input, group)?;
            let template = json!({"spec": counted(pod.get("spec")?)});
            Some(json!({"name": &*group.name, "count": group.replicas, "template": template}))
        })
        .collect();
    json!({
        "podSets": pod_sets,
        "queueName": at(input.manifest, &["kueue", "queueName"]),
        "priority": at(input.manifest, &["kueue", "priority"]),
    })
}

/// Returns what counts of a pod's spec. What differs between the pods of a group does not, nor does what runs in them.
fn counted(spec: &Value) -> Value {
    let mut members = kept(spec, &COUNTED);
    for key in ["containers", "initContainers"] {
        let containers = list_at(spec, &[key]);
        if !containers.is_empty() {
            let containers = containers.iter().map(|container| Value::Object(kept(container, &COUNTED_OF_CONTAINER)));
            members.insert(key.to_owned(), containers.collect());
        }
    }
    Value::Object(members)
}

/// Returns some members of an object, without those that are null.
fn kept(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let member = |key: &&str| Some(((*key).to_owned(), object.get(*key).filter(|value| !value.is_null())?.clone()));
    keys.iter().filter_map(member).collect()
}

/// Reads the state of a Workload: whether it admits the pods, and the rest.
pub(crate) fn state(object: &Value) -> (bool, GateFact) {
    let is_true = |kind: &str| condition(object, kind).is_some_and(|found| text_at(found, &["status"]) == Some("True"));
    let words = |kind: &str| condition(object, kind).and_then(|found| text_at(found, &["message"]));
    let (evicted, finished) = (is_true("Evicted"), is_true("Finished"));
    let is_active = at(object, &["spec", "active"]).and_then(Value::as_bool) != Some(false);
    let ready = is_true("Admitted") && !evicted && !finished && is_active;
    let why = if finished {
        Some("it is finished; delete it to queue the job again")
    } else if evicted {
        words("Evicted")
    } else if !is_active {
        Some("spec.active is false")
    } else if is_true("QuotaReserved") {
        words("Admitted").or(Some("its admission checks are not done"))
    } else {
        words("QuotaReserved")
    };
    let mut flavors: Vec<OwnedRef> = Vec::new();
    for assignment in assignments(object) {
        let named = text_members(assignment.get("flavors")).map(|(_, flavor)| RESOURCE_FLAVOR.named(flavor));
        flavors.extend(named);
    }
    flavors.sort_unstable();
    flavors.dedup();
    let gate = GateFact {
        holds_quota: is_true("QuotaReserved") || at(object, &["status", "admission"]).is_some_and(Value::is_object),
        evicted,
        finished,
        pods_ready: is_true("PodsReady"),
        pods: annotation(object, DIGEST).map(|digest| Text::from(digest.split('-').next().unwrap_or_default())),
        message: why.filter(|why| !ready && !why.is_empty()).map(Text::from),
        reads: flavors,
    };
    (ready, gate)
}

/// Returns the part of an object of Kueue that pods get something from, or that a report leaves as it is.
pub(crate) fn contents(kind: &str, object: &Value) -> Text {
    let contents = if kind == RESOURCE_FLAVOR.kind {
        json!({
            "nodeLabels": at(object, &["spec", "nodeLabels"]),
            "tolerations": at(object, &["spec", "tolerations"]),
        })
    } else {
        let flavors =
            |assignment: &Value| json!({"name": assignment.get("name"), "flavors": assignment.get("flavors")});
        let updates: Vec<&Value> = list_at(object, &["status", "admissionChecks"])
            .iter()
            .flat_map(|check| list_at(check, &["podSetUpdates"]))
            .collect();
        json!({
            "conditions": list_at(object, &["status", "conditions"]),
            "assignments": assignments(object).iter().map(flavors).collect::<Vec<_>>(),
            "updates": updates,
        })
    };
    Text::from(model::json::canonical(&contents))
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list_at(object, &["status", "conditions"]).iter().find(|found| text_at(found, &["type"]) == Some(kind))
}

fn assignments(object: &Value) -> &[Value] {
    list_at(object, &["status", "admission", "podSetAssignments"])
}

/// Returns true for an object of Kueue.
pub(crate) fn is_of_kueue(api_version: &str) -> bool {
    api_version == API_VERSION
}

/// Gives a rendered pod what its admission assigns: labels, annotations, node selectors and tolerations. What the pod says itself
/// stays. A pod of a job with a Workload carries no label of a queue: no other gate holds it back.
pub fn admit(job: &Job, group: &Text, pod: &mut Value) {
    let Some(gate) = job.gate() else { return };
    let Some(members) = pod.as_object_mut() else { return };
    if let Some(labels) = members.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels")?.as_object_mut()) {
        labels.remove(QUEUE_NAME);
        labels.remove(demand::QUEUE);
    }
    let read = |object: &OwnedRef| -> Value {
        let fact = job.owned.get(object).and_then(|owned| owned.fact.as_ref());
        let contents = fact.and_then(|fact| fact.contents.as_deref()).unwrap_or_default();
        serde_json::from_str(contents).unwrap_or_default()
    };
    let admission = read(&gate.object);
    let of_group = |list: &str| -> Vec<Value> {
        let all = list_at(&admission, &[list]).iter();
        all.filter(|each| text_at(each, &["name"]) == Some(&**group)).cloned().collect()
    };
    let assigned = of_group("assignments");
    if assigned.is_empty() {
        return;
    }
    let mut flavors: Vec<&str> =
        assigned.iter().flat_map(|each| text_members(each.get("flavors"))).map(|(_, flavor)| flavor).collect();
    flavors.sort_unstable();
    flavors.dedup();
    let metadata = |key: &str, value: Value| json!({key: value});
    let mut grants = vec![metadata("labels", json!({POD_SET: &**group}))];
    for flavor in flavors {
        let found = read(&RESOURCE_FLAVOR.named(flavor));
        grants.push(json!({"nodeSelector": found.get("nodeLabels"), "tolerations": found.get("tolerations")}));
    }
    grants.extend(of_group("updates"));
    for grant in &grants {
        for key in ["labels", "annotations"] {
            merge(member(members, "metadata"), key, grant.get(key));
        }
        let spec = member(members, "spec");
        merge(spec, "nodeSelector", grant.get("nodeSelector"));
        tolerate(spec, list_at(grant, &["tolerations"]));
    }
}

/// Returns a member that is an object, creating it where it is none.
fn member<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Value {
    let value = parent.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value
}

/// Adds entries to a map of texts. Those that are there stay.
fn merge(parent: &mut Value, key: &str, entries: Option<&Value>) {
    let mut entries = text_members(entries).peekable();
    let Some(parent) = parent.as_object_mut().filter(|_| entries.peek().is_some()) else { return };
    if let Some(map) = member(parent, key).as_object_mut() {
        for (key, value) in entries {
            map.entry(key).or_insert_with(|| json!(value));
        }
    }
}

/// Adds tolerations that a pod does not have.
fn tolerate(spec: &mut Value, tolerations: &[Value]) {
    let Some(spec) = spec.as_object_mut().filter(|_| !tolerations.is_empty()) else { return };
    let own = spec.entry("tolerations").or_insert_with(|| json!([]));
    if own.is_null() {
        *own = json!([]);
    }
    if let Some(own) = own.as_array_mut() {
        for toleration in tolerations {
            if !own.contains(toleration) {
                own.push(toleration.clone());
            }
        }
    }
}

/// Renders the patch of a Workload's status that reports the state of its job. `contents`: those of the fact about it.
///
/// An evicted Workload whose pods are gone gives its quota up: Kueue leaves that to the controller of the job.
pub fn report(contents: &str, report: GateReport, at: Timestamp) -> Value {
    let contents: Value = serde_json::from_str(contents).unwrap_or_default();
    let mut conditions = Conditions { all: list_at(&contents, &["conditions"]).to_vec(), at };
    match report {
        GateReport::PodsReady(true) => {
            let has_recovered = matches!(conditions.get("PodsReady", "reason"), Some("WaitForRecovery" | "Recovered"));
            let reason = if has_recovered { "Recovered" } else { "Started" };
            conditions.set("PodsReady", true, reason, "All pods run");
        }
        GateReport::PodsReady(false) => {
            conditions.set("PodsReady", false, "WaitForRecovery", "Not all pods run; waiting for recovery");
        }
        GateReport::Finished { succeeded } => {
            let (reason, message) =
                if succeeded { ("Succeeded", "The job succeeded") } else { ("Failed", "The job failed") };
            conditions.set("Finished", true, reason, message);
        }
        GateReport::Released => {
            let reason = conditions.get("Evicted", "reason").unwrap_or("Evicted").to_owned();
            let message = conditions.get("Evicted", "message").unwrap_or_default().to_owned();
            // Kueue itself requeues the others, when their back-off is over or their queue is open again.
            let is_requeued = matches!(&*reason, "Preempted" | "NodeFailures");
            conditions.set("Requeued", is_requeued, &reason, &message);
            conditions.set("QuotaReserved", false, "Pending", &message);
            conditions.set("Admitted", false, "NoReservation", "The workload has no reservation");
            if conditions.get("PodsReady", "status") == Some("True") {
                conditions.set("PodsReady", false, "WaitForStart", "Not all pods run");
            }
            return json!({"status": {"admission": null, "conditions": conditions.all}});
        }
    }
    json!({"status": {"conditions": conditions.all}})
}

/// Conditions of a Workload, to be changed.
struct Conditions {
    all: Vec<Value>,
    at: Timestamp,
}

impl Conditions {
    fn get(&self, kind: &str, key: &str) -> Option<&str> {
        let found = self.all.iter().find(|condition| text_at(condition, &["type"]) == Some(kind))?;
        text_at(found, &[key])
    }

    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let status = if is_true { "True" } else { "False" };
        let since = self.get(kind, "lastTransitionTime").filter(|_| self.get(kind, "status") == Some(status));
        let since = since.map_or_else(|| self.at.to_rfc3339(), str::to_owned);
        self.all.retain(|condition| text_at(condition, &["type"]) != Some(kind));
        self.all.push(json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }));
    }
}

#[cfg(test)]
mod tests;
