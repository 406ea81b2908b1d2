//! Jobs that are handed to the run that has a data directory open.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use crate::place::{Place, ended, job, output_of, signal, until};

/// Waits for a file that a test writes.
const WAITS: &str = "until test -e go; do sleep 0.05; done";

/// Returns true if a job runs.
fn runs(place: &Place, job: &str) -> bool {
    let list = output_of(&place.run(&["ps"])).1;
    list.lines().any(|line| line.starts_with(job) && line.contains("Running"))
}

/// A run of the job `first`, which ends once the file `go` is there.
fn first_run(place: &Place, words: &[&str]) -> Child {
    place.write("first.yaml", &job("first", &format!("echo from-first; {WAITS}")));
    let words = [&["run", "first.yaml"][..], words].concat();
    let out = File::create(place.path("first.out")).unwrap();
    let run = place.trainyard(&words).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
    until("the first job", || runs(place, "first"));
    run
}

#[test]
fn a_second_run_hands_its_jobs_over_and_follows_them() {
    let place = Place::new();
    let mut first = first_run(&place, &["--logs"]);
    // In a directory and with an environment of its own.
    fs::create_dir(place.path("sub")).unwrap();
    let script = "echo $WHOSE in $(basename $PWD) ${ONLY_FIRST-none}; exit $CODE";
    place.write("sub/second.yaml", &job("second", script));
    let second = |code: &str| {
        let mut command =
            place.trainyard(&["run", "second.yaml", "--data-dir", "../trainyard-data", "--rerun", "--logs"]);
        output_of(&command.current_dir(place.path("sub")).env("WHOSE", "mine").env("CODE", code).output().unwrap())
    };
    let (code, out, err) = second("0");
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("rank 0 | mine in sub none\nAITrainingJob default/second Succeed, 0 restarts"), "{out}");
    assert!(err.starts_with(&format!("the run of process {} runs second\n", first.id())), "{err}");
    assert!(err.contains("default/second  Succeed") && !err.contains("first"), "{err}");
    let (code, out, err) = second("3");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("because pod second-trainer-0, container main exited with code 3"), "{out}");
    assert!(err.contains("has ended (Succeed): run again, as a new attempt"), "{err}");
    assert_eq!(first.try_wait().unwrap(), None, "it continues");
    place.write("go", "");
    assert_eq!(ended(&mut first), Some(0), "the other's failure is not its own");
    let out = place.read("first.out");
    assert!(out.contains("rank 0 | from-first") && !out.contains("second-trainer"), "{out}");
    assert!(out.contains("as asked: second runs as well, for another process"), "{out}");
}

#[test]
fn a_run_goes_on_for_the_jobs_of_others() {
    let place = Place::new();
    let mut first = first_run(&place, &[]);
    let long = "until test -e proceed; do sleep 0.05; done";
    let (code, out, err) = output_of(&place.run(&["run", "-d", "--name", "second", "--", "sh", "-c", long]));
    assert_eq!((code, &*out), (Some(0), "second\n"), "{err}");
    assert!(err.contains("Follow it: trainyard attach"), "{err}");
    place.write("go", "");
    let words = "the jobs of this run have ended; the run continues for 1 job that other processes submitted";
    until("the hint", || place.read("first.out").contains(words));
    place.write("proceed", "");
    assert_eq!(ended(&mut first), Some(0));
    let out = place.read("first.out");
    assert!(out.contains("AITrainingJob default/first Succeed") && !out.contains("default/second Succeed"), "{out}");
}

#[test]
fn names_from_a_command_line_get_numbers() {
    let place = Place::new();
    let mut first = first_run(&place, &[]);
    let command = |name| ["run", "-d", "--name", name, "--", "sh", "-c", WAITS];
    let names: Vec<String> =
        ["first", "x", "x", "x"].map(|name| output_of(&place.run(&command(name))).1).into_iter().collect();
    assert_eq!(names, ["first\n", "x\n", "x-2\n", "x-3\n"], "a job of another kind does not take the name");
    // A file says which job it means.
    place.write("first.yaml", &job("first", &format!("echo changed; {WAITS}")));
    let (code, out, err) = output_of(&place.run(&["run", "-d", "first.yaml"]));
    assert_eq!((code, &*out), (Some(0), "first\n"));
    assert!(err.contains("AITrainingJob first is Running: the manifest is applied to it"), "{err}");
    place.write("go", "");
    assert_eq!(ended(&mut first), Some(0));
}

#[test]
fn ctrl_c_and_time_limits_end_the_own_jobs_only() {
    let place = Place::new();
    let mut first = first_run(&place, &[]);
    place.write("second.yaml", &job("second", "sleep 300"));
    let out = File::create(place.path("second.out")).unwrap();
    let mut second = place.trainyard(&["run", "second.yaml"]).stdout(out).stderr(Stdio::null()).spawn().unwrap();
    until("the second job", || runs(&place, "second"));
    signal(&second, "INT");
    assert_eq!(ended(&mut second), Some(130));
    let out = place.read("second.out");
    assert!(
        out.contains("AITrainingJob default/second Failed") && out.contains("because stopped by its user"),
        "{out}"
    );
    let (code, out, err) = output_of(&place.run(&["run", "second.yaml", "--timeout", "1s"]));
    assert_eq!(code, Some(124), "{out}{err}");
    assert!(err.contains("the time limit has passed: stopping the jobs"), "{err}");
    assert_eq!(first.try_wait().unwrap(), None);
    place.write("go", "");
    assert_eq!(ended(&mut first), Some(0));
    assert!(!place.read("first.out").contains("second Failed"), "{}", place.read("first.out"));
}

#[test]
fn what_only_a_run_of_its_own_can_have_is_refused_by_name() {
    let place = Place::new();
    let mut first = first_run(&place, &[]);
    for option in [&["--again"][..], &["--nodes=3"], &["--watch"], &["--fault=node=local-1"], &["--restart-limit=9"]] {
        let (code, _, err) = output_of(&place.run(&[&["run", "first.yaml"][..], option].concat()));
        assert_eq!(code, Some(2), "{err}");
        let name = option[0].split('=').next().unwrap();
        let want = format!("trainyard: {name}: the run of process {} (", first.id());
        assert!(err.starts_with(&want) && err.contains("end it with `trainyard stop`"), "{err}");
    }
    place.write("bad.yaml", &job("j", "true").replace("replicas: 1", "replicas: some"));
    let (code, _, err) = output_of(&place.run(&["run", "bad.yaml"]));
    assert!(code == Some(2) && err.contains("1 error in the manifests"), "{err}");
    place.write("go", "");
    assert_eq!(ended(&mut first), Some(0));
}

#[test]
fn gpus_for_another_job_are_claimed_as_it_comes() {
    let place = Place::new();
    let names = ["a", "b"].map(|name| format!("submit-{}-{name}", std::process::id()));
    place.write("first.yaml", &job("first", WAITS));
    let mut first = place.trainyard(&["run", "-q", "first.yaml"]);
    let mut first = first.env("CUDA_VISIBLE_DEVICES", names.join(",")).stdout(Stdio::null()).spawn().unwrap();
    until("the first job", || runs(&place, "first"));
    let show = |workers: &str| {
        let words = [
            "run",
            "-q",
            "-n",
            workers,
            "--gpus-per-worker",
            "1",
            "--",
            "sh",
            "-c",
            "echo $CUDA_VISIBLE_DEVICES >> gpus",
        ];
        output_of(&place.run(&words))
    };
    let (code, _, err) = show("2");
    assert_eq!(code, Some(0), "{err}");
    let mut seen: Vec<String> = place.read("gpus").lines().map(str::to_owned).collect();
    seen.sort();
    assert_eq!(seen, names);
    let (code, _, err) = show("3");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("--gpus 3: CUDA_VISIBLE_DEVICES=") && err.contains("allows 2"), "{err}");
    place.write("go", "");
    assert_eq!(ended(&mut first), Some(0));
}

#[test]
fn ten_at_once_share_one_run() {
    let place = Place::new();
    let start = |name: &str| {
        let words =
            ["run", "-q", "-n", "2", "--name", name, "--", "sh", "-c", "echo $MASTER_PORT > $HOSTNAME; sleep 1"];
        let out = File::create(place.path(&format!("{name}.out"))).unwrap();
        place.trainyard(&words).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap()
    };
    let names: Vec<String> = (0..10).map(|number| format!("job{number}")).collect();
    let mut runs: Vec<Child> = names.iter().map(|name| start(name)).collect();
    for (run, name) in runs.iter_mut().zip(&names) {
        assert_eq!(ended(run), Some(0), "{name}: {}", place.read(&format!("{name}.out")));
        let out = place.read(&format!("{name}.out"));
        assert!(out.contains(&format!("ElasticJob default/{name} Succeeded")), "{name}: {out}");
    }
    let port = |name: &String| place.read(&format!("{name}-worker-0"));
    let mut ports: Vec<String> = names.iter().map(port).collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 10, "{ports:?}");
}
