//! The cluster in a file: everything comes back, and damage is told apart.

use std::fs;

use cluster::runtime::VirtualPods;
use cluster::{Cluster, FileError, Mode};
use serde_json::json;

use crate::common::*;

fn load(path: &std::path::Path) -> Result<Cluster, FileError> {
    Cluster::load(path, Mode::ByHand, Box::new(VirtualPods))
}

#[test]
fn a_saved_cluster_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.json");
    let mut cluster = cluster();
    let mut manifest = train_manifest("t");
    manifest["spec"]["note"] = json!("first");
    let job = cluster.apply(&manifest).unwrap();
    create(&mut cluster, &pod_manifest("p", &[("Train", "t", meta(&job, "uid"))])).unwrap();
    create(&mut cluster, &pod_manifest("waits", &[])).unwrap();
    create(&mut cluster, &json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}})).unwrap();
    cluster.run("default", "p").unwrap();
    cluster.set_now(cluster.now().plus_ms(5_000));
    cluster.save(&path).unwrap();
    cluster.save(&path).unwrap();

    let mut back = load(&path).unwrap();
    assert_eq!(back.objects(), cluster.objects());
    assert_eq!(back.kubernetes_events(), cluster.kubernetes_events());
    assert_eq!((back.now(), back.revision()), (cluster.now(), cluster.revision()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left lying about");

    // Counters, indices, schemas and applied manifests are back as well.
    let fresh = create(&mut back, &pod_manifest("q", &[])).unwrap();
    assert_eq!(meta(&fresh, "uid"), "pod-000003");
    manifest["spec"].as_object_mut().unwrap().remove("note");
    assert_eq!(back.apply(&manifest).unwrap()["spec"].get("note"), None);
    assert_eq!(verdict(&patch(&mut back, "Train", "t", json!({"spec": {"policy": "x"}}))), "422 Invalid");
    delete(&mut back, "Train", "t", None).unwrap();
    assert_ne!(meta(&pod(&back, "p"), "deletionTimestamp"), "", "owners are still known");
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.json");
    assert!(matches!(load(&path), Err(FileError::Missing { .. })));
    assert!(matches!(load(directory.path()), Err(FileError::Io { action: "read", .. })));
    let cluster = cluster();
    assert!(matches!(cluster.save(&path.join("below")), Err(FileError::Io { .. })));
    cluster.save(&path).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let node = "\"uid\":\"node-000001\"";
    assert!(good.contains(node));
    let damaged = [
        good[..good.len() / 2].to_owned(),
        String::new(),
        "{\"format\":1}".to_owned(),
        good.replace("\"kind\":\"Node\"", "\"kind\":\"Nodule\""),
        good.replace("\"uid\":\"node-000002\"", node),
        good.replace(node, "\"uid\":\"\""),
        good.replace("\"revision\":3", "\"revision\":1"),
        good.replace("\"name\":\"n2\"", "\"name\":\"n1\""),
    ];
    for text in damaged {
        assert_ne!(text, good);
        fs::write(&path, &text).unwrap();
        assert!(matches!(load(&path), Err(FileError::Corrupt { .. })), "{text}");
    }
    fs::write(&path, good.replace("\"format\":1", "\"format\":2")).unwrap();
    assert!(matches!(load(&path), Err(FileError::TooNew { found: 2, known: 1, .. })));
}
