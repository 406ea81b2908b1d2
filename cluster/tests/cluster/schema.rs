//! Registered kinds: what their schema refuses, prunes and fills in, and definitions that cannot be served.

use apis::Verb;
use cluster::Cluster;
use serde_json::{Value, json};

use crate::common::*;

#[test]
fn objects_meet_the_schema_with_field_paths() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 9] = [
        (
            |m| m["spec"]["cars"]["trainer"]["replicas"] = json!(-1),
            "spec.cars.trainer.replicas: Invalid value: -1: spec.cars.trainer.replicas in body should be greater than or equal to 0",
        ),
        (|m| m["spec"]["cars"]["trainer"] = json!(null), "spec.cars.trainer: Invalid value: \"null\""),
        (|m| m["spec"]["cars"]["trainer"]["replicas"] = json!("2"), "must be of type integer: \"string\""),
        (
            |m| m["spec"]["policy"] = json!("Some"),
            "spec.policy: Unsupported value: \"Some\": supported values: \"All\", \"None\"",
        ),
        (|m| m["spec"]["codes"] = json!(1.5), "spec.codes: Invalid value: \"number\""),
        (|m| m["spec"] = json!({}), "spec.cars: Required value"),
        (|m| drop(m.as_object_mut().unwrap().remove("spec")), "spec: Required value"),
        (|m| m["metadata"]["name"] = json!("Not_a_name"), "metadata.name: Invalid value: \"Not_a_name\""),
        (
            |m| {
                m["spec"]["cars"]["trainer"]["replicas"] = json!(3_000_000_000_u64);
                m["spec"]["policy"] = json!(1);
            },
            "is invalid: [spec.cars.trainer.replicas: Invalid value: 3000000000: spec.cars.trainer.replicas in body must be of type int32, spec.policy",
        ),
    ];
    for (edit, why) in cases {
        let mut cluster = cluster();
        let mut manifest = train_manifest("t");
        edit(&mut manifest);
        for answer in [create(&mut cluster, &manifest), cluster.apply(&manifest)] {
            let error = answer.unwrap_err();
            assert_eq!((error.code, &*error.reason), (422, "Invalid"), "{error}");
            assert!(error.message.contains(why), "{error}");
        }
        assert!(cluster.objects_of(&train()).is_empty());
    }
}

#[test]
fn accepted_objects_are_pruned_and_completed() {
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest["spec"]["typo"] = json!(1);
    manifest["spec"]["note"] = json!(null);
    manifest["spec"]["codes"] = json!(137);
    manifest["spec"]["cars"]["trainer"]["template"] =
        json!({"metadata": {"creationTimestamp": null}, "any": [1, {"x": 1.0}]});
    let strict = cluster.apply(&manifest).unwrap_err();
    assert_eq!((strict.code, strict.message.as_str()), (400, "strict decoding error: unknown field \"spec.typo\""));
    let object = create(&mut cluster, &manifest).unwrap();
    let want = json!({
        "cars": {"trainer": {"replicas": 2, "template": {"metadata": {"creationTimestamp": null}, "any": [1, {"x": 1.0}]}}},
        "codes": 137,
        "note": null,
        "policy": "All",
    });
    assert_eq!(object["spec"], want);
}

#[test]
fn patches_and_statuses_meet_the_schema_too() {
    let mut cluster = cluster();
    create(&mut cluster, &train_manifest("t")).unwrap();
    let before = cluster.revision();
    let refused = patch(&mut cluster, "Train", "t", json!({"spec": {"cars": {"trainer": {"replicas": -3}}}}));
    assert_eq!(verdict(&refused), "422 Invalid");
    let mut typo = train_manifest("t");
    typo["spec"]["typo"] = json!(1);
    let refused = cluster.apply(&typo).unwrap_err();
    assert_eq!(refused.message, "strict decoding error: unknown field \"spec.typo\"");
    let refused = status(&mut cluster, "t", None, json!({"phase": 7}));
    assert!(refused.unwrap_err().message.contains("status.phase: Invalid value: \"integer\""));
    assert_eq!(cluster.revision(), before);
    let object = status(&mut cluster, "t", None, json!({"phase": "Running", "typo": 1})).unwrap();
    assert_eq!(object["status"], json!({"phase": "Running"}));
}

#[test]
fn a_planted_object_can_still_be_written_where_it_was_not_wrong() {
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest["spec"]["cars"]["trainer"]["replicas"] = json!(-1);
    manifest["spec"]["typo"] = json!(1);
    cluster.store_unchecked(&manifest).unwrap();
    assert_eq!(verdict(&status(&mut cluster, "t", None, json!({"phase": "Failed"}))), "ok");
    assert_eq!(verdict(&patch(&mut cluster, "Train", "t", json!({"metadata": {"annotations": {"a": "b"}}}))), "ok");
    let worse = patch(&mut cluster, "Train", "t", json!({"spec": {"policy": "Some"}})).unwrap_err();
    assert!(worse.message.contains("spec.policy") && !worse.message.contains("replicas"), "{worse}");
    let better = patch(&mut cluster, "Train", "t", json!({"spec": {"cars": {"trainer": {"replicas": 1}}}}));
    assert_eq!(verdict(&better), "ok");
    let back = patch(&mut cluster, "Train", "t", json!({"spec": {"cars": {"trainer": {"replicas": -1}}}}));
    assert_eq!(verdict(&back), "422 Invalid");
}

#[test]
fn a_spec_that_was_missing_is_a_new_generation() {
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest.as_object_mut().unwrap().remove("spec");
    assert_eq!(cluster.store_unchecked(&manifest).unwrap()["metadata"]["generation"], 1);
    let object = patch(&mut cluster, "Train", "t", json!({"spec": {"cars": {}}})).unwrap();
    assert_eq!(object["metadata"]["generation"], 2);
}

#[test]
fn definitions_that_cannot_be_served_say_why() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 10] = [
        (|c| c["spec"]["group"] = json!(""), "spec.group"),
        (|c| c["spec"]["names"]["kind"] = json!(null), "spec.names.kind"),
        (|c| c["spec"]["names"]["plural"] = json!(1), "spec.names.plural"),
        (|c| c["spec"]["scope"] = json!("Galaxy"), "spec.scope"),
        (|c| c["spec"]["versions"] = json!([]), "spec.versions"),
        (|c| c["spec"]["versions"][0]["name"] = json!(""), "spec.versions[0].name"),
        (|c| c["spec"]["versions"][0]["schema"] = json!(null), "spec.versions[0].schema.openAPIV3Schema"),
        (
            |c| c["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = json!(".status.replicas"),
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            |c| c["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = json!(".spec.cars[0]"),
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            |c| c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = json!("map"),
            "spec.versions[0].schema.openAPIV3Schema.properties.spec.type",
        ),
    ];
    for (edit, path) in cases {
        let mut definition = crd();
        edit(&mut definition);
        assert_eq!(Cluster::default().register(&definition).unwrap_err().path, path);
    }
}

#[test]
fn registering_again_replaces_the_schema_and_keeps_the_objects() {
    let mut cluster = cluster();
    create(&mut cluster, &train_manifest("t")).unwrap();
    let mut definition = crd();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] = json!({"type": "string"});
    let mut second = version.clone();
    second["name"] = json!("v2");
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    cluster.apply(&definition).unwrap();
    let object = patch(&mut cluster, "Train", "t", json!({"spec": {"extra": "x"}})).unwrap();
    assert_eq!(object["spec"]["extra"], "x");
    let mut newer = train_manifest("u");
    newer["apiVersion"] = json!("example.dev/v2");
    cluster.apply(&newer).unwrap();
    assert_eq!(cluster.objects_of(&train()).len(), 2, "versions of one kind are one kind");
    let mut read = call(Verb::Get, "Train", "u");
    read.resource = apis::Resource::new("example.dev/v9", "Train");
    assert_eq!(verdict(&cluster.execute(&read)), "404 ");
}

#[test]
fn every_served_api_registers_and_takes_what_its_users_wrote() {
    let mut cluster = Cluster::default();
    for api in apis::Registry::all().iter() {
        cluster.register(&api.crd()).unwrap();
        assert!(cluster.resource_named(&api.resource().kind).is_some());
    }
    let manifest = json!({
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": "j"},
        "spec": {
            "restartingExitCode": 137,
            "unknown": {"any": null},
            "replicaSpecs": {"trainer": {"template": {
                "metadata": {"creationTimestamp": null, "labels": {"a": "b"}},
                "spec": {"containers": [{"name": "aitj-main", "resources": {"limits": {"cpu": 1.0}}}]},
            }}},
        },
    });
    let object = cluster.apply(&manifest).unwrap();
    assert_eq!(object["spec"], manifest["spec"]);
    let crash = json!({"spec": {"replicaSpecs": {"trainer": {"replicas": -1}}}});
    let refused = cluster.merge_patch(&apis::Resource::of(&manifest), "default", "j", &crash, false).unwrap_err();
    assert!(refused.message.contains("spec.replicaSpecs.trainer.replicas"), "{refused}");
}
