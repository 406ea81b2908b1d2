//! Habits of users of other programs: their verbs, `-f`, standard input, directories; and the default output of `run`.

use std::io::Write as _;
use std::process::Stdio;

use crate::place::{Place, job, output_of, until};

/// Runs a command with a text as its standard input.
fn with_input(place: &Place, words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = place.trainyard(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    output_of(&child.wait_with_output().unwrap())
}

#[test]
fn verbs_of_other_programs_lead_to_ours() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo hello"));
    for words in [&["apply", "-f", "job.yaml"][..], &["submit", "job.yaml", "--rerun"]] {
        let (code, out, err) = output_of(&place.run(words));
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        assert!(out.contains("AITrainingJob default/j Succeed"), "{words:?}: {out}");
    }
    for (theirs, ours) in [
        (&["list", "-o", "name"][..], &["ps", "-o", "name"][..]),
        (&["status", "-o", "name"], &["ps", "-o", "name"]),
        (&["describe", "j"], &["explain", "j"]),
        (&["events", "j"], &["history", "j"]),
        (&["cancel", "j"], &["stop", "j"]),
        (&["kill", "j"], &["stop", "j"]),
    ] {
        assert_eq!(output_of(&place.run(theirs)), output_of(&place.run(ours)), "{theirs:?}");
    }
    assert!(output_of(&place.run(&["list"])).1.contains("j "));
}

#[test]
fn manifests_come_from_standard_input_and_from_directories() {
    let place = Place::new();
    let (code, out, err) = with_input(&place, &["run", "-"], &job("piped", "true"));
    assert!(code == Some(0) && out.contains("AITrainingJob default/piped Succeed"), "{out}{err}");
    let (code, out, err) = with_input(&place, &["validate", "-"], "kind: AITrainingJob\n");
    assert!(code == Some(1) && out.contains("standard input:1"), "{code:?} {out}{err}");
    // In the background the run reads what was checked.
    let (code, out, err) = with_input(&place, &["run", "-d", "-"], &job("behind", "true"));
    assert_eq!((code, &*out), (Some(0), "behind\n"), "{err}");
    until("it has ended", || {
        let list = output_of(&place.run(&["ps"])).1;
        list.lines().any(|line| line.starts_with("behind") && line.contains("Succeed"))
    });
    std::fs::create_dir(place.path("jobs")).unwrap();
    place.write("jobs/b.yml", &job("b", "true"));
    place.write("jobs/a.yaml", &job("a", "true"));
    place.write("jobs/notes.txt", "no manifest");
    until("the run has ended", || output_of(&place.run(&["stop"])).2.contains("no run is active there"));
    let (code, out, err) = output_of(&place.run(&["run", "jobs"]));
    assert!(code == Some(0) && out.contains("default/a Succeed") && out.contains("default/b Succeed"), "{out}{err}");
    std::fs::create_dir(place.path("empty")).unwrap();
    let (code, _, err) = output_of(&place.run(&["run", "empty"]));
    assert!(code == Some(2) && err.contains("empty: no file in it ends in .yaml, .yml or .json"), "{err}");
}

#[test]
fn the_output_of_one_job_is_shown_by_rank() {
    let place = Place::new();
    let run = |words: &[&str]| {
        let (code, out, err) = output_of(&place.run(words));
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        out
    };
    let out = run(&["run", "-n", "2", "--name", "one", "--", "sh", "-c", "echo I am $RANK"]);
    assert!(out.contains("rank 0 | I am 0\n") && out.contains("rank 1 | I am 1\n"), "{out}");
    // What a job uses is no job.
    let claim = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {}\n";
    place.write("used.yaml", &format!("{}---\n{claim}", job("uses", "echo hello")));
    assert!(run(&["run", "used.yaml"]).contains("rank 0 | hello\n"));
    let out = run(&["run", "--no-logs", "--name", "two", "--", "echo", "hello"]);
    assert!(!out.contains("hello"), "{out}");
    let out = run(&["run", "-q", "--name", "three", "--", "echo", "hello"]);
    assert!(!out.contains("hello"), "{out}");
    // Of several jobs each line has its pod, and only where it is wanted.
    place.write("jobs.yaml", &format!("{}---\n{}", job("a", "echo hello"), job("b", "echo hello")));
    let out = run(&["run", "jobs.yaml"]);
    assert!(!out.contains("hello"), "{out}");
    let out = run(&["run", "--rerun", "--logs", "jobs.yaml"]);
    assert!(out.contains("a-trainer-0 | hello\n") && out.contains("b-trainer-0 | hello\n"), "{out}");
}

#[test]
fn a_manifest_with_gpus_says_what_the_run_lacks() {
    let place = Place::new();
    let text = job("j", "true");
    let container = text.find("command:").unwrap_or_else(|| panic!("{text}"));
    let (head, tail) = text.split_at(container);
    place.write("job.yaml", &format!("{head}resources: {{limits: {{nvidia.com/gpu: 2}}}}, {tail}"));
    let (code, _, err) = output_of(&place.run(&["run", "--timeout", "1s", "job.yaml"]));
    assert_eq!(code, Some(124), "{err}");
    assert!(err.contains("j asks for GPUs, and this run has none: its pods wait. --gpus N claims N"), "{err}");
}

#[test]
fn a_new_data_directory_is_left_out_of_repositories() {
    let place = Place::new();
    assert_eq!(output_of(&place.run(&["run", "-q", "--", "true"])).0, Some(0));
    assert_eq!(place.read("trainyard-data/.gitignore"), "*\n");
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let place = Place::new();
    let (code, out, _) = output_of(&place.run(&["man", "run"]));
    assert!(code == Some(0) && out.contains(".TH trainyard-run"), "{out}");
    let (code, _, err) = output_of(&place.run(&["man", "rum"]));
    assert!(code == Some(2) && err.contains("rum: no such command: did you mean run?"), "{err}");
}

#[test]
fn the_error_for_a_command_without_dashes_shows_where_they_go() {
    let place = Place::new();
    place.write("train.py", "print(1)");
    for (words, says) in [
        (&["run", "-n", "2", "python3", "train.py"][..], "trainyard run -- python3 train.py"),
        (&["run", "train.py"], "trainyard run -- train.py"),
        (&["run", "true"], "trainyard run -- true"),
    ] {
        let (code, _, err) = output_of(&place.run(words));
        assert_eq!(code, Some(2), "{words:?}");
        assert!(err.contains(&format!("to run a command, write -- before it: {says}")), "{words:?}: {err}");
    }
    let (_, _, err) = output_of(&place.run(&["run", "job.yml"]));
    assert!(err.contains("job.yml: No such file") && !err.contains("--"), "{err}");
}

#[test]
fn a_time_limit_of_nothing_is_refused() {
    let place = Place::new();
    for limit in ["0", "0s"] {
        let (code, _, err) = output_of(&place.run(&["run", "--timeout", limit, "--", "true"]));
        assert!(code == Some(2) && err.contains("a time limit must be longer than 0"), "{err}");
    }
    let (_, _, err) = output_of(&place.run(&["run", "--timeout", "1", "--", "true"]));
    assert!(err.contains("`1` is no duration: a number has no unit: ms, s, m or h"), "{err}");
}

#[test]
fn what_a_run_that_died_left_is_named() {
    let place = Place::new();
    let mut run = place.trainyard(&["run", "-q", "--data-dir", "a b", "--name", "old", "--", "sleep", "600"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ps = |words: &[&str]| output_of(&place.run(&[&words[..1], &["--data-dir", "a b"], &words[1..]].concat()));
    until("the job runs", || ps(&["ps"]).1.contains("Running"));
    assert!(!ps(&["ps"]).2.contains("no run is active"));
    run.kill().unwrap();
    run.wait().unwrap();
    for words in [&["ps"][..], &["get", "old"]] {
        let (_, out, err) = ps(words);
        assert!(
            out.contains("Running")
                && err.contains("no run is active: the next `trainyard run` continues unfinished jobs"),
            "{out}{err}"
        );
    }
    let (_, _, err) = ps(&["logs", "old", "-f"]);
    assert!(err.contains("no run is active"), "{err}");
    let (_, out, _) = ps(&["explain", "old"]);
    assert!(out.contains("it waits for:\n  no run is active"), "{out}");
    // The next run continues it, and prints that. Lines of output name their pods.
    let (_, out, err) = ps(&["run", "--timeout", "10s", "--name", "new", "--", "echo", "hi"]);
    assert!(
        err.contains(
            "old of an earlier run is unfinished and continues; to stop it: trainyard stop old --data-dir 'a b'"
        ),
        "{err}"
    );
    assert!(out.contains("new-worker-0 | hi"), "{out}");
    assert!(out.contains("logs: trainyard logs new --data-dir 'a b'"), "{out}");
}
