//! Tests of this API: what a queue object becomes, and what is shown of it.

use serde_json::{Value, json};

use super::{DESCRIPTOR, TorchrunQueue, usable};
use crate::api::JobApi;
use crate::owned::CONFIG_MAP;
use crate::testing::{check_described, check_structure, columns, edited, errors, job, schema, unknown, warnings};

fn queue() -> Value {
    json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunQueue",
        "metadata": {"name": "q", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"queue": {"name": "k"}, "podTemplate": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}})
}

fn template(kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "own", "uid": "old", "labels": {"a": "b"},
        "annotations": {"torchrun.ai/retain": "true"}}, "status": {"phase": "Bound"}, "data": {"k": "v"}})
}

#[test]
fn objects_of_templates_are_named_and_labelled_by_the_queue() {
    let resources = json!([
        {"name": "data", "nameMode": "prefix", "template": template("PersistentVolumeClaim"), "immutable": true},
        {"name": "settings", "template": template("ConfigMap")}
    ]);
    let object = edited(queue(), &[("/spec/resources", resources)]);
    let spec = TorchrunQueue::default().spec_fact(&object).spec.unwrap();
    let owned: Vec<String> =
        spec.owned.iter().map(|o| format!("{} {:?} {}", o.object, o.keep, o.digest.is_some())).collect();
    let want =
        ["Queue k Finalized true", "PersistentVolumeClaim q-data Retained false", "ConfigMap settings Retained true"];
    assert_eq!(owned, want);
    let body = super::templates::body_of(&super::spec::manifest(&object), &CONFIG_MAP.named("settings")).unwrap();
    let labels = json!({"a": "b", "app": "torchrun", "torchrun.ai/managed-by": "torchrunqueue-controller",
        "torchrun.ai/queue": "q"});
    let annotations = json!({"torchrun.ai/retain": "true"});
    assert_eq!(body, json!({"metadata": {"labels": labels, "annotations": annotations}, "data": {"k": "v"}}));
}

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&TorchrunQueue::default());
    check_structure(&schema, "$");
    check_described(&schema, "$");
    assert_eq!(columns(&TorchrunQueue::default()), ["Queue", "Phase", "Pending", "Running", "GPUs", "Age"]);
    assert_eq!(DESCRIPTOR.crd()["spec"]["names"]["shortNames"], json!(["trq", "jq"]));
    let edits = [
        ("/spec/novel", json!(1)),
        ("/spec/queue/novel", json!(1)),
        ("/spec/podTemplate/novel", json!(1)),
        ("/spec/podTemplate/spec/novel", json!(1)),
        ("/spec/podTemplate/spec/containers/0/novel", json!(1)),
    ];
    let mut refused = unknown(&schema, &edited(queue(), &edits), "$");
    refused.sort_unstable();
    assert_eq!(refused, ["$.spec.novel", "$.spec.podTemplate.novel", "$.spec.queue.novel"]);
}

#[test]
fn mistakes_name_their_fields() {
    for (edits, want) in [
        (
            vec![("/spec/queue/name", Value::Null)],
            "spec.queue.name: a KAI Queue needs a name: write it, or leave spec.queue out (missing)",
        ),
        (
            vec![("/spec/kaiQueue", json!("other"))],
            "spec.kaiQueue: is k in spec.queue.name: write the field once (\"other\")",
        ),
        (
            vec![("/spec/podTemplate/spec/containers/0/name", json!("main"))],
            "spec.podTemplate.spec.containers[0].name: the first container must be named trainer: it runs the command of the \
             jobs (\"main\")",
        ),
        (
            vec![("/spec/workspaceStorage", json!({"size": "abc"}))],
            "spec.workspaceStorage.size: must be a quantity above 0, for example 10Gi (\"abc\")",
        ),
        (
            vec![("/spec/workspaceStorage", json!({"mountPath": "app"}))],
            "spec.workspaceStorage.mountPath: must be an absolute path without colons (\"app\")",
        ),
        (
            vec![("/spec/storage", json!({"datasets": {}}))],
            "spec.storage.datasets.size: a volume needs a size, or existingClaim (missing)",
        ),
        (vec![("/spec/distributed", json!({"port": 80}))], "spec.distributed.port: must be at least 1024 (80)"),
        (
            vec![("/spec/resources", json!([{"template": template("ConfigMap")}]))],
            "spec.resources[0].name: must be written (missing)",
        ),
        (
            vec![("/spec/resources", json!([{"name": "A", "template": template("ConfigMap")}]))],
            "spec.resources[0].name: A is no name of an object: letters a to z, digits, - and . are (\"A\")",
        ),
        (
            vec![("/spec/resources", json!([{"name": "a", "nameMode": "suffix", "template": template("ConfigMap")}]))],
            "spec.resources[0].nameMode: must be one of exact, prefix (\"suffix\")",
        ),
        (
            vec![("/spec/resources", json!([{"name": "a"}]))],
            "spec.resources[0].template: an object needs a template (missing)",
        ),
        (
            vec![("/spec/resources", json!([{"name": "a", "template": {"kind": "ConfigMap"}}]))],
            "spec.resources[0].template.apiVersion: must be written (missing)",
        ),
        (
            vec![(
                "/spec/resources",
                json!([{"name": "q-a", "template": template("Service")},
                    {"name": "a", "nameMode": "prefix", "template": template("Service")}]),
            )],
            "spec.resources[1].name: another object of this queue is Service q-a (\"a\")",
        ),
    ] {
        assert_eq!(errors(&TorchrunQueue::default(), &edited(queue(), &edits)), [want]);
    }
}

#[test]
fn what_has_no_effect_is_said() {
    let secret = json!([{"name": "token", "template": {"apiVersion": "v1", "kind": "Secret"}}]);
    let want = [
        "spec.resources[0].template.kind: objects of this kind are not created: apply it beside the queue (\"Secret\")",
    ];
    assert_eq!(warnings(&TorchrunQueue::default(), &edited(queue(), &[("/spec/resources", secret)])), want);
    let small = [("/spec/queue/resources", json!({"cpu": {"limit": 512}}))];
    assert_eq!(warnings(&TorchrunQueue::default(), &edited(queue(), &small)).len(), 1);
}

#[test]
fn a_queue_without_an_image_is_valid_and_starts_no_job() {
    let bare = edited(queue(), &[("/spec/podTemplate", Value::Null)]);
    assert_eq!(errors(&TorchrunQueue::default(), &bare), [""; 0]);
    assert!(usable(&bare).unwrap_err().contains("podTemplate"));
    assert!(usable(&edited(bare, &[("/spec/image", json!("i"))])).is_ok());
}

#[test]
fn a_queue_without_a_kai_queue_is_good_and_owns_none() {
    let without = edited(queue(), &[("/spec/queue", Value::Null)]);
    assert_eq!(
        (errors(&TorchrunQueue::default(), &without), warnings(&TorchrunQueue::default(), &without)),
        (vec![], vec![])
    );
    assert_eq!(TorchrunQueue::default().spec_fact(&without).spec.unwrap().owned, []);
    let (key, held) = job(&TorchrunQueue::default(), &without);
    let status = TorchrunQueue::default().status(&key, &held);
    let conditions = status["conditions"].as_array().unwrap().iter();
    let shown: Vec<_> =
        conditions.map(|one| (one["type"].clone(), one["status"].clone(), one["reason"].clone())).collect();
    let ready = |kind: &str, reason: &str| (json!(kind), json!("True"), json!(reason));
    let want = [
        ready("Valid", "ValidationPassed"),
        ready("QueueReady", "KaiNotConfigured"),
        ready("ResourcesReady", "AllResourcesReady"),
    ];
    assert_eq!(shown, want);
    for (edit, want) in [
        (("/spec/parentKaiQueue", json!("root")), "spec.parentKaiQueue: "),
        (("/spec/scheduling", json!({"scheduler": "kai-scheduler"})), "spec.scheduling.scheduler: "),
    ] {
        let found = warnings(&TorchrunQueue::default(), &edited(without.clone(), &[edit]));
        assert!(matches!(found.as_slice(), [only] if only.starts_with(want)), "{want} {found:?}");
    }
}

#[test]
fn a_status_is_read_back_as_it_was_written() {
    let (key, mut held) = job(&TorchrunQueue::default(), &queue());
    held.phase = model::Phase::Terminating;
    held.milestones.push_back(crate::testing::milestone(model::Phase::Terminating, 60, "why"));
    let status = TorchrunQueue::default().status(&key, &held);
    let adopted = TorchrunQueue::default().adopt(&edited(queue(), &[("/status", status)]));
    assert_eq!(adopted.milestones, Vec::from(held.milestones.clone()));
    assert_eq!(adopted.mirror, held.mirror());
}
