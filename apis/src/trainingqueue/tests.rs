//! Tests of this API: what a queue object becomes, and what is shown of it.

use model::{LabelOperator, LabelRequirement, LabelSelector, QuotaSpec, Reclaim, WithinQueue};
use serde_json::{Value, json};

use super::{DESCRIPTOR, TrainingQueue};
use crate::api::JobApi;
use crate::testing::{check_described, check_structure, columns, edited, errors, schema, warnings};

fn queue() -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue",
        "metadata": {"name": "q", "uid": "u", "generation": 1},
        "spec": {"cohort": "c", "quota": {"nvidia.com/gpu": {"nominal": 8, "borrowing": 4, "lending": 2}}}})
}

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&TrainingQueue);
    check_structure(&schema, "$");
    check_described(&schema, "$");
    assert_eq!(columns(&TrainingQueue), ["Cohort", "Policy", "Admitted", "Pending", "GPUs", "Reason", "Age"]);
    assert_eq!(DESCRIPTOR.crd()["spec"]["scope"], "Cluster");
}

#[test]
fn absent_fields_have_their_defaults() {
    let spec = TrainingQueue.spec_fact(&queue()).spec.unwrap();
    let read = spec.queue.unwrap();
    let quota = QuotaSpec { nominal: 8, borrowing: 4, lending: Some(2) };
    assert_eq!(read.quota, [("nvidia.com/gpu".into(), quota)].into());
    assert_eq!((&*read.policy, read.by_priority, read.spread, read.paused), ("fifo-backfill", true, false, false));
    assert_eq!((read.within, read.reclaim), (WithinQueue::Never, Reclaim::Any));
    assert_eq!((read.min_run_ms, read.round_ms, read.weight, read.namespaces), (120_000, 10_000, 1, None));
}

#[test]
fn namespaces_are_selected_by_any_labels() {
    let name = "kubernetes.io/metadata.name";
    let requirement = |key: &str, operator, values: &[&str]| LabelRequirement {
        key: key.into(),
        operator,
        values: values.iter().map(|value| (*value).into()).collect(),
    };
    let read = |selector: Value| {
        let spec = TrainingQueue.spec_fact(&edited(queue(), &[("/spec/namespaceSelector", selector)])).spec.unwrap();
        spec.queue.unwrap().namespaces.map(|selector| selector.requirements)
    };
    let by_name = json!({"matchExpressions": [{"key": name, "operator": "In", "values": ["b", "a", "b"]}]});
    assert_eq!(read(by_name), Some(vec![requirement(name, LabelOperator::In, &["a", "b"])]));
    let by_labels = json!({"matchLabels": {"team": "a"}, "matchExpressions": [
        {"key": "tier", "operator": "NotIn", "values": ["test"]}, {"key": "gpu", "operator": "Exists"},
        {"key": "legacy", "operator": "DoesNotExist", "values": []}]});
    let want = vec![
        requirement("team", LabelOperator::In, &["a"]),
        requirement("tier", LabelOperator::NotIn, &["test"]),
        requirement("gpu", LabelOperator::Exists, &[]),
        requirement("legacy", LabelOperator::DoesNotExist, &[]),
    ];
    assert_eq!(read(by_labels), Some(want));
    assert_eq!(read(json!({})), None, "all namespaces");
}

#[test]
fn mistakes_name_their_fields() {
    for (edits, want) in [
        (
            vec![("/spec/quota/nvidia.com~1gpu/nominal", json!(-1))],
            "spec.quota.nvidia.com/gpu.nominal: must be at least 0 (-1)",
        ),
        (
            vec![("/spec/quota/nvidia.com~1gpu/lending", json!(9))],
            "spec.quota.nvidia.com/gpu.lending: must be at most the nominal quota, 8 (9)",
        ),
        (
            vec![("/spec/namespaceSelector", json!({"matchLabels": {"team": 1}}))],
            "spec.namespaceSelector.matchLabels.team: must be text, not a number (1); did you mean \"1\"?",
        ),
        (
            vec![(
                "/spec/namespaceSelector",
                json!({"matchExpressions": [{"key": "team", "operator": "Gt", "values": ["1"]}]}),
            )],
            "spec.namespaceSelector.matchExpressions[0].operator: must be one of In, NotIn, Exists, DoesNotExist (\"Gt\")",
        ),
        (
            vec![("/spec/namespaceSelector", json!({"matchExpressions": [{"key": "team", "operator": "In"}]}))],
            "spec.namespaceSelector.matchExpressions[0].values: needs at least one value (missing)",
        ),
        (
            vec![(
                "/spec/namespaceSelector",
                json!({"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}),
            )],
            "spec.namespaceSelector.matchExpressions[0].values: must be absent for Exists and DoesNotExist ([\"a\"])",
        ),
        (
            vec![("/spec/quota", Value::Null)],
            "spec.quota: a queue needs a quota, for example {nvidia.com/gpu: {nominal: 8}} (missing)",
        ),
    ] {
        assert_eq!(errors(&TrainingQueue, &edited(queue(), &edits)), [want]);
    }
    let unknown = errors(&TrainingQueue, &edited(queue(), &[("/spec/policy", json!("fifo-backfil"))]));
    assert!(unknown[0].starts_with("spec.policy: ") && unknown[0].contains("fifo-backfill"), "{unknown:?}");
}

/// A queue with these expressions about labels of nodes.
fn selecting(expressions: &Value) -> Value {
    edited(queue(), &[("/spec/nodes", json!({"selector": {"matchExpressions": expressions}}))])
}

#[test]
fn nodes_are_selected_by_their_labels() {
    let nodes = |object: &Value| TrainingQueue.spec_fact(object).spec.unwrap().queue.unwrap().nodes;
    assert_eq!(nodes(&queue()), None);
    assert_eq!(nodes(&edited(queue(), &[("/spec/nodes", json!({"selector": {}}))])), Some(LabelSelector::default()));
    let selector = json!({"matchLabels": {"pool": "a"}, "matchExpressions": [
        {"key": "zone", "operator": "NotIn", "values": ["x", "y"]}, {"key": "spot", "operator": "DoesNotExist"},
        {"key": "memory", "operator": "Gt", "values": ["40"]}]});
    let of = |key: &str, operator, values: &[&str]| LabelRequirement {
        key: key.into(),
        operator,
        values: values.iter().map(|value| (*value).into()).collect(),
    };
    let requirements = vec![
        of("pool", LabelOperator::In, &["a"]),
        of("zone", LabelOperator::NotIn, &["x", "y"]),
        of("spot", LabelOperator::DoesNotExist, &[]),
        of("memory", LabelOperator::Gt, &["40"]),
    ];
    let object = edited(queue(), &[("/spec/nodes", json!({"selector": selector, "exclusive": true}))]);
    assert_eq!(nodes(&object), Some(LabelSelector { requirements }));
}

#[test]
fn mistakes_in_a_node_selector_name_their_fields() {
    const AT: &str = "spec.nodes.selector.matchExpressions[0]";
    for (expression, want) in [
        (json!({"operator": "Exists"}), "key: must be written (missing)"),
        (json!({"key": "a"}), "operator: must be written (missing)"),
        (json!({"key": "a", "operator": "In"}), "values: needs at least one value (missing)"),
        (
            json!({"key": "a", "operator": "Exists", "values": ["x"]}),
            "values: must be absent for Exists and DoesNotExist ([\"x\"])",
        ),
        (
            json!({"key": "a", "operator": "Gt", "values": ["x"]}),
            "values: must be one whole number, written as text ([\"x\"])",
        ),
        (
            json!({"key": "feature.node.kubernetes.io/pci", "operator": "Exists"}),
            "key: labels of feature.node.kubernetes.io/ are not read: put a label of your own on the nodes, for example pool, \
             and select by it (\"feature.node.kubernetes.io/pci\")",
        ),
    ] {
        assert_eq!(errors(&TrainingQueue, &selecting(&json!([expression]))), [format!("{AT}.{want}")]);
    }
    let unknown = errors(&TrainingQueue, &selecting(&json!([{"key": "a", "operator": "in", "values": ["x"]}])));
    assert!(unknown[0].starts_with(&format!("{AT}.operator: must be one of In, NotIn")), "{unknown:?}");
    let labels = json!({"selector": {"matchLabels": {"pool": 3}}});
    assert_eq!(
        errors(&TrainingQueue, &edited(queue(), &[("/spec/nodes", labels)])),
        ["spec.nodes.selector.matchLabels.pool: must be text, not a number (3); did you mean \"3\"?"]
    );
}

#[test]
fn what_has_no_effect_is_said() {
    let edits = [("/spec/quota/cpu", json!({"nominal": 256})), ("/spec/cohort", Value::Null)];
    let want = [
        "spec.quota.cpu: only GPUs are counted: this quota limits nothing ({\"nominal\":256})",
        "spec.quota.nvidia.com/gpu.borrowing: a queue without a cohort borrows nothing (4)",
    ];
    assert_eq!(warnings(&TrainingQueue, &edited(queue(), &edits)), want);
}
