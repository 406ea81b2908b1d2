//! Observations of watches: lists, changes, holds, relists, broken lists; and failing calls.

use crate::common::*;
use apis::{ApiCall, Observation, Selector, Verb, WatchTarget};
use cluster::{CatchUp, Error, FailRule, FailVerb};
use model::{Kind, ResourceVersion};
use serde_json::json;

fn rule(verb: FailVerb, kind: &str, times: u32, code: u16, applied: bool) -> FailRule {
    FailRule { verb, kind: (!kind.is_empty()).then(|| kind.into()), times, code, applied }
}

#[test]
fn a_consumer_gets_everything_once_and_then_changes_in_order() {
    let mut cluster = cluster();
    create(&mut cluster, &pod_manifest("old", &[])).unwrap();
    let first = cluster.subscribe();
    assert_eq!(
        observed(&cluster.watch(first)),
        [
            "listed Node 3",
            "listed Class 0",
            "listed Quota 0",
            "listed Job 0",
            "listed Owned 0",
            "listed Pod 1",
            "listed Service 0"
        ]
    );
    create(&mut cluster, &train_manifest("t")).unwrap();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.node("n2", cluster::NodeState::Unknown).unwrap();
    delete(&mut cluster, "Pod", "old", None).unwrap();
    create(&mut cluster, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})).unwrap();
    let second = cluster.subscribe();
    assert_eq!(observed(&cluster.watch(first)), ["applied t", "applied p", "applied n2", "deleted old"]);
    assert!(cluster.watch(first).is_empty());
    assert_eq!(
        observed(&cluster.watch(second)),
        [
            "listed Node 3",
            "listed Class 0",
            "listed Quota 0",
            "listed Job 1",
            "listed Owned 0",
            "listed Pod 1",
            "listed Service 0"
        ]
    );
    cluster.unsubscribe(first);
    cluster.run("default", "p").unwrap();
    assert!(cluster.watch(first).is_empty());
    assert_eq!(observed(&cluster.watch(second)), ["applied p"]);
}

#[test]
fn versions_of_views_and_changes_only_grow() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    for observation in cluster.watch(watcher) {
        let Observation::Listed { rv, .. } = observation else { panic!("lists come first") };
        assert_eq!(rv, cluster.revision());
    }
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.run("default", "p").unwrap();
    delete(&mut cluster, "Pod", "p", Some(0)).unwrap();
    let versions: Vec<u64> = cluster
        .watch(watcher)
        .iter()
        .map(|observation| match observation {
            Observation::Applied(object) | Observation::Deleted(object) => rv(object),
            Observation::Listed { .. } => panic!("nothing was listed"),
        })
        .collect();
    assert_eq!(versions.len(), 3);
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    assert_eq!(versions.last().copied().map(ResourceVersion), Some(cluster.revision()));
}

#[test]
fn a_held_kind_says_nothing_until_it_is_released() {
    for (catch_up, want) in [
        (CatchUp::InOrder, vec!["applied p", "applied p", "applied q", "deleted p", "applied p", "applied p"]),
        (CatchUp::Coalesced, vec!["applied q", "deleted p", "applied p"]),
    ] {
        let mut cluster = cluster();
        let watcher = cluster.subscribe();
        cluster.watch(watcher);
        cluster.hold(Kind::Pod);
        create(&mut cluster, &pod_manifest("p", &[])).unwrap();
        cluster.run("default", "p").unwrap();
        create(&mut cluster, &pod_manifest("q", &[])).unwrap();
        delete(&mut cluster, "Pod", "p", Some(0)).unwrap();
        create(&mut cluster, &pod_manifest("p", &[])).unwrap();
        cluster.schedule("default", "p", "n2").unwrap();
        create(&mut cluster, &train_manifest("t")).unwrap();
        assert_eq!(observed(&cluster.watch(watcher)), ["applied t"]);
        let late = cluster.subscribe();
        assert_eq!(
            observed(&cluster.watch(late)),
            ["listed Node 3", "listed Class 0", "listed Quota 0", "listed Job 1", "listed Owned 0", "listed Service 0"]
        );
        cluster.release(Kind::Pod, catch_up);
        assert_eq!(observed(&cluster.watch(watcher)), want, "{catch_up:?}");
        assert_eq!(observed(&cluster.watch(late)), ["listed Pod 2"]);
        cluster.release(Kind::Pod, catch_up);
        assert!(cluster.watch(watcher).is_empty());
    }
}

#[test]
fn a_relist_replaces_what_was_not_delivered() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.watch(watcher);
    delete(&mut cluster, "Pod", "p", None).unwrap();
    create(&mut cluster, &pod_manifest("q", &[])).unwrap();
    cluster.relist(Kind::Pod);
    create(&mut cluster, &pod_manifest("r", &[])).unwrap();
    assert_eq!(observed(&cluster.watch(watcher)), ["listed Pod 2"]);
    create(&mut cluster, &pod_manifest("s", &[])).unwrap();
    assert_eq!(observed(&cluster.watch(watcher)), ["applied s"]);
    cluster.hold(Kind::Pod);
    cluster.relist(Kind::Pod);
    assert!(cluster.watch(watcher).is_empty());
    cluster.release(Kind::Pod, CatchUp::InOrder);
    assert_eq!(observed(&cluster.watch(watcher)), ["listed Pod 3"]);
}

#[test]
fn failing_lists_break_the_watch_and_are_tried_again_later() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    cluster.fail(rule(FailVerb::List, "Pod", 3, 500, false)).unwrap();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    let start = cluster.now();
    // One list at once, then after 1 s, 2 s more, 4 s more.
    for (after_ms, next_ms) in [(0, 1_000), (1_000, 3_000), (3_000, 7_000)] {
        cluster.set_now(start.plus_ms(after_ms));
        assert!(cluster.watch(watcher).is_empty(), "{after_ms}");
        assert!(cluster.watch(watcher).is_empty(), "{after_ms}: no time, no further try");
        assert_eq!(cluster.next_wake(), Some(start.plus_ms(next_ms)));
    }
    create(&mut cluster, &train_manifest("t")).unwrap();
    assert_eq!(observed(&cluster.watch(watcher)), ["applied t"], "other kinds continue");
    cluster.set_now(start.plus_ms(7_000));
    assert_eq!(observed(&cluster.watch(watcher)), ["listed Pod 1"]);
    assert_eq!(cluster.next_wake(), None);
    let unwatched = cluster.fail(rule(FailVerb::List, "ConfigMap", 1, 500, false));
    assert_eq!(unwatched, Err(Error::NotWatched { kind: "ConfigMap".into() }));
    assert_eq!(cluster.watch_kind("Train"), Some(Kind::Job));
    assert_eq!(cluster.watch_kind("Job"), Some(Kind::Job));
    assert_eq!(cluster.watch_kind("Secret"), None);
}

#[test]
fn rules_make_calls_fail_and_are_used_up() {
    // (rule, code and reason of the answer, whether the pod was created)
    let cases = [
        (rule(FailVerb::Create, "Pod", 1, 500, false), "500 InternalError", false),
        (rule(FailVerb::Create, "Pod", 1, 500, true), "500 InternalError", true),
        (rule(FailVerb::Create, "", 1, 0, true), "0 ConnectionLost", true),
        (rule(FailVerb::Create, "Pod", 1, 403, false), "403 Forbidden", false),
        (rule(FailVerb::Create, "Pod", 1, 409, false), "409 AlreadyExists", false),
        (rule(FailVerb::Create, "Pod", 1, 422, false), "422 Invalid", false),
        (rule(FailVerb::Create, "Pod", 1, 429, false), "429 TooManyRequests", false),
        (rule(FailVerb::Create, "Pod", 0, 500, false), "ok", true),
        (rule(FailVerb::Create, "Service", 1, 500, false), "ok", true),
        (rule(FailVerb::Delete, "Pod", 1, 500, false), "ok", true),
    ];
    for (rule, want, created) in cases {
        let mut cluster = cluster();
        cluster.fail(rule.clone()).unwrap();
        let before = cluster.revision();
        assert_eq!(verdict(&create(&mut cluster, &pod_manifest("p", &[]))), want, "{rule:?}");
        assert_eq!(get(&cluster, "Pod", "p").is_some(), created, "{rule:?}");
        assert_eq!(cluster.revision() != before, created);
    }
}

#[test]
fn rules_match_by_verb_and_kind_and_are_used_oldest_first() {
    let mut cluster = cluster();
    create(&mut cluster, &train_manifest("t")).unwrap();
    cluster.fail(rule(FailVerb::Patch, "Train", 2, 500, false)).unwrap();
    cluster.fail(rule(FailVerb::Patch, "Train", 1, 503, false)).unwrap();
    cluster.fail(rule(FailVerb::Get, "", 1, 504, false)).unwrap();
    let body = json!({"status": {"phase": "Running"}});
    assert_eq!(verdict(&status(&mut cluster, "t", None, body["status"].clone())), "500 InternalError");
    assert_eq!(verdict(&patch(&mut cluster, "Train", "t", body)), "500 InternalError");
    cluster
        .merge_patch(&train(), "default", "t", &json!({"spec": {"note": "n"}}), false)
        .expect("users are not the operator");
    assert_eq!(verdict(&patch(&mut cluster, "Train", "t", json!({}))), "503 ServiceUnavailable");
    assert_eq!(verdict(&cluster.execute(&call(Verb::Get, "Train", "t"))), "504 Timeout");
    assert_eq!(verdict(&cluster.execute(&call(Verb::Get, "Train", "t"))), "ok");
    cluster.fail(rule(FailVerb::Create, "", 5, 500, false)).unwrap();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}});
    assert_eq!(verdict(&create(&mut cluster, &event)), "ok", "a rule for every kind spares Kubernetes Events");
    cluster.heal();
    assert_eq!(verdict(&create(&mut cluster, &pod_manifest("p", &[]))), "ok");
}

#[test]
fn a_call_that_was_carried_out_but_not_answered_shows_in_the_watch() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    cluster.watch(watcher);
    cluster.fail(rule(FailVerb::Delete, "Pod", 1, 0, true)).unwrap();
    let lost: ApiCall = call(Verb::Delete, "Pod", "p");
    assert_eq!(verdict(&cluster.execute(&lost)), "0 ConnectionLost");
    assert_eq!(observed(&cluster.watch(watcher)), ["deleted p"]);
    assert_eq!(verdict(&cluster.execute(&lost)), "404 NotFound");
}

fn labelled(name: &str, team: Option<&str>) -> serde_json::Value {
    let mut pod = pod_manifest(name, &[]);
    if let Some(team) = team {
        pod["metadata"]["labels"] = json!({"team": team});
    }
    pod
}

#[test]
fn a_consumer_of_labels_is_notified_of_what_they_select() {
    let mut cluster = cluster();
    create(&mut cluster, &labelled("a", Some("red"))).unwrap();
    create(&mut cluster, &labelled("b", Some("blue"))).unwrap();
    create(&mut cluster, &labelled("c", None)).unwrap();
    let target = |selector| WatchTarget {
        kind: Kind::Pod,
        resource: pods(),
        plural: "pods",
        namespaced: true,
        optional: false,
        selector,
        of: None,
    };
    let red = cluster.subscribe_to(&[target(Selector::label("team", "red"))]);
    let both = cluster.subscribe_to(&["red", "blue"].map(|team| target(Selector::label("team", team))));
    assert_eq!(observed(&cluster.watch(red)), ["listed Pod 1"]);
    assert_eq!(observed(&cluster.watch(both)), ["listed Pod 1", "listed Pod 1"]);

    // The watch of a label reports an object whose label comes or goes as created or deleted.
    let label = |team| json!({"metadata": {"labels": {"team": team}}});
    patch(&mut cluster, "Pod", "c", label(json!("red"))).unwrap();
    patch(&mut cluster, "Pod", "a", json!({"metadata": {"labels": {"team": null}, "annotations": {"x": "y"}}}))
        .unwrap();
    patch(&mut cluster, "Pod", "b", label(json!("red"))).unwrap();
    create(&mut cluster, &labelled("d", Some("green"))).unwrap();
    cluster.run("default", "c").unwrap();
    cluster.run("default", "d").unwrap();
    let news = cluster.watch(red);
    assert_eq!(observed(&news), ["applied c", "deleted a", "applied b", "applied c"]);
    let Observation::Deleted(gone) = &news[1] else { panic!("{news:?}") };
    assert_eq!(gone["metadata"]["labels"]["team"], "red", "it is reported as it was when it fitted");
    assert_eq!(rv(gone), rv(&pod(&cluster, "a")), "at the version at which it ceased to");
    let mut all = observed(&cluster.watch(both));
    all.sort();
    assert_eq!(all, ["applied b", "applied c", "applied c", "deleted a", "deleted b"]);

    // What is not selected goes without a word; what still is, does not.
    for name in ["a", "b", "d"] {
        delete(&mut cluster, "Pod", name, Some(0)).unwrap();
    }
    assert_eq!(observed(&cluster.watch(red)), ["deleted b"]);
    cluster.relist(Kind::Pod);
    assert_eq!(observed(&cluster.watch(red)), ["listed Pod 1"]);
}

#[test]
fn a_consumer_of_one_type_gets_no_other() {
    let mut cluster = cluster();
    let mut other = crd();
    other["spec"]["names"] = json!({"kind": "Tram", "plural": "trams"});
    cluster.register(&other).unwrap();
    create(&mut cluster, &train_manifest("t")).unwrap();
    let target = |kind: &str, plural| WatchTarget {
        kind: Kind::Job,
        resource: apis::Resource::new("example.dev/v1", kind),
        plural,
        namespaced: true,
        optional: false,
        selector: Selector::default(),
        of: None,
    };
    let trains = cluster.subscribe_to(&[target("Train", "trains")]);
    let trams = cluster.subscribe_to(&[target("Tram", "trams")]);
    assert_eq!(observed(&cluster.watch(trains)), ["listed Job 1"]);
    assert_eq!(observed(&cluster.watch(trams)), ["listed Job 0"]);
    create(&mut cluster, &train_manifest("u")).unwrap();
    // A list that fails is that of its own type.
    cluster.fail(rule(FailVerb::List, "Tram", 1, 500, false)).unwrap();
    assert_eq!(observed(&cluster.watch(trains)), ["applied u"]);
    assert!(cluster.watch(trams).is_empty());
}
