//! Commands that change jobs: of a run that continues, and of a data directory that no run has open.

use std::process::{Child, Stdio};

use crate::place::{Place, ended, job, output_of, until};

/// Two jobs that end once a file is there, and their run.
fn two_jobs(place: &Place) -> Child {
    let script = "touch $HOSTNAME; until test -e go; do sleep 0.05; done";
    place.write("jobs.yaml", &format!("{}---\n{}", job("one", script), job("two", script)));
    let out = std::fs::File::create(place.path("out")).unwrap();
    let run = place.trainyard(&["run", "-q", "jobs.yaml"]).stdout(out).spawn().unwrap();
    until("both pods", || place.path("one-trainer-0").exists() && place.path("two-trainer-0").exists());
    run
}

fn says(place: &Place, words: &[&str], code: i32) -> String {
    let (got, out, err) = output_of(&place.run(words));
    assert_eq!(got, Some(code), "{words:?}: {out}{err}");
    if code == 0 { out } else { err }
}

#[test]
fn jobs_of_a_run_that_goes_on_are_changed() {
    let place = Place::new();
    let mut run = two_jobs(&place);
    assert_eq!(says(&place, &["scale", "one", "3"], 0), "AITrainingJob one: trainer 1 -> 3\n");
    until("three pods", || place.path("one-trainer-2").exists());
    assert_eq!(says(&place, &["scale", "one", "trainer=1"], 0), "AITrainingJob one: trainer 3 -> 1\n");
    for (words, want) in [
        (&["scale", "one", "trainr=2"][..], "one: no group trainr: did you mean trainer?; there are trainer\n"),
        (&["suspend", "one"], "one: AITrainingJob has no suspend. Nothing was changed\n"),
        (&["rerun", "two"], "two is Running: stop it first, or wait for its end\n"),
    ] {
        assert_eq!(says(&place, words, 1), format!("trainyard: {want}"), "{words:?}");
    }
    assert!(says(&place, &["scale", "one", "many"], 2).contains("many: a number of pods, or GROUP=N"));
    assert!(says(&place, &["scale", "3"], 2).contains("which job? There are one, two"));
    assert_eq!(says(&place, &["stop", "two"], 0), "AITrainingJob two is stopped\n");
    let list = says(&place, &["ps", "-a"], 0);
    assert!(list.contains("stopped by its user") && list.contains("Failed"), "{list}");
    assert!(says(&place, &["explain", "two"], 0).contains("stopped by its user"));
    assert!(says(&place, &["stop", "two"], 1).contains("two has ended (Failed): `trainyard delete` deletes it"));
    assert_eq!(says(&place, &["rerun", "two"], 0), "AITrainingJob two runs again\n");
    assert_eq!(says(&place, &["delete", "two"], 0), "AITrainingJob two is deleted\n");
    until("it is gone", || output_of(&place.run(&["ps", "-o", "name"])).1 == "one\n");
    place.write("go", "");
    assert_eq!(ended(&mut run), Some(1), "one of its jobs did not succeed");
    let out = place.read("out");
    assert!(
        out.starts_with("AITrainingJob default/two deleted before its end\n  logs: ./trainyard-data/logs; "),
        "{out}"
    );
    assert!(out.contains("\nAITrainingJob default/one Succeed, "), "the other one continued: {out}");
}

#[test]
fn an_ended_job_runs_again_in_a_run_that_goes_on() {
    let place = Place::new();
    let fails = job("fails", "echo run >> runs; test -e mended");
    let waits = job("waits", "until test -e go; do sleep 0.05; done");
    place.write("jobs.yaml", &format!("{fails}---\n{waits}"));
    let mut run = place.trainyard(&["run", "-q", "jobs.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the log", || output_of(&place.run(&["ps"])).1.contains("fails"));
    assert_eq!(says(&place, &["wait", "fails"], 0), "fails Failed\n");
    place.write("mended", "");
    assert_eq!(says(&place, &["retry", "fails"], 0), "AITrainingJob fails runs again\n");
    until("its success", || output_of(&place.run(&["wait", "fails", "--for=succeeded", "--timeout=1s"])).0 == Some(0));
    assert!(says(&place, &["retry", "fails"], 1).contains("fails succeeded: `trainyard rerun` runs it all the same"));
    assert_eq!(place.read("runs"), "run\nrun\n");
    place.write("go", "");
    assert_eq!(ended(&mut run), Some(0), "its second attempt counts");
}

#[test]
fn a_whole_run_is_stopped() {
    let place = Place::new();
    assert!(says(&place, &["stop"], 1).contains("trainyard-data: no run is active there"));
    let mut run = two_jobs(&place);
    let out = says(&place, &["stop"], 0);
    assert_eq!(out, format!("the run of process {} has ended\n", run.id()));
    assert_eq!(ended(&mut run), Some(143));
    assert_eq!(place.read("out").matches("  because stopped by its user\n").count(), 2, "{}", place.read("out"));
    // What was stopped runs again with its manifest.
    place.write("go", "");
    let (code, _, err) = output_of(&place.run(&["run", "jobs.yaml"]));
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("AITrainingJob default/one was stopped (Failed): run again, as a new attempt"), "{err}");
    let left = crate::place::names(&place.path("trainyard-data/requests"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_suspended_elastic_job_waits_without_pods() {
    let place = Place::new();
    let script = "echo up >> $HOSTNAME; until test -e go; do sleep 0.05; done";
    let words = ["run", "-q", "-n", "2", "--name", "fit", "--", "sh", "-c", script];
    let mut run = place.trainyard(&words).stdout(Stdio::null()).spawn().unwrap();
    until("the pods", || place.path("fit-worker-1").exists());
    assert_eq!(says(&place, &["suspend"], 0), "ElasticJob fit is suspended\n");
    says(&place, &["wait", "--for=phase=suspended"], 0);
    assert!(says(&place, &["suspend"], 1).contains("ElasticJob fit is suspended already"));
    assert_eq!(says(&place, &["resume"], 0), "ElasticJob fit is resumed\n");
    until("they are back", || place.read("fit-worker-1") == "up\nup\n");
    place.write("go", "");
    assert_eq!(ended(&mut run), Some(0));
}

#[test]
fn without_a_run_changes_wait_for_the_next_one() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo run >> runs; exit 3"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(1));
    let out = says(&place, &["scale", "j", "2"], 0);
    assert_eq!(out, "AITrainingJob j: trainer 1 -> 2; no run is active: the next one applies it\n");
    let (code, out, err) = output_of(&place.run(&["retry"]));
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("AITrainingJob default/j has ended (Failed): run again, as a new attempt"), "{err}");
    assert_eq!(place.read("runs"), "run\nrun\n", "as its file said");
    assert_eq!(says(&place, &["delete"], 0), "AITrainingJob j is deleted\n");
    assert_eq!(output_of(&place.run(&["ps"])), (Some(0), String::new(), "no jobs\n".to_owned()));
    assert!(says(&place, &["rerun", "j"], 1).contains("j: this log has no job"));
}
