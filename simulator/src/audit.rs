//! The audit: adds up from cluster objects alone which GPUs are in use, after every call of the operator and every step of a user,
//! and compares the sums with nodes, quotas and cohorts. A pod is created within its job's share, or, of a job that Kueue admits, while
//! its Workload is admitted. Pods of a queue that selects nodes are on those. A place is granted on a node that takes pods of the job's
//! template, and what is placed on a node stays within what it has of each resource.
//!
//! It knows nothing of the operator's state. Pods that are being deleted count; ended ones do not. A limit that is lowered counts as
//! it was, because what runs may stay and may replace its pods. Tests: `tests/audit.rs`.

mod amounts;
mod grants;
mod nodes;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::Registry;
use apis::demand::QUEUE;
use apis::objects::{MIRROR, annotated_mirror, at, label, list_at, text_at};
use cluster::Cluster;
use model::Kind;
use serde_json::Value;
use settings::Quantity;

use self::grants::Grants;
pub use self::nodes::node_refusal;
use self::places::Places;
use crate::controllers::mpi_operator::JOB;

/// GPUs in use by place.
type Sums = BTreeMap<String, i128>;

/// The greatest limits that were ever seen.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    limits: Sums,
    /// Uids of the pods that were there before.
    seen: BTreeSet<String>,
    places: Places,
    grants: Grants,
}

/// A queue's limits for one resource.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    nominal: i128,
    borrowing: i128,
}

impl Audit {
    /// The audit of an operator without a capacity gate: it grants places before there is room for them.
    pub fn of_ignored_capacity() -> Self {
        Self { grants: Grants::of_ignored_capacity(), ..Self::default() }
    }

    /// Adds up and compares. Returns each violation in words.
    pub fn check(&mut self, cluster: &Cluster) -> Vec<String> {
        let objects = cluster.objects();
        let of = |kind: &'static str| objects.iter().filter(move |object| text_at(object, &["kind"]) == Some(kind));
        let mut limits: Sums = BTreeMap::new();
        for node in of("Node") {
            for (resource, amount) in amounts(at(node, &["status", "allocatable"])) {
                limits.insert(format!("node {}, {resource}", name(node)), amount);
            }
        }
        let mut cohorts: BTreeMap<String, i128> = BTreeMap::new();
        let mut cohort_of: BTreeMap<String, String> = BTreeMap::new();
        for queue in of("TrainingQueue") {
            let cohort = text_at(queue, &["spec", "cohort"]);
            let quota = at(queue, &["spec", "quota"]).and_then(Value::as_object);
            for (resource, amounts) in quota.into_iter().flatten().filter(|(name, _)| is_gpu(name)) {
                let number = |key: &str| i128::from(amounts.get(key).and_then(Value::as_i64).unwrap_or_default());
                let found = Limits { nominal: number("nominal"), borrowing: number("borrowing") };
                let borrowing = if cohort.is_some() { found.borrowing } else { 0 };
                limits.insert(format!("queue {}, {resource}", name(queue)), found.nominal + borrowing);
                if let Some(cohort) = cohort {
                    *cohorts.entry(format!("cohort {cohort}, {resource}")).or_default() += found.nominal;
                    cohort_of.insert(format!("queue {}", name(queue)), format!("cohort {cohort}"));
                }
            }
        }
        limits.extend(cohorts);
        for (place, limit) in &mut limits {
            let greatest = self.limits.entry(place.clone()).or_insert(*limit);
            *greatest = (*greatest).max(*limit);
            *limit = *greatest;
        }
        let mut used: Sums = BTreeMap::new();
        for pod in of("Pod") {
            if has_ended(pod) {
                continue;
            }
            let node = text_at(pod, &["spec", "nodeName"]).filter(|name| !name.is_empty());
            for (resource, gpus) in requests(pod) {
                if let Some(node) = node {
                    *used.entry(format!("node {node}, {resource}")).or_default() += gpus;
                }
                if let Some(queue) = label(pod, QUEUE) {
                    let queue = format!("queue {queue}");
                    if let Some(cohort) = cohort_of.get(&queue) {
                        *used.entry(format!("{cohort}, {resource}")).or_default() += gpus;
                    }
                    *used.entry(format!("{queue}, {resource}")).or_default() += gpus;
                }
            }
        }
        let mut violations = Vec::new();
        for (place, gpus) in &used {
            if let Some(limit) = limits.get(place).filter(|limit| gpus > limit) {
                violations.push(format!("{place}: {gpus} in use, {limit} allowed"));
            }
        }
        let new: Vec<&Value> =
            of("Pod").map(|pod| &**pod).filter(|pod| self.seen.insert(uid(pod).to_owned())).collect();
        // Another controller deletes the pods of an MPIJob some time after the job has lost its share.
        let is_own = |pod: &&Arc<Value>| label(pod, JOB).is_none() || new.iter().any(|new| uid(new) == uid(pod));
        violations.extend(of("Pod").filter(is_own).filter_map(|pod| without_share(pod, &objects)));
        violations.extend(new.into_iter().filter_map(|pod| without_admission(pod, &objects)));
        violations.extend(self.places.check(&objects));
        violations.extend(self.grants.check(&objects, cluster.now(), !cluster.holds(Kind::Pod)));
        violations
    }
}

/// Returns what is wrong with a pod that was just created, of a job whose Workload counts it and does not admit it. A job without a
/// Workload runs where Kueue is not installed.
fn without_admission(pod: &Value, objects: &[Arc<Value>]) -> Option<String> {
    let mut workloads = objects.iter().filter(|object| text_at(object, &["kind"]) == Some("Workload")).peekable();
    workloads.peek()?;
    let registry = Registry::all();
    let job = registry.owner(pod)?;
    let of_job: Vec<&Arc<Value>> = workloads.filter(|object| registry.owner(object).as_ref() == Some(&job)).collect();
    if of_job.len() > 1 {
        return Some(format!("pod {}: its job has {} Workloads", name(pod), of_job.len()));
    }
    let workload = of_job.first()?;
    let group = registry.api_of(&job)?.slot_of(pod)?.group;
    let pod_sets = list_at(workload, &["spec", "podSets"]);
    let is_counted = pod_sets.iter().any(|pod_set| text_at(pod_set, &["name"]) == Some(&*group));
    let conditions = list_at(workload, &["status", "conditions"]);
    let is_true = |kind: &str| {
        let found = conditions.iter().find(|condition| text_at(condition, &["type"]) == Some(kind));
        found.is_some_and(|condition| text_at(condition, &["status"]) == Some("True"))
    };
    let is_admitted = is_true("Admitted") && !is_true("Evicted");
    (is_counted && !is_admitted).then(|| format!("pod {}: created before its job's Workload is admitted", name(pod)))
}

fn uid(object: &Value) -> &str {
    text_at(object, &["metadata", "uid"]).unwrap_or_default()
}

/// Returns what is wrong with a pod of a named queue whose job's mirror shows no share, while the pod has just been created.
fn without_share(pod: &Value, objects: &[Arc<Value>]) -> Option<String> {
    label(pod, QUEUE)?;
    let is_new = !has_ended(pod)
        && text_at(pod, &["spec", "nodeName"]).is_none()
        && at(pod, &["metadata", "deletionTimestamp"]).is_none();
    let owner = list_at(pod, &["metadata", "ownerReferences"]).first()?.get("uid")?;
    let job = objects.iter().find(|object| at(object, &["metadata", "uid"]) == Some(owner))?;
    let mirror = mirror(job);
    let share = mirror.get("share").and_then(Value::as_object);
    let decision = mirror.get("decision").is_some();
    (is_new && !decision && share.is_none_or(serde_json::Map::is_empty))
        .then(|| format!("pod {}: created before its job's mirror shows a share", name(pod)))
}

/// Returns the mirror that a job's object carries; null without one.
fn mirror(job: &Value) -> Value {
    let in_status = at(job, &["status", MIRROR]).cloned();
    in_status.or_else(|| annotated_mirror(job)).unwrap_or_default()
}

fn has_ended(pod: &Value) -> bool {
    matches!(text_at(pod, &["status", "phase"]), Some("Succeeded" | "Failed"))
}

fn name(object: &Value) -> &str {
    text_at(object, &["metadata", "name"]).unwrap_or_default()
}

fn is_gpu(resource: &str) -> bool {
    resource.ends_with("gpu")
}

fn amounts(amounts: Option<&Value>) -> impl Iterator<Item = (String, i128)> {
    let all = amounts.and_then(Value::as_object).into_iter().flatten().filter(|(name, _)| is_gpu(name));
    all.filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.ceil())))
}

/// GPUs that a pod requests, by resource.
fn requests(pod: &Value) -> Sums {
    let mut sums = Sums::new();
    for container in list_at(pod, &["spec", "containers"]) {
        let resources = ["limits", "requests"].into_iter().find_map(|kind| at(container, &["resources", kind]));
        for (resource, gpus) in amounts(resources) {
            *sums.entry(resource).or_default() += gpus;
        }
    }
    sums
}
