//! The data directory of a run: which directories are taken, what `--again` removes, and who holds it.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::place::{Place, ended, job, names, output_of, signal, until};

#[test]
fn a_directory_of_other_files_is_left_alone() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    place.write("home/claims/thesis", "x");
    place.write("home/logs/diary", "x");
    place.write("home/pods/whales", "x");
    for words in [&["run", "--again", "--claims"][..], &["run", "--again"], &["run"]] {
        let output = place.run(&[words, &["job.yaml", "--data-dir", "home"]].concat());
        let (code, out, err) = output_of(&output);
        assert_eq!((code, &*out), (Some(2), ""), "{err}");
        assert!(err.contains("home: not a data directory of trainyard"), "{err}");
        assert_eq!(names(&place.path("home")), ["claims", "logs", "pods"]);
        for file in ["home/claims/thesis", "home/logs/diary", "home/pods/whales"] {
            assert_eq!(place.read(file), "x");
        }
    }
}

#[test]
fn again_keeps_volume_claims_unless_asked() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo run >> runs"));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    let marker: Value = serde_json::from_str(&place.read("trainyard-data/trainyard.json")).unwrap();
    assert_eq!(marker["id"].as_str().map(str::len), Some(32));
    assert_eq!((&marker["format"], &marker["version"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()));
    place.write("trainyard-data/claims/default/c/checkpoint", "step 100");
    place.write("trainyard-data/notes.txt", "mine");

    let (code, _, err) = output_of(&place.run(&["run", "--again", "job.yaml"]));
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(place.read("runs"), "run\nrun\n");
    assert_eq!(place.read("trainyard-data/claims/default/c/checkpoint"), "step 100");
    let after: Value = serde_json::from_str(&place.read("trainyard-data/trainyard.json")).unwrap();
    assert_eq!(marker, after, "it is the same directory");

    assert_eq!(output_of(&place.run(&["run", "--claims", "job.yaml"])).0, Some(2), "--claims goes with --again only");
    assert_eq!(output_of(&place.run(&["run", "--again", "--claims", "job.yaml"])).0, Some(0));
    assert!(!place.path("trainyard-data/claims").exists());
    assert_eq!(place.read("trainyard-data/notes.txt"), "mine");

    // An `--again` that was interrupted is finished by the next run.
    place.write("trainyard-data/claims/default/c/checkpoint", "step 100");
    let mut half = marker;
    half["clearing"] = serde_json::json!(["log", "cluster.json", "claims", "../job.yaml", "notes.txt"]);
    place.write("trainyard-data/trainyard.json", &half.to_string());
    let (code, _, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(place.read("runs"), "run\n".repeat(4));
    assert!(!place.path("trainyard-data/claims").exists());
    assert!(place.path("job.yaml").exists() && place.path("trainyard-data/notes.txt").exists());
}

#[test]
fn a_live_run_is_refused_by_name_and_loses_nothing() {
    let place = Place::new();
    place.write("long.yaml", &job("long", "sleep 300"));
    place.write("job.yaml", &job("j", "true"));
    let mut live = place.trainyard(&["run", "long.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the pod's log", || place.path("trainyard-data/logs/default").exists());
    place.write("trainyard-data/claims/default/c/checkpoint", "step 100");
    let (code, _, err) = output_of(&place.run(&["run", "--again", "--claims", "job.yaml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains(&format!("--again: the run of process {} (", live.id())), "{err}");
    assert!(err.contains("run long.yaml)"), "{err}");
    assert_eq!(place.read("trainyard-data/claims/default/c/checkpoint"), "step 100");
    let there = names(&place.path("trainyard-data"));
    for name in ["cluster.json", "log", "logs"] {
        assert!(there.iter().any(|n| n == name), "{there:?}");
    }
    signal(&live, "INT");
    assert_eq!(ended(&mut live), Some(130));
    // The lock went with its process.
    assert_eq!(output_of(&place.run(&["run", "--again", "job.yaml"])).0, Some(0));
}

#[test]
fn a_directory_of_an_older_build_is_identified_by_its_log() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    let unmarked = || {
        assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
        fs::remove_file(place.path("trainyard-data/trainyard.json")).unwrap();
        fs::remove_file(place.path("trainyard-data/trainyard.lock")).unwrap();
    };
    unmarked();
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    assert!(place.path("trainyard-data/trainyard.json").exists(), "it is marked from now on");
    unmarked();
    assert_eq!(output_of(&place.run(&["run", "--again", "job.yaml"])).0, Some(0));
    unmarked();
    fs::write(place.path("trainyard-data/log/HEAD"), "nonsense").unwrap();
    let before = names(&place.path("trainyard-data"));
    let (code, _, err) = output_of(&place.run(&["run", "--again", "job.yaml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("its log"), "{err}");
    assert_eq!(names(&place.path("trainyard-data")), before);
}

#[test]
fn a_killed_run_goes_on_from_its_journal() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo run >> runs; test -e go || sleep 300"));
    let mut live = place.trainyard(&["run", "job.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the pod", || place.path("runs").exists());
    assert!(place.path("trainyard-data/cluster.journal").exists());
    signal(&live, "KILL");
    assert_eq!(ended(&mut live), None);
    place.write("go", "");
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(place.read("runs"), "run\nrun\n");
}

#[test]
fn a_simulation_has_a_limited_number_of_nodes() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    let (code, _, err) = output_of(&place.run(&["simulate", "--nodes", "4294967295", "job.yaml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("4294967295 is not in 0..=10000"), "{err}");
}
