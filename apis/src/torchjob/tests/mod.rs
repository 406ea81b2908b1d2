//! Tests of the TorchJob translation, one file per direction.

mod elastic;
mod pods;
mod spec;
mod status;

use serde_json::{Value, json};

use super::{DESCRIPTOR, TorchJob};
use crate::api::JobApi;
use crate::testing::{self, check_described, check_structure, columns, schema};

/// Returns a job with a master and two workers.
fn base() -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "torch", "image": "img:1", "resources": {"requests": {"cpu": "500m"}}}]}});
    json!({
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": "j1", "namespace": "ns1", "uid": "abcde-1", "resourceVersion": "1",
            "creationTimestamp": "2024-02-28T00:00:00Z", "generation": 1},
        "spec": {"torchTaskSpecs": {"Master": {"template": template}, "Worker": {"numTasks": 2, "template": template}}},
    })
}

/// `base` with the values at these JSON pointers replaced (the parent must be there).
fn edited(edits: &[(&str, Value)]) -> Value {
    testing::edited(base(), edits)
}

fn errors(object: &Value) -> Vec<String> {
    testing::errors(&TorchJob::default(), object)
}

fn warnings(object: &Value) -> Vec<String> {
    testing::warnings(&TorchJob::default(), object)
}

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&TorchJob::default());
    check_structure(&schema, "$");
    check_described(&schema, "$");
    let of_api = ["State", "Age", "Model-Version", "Max-Lifetime", "TTL-After-Finished"];
    let want = [&of_api[..], &["Ready", "Restarts", "Queue", "Reason"]].concat();
    assert_eq!(columns(&TorchJob::default()), want);
    let of = |n: usize| DESCRIPTOR.crd()["spec"]["versions"][0]["additionalPrinterColumns"][n]["jsonPath"].clone();
    assert_eq!((of(3), of(4)), (json!(".spec.activeDurations"), json!(".spec.TTLSecondsAfterFinished")));
}

#[test]
fn a_definition_keeps_what_it_cannot_judge() {
    let schema = schema(&TorchJob::default());
    for edits in [
        vec![],
        vec![("/spec", Value::Null)],
        vec![("/spec/clenPodPolicy", json!("Sometimes")), ("/spec/backoffLimit", Value::Null)],
        vec![(
            "/spec/torchTaskSpecs/Master/template",
            json!({"metadata": {"labels": {"a": "b"}, "creationTimestamp": null}, "spec": {"containers": [
                {"name": "torch", "resources": {"limits": {"cpu": 0.5, "nvidia.com/gpu": 1, "memory": "1Gi"}}},
            ]}}),
        )],
        vec![(
            "/spec/modelVersion",
            json!({"metadata": {"name": "m"}, "spec": {"modelName": "m", "storage": {"nfs": {}}}}),
        )],
    ] {
        let mut object = edited(&edits);
        if object["spec"].is_null() {
            object.as_object_mut().unwrap().remove("spec");
        }
        assert_eq!(testing::refusals(&schema, &object, "$"), [""; 0], "{edits:?}");
        assert_eq!(testing::unknown(&schema, &object, "$"), [""; 0], "{edits:?}");
    }
}

#[test]
fn a_field_that_the_original_did_not_know_is_refused() {
    let container =
        json!({"metadata": {"label": {}}, "spec": {"containers": [{"name": "torch", "imagePullPolice": "Always"}]}});
    let edits = [
        ("/spec/unknown", json!({"a": 1})),
        ("/spec/modelVersion", json!({"spec": {"modelname": "m"}})),
        ("/spec/torchTaskSpecs/Master/template", container),
        ("/spec/torchTaskSpecs/Master/replicas", json!(1)),
    ];
    let template = "$.spec.torchTaskSpecs.Master.template";
    let mut found = testing::unknown(&schema(&TorchJob::default()), &edited(&edits), "$");
    found.sort_unstable();
    let want = [
        "$.spec.modelVersion.spec.modelname".to_owned(),
        "$.spec.torchTaskSpecs.Master.replicas".to_owned(),
        format!("{template}.metadata.label"),
        format!("{template}.spec.containers[0].imagePullPolice"),
        "$.spec.unknown".to_owned(),
    ];
    assert_eq!(found, want);
}

#[test]
fn only_what_a_spec_is_spec_inputs_has_it_translated_again() {
    let spec_inputs = |edits: &[(&str, Value)]| TorchJob::default().spec_inputs(&edited(edits));
    let annotated = |key: &str| spec_inputs(&[("/metadata/annotations", json!({key: "ready"}))]);
    assert_ne!(annotated("aimaster"), spec_inputs(&[]));
    assert_ne!(annotated("distributed.io/network-mode"), spec_inputs(&[]));
    assert_eq!(annotated("other"), spec_inputs(&[]));
}
