//! Tests what users do: apply, patch, scale, delete, and planting objects.

use apis::Resource;
use serde_json::json;

use crate::common::*;

#[test]
fn applying_creates_updates_and_removes() {
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest["metadata"].as_object_mut().unwrap().remove("namespace");
    manifest["metadata"]["labels"] = json!({"a": "1", "b": "2"});
    manifest["spec"]["note"] = json!("first");
    manifest["status"] = json!({"phase": "Mine"});
    let created = cluster.apply(&manifest).unwrap();
    assert_eq!(meta(&created, "namespace"), "default");
    assert_eq!(created.get("status"), None);
    status(&mut cluster, "t", None, json!({"phase": "Running"})).unwrap();
    patch(&mut cluster, "Train", "t", json!({"metadata": {"annotations": {"own": "kept"}}})).unwrap();

    manifest["metadata"]["labels"] = json!({"b": "3"});
    manifest["spec"].as_object_mut().unwrap().remove("note");
    manifest["spec"]["cars"]["trainer"]["replicas"] = json!(3);
    let updated = cluster.apply(&manifest).unwrap();
    assert_eq!(updated["metadata"]["labels"], json!({"b": "3"}));
    assert_eq!(updated["metadata"]["annotations"], json!({"own": "kept"}));
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated["spec"], json!({"cars": {"trainer": {"replicas": 3}}, "policy": "All"}));
    assert_eq!(updated["status"], json!({"phase": "Running"}));
    assert_eq!(meta(&updated, "uid"), meta(&created, "uid"));
}

#[test]
fn manifests_that_name_nothing_are_refused() {
    let mut cluster = cluster();
    let cases = [
        (json!({}), "404 "),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}), "400 BadRequest"),
        (json!({"apiVersion": "v1", "kind": "Train", "metadata": {"name": "t"}}), "404 "),
        (json!({"apiVersion": "v1", "kind": "CustomResourceDefinition"}), "400 BadRequest"),
        (json!("text"), "404 "),
    ];
    for (manifest, want) in cases {
        assert_eq!(verdict(&cluster.apply(&manifest)), want, "{manifest}");
    }
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-"}});
    let (a, b) = (cluster.apply(&generated).unwrap(), cluster.apply(&generated).unwrap());
    assert!(meta(&a, "name").starts_with("c-") && meta(&a, "name") != meta(&b, "name"));
}

#[test]
fn planting_bypasses_every_check() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    let mut manifest = train_manifest("t");
    manifest["spec"]["cars"]["trainer"] = json!(null);
    manifest["status"] = json!({"phase": "Terminating", "unknown": 1});
    let planted = cluster.store_unchecked(&manifest).unwrap();
    assert_eq!(planted["spec"], manifest["spec"]);
    assert_eq!(planted["status"], manifest["status"]);
    assert_eq!(meta(&planted, "uid"), "train-000001");
    let orphan = pod_manifest("orphan", &[("Train", "none", "train-000099")]);
    cluster.store_unchecked(&orphan).unwrap();
    assert!(get(&cluster, "Pod", "orphan").is_some(), "planted objects are not collected");
    assert_eq!(observed(&cluster.watch(watcher)), ["applied t", "applied orphan"]);

    manifest["spec"]["cars"] = json!(7);
    let again = cluster.store_unchecked(&manifest).unwrap();
    assert_eq!((meta(&again, "uid"), &again["metadata"]["generation"]), ("train-000001", &json!(2)));
    let mut named = pod_manifest("named", &[]);
    named["metadata"]["uid"] = json!("given");
    assert_eq!(meta(&cluster.store_unchecked(&named).unwrap(), "uid"), "given");
    named["metadata"]["name"] = json!("other");
    assert_eq!(verdict(&cluster.store_unchecked(&named)), "400 BadRequest");
    assert_eq!(verdict(&cluster.store_unchecked(&json!({"kind": "Nothing"}))), "404 ");
}

#[test]
fn scaling_sets_the_member_that_the_definition_names() {
    let mut cluster = cluster();
    create(&mut cluster, &train_manifest("t")).unwrap();
    let scaled = cluster.scale(&train(), "default", "t", 5).unwrap();
    assert_eq!(scaled["spec"]["cars"]["trainer"]["replicas"], 5);
    assert_eq!(scaled["metadata"]["generation"], 2);
    assert_eq!(cluster.scale(&train(), "default", "t", 5).unwrap()["metadata"]["generation"], 2);
    assert_eq!(verdict(&cluster.scale(&train(), "default", "t", -1)), "422 Invalid");
    assert_eq!(verdict(&cluster.scale(&train(), "default", "absent", 1)), "404 NotFound");
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    assert_eq!(verdict(&cluster.scale(&pods(), "default", "p", 1)), "404 ");
}

#[test]
fn users_delete_gracefully() {
    let mut cluster = cluster();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.run("default", "p").unwrap();
    cluster.delete_as_user(&pods(), "default", "p", None).unwrap();
    assert_eq!(pod(&cluster, "p")["metadata"]["deletionGracePeriodSeconds"], 30);
    cluster.delete_as_user(&pods(), "default", "p", Some(0)).unwrap();
    assert_eq!(verdict(&cluster.delete_as_user(&pods(), "default", "p", None)), "404 NotFound");
    let unknown = Resource::new("v1", "Unknown");
    assert_eq!(verdict(&cluster.delete_as_user(&unknown, "default", "p", None)), "404 ");
}
