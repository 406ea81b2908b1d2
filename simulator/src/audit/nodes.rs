//! Nodes as they were: whether a node took pods of a template at a time, by kube-scheduler's rules on raw objects.
//!
//! Owns its own reading of taints, labels and cordons, so that it finds what the operator's rules miss. Where no node lists the resource
//! `pods`, a label that no node has is not judged: scenarios name what they are about. Room is [`super::grants`]'s. Tests:
//! `tests/audit_nodes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::objects::{at, list_at, text_at};
use model::Timestamp;
use serde_json::Value;

use super::amounts::{listed, requests};
use super::name;

/// Key of the taint that stands for a cordon.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// All nodes, each with its past.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    versions: BTreeMap<String, Vec<Version>>,
    labels: Labels,
}

/// Labels that are judged.
#[derive(Debug, Clone, Default)]
struct Labels {
    /// True once a node listed the resource `pods`: then all are.
    all: bool,
    /// Keys that a node had at any time.
    keys: BTreeSet<String>,
}

/// A node between two changes of it.
#[derive(Debug, Clone)]
struct Version {
    node: Arc<Value>,
    since: Timestamp,
    /// Time of the next change; `None`: it is the present one.
    until: Option<Timestamp>,
}

impl Nodes {
    /// Notes how nodes look now.
    pub(super) fn note(&mut self, objects: &[Arc<Value>], now: Timestamp) {
        let mut absent: BTreeSet<String> = self.versions.keys().cloned().collect();
        for node in objects.iter().filter(|object| text_at(object, &["kind"]) == Some("Node")) {
            absent.remove(name(node));
            self.labels.all |= at(node, &["status", "allocatable", "pods"]).is_some();
            let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
            self.labels.keys.extend(labels.into_iter().flatten().map(|(key, _)| key.clone()));
            let versions = self.versions.entry(name(node).to_owned()).or_default();
            let is_same = |last: &Version| last.until.is_none() && judged(&last.node) == judged(node);
            if !versions.last().is_some_and(is_same) {
                close(versions, now);
                versions.push(Version { node: Arc::clone(node), since: now, until: None });
            }
        }
        for gone in absent {
            close(self.versions.entry(gone).or_default(), now);
        }
    }

    /// Returns why a node takes no pod of a spec at a time; `None` where it took one in any state that it had at that time.
    pub(super) fn refusal(&self, node: &str, pod: &Value, time: Timestamp) -> Option<String> {
        let versions = self.versions.get(node).map_or(&[][..], Vec::as_slice);
        let at_the_time =
            versions.iter().filter(|v| v.since <= time && v.until.is_none_or(|until| time <= until)).map(|v| &v.node);
        let mut reasons = Vec::new();
        for node in at_the_time {
            reasons.push(refusal(node, pod, &self.labels)?);
        }
        Some(reasons.pop().unwrap_or_else(|| "which is not there".to_owned()))
    }
}

/// Ends the present version of a node.
fn close(versions: &mut [Version], now: Timestamp) {
    if let Some(last) = versions.last_mut() {
        last.until.get_or_insert(now);
    }
}

/// Returns the members of a node that are judged.
fn judged(node: &Value) -> [Option<&Value>; 3] {
    let spec = |member| at(node, &["spec", member]);
    [at(node, &["metadata", "labels"]), spec("taints"), spec("unschedulable")]
}

/// Returns why a node takes no pod of a spec when it is empty; `None` when it takes one. Every label is judged, and every resource besides
/// GPUs that the node lists.
pub fn node_refusal(node: &Value, pod: &Value) -> Option<String> {
    let short = || {
        let (has, needs) = (listed(at(node, &["status", "allocatable"])), requests(pod));
        let short = needs.into_iter().find(|(resource, need)| has.get(resource).is_some_and(|has| has < need));
        short.map(|(resource, _)| format!("which has too little {resource}"))
    };
    refusal(node, pod, &Labels { all: true, keys: BTreeSet::new() }).or_else(short)
}

fn refusal(node: &Value, pod: &Value, judged: &Labels) -> Option<String> {
    let cordon = serde_json::json!({"key": CORDON, "effect": "NoSchedule"});
    if at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) && !is_tolerated(&cordon, pod) {
        return Some("which is cordoned".to_owned());
    }
    let keeps_away = |taint: &&Value| matches!(text_at(taint, &["effect"]), Some("NoSchedule" | "NoExecute"));
    let mut taints = list_at(node, &["spec", "taints"]).iter().filter(keeps_away);
    if let Some(taint) = taints.find(|taint| !is_tolerated(taint, pod)) {
        return Some(format!("whose taint {} is not tolerated", text_at(taint, &["key"]).unwrap_or_default()));
    }
    let selector = pod.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let lacks = |(key, value): &(&String, &Value)| is_judged(judged, key) && label_of(node, key) != value.as_str();
    if let Some((key, value)) = selector.into_iter().find(lacks) {
        return Some(format!("which lacks the label {key}={}", value.as_str().unwrap_or_default()));
    }
    let required = at(pod, &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
    let terms = required.filter(|required| required.is_object()).map(|all| list_at(all, &["nodeSelectorTerms"]));
    let is_affine = terms.is_none_or(|terms| terms.iter().any(|term| meets(node, term, judged)));
    (!is_affine).then(|| "which its required affinity rules out".to_owned())
}

fn is_judged(judged: &Labels, key: &str) -> bool {
    judged.all || judged.keys.contains(key)
}

fn label_of<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    at(node, &["metadata", "labels"])?.get(key)?.as_str()
}

/// Returns true if a node meets all requirements of a term, of which there is at least one.
fn meets(node: &Value, term: &Value, judged: &Labels) -> bool {
    let (labels, fields) = (list_at(term, &["matchExpressions"]), list_at(term, &["matchFields"]));
    let key = |of: &Value| text_at(of, &["key"]).unwrap_or_default().to_owned();
    let has_label = |of: &Value| !is_judged(judged, &key(of)) || holds(of, label_of(node, &key(of)));
    let is_named = |of: &Value| key(of) == "metadata.name" && holds(of, Some(name(node)));
    labels.len() + fields.len() > 0 && labels.iter().all(has_label) && fields.iter().all(is_named)
}

/// Returns true if a requirement holds for a value; `None` is an absent label.
fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let values: Vec<&str> = list_at(requirement, &["values"]).iter().filter_map(Value::as_str).collect();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |order| {
        let bound = values.first().and_then(|bound| number(bound));
        value.and_then(number).zip(bound).is_some_and(|(value, bound)| value.cmp(&bound) == order)
    };
    match text_at(requirement, &["operator"]).unwrap_or_default() {
        "In" => value.is_some_and(|value| values.contains(&value)),
        "NotIn" => value.is_none_or(|value| !values.contains(&value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(std::cmp::Ordering::Greater),
        "Lt" => compared(std::cmp::Ordering::Less),
        _ => false,
    }
}

/// Returns true if a toleration of a pod covers a taint.
fn is_tolerated(taint: &Value, pod: &Value) -> bool {
    let member = |of: &Value, member: &str| text_at(of, &[member]).unwrap_or_default().to_owned();
    list_at(pod, &["tolerations"]).iter().any(|toleration| {
        let (key, effect) = (member(toleration, "key"), member(toleration, "effect"));
        let is_effect = effect.is_empty() || effect == member(taint, "effect");
        let is_key = key == member(taint, "key");
        is_effect
            && match &*member(toleration, "operator") {
                "Exists" => is_key || key.is_empty(),
                _ => is_key && member(toleration, "value") == member(taint, "value"),
            }
    })
}
