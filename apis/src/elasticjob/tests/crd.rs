//! The schema: structural, and tolerant of what the original stored.

use serde_json::{Value, json};

use super::{base, edited, without};
use crate::elasticjob::{DESCRIPTOR, ElasticJob};
use crate::testing::{self, atomic_maps, check_described, check_structure, refusals};

fn schema() -> Value {
    testing::schema(&ElasticJob)
}

#[test]
fn names_subresources_and_columns_are_what_tools_look_for() {
    let crd = DESCRIPTOR.crd();
    assert_eq!(crd["metadata"]["name"], "elasticjobs.elastic.pytorch.org");
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "ElasticJob", "listKind": "ElasticJobList", "plural": "elasticjobs", "singular": "elasticjob"})
    );
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(
        version["subresources"],
        json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active"}})
    );
    assert_eq!(
        testing::columns(&ElasticJob),
        ["State", "Min", "Max", "Desired", "rdzvEndpoint", "Ready", "Restarts", "Queue", "Reason", "Age"]
    );
}

#[test]
fn the_schema_is_structural_described_and_loses_nothing() {
    check_structure(&schema(), "$");
    check_described(&schema(), "$");
    assert_eq!(atomic_maps(&schema()), ["replicaStatuses", "trainyard"]);
}

#[test]
fn only_what_the_originals_schema_refused_or_crashed_on_is_refused() {
    let schema = schema();
    for (pointer, value) in [
        ("/spec/rdzvEndpoint", json!("<etcd endpoint>:<port>")),
        ("/spec/rdzvEndpoint", json!("")),
        ("/spec/RunPolicy", json!({"cleanPodPolicy": "None", "novel": 1})),
        ("/spec/cleanPodPolicy", json!("Sometimes")),
        ("/spec/novel", json!({"a": [1]})),
        ("/spec/replicaSpecs/Worker/replicas", json!(null)),
        ("/spec/replicaSpecs/Worker/replicas", json!(0)),
        ("/spec/replicaSpecs/Worker/restartPolicy", json!("Sometimes")),
        ("/spec/replicaSpecs/Etcd", json!({})),
        ("/spec/replicaSpecs", json!({"Helper": {}})),
        ("/spec/replicaSpecs/Worker/template/apiVersion", json!("v1")),
        ("/spec/replicaSpecs/Worker/template/spec/novel", json!([1])),
    ] {
        let job = edited(&[(pointer, value.clone())]);
        assert_eq!(refusals(&schema, &job, "$"), [""; 0], "{pointer} {value}");
    }
    assert_eq!(refusals(&schema, &base(), "$"), [""; 0]);
    for (job, want) in [
        (without(&["/spec/rdzvEndpoint"]), "$.spec.rdzvEndpoint: missing"),
        (without(&["/spec/replicaSpecs"]), "$.spec.replicaSpecs: missing"),
        (edited(&[("/spec/minReplicas", json!(0))]), "$.spec.minReplicas: below 1"),
        (edited(&[("/spec/replicaSpecs/Worker", json!(null))]), "$.spec.replicaSpecs.Worker: not \"object\""),
        (edited(&[("/spec/replicaSpecs/Worker/replicas", json!(-1))]), "$.spec.replicaSpecs.Worker.replicas: below 0"),
    ] {
        assert_eq!(refusals(&schema, &job, "$"), [want]);
    }
}
