//! Files that commands write, and names they are given: exports, imports, faults, flags, expectations.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use crate::place::{Place, job, names, output_of};

/// A place with an export of a simulated job.
fn exported() -> Place {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    assert_eq!(output_of(&place.run(&["simulate", "--quiet", "--log", "good.jsonl", "job.yaml"])).0, Some(0));
    assert_eq!(output_of(&place.run(&["log", "import", "good.jsonl", "--to", "log"])).0, Some(0));
    place
}

#[test]
fn an_export_writes_through_what_is_no_regular_file() {
    let place = exported();
    let good = place.read("good.jsonl");
    let export = |to: &str| {
        let (code, _, err) = output_of(&place.run(&["log", "export", "log", "--to", to]));
        assert_eq!(code, Some(0), "{to}: {err}");
    };
    // A link stays one, whether its file is there or not.
    place.write("target", "old");
    symlink("target", place.path("link")).unwrap();
    symlink("absent", place.path("dangling")).unwrap();
    for (link, target) in [("link", "target"), ("dangling", "absent")] {
        export(link);
        assert!(fs::symlink_metadata(place.path(link)).unwrap().is_symlink());
        assert_eq!(place.read(target), good);
    }
    // A pipe has a reader.
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let reader = place.path("pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        fs::File::open(reader).unwrap().read_to_string(&mut text).map(|_| text)
    });
    export("pipe");
    assert_eq!(reader.join().unwrap().unwrap(), good);
    assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    export("/dev/null");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let (code, out, _) = output_of(&place.run(&["log", "export", "log", "--to", "/dev/stdout"]));
    assert_eq!((code, out), (Some(0), good.clone()));
    let (code, _, err) = output_of(&place.run(&["log", "export", "log", "--to", "/dev/full"]));
    assert_eq!(code, Some(2), "{err}");

    // A regular file keeps its permissions, and nothing else is touched.
    place.write("mine.jsonl", "old");
    place.write("mine.jsonl.new", "another file");
    fs::set_permissions(place.path("mine.jsonl"), fs::Permissions::from_mode(0o640)).unwrap();
    export("mine.jsonl");
    assert_eq!(fs::metadata(place.path("mine.jsonl")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!((place.read("mine.jsonl"), place.read("mine.jsonl.new")), (good, "another file".to_owned()));
    assert!(names(place.dir.path()).iter().all(|name| !name.starts_with('.')), "nothing is left");
}

#[test]
fn an_import_that_fails_leaves_nothing() {
    let place = exported();
    let good = place.read("good.jsonl");
    let lines: Vec<&str> = good.lines().collect();
    let bad = format!("{}\nnonsense\n", lines[..lines.len() - 1].join("\n"));
    place.write("bad.jsonl", &bad);
    fs::create_dir(place.path("empty")).unwrap();
    for to in ["new", "empty", "deep/new"] {
        let (code, _, err) = output_of(&place.run(&["log", "import", "bad.jsonl", "--to", to]));
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(&format!("bad.jsonl:{}:", lines.len())), "{err}");
        assert_ne!(output_of(&place.run(&["log", "verify", to])).0, Some(0), "{to}");
    }
    // The whole export is read before anything is made.
    assert!(!place.path("new").exists() && !place.path("deep").exists());
    assert!(names(&place.path("empty")).is_empty());
    for to in ["new", "empty"] {
        assert_eq!(output_of(&place.run(&["log", "import", "good.jsonl", "--to", to])).0, Some(0));
        assert_eq!(output_of(&place.run(&["log", "verify", to])).0, Some(0));
        let (code, _, err) = output_of(&place.run(&["log", "import", "good.jsonl", "--to", to]));
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("not empty"), "{err}");
    }
    assert!(names(place.dir.path()).iter().all(|name| !name.starts_with('.')), "nothing is left");
}

#[test]
fn names_that_do_not_exist_are_refused_with_those_that_do() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo run >> runs"));
    for command in ["run", "simulate"] {
        let node = if command == "run" { "local-1, local-2" } else { "n1, n2, n3" };
        for (option, value, says) in [
            ("--fault", "exit=j-trainer-1:1", "no pod j-trainer-1: did you mean j-trainer-0?; pods are j-trainer-0"),
            ("--fault", "image=k-trainer-0", "no pod k-trainer-0: did you mean j-trainer-0?"),
            ("--fault", "node=mars", &format!("no node mars; nodes are {node}")),
            ("--fault", "preempt=jj", "no job jj; jobs are j"),
            ("--flag", "restart-backof=1s", "--flag restart-backof: did you mean restart-backoff?"),
            ("--flag", "colour=red", "known are creating-restart-period"),
        ] {
            let (code, out, err) = output_of(&place.run(&[command, option, value, "job.yaml"]));
            assert_eq!((code, &*out), (Some(2), ""), "{command} {value}: {err}");
            assert!(err.contains(says), "{command} {value}: {err}");
        }
    }
    assert!(!place.path("runs").exists(), "nothing was started");
}

#[test]
fn a_fault_that_did_not_happen_is_listed() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "true"));
    for (command, fault) in
        [("simulate", "exit=j-trainer-0:1@2h"), ("run", "exit=j-trainer-0:1@2h"), ("run", "node=local-2@2h")]
    {
        let again: &[&str] = if command == "run" { &["--rerun"] } else { &[] };
        let (code, out, err) = output_of(&place.run(&[&[command, "--fault", fault, "job.yaml"], again].concat()));
        assert_eq!(code, Some(1), "{command}: {out}{err}");
        let shown = fault.split('@').next().unwrap();
        assert!(out.contains(&format!("fault {shown} did not happen")), "{command}: {out}");
    }
    let (code, out, _) = output_of(&place.run(&["simulate", "--fault", "exit=j-trainer-0:0@2s", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}");
}

#[test]
fn a_replayed_scenario_is_held_to_what_it_expects() {
    let place = Place::new();
    let manifest = serde_saphyr::from_str::<serde_json::Value>(&job("j", "true")).unwrap();
    let scenario = |expect: &str| {
        let text = format!("description: d\nmanifests: [{manifest}]\nsteps:\n  - apply:\n  - run: all\n{expect}");
        place.write("s.yaml", &text);
        let text = output_of(&place.run(&["replay", "s.yaml"]));
        let json = output_of(&place.run(&["replay", "s.yaml", "--output", "json"]));
        assert_eq!(text.0, json.0);
        (text.0, text.1, serde_json::from_str::<serde_json::Value>(&json.1).unwrap())
    };
    for expect in ["", "expect: {phases: [Pending, Running]}\n"] {
        let (code, text, json) = scenario(expect);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(json.get("differences"), None);
    }
    let (code, text, json) = scenario("expect: {phases: [Pending, Failed]}\n");
    assert_eq!(code, Some(1), "{text}");
    let words = "phases of default/j: wanted Pending, Failed, found Pending, Running";
    assert!(text.contains(&format!("not as expected: {words}")), "{text}");
    assert_eq!(json["differences"], serde_json::json!([words]));
    assert!(json["steps"].is_array());
}

#[test]
fn a_long_log_is_asked_from_the_state_that_is_cached_beside_it() {
    let place = Place::new();
    let jobs: Vec<String> =
        (0..600).map(|n| job(&format!("j{n}"), "true").replace("replicas: 1", "replicas: 4")).collect();
    place.write("jobs.yaml", &jobs.join("---\n"));
    assert_eq!(output_of(&place.run(&["simulate", "--quiet", "--log", "long.jsonl", "jobs.yaml"])).0, Some(0));
    assert_eq!(output_of(&place.run(&["log", "import", "long.jsonl", "--to", "log"])).0, Some(0));
    let records = place.read("long.jsonl").lines().count();
    assert!(records > 5000, "{records}");
    let ask = |words: &[&str]| {
        let (code, out, err) = output_of(&place.run(&[words, &["--log", "log"]].concat()));
        assert_eq!((code, &*err), (Some(0), ""), "{words:?}");
        out
    };
    let questions: [&[&str]; 5] =
        [&["ps"], &["ps", "-o", "json"], &["get", "j7"], &["get", "j7", "-o", "yaml"], &["wait", "j7"]];
    let from_state = questions.map(ask);
    let (short, history) = (ask(&["explain", "j7"]), ask(&["history", "j7"]));
    fs::remove_file(place.path("log/kept")).unwrap();
    assert_eq!(questions.map(ask), from_state);
    assert_eq!(ask(&["history", "j7"]), history);
    // What led there is shorter, and says so.
    let whole = ask(&["explain", "j7"]);
    let (head, rest) = short.split_once("what led there:").unwrap();
    assert!(whole.starts_with(head), "{short}{whole}");
    assert!(rest.contains("Creating -> Running: every pod is running"), "{short}");
    assert!(rest.contains("  each record: trainyard history j7 --log log\n"), "{short}");
    assert!(whole.contains("phase Running: every pod is running") && !whole.contains("each record:"), "{whole}");
}
