//! Turns changes of nodes into actions of a scenario, and lists the nodes that a scenario begins with.

use std::collections::BTreeMap;

use model::json::merge_patch_of;
use model::{NodeFact, Taint, Text};
use serde_json::{Map, Value, json};

/// GPUs that the member `gpus` of a scenario's node means.
const GPU: &str = "nvidia.com/gpu";

/// Returns a node as a scenario lists it at its beginning.
pub(super) fn listed(name: &str, fact: Option<&NodeFact>) -> Value {
    let mut node = Map::new();
    if let Some(fact) = fact {
        if let Some(gpus) = fact.gpus.get(GPU) {
            node.insert("gpus".to_owned(), (*gpus).into());
        }
        if !fact.labels.is_empty() {
            node.insert("labels".to_owned(), labels(&fact.labels));
        }
        if fact.closed {
            node.insert("closed".to_owned(), true.into());
        }
    }
    if node.is_empty() {
        return name.into();
    }
    node.insert("name".to_owned(), name.into());
    Value::Object(node)
}

/// Returns the actions that bring a listed node to where it stood when the job came.
pub(super) fn at_the_start(fact: &NodeFact) -> Vec<Value> {
    let gpus = fact.gpus.get(GPU).map(|gpus| (Text::from(GPU), *gpus)).into_iter().collect();
    let listed = NodeFact {
        ready: true,
        conditions: Vec::new(),
        gpus,
        taints: Vec::new(),
        allocatable: BTreeMap::new(),
        ..fact.clone()
    };
    change(Some(&listed), fact)
}

/// Returns the change of a node as actions. A node that was not known comes into being.
pub(super) fn change(before: Option<&NodeFact>, fact: &NodeFact) -> Vec<Value> {
    let name = &*fact.name;
    let mut node = Map::new();
    if before.is_none_or(|before| before.ready != fact.ready) {
        node.insert("ready".to_owned(), if fact.ready { "True" } else { "False" }.into());
    }
    if before.map_or(fact.closed, |before| before.closed != fact.closed) {
        node.insert("closed".to_owned(), fact.closed.into());
    }
    let had = before.map_or(&[][..], |before| &before.conditions);
    let came = fact.conditions.iter().filter(|kind| !had.contains(kind)).map(|kind| (kind.to_string(), "True".into()));
    let went = had.iter().filter(|kind| !fact.conditions.contains(kind)).map(|kind| (kind.to_string(), "False".into()));
    let conditions: Map<String, Value> = came.chain(went).collect();
    if !conditions.is_empty() {
        node.insert("conditions".to_owned(), conditions.into());
    }
    let mut actions = Vec::new();
    if !node.is_empty() {
        node.insert("name".to_owned(), name.into());
        actions.push(json!({"node": node}));
    }
    let none = BTreeMap::new();
    let gpus = before.map_or(&none, |before| &before.gpus);
    if *gpus != fact.gpus {
        let lost = gpus.keys().filter(|resource| !fact.gpus.contains_key(*resource)).map(|resource| (resource, 0));
        let all = fact.gpus.iter().map(|(resource, gpus)| (resource, *gpus)).chain(lost);
        let all: Map<String, Value> = all.map(|(name, gpus)| (name.to_string(), gpus.to_string().into())).collect();
        actions
            .push(json!({"patch": {"kind": "Node", "name": name, "status": {"capacity": &all, "allocatable": &all}}}));
    }
    let no_labels = BTreeMap::new();
    let old = before.map_or(&no_labels, |before| &before.labels);
    if *old != fact.labels
        && let Some(patch) = merge_patch_of(&labels(old), &labels(&fact.labels))
    {
        actions.push(json!({"patch": {"kind": "Node", "name": name, "metadata": {"labels": patch}}}));
    }
    let (no_taints, no_amounts) = (Vec::new(), BTreeMap::new());
    if *before.map_or(&no_taints, |before| &before.taints) != fact.taints {
        let taint = |taint: &Taint| json!({"key": &*taint.key, "value": &*taint.value, "effect": &*taint.effect});
        let taints: Vec<Value> = fact.taints.iter().map(taint).collect();
        actions.push(json!({"patch": {"kind": "Node", "name": name, "spec": {"taints": taints}}}));
    }
    let old = before.map_or(&no_amounts, |before| &before.allocatable);
    if *old != fact.allocatable {
        let gone = old.keys().filter(|resource| !fact.allocatable.contains_key(*resource));
        let gone = gone.map(|resource| (resource.to_string(), Value::Null));
        let listed =
            fact.allocatable.iter().map(|(resource, milli)| (resource.to_string(), format!("{milli}m").into()));
        let all: Map<String, Value> = gone.chain(listed).collect();
        actions
            .push(json!({"patch": {"kind": "Node", "name": name, "status": {"capacity": &all, "allocatable": &all}}}));
    }
    actions
}

fn labels(labels: &BTreeMap<Text, Text>) -> Value {
    labels.iter().map(|(name, value)| (name.to_string(), Value::from(&**value))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFact {
        NodeFact {
            name: "n1".into(),
            rv: model::ResourceVersion(1),
            ready: true,
            conditions: Vec::new(),
            gpus: BTreeMap::from([(GPU.into(), 8)]),
            closed: false,
            labels: BTreeMap::from([("zone".into(), "a".into())]),
            taints: Vec::new(),
            allocatable: BTreeMap::new(),
        }
    }

    #[test]
    fn nodes_are_listed_with_what_decisions_read() {
        assert_eq!(listed("n1", None), json!("n1"));
        assert_eq!(listed("n1", Some(&node())), json!({"name": "n1", "gpus": 8, "labels": {"zone": "a"}}));
        assert_eq!(at_the_start(&node()), Vec::<Value>::new());
        let other = NodeFact { ready: false, gpus: BTreeMap::from([("amd.com/gpu".into(), 4)]), ..node() };
        assert_eq!(
            at_the_start(&other),
            [
                json!({"node": {"name": "n1", "ready": "False"}}),
                json!({"patch": {"kind": "Node", "name": "n1",
                    "status": {"capacity": {"amd.com/gpu": "4"}, "allocatable": {"amd.com/gpu": "4"}}}})
            ]
        );
    }

    #[test]
    fn taints_and_amounts_are_set_by_patches() {
        let taint = Taint { key: "team".into(), value: "x".into(), effect: "NoSchedule".into() };
        let other = NodeFact { taints: vec![taint], allocatable: BTreeMap::from([("cpu".into(), 4000)]), ..node() };
        let patch = |member: &str, value: Value| json!({"patch": {"kind": "Node", "name": "n1", member: value}});
        let taints = json!({"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]});
        let amounts = |cpu: Value| json!({"capacity": {"cpu": cpu}, "allocatable": {"cpu": cpu}});
        let came = [patch("spec", taints), patch("status", amounts(json!("4000m")))];
        assert_eq!(at_the_start(&other), came);
        let went = [patch("spec", json!({"taints": []})), patch("status", amounts(Value::Null))];
        assert_eq!(change(Some(&other), &node()), went);
    }

    #[test]
    fn every_change_of_a_node_is_an_action() {
        let sick =
            NodeFact { conditions: vec!["GpuUnhealthy".into()], closed: true, labels: BTreeMap::new(), ..node() };
        assert_eq!(
            change(Some(&node()), &sick),
            [
                json!({"node": {"name": "n1", "closed": true, "conditions": {"GpuUnhealthy": "True"}}}),
                json!({"patch": {"kind": "Node", "name": "n1", "metadata": {"labels": {"zone": null}}}})
            ]
        );
        assert_eq!(change(Some(&sick), &sick), Vec::<Value>::new());
    }
}
