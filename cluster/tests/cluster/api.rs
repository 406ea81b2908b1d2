//! What API calls do to objects: preconditions, server fields, status subresource, generation, writes that change nothing.

use crate::common::*;
use apis::{ApiCall, Resource, Verb};
use model::{ResourceVersion, Uid};
use serde_json::{Value, json};

#[test]
fn creating_sets_what_the_server_sets_and_drops_status() {
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest["status"] = json!({"phase": "Running"});
    manifest["metadata"]["uid"] = json!("mine");
    manifest["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    manifest["metadata"]["labels"] = json!({"team": "a"});
    let object = create(&mut cluster, &manifest).unwrap();
    assert_eq!(meta(&object, "uid"), "train-000001");
    assert_eq!(meta(&object, "creationTimestamp"), "2026-01-01T00:00:00Z");
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(object["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(object["metadata"].get("deletionTimestamp"), None);
    assert_eq!(object.get("status"), None);
    assert_eq!(ResourceVersion(rv(&object)), cluster.revision());
    let pod = create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    assert_eq!(pod["status"], json!({"phase": "Pending"}));
    assert_eq!(meta(&pod, "uid"), "pod-000001");
    assert!(cluster.get(&resource("Namespace"), "", "default").is_some(), "namespaces come with their first object");
}

#[test]
fn creations_that_make_no_sense_are_refused() {
    let with = |edit: fn(&mut Value)| {
        let mut manifest = train_manifest("t");
        edit(&mut manifest);
        manifest
    };
    let cases: [(&str, ApiCall, &str); 8] = [
        (
            "taken",
            ApiCall { body: Some(train_manifest("old")), ..call(Verb::Create, "Train", "old") },
            "409 AlreadyExists",
        ),
        ("no body", call(Verb::Create, "Train", "t"), "400 BadRequest"),
        (
            "other name",
            ApiCall { body: Some(train_manifest("x")), ..call(Verb::Create, "Train", "t") },
            "400 BadRequest",
        ),
        (
            "other kind",
            ApiCall { body: Some(pod_manifest("t", &[])), ..call(Verb::Create, "Train", "t") },
            "400 BadRequest",
        ),
        (
            "other namespace",
            ApiCall { namespace: "else".into(), body: Some(train_manifest("t")), ..call(Verb::Create, "Train", "t") },
            "400 BadRequest",
        ),
        (
            "a version",
            ApiCall {
                body: Some(with(|m| m["metadata"]["resourceVersion"] = json!("1"))),
                ..call(Verb::Create, "Train", "t")
            },
            "400 BadRequest",
        ),
        (
            "not served",
            ApiCall { resource: Resource::new("apps/v1", "Deployment"), ..call(Verb::Create, "Train", "t") },
            "404 ",
        ),
        (
            "schema",
            ApiCall {
                body: Some(with(|m| m["spec"]["cars"]["trainer"]["replicas"] = json!(-1))),
                ..call(Verb::Create, "Train", "t")
            },
            "422 Invalid",
        ),
    ];
    for (name, call, want) in cases {
        let mut cluster = cluster();
        create(&mut cluster, &train_manifest("old")).unwrap();
        let before = cluster.revision();
        assert_eq!(verdict(&cluster.execute(&call)), want, "{name}");
        assert_eq!(cluster.revision(), before, "{name}: a refusal changes nothing");
        assert!(get(&cluster, "Train", "t").is_none(), "{name}");
    }
}

#[test]
fn preconditions_are_checked_on_every_write() {
    type Edit = fn(&mut ApiCall, &Value);
    let uid_is: Edit = |c, o| c.uid = Some(Uid::from(meta(o, "uid")));
    let uid_other: Edit = |c, _| c.uid = Some(Uid::from("other"));
    let rv_is: Edit = |c, o| c.rv = Some(ResourceVersion(rv(o)));
    let rv_old: Edit = |c, o| c.rv = Some(ResourceVersion(rv(o) - 1));
    let body_rv: Edit = |c, _| c.body = Some(json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}));
    let body_uid: Edit = |c, _| c.body = Some(json!({"metadata": {"uid": "other", "labels": {"a": "b"}}}));
    let absent: Edit = |c, _| c.name = "absent".into();
    let cases = [
        (Verb::Delete, uid_is, "ok"),
        (Verb::Delete, uid_other, "409 Conflict"),
        (Verb::Delete, absent, "404 NotFound"),
        (Verb::Patch, uid_is, "ok"),
        (Verb::Patch, uid_other, "409 Conflict"),
        (Verb::Patch, rv_is, "ok"),
        (Verb::Patch, rv_old, "409 Conflict"),
        (Verb::Patch, body_rv, "409 Conflict"),
        (Verb::Patch, body_uid, "409 Conflict"),
        (Verb::Patch, absent, "404 NotFound"),
        (Verb::PatchStatus, uid_other, "409 Conflict"),
        (Verb::PatchStatus, rv_is, "ok"),
        (Verb::PatchStatus, rv_old, "409 Conflict"),
        (Verb::PatchStatus, absent, "404 NotFound"),
        (Verb::ApplyStatus, uid_other, "409 Conflict"),
        (Verb::ApplyStatus, rv_is, "ok"),
        (Verb::ApplyStatus, rv_old, "409 Conflict"),
        (Verb::ApplyStatus, absent, "404 NotFound"),
        (Verb::Get, absent, "404 NotFound"),
        (Verb::Get, uid_is, "ok"),
    ];
    for (n, (verb, edit, want)) in cases.into_iter().enumerate() {
        let mut cluster = cluster();
        let object = create(&mut cluster, &train_manifest("t")).unwrap();
        let body = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}});
        let mut call = ApiCall { body: Some(body), ..call(verb, "Train", "t") };
        edit(&mut call, &object);
        let before = cluster.revision();
        assert_eq!(verdict(&cluster.execute(&call)), want, "case {n} ({verb:?})");
        assert_eq!(cluster.revision() != before, want == "ok" && verb != Verb::Get, "case {n} ({verb:?})");
    }
}

#[test]
fn status_and_main_resource_do_not_touch_each_other() {
    let mut cluster = cluster();
    create(&mut cluster, &train_manifest("t")).unwrap();
    let object = status(&mut cluster, "t", None, json!({"phase": "Running", "count": 2})).unwrap();
    assert_eq!(object["metadata"]["generation"], 1, "a status is no new generation");

    let edit = json!({"status": {"phase": "Hacked"}, "spec": {"note": "x"}, "metadata": {"uid": null, "name": null}});
    let object = patch(&mut cluster, "Train", "t", edit).unwrap();
    assert_eq!(object["status"], json!({"phase": "Running", "count": 2}));
    assert_eq!(object["spec"]["note"], "x");
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(meta(&object, "uid"), "train-000001");
    assert_eq!(meta(&object, "name"), "t");

    let object = patch(&mut cluster, "Train", "t", json!({"metadata": {"annotations": {"a/b": "1"}}})).unwrap();
    assert_eq!(object["metadata"]["generation"], 2, "metadata is no new generation");

    let body = json!({"status": {"count": 3}, "spec": {"note": "y"}});
    let object = cluster.execute(&ApiCall { body: Some(body), ..call(Verb::PatchStatus, "Train", "t") }).unwrap();
    assert_eq!(object["status"], json!({"phase": "Running", "count": 3}), "a patch of a status is merged");
    assert_eq!(object["spec"]["note"], "x");

    let object = status(&mut cluster, "t", None, json!({"phase": "Succeed"})).unwrap();
    assert_eq!(object["status"], json!({"phase": "Succeed"}), "a status is replaced, not merged");

    let sub =
        cluster.merge_patch(&train(), "default", "t", &json!({"status": {"count": 1}, "spec": {"note": "y"}}), true);
    let object = sub.unwrap();
    assert_eq!(object["status"], json!({"phase": "Succeed", "count": 1}));
    assert_eq!(object["spec"]["note"], "x");
    assert_eq!(verdict(&patch(&mut cluster, "Train", "t", json!(["no"]))), "400 BadRequest");
    let body = Some(json!({"status": {"phase": "x"}}));
    create(&mut cluster, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})).unwrap();
    let none = cluster.execute(&ApiCall { body, ..call(Verb::ApplyStatus, "ConfigMap", "c") });
    assert_eq!(verdict(&none), "404 ", "a kind without the subresource has no such path");
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    create(&mut cluster, &train_manifest("t")).unwrap();
    status(&mut cluster, "t", None, json!({"phase": "Running"})).unwrap();
    cluster.watch(watcher);
    let before = cluster.revision();
    let same_status = status(&mut cluster, "t", None, json!({"phase": "Running"})).unwrap();
    let pruned = status(&mut cluster, "t", None, json!({"phase": "Running", "unknown": 1})).unwrap();
    let patched = patch(&mut cluster, "Train", "t", json!({"spec": {"policy": "All", "gone": null}})).unwrap();
    let ignored = patch(&mut cluster, "Train", "t", json!({"status": {"phase": "x"}, "spec": {"typo": 1}})).unwrap();
    let applied = cluster.apply(&train_manifest("t")).unwrap();
    for object in [same_status, pruned, patched, ignored, applied] {
        assert_eq!(ResourceVersion(rv(&object)), before);
    }
    assert_eq!(cluster.revision(), before);
    assert!(cluster.watch(watcher).is_empty());
}

#[test]
fn a_lease_is_won_by_one_of_two() {
    let mut cluster = cluster();
    let lease = Resource::new("coordination.k8s.io/v1", "Lease");
    let manifest =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let base = ApiCall { resource: lease, ..call(Verb::Create, "Lease", "l") };
    let object = cluster.execute(&ApiCall { body: Some(manifest), ..base.clone() }).unwrap();
    let claim = |who: &str| ApiCall {
        verb: Verb::Patch,
        body: Some(json!({"spec": {"holderIdentity": who}})),
        rv: Some(ResourceVersion(rv(&object))),
        ..base.clone()
    };
    assert_eq!(verdict(&cluster.execute(&claim("a"))), "ok");
    assert_eq!(verdict(&cluster.execute(&claim("b"))), "409 Conflict");
    let held = cluster.execute(&ApiCall { verb: Verb::Get, ..base }).unwrap();
    assert_eq!(held["spec"]["holderIdentity"], "a");
}

#[test]
fn kubernetes_events_are_kept_apart_and_in_order() {
    let mut cluster = cluster();
    let event = |name: &str| json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "R"});
    create(&mut cluster, &event("j.b")).unwrap();
    let after_first = cluster.revision();
    create(&mut cluster, &event("j.a")).unwrap();
    assert_eq!(verdict(&create(&mut cluster, &event("j.a"))), "409 AlreadyExists");
    let names =
        |events: Vec<std::sync::Arc<Value>>| events.iter().map(|e| meta(e, "name").to_owned()).collect::<Vec<_>>();
    assert_eq!(names(cluster.kubernetes_events_since(ResourceVersion(0))), ["j.b", "j.a"]);
    assert_eq!(names(cluster.kubernetes_events_since(after_first)), ["j.a"]);
    assert!(cluster.objects().iter().all(|object| object["kind"] != "Event"));
}

#[test]
fn objects_come_by_kind_namespace_and_name() {
    let mut cluster = cluster();
    for name in ["b", "a"] {
        create(&mut cluster, &train_manifest(name)).unwrap();
        create(&mut cluster, &pod_manifest(name, &[])).unwrap();
    }
    let mut elsewhere = pod_manifest("a", &[]);
    elsewhere["metadata"]["namespace"] = json!("apart");
    cluster.apply(&elsewhere).unwrap();
    let listed: Vec<String> = cluster
        .objects()
        .iter()
        .map(|o| format!("{} {}/{}", o["kind"].as_str().unwrap(), meta(o, "namespace"), meta(o, "name")))
        .collect();
    let want = [
        "Namespace /apart",
        "Namespace /default",
        "Node /n1",
        "Node /n2",
        "Node /n3",
        "Pod apart/a",
        "Pod default/a",
        "Pod default/b",
        "Train default/a",
        "Train default/b",
    ];
    assert_eq!(listed, want);
    assert_eq!(cluster.pod_namespaces("a").iter().map(|n| &**n).collect::<Vec<_>>(), ["apart", "default"]);
    assert_eq!(cluster.objects_of(&pods()).len(), 3);
    assert_eq!(cluster.resource_named("Train"), Some(train()));
    assert_eq!(cluster.resource_named("Nothing"), None);
}
