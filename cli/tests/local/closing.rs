//! The last lines of a run that failed, with real pods: what failed, its output, its log, what to do.

use crate::place::{Place, job, output_of};

/// Runs a job of one script to its end; what was printed as its result.
fn closing(place: &Place, manifest: &str) -> Vec<String> {
    closing_with(place, manifest, &[])
}

fn closing_with(place: &Place, manifest: &str, options: &[&str]) -> Vec<String> {
    place.write("job.yaml", manifest);
    let (code, out, err) = output_of(&place.run(&[&["run", "--no-logs", "job.yaml"], options].concat()));
    assert_eq!(code, Some(1), "{out}{err}");
    out.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_failed_run_ends_with_what_failed() {
    let place = Place::new();
    let script = "for n in 1 2 3 4 5 6 7; do echo line $n; done; echo 'ModuleNotFoundError: torch' >&2; exit 3";
    let lines = closing(&place, &job("j", script));
    assert_eq!(lines[0], "last output of j-trainer-0:");
    assert_eq!(lines[1..6], ["| line 4", "| line 5", "| line 6", "| line 7", "| ModuleNotFoundError: torch"]);
    assert!(lines[6].starts_with("AITrainingJob default/j Failed, 0 restarts, "), "{lines:#?}");
    assert!(
        lines[7].starts_with("because pod j-trainer-0, container main exited with code 3 (Error) at "),
        "{lines:#?}"
    );
    let log = lines[8].strip_prefix("log: ").unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(place.read(log).starts_with("line 1\n"), "{log}");
    assert_eq!(lines[9..], ["why: trainyard explain j", "again: trainyard rerun j"]);
}

#[test]
fn tries_that_ended_alike_are_said_to() {
    let place = Place::new();
    let limit = "restartPolicy: OnFailure\n      restartLimit: 1";
    let lines = closing(&place, &job("j", "echo port $$$$; kill -KILL $$$$").replace("restartPolicy: Never", limit));
    let because = lines.iter().find(|line| line.starts_with("because ")).unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(because.contains("main was killed by signal 9 (SIGKILL, code 137) at "), "{lines:#?}");
    assert!(because.ends_with("; all 2 tries ended with the same error"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("main-2.log")), "the log of the last try: {lines:#?}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let place = Place::new();
    let lines = closing(&place, &job("j", "").replace("\"sh\"", "\"slepe\""));
    assert!(lines.iter().any(|line| line.contains("main could not be started (StartError)")), "{lines:#?}");
    assert!(
        lines[1].contains("cannot start slepe: No such file or directory") && lines[1].contains("did you mean sleep?"),
        "{lines:#?}"
    );
    let (_, out, _) = output_of(&place.run(&["explain", "j"]));
    assert!(out.contains("cannot start slepe"), "{out}");
    let (_, out, _) = output_of(&place.run(&["history", "j"]));
    assert!(out.contains("cannot start slepe"), "{out}");
}

#[test]
fn a_container_that_cannot_be_made_is_reported_at_once() {
    let place = Place::new();
    let from = "envFrom: [{configMapRef: {name: settings}}], image: none";
    place.write("job.yaml", &job("j", "true").replace("image: none", from));
    let mut child = place
        .trainyard(&["run", "job.yaml"])
        .stderr(std::fs::File::create(place.path("out")).unwrap())
        .spawn()
        .unwrap();
    crate::place::until("it is said", || place.read("out").contains("Ctrl-C, change the manifest"));
    crate::place::signal(&child, "INT");
    assert_eq!(crate::place::ended(&mut child), Some(130));
    let out = place.read("out");
    assert!(out.contains("main waits: CreateContainerConfigError configmap \"settings\" not found"), "{out}");
    assert_eq!(out.matches("the pod cannot start with this spec").count(), 1, "{out}");
}

#[test]
fn the_worker_that_failed_first_is_blamed() {
    let place = Place::new();
    // Worker 0 says at once that its peer is gone, and worker 1 needs some time to end of its own error.
    let script =
        "case $HOSTNAME in *-0) echo 'Connection closed by peer'; exit 1;; esac; sleep 0.2; echo KeyError; exit 3";
    // A machine with much else to do takes longer than the 500 ms of a run.
    let manifest = job("j", script).replace("replicas: 1", "replicas: 2");
    let lines = closing_with(&place, &manifest, &["--flag", "failure-window=20s"]);
    assert_eq!(lines[..2], ["last output of j-trainer-1:", "| KeyError"]);
    assert!(lines[3].starts_with("because pod j-trainer-1, container main exited with code 3"), "{lines:#?}");
}

#[test]
fn a_job_without_a_limit_gets_one_that_is_said() {
    let place = Place::new();
    let manifest = job("j", "exit 1").replace("restartPolicy: Never", "restartPolicy: OnFailure");
    place.write("job.yaml", &manifest);
    let limit = "--restart-limit=1";
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml", limit]));
    assert_eq!(code, Some(1), "{out}");
    assert_eq!(err.matches("trainer without a limit of restarts: at most 1 here").count(), 1, "{err}");
    assert!(err.contains("restart limit 1 of trainer already used"), "{err}");
    assert_eq!(output_of(&place.run(&["run", "job.yaml", "--restart-limit=few"])).0, Some(2));
}
