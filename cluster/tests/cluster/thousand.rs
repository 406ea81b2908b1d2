//! A job of a thousand pods, from creation to the end: every write must find its way without walking the others.

use apis::{ApiCall, Observation, Verb};
use model::Uid;
use serde_json::json;

use crate::common::*;

#[test]
fn a_thousand_pods_live_and_go() {
    let mut cluster = cluster();
    let watcher = cluster.subscribe();
    cluster.watch(watcher);
    let job = create(&mut cluster, &train_manifest("t")).unwrap();
    let owner = [("Train", "t", meta(&job, "uid"))];
    // As rendered: every pod names every peer.
    let peers = (0..1000).map(|n| format!("t-trainer-{n}.default:2222")).collect::<Vec<_>>().join(",");
    let mut pod = pod_manifest("", &owner);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "HOSTS", "value": peers}]);
    let name = |n: u32| format!("t-trainer-{n}");
    for n in 0..1000 {
        pod["metadata"]["name"] = json!(name(n));
        create(&mut cluster, &pod).unwrap();
    }
    let created = cluster.watch(watcher);
    assert_eq!(created.len(), 1001);
    let uids: Vec<Uid> = created
        .iter()
        .filter_map(|observation| match observation {
            Observation::Applied(object) if object["kind"] == "Pod" => Some(Uid::from(meta(object, "uid"))),
            _ => None,
        })
        .collect();
    drop(created);
    cluster.run_all().unwrap();
    assert_eq!(cluster.watch(watcher).len(), 1000);
    for n in 0..1000 {
        status(&mut cluster, "t", None, json!({"phase": "Running", "count": n})).unwrap();
        cluster.exit("default", &name(n), i32::from(n == 999), None).unwrap();
        cluster.watch(watcher);
    }
    for (n, uid) in (0..1000).zip(uids) {
        let call = ApiCall { uid: Some(uid), ..call(Verb::Delete, "Pod", &name(n)) };
        cluster.execute(&call).unwrap();
    }
    assert_eq!(cluster.watch(watcher).len(), 1000);
    assert!(cluster.objects_of(&pods()).is_empty());
}
