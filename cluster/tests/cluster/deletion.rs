//! Graceful deletion, finalizers, namespaces, and the collection of what lost its owners.

use crate::common::*;
use apis::ApiCall;
use apis::Verb;
use cluster::Cluster;
use model::Uid;
use serde_json::{Value, json};

/// A pod in one of the states that deletion distinguishes.
fn pod_in(state: &str) -> Cluster {
    let mut cluster = cluster();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    match state {
        "unscheduled" => {}
        "scheduled" => cluster.schedule("default", "p", "n1").unwrap(),
        "running" => cluster.run("default", "p").unwrap(),
        "succeeded" => cluster.exit("default", "p", 0, None).unwrap(),
        "failed" => cluster.exit("default", "p", 1, None).unwrap(),
        "evicted" => cluster.evict("default", "p").unwrap(),
        other => panic!("{other}"),
    }
    cluster
}

#[test]
fn pods_that_have_nothing_running_vanish_at_once() {
    let cases = [
        ("unscheduled", None, true),
        ("scheduled", None, false),
        ("running", None, false),
        ("succeeded", None, true),
        ("failed", None, true),
        ("evicted", None, true),
        ("running", Some(0), true),
        ("running", Some(5), false),
        ("unscheduled", Some(60), true),
    ];
    for (state, grace, vanishes) in cases {
        let mut cluster = pod_in(state);
        let watcher = cluster.subscribe();
        cluster.watch(watcher);
        let before = rv(&pod(&cluster, "p"));
        let answer = delete(&mut cluster, "Pod", "p", grace).unwrap();
        let left = get(&cluster, "Pod", "p");
        assert_eq!(left.is_none(), vanishes, "{state} {grace:?}");
        assert!(rv(&answer) > before, "{state}: a deletion has a newer resourceVersion");
        let want = if vanishes { "deleted p" } else { "applied p" };
        assert_eq!(observed(&cluster.watch(watcher)), [want], "{state} {grace:?}");
        if let Some(left) = left {
            let seconds = u64::from(grace.unwrap_or(30));
            assert_eq!(left["metadata"]["deletionGracePeriodSeconds"], seconds);
            assert_eq!(meta(&left, "deletionTimestamp"), cluster.now().plus_ms(seconds * 1000).to_rfc3339());
            cluster.gone("default", "p");
            assert!(get(&cluster, "Pod", "p").is_none());
            assert_eq!(observed(&cluster.watch(watcher)), ["deleted p"]);
        }
    }
}

#[test]
fn a_pod_that_is_being_deleted_stays_until_its_node_lets_it_go() {
    let mut cluster = pod_in("running");
    delete(&mut cluster, "Pod", "p", None).unwrap();
    cluster.exit("default", "p", 143, None).unwrap();
    assert_eq!(pod(&cluster, "p")["status"]["phase"], "Failed");
    delete(&mut cluster, "Pod", "p", None).unwrap();
    assert!(get(&cluster, "Pod", "p").is_some(), "a further graceful delete asks for nothing new");
    cluster.gone_all();
    assert!(get(&cluster, "Pod", "p").is_none());
    cluster.gone_all();
    cluster.gone("default", "p");
}

#[test]
fn a_second_delete_only_shortens_the_grace_period() {
    let mut cluster = cluster();
    let mut manifest = pod_manifest("p", &[]);
    manifest["spec"]["terminationGracePeriodSeconds"] = json!(60);
    create(&mut cluster, &manifest).unwrap();
    cluster.run("default", "p").unwrap();
    let asked = cluster.now();
    delete(&mut cluster, "Pod", "p", None).unwrap();
    cluster.set_now(asked.plus_ms(7_000));
    let cases = [(None, 60), (Some(60), 60), (Some(90), 60), (Some(20), 20), (Some(30), 20), (None, 20)];
    for (grace, want) in cases {
        let before = cluster.revision();
        let object = delete(&mut cluster, "Pod", "p", grace).unwrap();
        assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], want, "{grace:?}");
        assert_eq!(meta(&object, "deletionTimestamp"), asked.plus_ms(want * 1000).to_rfc3339(), "{grace:?}");
        assert_eq!(cluster.revision() != before, grace == Some(20), "{grace:?}");
    }
    delete(&mut cluster, "Pod", "p", Some(0)).unwrap();
    assert!(get(&cluster, "Pod", "p").is_none());
}

#[test]
fn finalizers_keep_an_object() {
    let mut cluster = cluster();
    for mut manifest in [train_manifest("t"), pod_manifest("p", &[])] {
        manifest["metadata"]["finalizers"] = json!(["example.dev/keep"]);
        create(&mut cluster, &manifest).unwrap();
    }
    cluster.run("default", "p").unwrap();
    let object = delete(&mut cluster, "Train", "t", None).unwrap();
    assert_eq!(meta(&object, "deletionTimestamp"), cluster.now().to_rfc3339());
    delete(&mut cluster, "Pod", "p", None).unwrap();
    cluster.gone_all();
    assert_eq!(pod(&cluster, "p")["metadata"]["deletionGracePeriodSeconds"], 0, "its node is done with it");
    assert_eq!(verdict(&delete(&mut cluster, "Pod", "p", Some(0))), "ok");
    let object = patch(&mut cluster, "Train", "t", json!({"metadata": {"deletionTimestamp": null}})).unwrap();
    assert_ne!(meta(&object, "deletionTimestamp"), "", "a deletion is not taken back");
    for (kind, name) in [("Train", "t"), ("Pod", "p")] {
        assert!(get(&cluster, kind, name).is_some());
        patch(&mut cluster, kind, name, json!({"metadata": {"finalizers": null}})).unwrap();
        assert!(get(&cluster, kind, name).is_none(), "{kind}");
    }
}

#[test]
fn a_pod_without_its_finalizers_still_has_its_grace_period() {
    let mut cluster = cluster();
    let mut manifest = pod_manifest("p", &[]);
    manifest["metadata"]["finalizers"] = json!(["example.dev/keep"]);
    create(&mut cluster, &manifest).unwrap();
    cluster.run("default", "p").unwrap();
    delete(&mut cluster, "Pod", "p", None).unwrap();
    patch(&mut cluster, "Pod", "p", json!({"metadata": {"finalizers": []}})).unwrap();
    assert!(get(&cluster, "Pod", "p").is_some());
    cluster.gone_all();
    assert!(get(&cluster, "Pod", "p").is_none());
}

/// A job with a running pod, an unscheduled pod and a service.
fn job_with_objects() -> Cluster {
    let mut cluster = cluster();
    let job = create(&mut cluster, &train_manifest("t")).unwrap();
    let owner = [("Train", "t", meta(&job, "uid"))];
    for name in ["run", "wait"] {
        create(&mut cluster, &pod_manifest(name, &owner)).unwrap();
    }
    cluster.run("default", "run").unwrap();
    let mut service = pod_manifest("svc", &owner);
    service["kind"] = json!("Service");
    service["spec"] = json!({"clusterIP": "None"});
    create(&mut cluster, &service).unwrap();
    create(&mut cluster, &pod_manifest("foreign", &[])).unwrap();
    cluster
}

#[test]
fn what_lost_its_owner_is_collected() {
    let mut cluster = job_with_objects();
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    delete(&mut cluster, "Train", "t", None).unwrap();
    assert_eq!(observed(&cluster.watch(watcher)), ["deleted t", "applied run", "deleted wait", "deleted svc"]);
    assert_ne!(meta(&pod(&cluster, "run"), "deletionTimestamp"), "", "pods go gracefully");
    assert!(get(&cluster, "Pod", "foreign").is_some());
    cluster.gone_all();
    assert_eq!(cluster.objects_of(&pods()).len(), 1);
}

#[test]
fn owners_are_identified_by_uid() {
    // (owners of the pod, whether it survives its creation and the end of the job `t`)
    type Case<'a> = (&'a [(&'a str, &'a str, &'a str)], bool, bool);
    let uid = |cluster: &Cluster| meta(&get(cluster, "Train", "t").unwrap(), "uid").to_owned();
    let cases: [Case<'_>; 5] = [
        (&[("Train", "t", "train-000001")], true, false),
        (&[("Train", "t", "train-000009")], false, false),
        (&[("Train", "u", "train-000001")], false, false),
        (&[("Train", "t", "train-000001"), ("Train", "other", "train-000002")], true, true),
        (&[("ReplicaSet", "rs", "unknown")], true, true),
    ];
    for (owners, created, survives) in cases {
        let mut cluster = cluster();
        create(&mut cluster, &train_manifest("t")).unwrap();
        create(&mut cluster, &train_manifest("other")).unwrap();
        assert_eq!(uid(&cluster), "train-000001");
        assert_eq!(verdict(&create(&mut cluster, &pod_manifest("p", owners))), "ok", "{owners:?}");
        assert_eq!(get(&cluster, "Pod", "p").is_some(), created, "{owners:?}");
        delete(&mut cluster, "Train", "t", None).unwrap();
        assert_eq!(get(&cluster, "Pod", "p").is_some(), survives, "{owners:?}");
        if survives {
            let left = pod(&cluster, "p");
            let left = left["metadata"]["ownerReferences"].as_array().unwrap();
            assert_eq!(left.len(), 1, "{owners:?}: references to what is gone are removed");
        }
    }
}

#[test]
fn a_job_of_the_same_name_is_another_owner() {
    let mut cluster = job_with_objects();
    delete(&mut cluster, "Train", "t", None).unwrap();
    let again = create(&mut cluster, &train_manifest("t")).unwrap();
    assert_eq!(meta(&again, "uid"), "train-000002");
    assert_ne!(meta(&pod(&cluster, "run"), "deletionTimestamp"), "");
    assert_eq!(
        verdict(&create(&mut cluster, &pod_manifest("run", &[("Train", "t", "train-000002")]))),
        "409 AlreadyExists"
    );
    let stale = ApiCall { uid: Some(Uid::from("train-000001")), ..call(Verb::Delete, "Train", "t") };
    assert_eq!(verdict(&cluster.execute(&stale)), "409 Conflict");
}

#[test]
fn owners_of_owners_are_followed() {
    let mut cluster = cluster();
    let job = create(&mut cluster, &train_manifest("t")).unwrap();
    let middle = create(&mut cluster, &pod_manifest("a", &[("Train", "t", meta(&job, "uid"))])).unwrap();
    create(&mut cluster, &pod_manifest("b", &[("Pod", "a", meta(&middle, "uid"))])).unwrap();
    delete(&mut cluster, "Train", "t", None).unwrap();
    assert!(cluster.objects_of(&pods()).is_empty());
}

#[test]
fn a_namespace_takes_everything_with_it() {
    let mut cluster = job_with_objects();
    let namespace = resource("Namespace");
    cluster.delete_as_user(&namespace, "", "default", None).unwrap();
    let left = cluster.get(&namespace, "", "default").expect("a pod still runs");
    assert_eq!(left["status"]["phase"], "Terminating");
    let refused = create(&mut cluster, &pod_manifest("late", &[]));
    assert_eq!(verdict(&refused), "403 Forbidden");
    assert!(refused.unwrap_err().message.contains("because it is being terminated"));
    cluster.gone_all();
    let of_namespace = |o: &Value| meta(o, "namespace") == "default";
    assert!(!cluster.objects().iter().any(|o| of_namespace(o)));
    assert!(cluster.get(&namespace, "", "default").is_none());
    assert_eq!(verdict(&create(&mut cluster, &pod_manifest("new", &[]))), "ok");
}
