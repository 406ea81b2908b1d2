//! The cluster in a file: everything comes back, and kinds of damage are distinguished.

use model::ResourceVersion;
use std::fs;

use cluster::runtime::VirtualPods;
use cluster::{Cluster, ClusterFile, FileError, Mode};
use serde_json::json;

use crate::common::*;

fn load(path: &std::path::Path) -> Result<Cluster, FileError> {
    Cluster::load(path, Mode::Manual, Box::new(VirtualPods))
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
    let mut file = ClusterFile::new(&path);
    file.save(&mut cluster).unwrap();
    file.save(&mut cluster).unwrap();

    let mut back = load(&path).unwrap();
    assert_eq!(back.objects(), cluster.objects());
    assert_eq!(back.kubernetes_events_since(ResourceVersion(0)), cluster.kubernetes_events_since(ResourceVersion(0)));
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
    let mut cluster = cluster();
    assert!(matches!(ClusterFile::new(&path.join("below")).save(&mut cluster), Err(FileError::Io { .. })));
    ClusterFile::new(&path).save(&mut cluster).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let node = "\"uid\":\"node-000001\"";
    assert!(good.contains(node));
    let damaged = [
        good[..good.len() / 2].to_owned(),
        String::new(),
        "{\"format\":2}".to_owned(),
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
    fs::write(&path, good.replace("\"format\":2", "\"format\":3")).unwrap();
    assert!(matches!(load(&path), Err(FileError::TooNew { found: 3, known: 2, .. })));
}

#[test]
fn what_is_kept_costs_what_changed_and_survives_every_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (path, journal) = (directory.path().join("cluster.json"), directory.path().join("cluster.journal"));
    let mut cluster = cluster();
    for n in 0..100 {
        create(&mut cluster, &pod_manifest(&format!("p{n}"), &[])).unwrap();
    }
    let mut file = ClusterFile::new(&path);
    file.save(&mut cluster).unwrap();
    let base = fs::read(&path).unwrap();
    // The states that were kept, and the size of the journal when they were.
    let mut kept = vec![(0, cluster.objects(), cluster.revision())];
    for n in 0..20 {
        cluster.set_now(cluster.now().plus_ms(1000));
        match n % 4 {
            0 => cluster.run("default", &format!("p{n}")).unwrap(),
            1 => drop(delete(&mut cluster, "Pod", &format!("p{n}"), Some(0))),
            2 => drop(create(&mut cluster, &pod_manifest(&format!("p{}", n - 1), &[])).unwrap()),
            _ => drop(cluster.apply(&train_manifest(&format!("t{n}"))).unwrap()),
        }
        file.save(&mut cluster).unwrap();
        let size = fs::read(&journal).unwrap().len();
        assert!(size - kept.last().unwrap().0 < base.len() / 10, "one change wrote {size} bytes");
        kept.push((size, cluster.objects(), cluster.revision()));
    }
    assert_eq!(fs::read(&path).unwrap(), base, "the file itself is not written");

    // A crash in the middle of a write leaves the state that was kept before it.
    let whole = fs::read(&journal).unwrap();
    let ends = kept.iter().flat_map(|(size, ..)| [size.saturating_sub(1), *size, size + 1, size + 9, size + 10]);
    for cut in ends.chain((0..whole.len()).step_by(397)).filter(|cut| *cut <= whole.len()) {
        fs::write(&journal, &whole[..cut]).unwrap();
        let back = load(&path).unwrap();
        let (_, objects, revision) = kept.iter().rev().find(|(size, ..)| *size <= cut).unwrap();
        assert_eq!(back.revision(), *revision, "cut at {cut}");
        assert_eq!(&back.objects(), objects, "cut at {cut}");
    }
    // Damage in the middle is not taken for that.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&journal, &damaged).unwrap();
    assert!(matches!(load(&path), Err(FileError::Corrupt { .. })));

    // The next process folds the journal into the file; a journal that it had no time to remove does not count.
    fs::write(&journal, &whole).unwrap();
    let mut back = load(&path).unwrap();
    ClusterFile::new(&path).save(&mut back).unwrap();
    assert!(!journal.exists());
    fs::write(&journal, &whole).unwrap();
    let again = load(&path).unwrap();
    assert_eq!((again.objects(), again.revision()), (cluster.objects(), cluster.revision()));
    // An older file that was copied back beside its newer journal is refused.
    let mut next = ClusterFile::new(&path);
    next.save(&mut back).unwrap();
    create(&mut back, &pod_manifest("late", &[])).unwrap();
    next.save(&mut back).unwrap();
    fs::write(&path, &base).unwrap();
    assert!(matches!(load(&path), Err(FileError::Corrupt { .. })));
}

#[test]
fn a_journal_is_folded_into_the_file_when_it_is_long() {
    let directory = tempfile::tempdir().unwrap();
    let (path, journal) = (directory.path().join("cluster.json"), directory.path().join("cluster.journal"));
    let mut cluster = cluster();
    let mut file = ClusterFile::new(&path);
    let (mut most, mut folded) = (0, 0);
    for n in 0..700 {
        let mut pod = pod_manifest("p", &[]);
        pod["metadata"]["annotations"] = json!({"note": "x".repeat(4000)});
        create(&mut cluster, &pod).unwrap();
        file.save(&mut cluster).unwrap();
        delete(&mut cluster, "Pod", "p", Some(0)).unwrap();
        file.save(&mut cluster).unwrap();
        let size = fs::metadata(&journal).map_or(0, |m| m.len());
        folded += u32::from(size < most && n > 0);
        most = if size < most { size } else { most.max(size) };
        // The change that reaches the limit is still written.
        assert!(size <= (1 << 20) + 8_192, "{size}");
    }
    assert!(folded >= 2);
    assert_eq!(load(&path).unwrap().objects(), cluster.objects());
}

#[test]
fn a_file_of_the_first_format_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.json");
    let mut cluster = cluster();
    ClusterFile::new(&path).save(&mut cluster).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let old = text.replace("\"format\":2,\"generation\":1", "\"format\":1");
    assert_ne!(old, text);
    fs::write(&path, old).unwrap();
    let mut back = load(&path).unwrap();
    assert_eq!(back.objects(), cluster.objects());
    ClusterFile::new(&path).save(&mut back).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
