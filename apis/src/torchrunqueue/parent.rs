//! Parents of KAI Queues: what a namespace may have below one, as its administrator wrote on it.
//!
//! Owns the annotations on KAI Queues, and the rule. It must not read them from a cluster. Tests: at the end of this file.

use std::collections::BTreeMap;

use ::settings::Quantity;
use model::{JobKey, LabelSelector, OwnedRef, Text};
use serde_json::Value;

use super::constants::KAI_QUEUE;
use super::settings::{AMOUNTS, RESOURCES};
use crate::authorization::{AuthorizationReads, OwnedWrite, forbidden, namespace_of};
use crate::call::ApiError;
use crate::fields::{Findings, join};
use crate::objects::{annotation, at, text_at};
use crate::{namespace, namespace_selector};

/// Annotation: a label selector, as JSON, of the namespaces that may have queues below this one. `{}` selects all.
pub(super) const NAMESPACES: &str = "trainyard.dev/namespace-selector";
/// Annotation: the most that one namespace may have below this one, as JSON in the form of `spec.resources`. What it leaves out is the
/// queue's own quota or limit, and 1 for a weight.
pub(super) const RESOURCES_OF_NAMESPACE: &str = "trainyard.dev/namespace-resources";

/// An amount in thousandths of KAI's units.
type Amount = i128;
/// The amount that KAI spells -1.
const UNLIMITED: Amount = i128::MAX;
/// The amount 1: the weight of a queue that names none.
const ONE: Amount = 1000;
/// Amount that is bounded for each queue by itself: its part of unused resources is counted by it.
const WEIGHT: &str = "overQuotaWeight";

/// Returns the objects that decide whether a namespace may have a KAI Queue: its parent, that queue itself, and the namespace.
pub(super) fn reads(job: &JobKey, object: &OwnedRef, body: &Value) -> AuthorizationReads {
    let queue = |name: &str| (KAI_QUEUE.resource(), Text::from(name));
    AuthorizationReads { objects: vec![queue(parent_of(body)), queue(&object.name), namespace_of(job)], others: true }
}

/// Decides whether a KAI Queue is created or patched.
pub(super) fn authorize(write: &OwnedWrite<'_>) -> Result<(), ApiError> {
    if write.creates && write.found(KAI_QUEUE.resource(), &write.object.name).is_some() {
        let message = format!("KAI Queue {} exists", write.object.name);
        return Err(ApiError { code: 409, reason: "AlreadyExists".into(), message });
    }
    judge(write).map_err(forbidden)
}

fn judge(write: &OwnedWrite<'_>) -> Result<(), String> {
    let (name, namespace) = (parent_of(write.body), &write.job.namespace);
    let parent = write.found(KAI_QUEUE.resource(), name);
    let parent = parent.ok_or_else(|| format!("spec.queue.parentQueue: there is no KAI Queue {name}"))?;
    let selector = selector(parent, name)?.ok_or_else(|| {
        format!(
            "spec.queue.parentQueue: KAI Queue {name} has no annotation {NAMESPACES}, in which an administrator selects the namespaces \
             that may have queues below it"
        )
    })?;
    let found = write.namespace().and_then(|namespace| namespace::fact(namespace).ok());
    if !selector.selects_namespace(namespace, found.as_ref().map(|found| &found.labels)) {
        return Err(format!(
            "spec.queue.parentQueue: namespace {namespace} may have no queue below KAI Queue {name}: its annotation {NAMESPACES} does \
             not select it"
        ));
    }
    let bounds = bounds(parent, name)?;
    let siblings: Vec<&Value> = write.others.iter().filter(|other| parent_of(other) == name).collect();
    for resource in RESOURCES {
        for (key, _) in AMOUNTS {
            let most = match bounds.get(&(resource, key)) {
                Some(most) => *most,
                None if key == WEIGHT => ONE,
                None => amount(parent, resource, key),
            };
            let own = amount(write.body, resource, key);
            let others = siblings.iter().map(|sibling| amount(sibling, resource, key));
            let all = if key == WEIGHT { own } else { others.fold(own, i128::saturating_add) };
            if all > most {
                return Err(format!(
                    "spec.queue.resources.{resource}.{key}: {} is more than namespace {namespace} may have below KAI Queue {name}: {}{}",
                    words(own),
                    words(most),
                    if all == own { String::new() } else { format!(", and {} with its other queues", words(all)) },
                ));
            }
        }
    }
    Ok(())
}

fn parent_of(body: &Value) -> &str {
    text_at(body, &["spec", "parentQueue"]).unwrap_or_default()
}

/// Returns the selector of namespaces on a parent; `None` where it has none.
fn selector(parent: &Value, name: &str) -> Result<Option<LabelSelector>, String> {
    let Some(written) = json_annotation(parent, name, NAMESPACES)? else { return Ok(None) };
    let mut findings = Findings::default();
    let read = namespace_selector::read(&written, "", &mut findings);
    match findings.into_errors_and_warnings().0.first() {
        Some(error) => Err(format!("annotation {NAMESPACES} of KAI Queue {name}: {error}")),
        None => Ok(Some(read)),
    }
}

/// Returns the amounts that the annotation of a parent bounds.
fn bounds(parent: &Value, name: &str) -> Result<BTreeMap<(&'static str, &'static str), Amount>, String> {
    let wrong = |path: &str, problem: &str| {
        format!("annotation {RESOURCES_OF_NAMESPACE} of KAI Queue {name}: {path}: {problem}")
    };
    let written = json_annotation(parent, name, RESOURCES_OF_NAMESPACE)?.unwrap_or_default();
    let mut bounds = BTreeMap::new();
    for (resource, amounts) in written.as_object().into_iter().flatten() {
        let known = RESOURCES.into_iter().find(|known| known == resource);
        let known = known.ok_or_else(|| wrong(resource, &format!("must be one of {}", RESOURCES.join(", "))))?;
        let amounts = amounts.as_object().ok_or_else(|| wrong(resource, "must be an object"))?;
        for (key, value) in amounts {
            let path = join(resource, key);
            let names = AMOUNTS.map(|(name, _)| name);
            let key = names.into_iter().find(|known| known == key);
            let key = key.ok_or_else(|| wrong(&path, &format!("must be one of {}", names.join(", "))))?;
            let most = read(value).ok_or_else(|| wrong(&path, &format!("must be a number, not {value}")))?;
            bounds.insert((known, key), most);
        }
    }
    Ok(bounds)
}

/// Reads the JSON object in an annotation of a parent; `None` where it has none.
fn json_annotation(parent: &Value, name: &str, key: &str) -> Result<Option<Value>, String> {
    let Some(text) = annotation(parent, key) else { return Ok(None) };
    let read = serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    read.map(Some).ok_or_else(|| format!("annotation {key} of KAI Queue {name}: must be a JSON object"))
}

/// Returns an amount of a KAI Queue. To KAI one that is not written is 0.
fn amount(queue: &Value, resource: &str, key: &str) -> Amount {
    at(queue, &["spec", "resources", resource, key]).and_then(read).unwrap_or(0)
}

fn read(value: &Value) -> Option<Amount> {
    let amount = Quantity::read(value)?.milli();
    Some(if amount < 0 { UNLIMITED } else { amount })
}

/// Spells an amount as KAI has it.
fn words(amount: Amount) -> String {
    match amount {
        UNLIMITED => "-1 (unlimited)".to_owned(),
        amount if amount % ONE == 0 => (amount / ONE).to_string(),
        amount => format!("{amount}m"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::authorization::Found;

    fn queue(parent: &str, gpu: &Value) -> Value {
        let amounts = json!({"quota": 0, "limit": 0, "overQuotaWeight": 1});
        json!({"spec": {"parentQueue": parent, "resources": {"cpu": amounts, "memory": amounts, "gpu": gpu}}})
    }

    fn parent(annotations: &Value) -> Value {
        let amounts = json!({"quota": 8, "limit": -1});
        json!({"metadata": {"annotations": annotations}, "spec": {"resources": {"gpu": amounts}}})
    }

    /// Decides on a queue `q` of namespace `ml`, with label `team: a`, below `top`.
    fn decide(
        top: Option<Value>,
        gpu: &Value,
        others: &[Value],
        existing: bool,
        creates: bool,
    ) -> Result<(), ApiError> {
        let job = JobKey { namespace: "ml".into(), name: "q".into(), kind: "TorchrunQueue".into(), uid: "u".into() };
        let object = KAI_QUEUE.named("q");
        let body = queue("top", gpu);
        let names = reads(&job, &object, &body);
        let namespace = json!({"metadata": {"name": "ml", "labels": {"team": "a"}}});
        let found = [top, existing.then(|| json!({})), Some(namespace)].map(|object| object.map(Arc::new));
        let found: Found = names.objects.into_iter().zip(found).collect();
        authorize(&OwnedWrite { job: &job, object: &object, creates, body: &body, others, found: &found })
    }

    fn refusal(top: Option<Value>, gpu: &Value, others: &[Value]) -> String {
        decide(top, gpu, others, false, true).map_or_else(|error| error.message, |()| "permitted".to_owned())
    }

    fn selected(resources: &str) -> Value {
        let mut annotations = json!({NAMESPACES: r#"{"matchLabels": {"team": "a"}}"#});
        if !resources.is_empty() {
            annotations[RESOURCES_OF_NAMESPACE] = json!(resources);
        }
        parent(&annotations)
    }

    #[test]
    fn a_parent_names_the_namespaces_below_it() {
        let gpu = || json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
        for (top, words) in [
            (None, "there is no KAI Queue top"),
            (Some(parent(&json!({}))), "has no annotation trainyard.dev/namespace-selector"),
            (Some(parent(&json!({NAMESPACES: "team=a"}))), "must be a JSON object"),
            (Some(parent(&json!({NAMESPACES: r#"{"matchLabels": {"team": 7}}"#}))), "matchLabels.team: must be text"),
            (Some(parent(&json!({NAMESPACES: r#"{"matchLabels": {"team": "b"}}"#}))), "does not select it"),
            (Some(parent(&json!({NAMESPACES: "{}"}))), "permitted"),
            (
                Some(parent(&json!({NAMESPACES: r#"{"matchLabels": {"kubernetes.io/metadata.name": "ml"}}"#}))),
                "permitted",
            ),
            (Some(selected("")), "permitted"),
        ] {
            let said = refusal(top.clone(), &gpu(), &[]);
            assert!(said.contains(words), "{top:?}: {said}");
        }
    }

    #[test]
    fn amounts_of_a_namespace_are_bounded_together() {
        let gpu =
            |quota: i64, limit: i64, weight: i64| json!({"quota": quota, "limit": limit, "overQuotaWeight": weight});
        let other = |parent: &str| queue(parent, &gpu(4, 4, 1));
        for (top, own, others, words) in [
            (
                Some(selected("")),
                gpu(-1, -1, 1),
                vec![],
                "gpu.quota: -1 (unlimited) is more than namespace ml may have below KAI Queue top: 8",
            ),
            (Some(selected("")), gpu(9, -1, 1), vec![], "gpu.quota: 9 is more"),
            (Some(selected("")), gpu(4, 4, 1), vec![other("top")], "permitted"),
            (Some(selected("")), gpu(5, 4, 1), vec![other("top")], "8, and 9 with its other queues"),
            (Some(selected("")), gpu(8, 4, 1), vec![other("else")], "permitted"),
            (
                Some(selected("")),
                gpu(4, 4, 2),
                vec![],
                "gpu.overQuotaWeight: 2 is more than namespace ml may have below KAI Queue top: 1",
            ),
            (Some(selected(r#"{"gpu": {"overQuotaWeight": 3}}"#)), gpu(8, 4, 3), vec![], "permitted"),
            (Some(selected(r#"{"gpu": {"quota": 2}}"#)), gpu(3, 4, 1), vec![], "below KAI Queue top: 2"),
            (
                Some(selected(r#"{"gpu": {"quota": -1, "limit": 16}}"#)),
                gpu(-1, -1, 1),
                vec![],
                "gpu.limit: -1 (unlimited)",
            ),
            (
                Some(selected(r#"{"gpu": {"quota": "many"}}"#)),
                gpu(1, 1, 1),
                vec![],
                "gpu.quota: must be a number, not \"many\"",
            ),
            (
                Some(selected(r#"{"gpus": {"quota": 1}}"#)),
                gpu(1, 1, 1),
                vec![],
                "gpus: must be one of cpu, gpu, memory",
            ),
            (
                Some(selected(r#"{"gpu": {"most": 1}}"#)),
                gpu(1, 1, 1),
                vec![],
                "gpu.most: must be one of quota, limit, overQuotaWeight",
            ),
            (Some(selected("8")), gpu(1, 1, 1), vec![], "must be a JSON object"),
        ] {
            let said = refusal(top.clone(), &own, &others);
            assert!(said.contains(words), "{top:?} {own}: {said}");
        }
    }

    #[test]
    fn a_queue_that_exists_is_not_created_and_a_patch_is_judged_again() {
        let gpu = || json!({"quota": 1, "limit": 1, "overQuotaWeight": 1});
        let code = |creates| decide(Some(parent(&json!({}))), &gpu(), &[], true, creates).map_err(|error| error.code);
        assert_eq!((code(true), code(false)), (Err(409), Err(403)));
        assert_eq!(decide(Some(selected("")), &gpu(), &[], true, false), Ok(()));
    }
}
