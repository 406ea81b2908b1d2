//! Commands that look at jobs: `ps`, `get`, `wait`, `version`, and what a name on the command line means.

use std::process::Stdio;

use serde_json::Value;

use crate::place::{Place, ended, job, output_of, signal, until};

/// Lines of a table as lists of words, without its header.
fn table(out: &str) -> Vec<Vec<&str>> {
    out.lines().skip(1).map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

/// A directory in which one job has succeeded and one has failed.
fn two_jobs() -> Place {
    let place = Place::new();
    let fails = job("fails", "exit 3").replace("replicas: 1", "replicas: 2\n      restartLimit: 2");
    place.write("jobs.yaml", &format!("{}---\n{fails}", job("works", "true")));
    let (code, out, err) = output_of(&place.run(&["run", "--quiet", "jobs.yaml"]));
    assert_eq!(code, Some(1), "{out}{err}");
    place
}

#[test]
fn jobs_are_listed_with_phase_pods_restarts_and_reason() {
    let place = two_jobs();
    let (code, out, err) = output_of(&place.run(&["ps"]));
    assert_eq!((code, &*err), (Some(0), ""));
    assert_eq!(out.lines().next(), Some("JOB     PHASE     READY   RESTARTS   GPUS   AGE   REASON"), "{out}");
    let rows = table(&out);
    assert_eq!(rows[0][..5], ["fails", "Failed", "0/2", "0/2", "0"], "{out}");
    assert!(rows[0][6].contains("exited with code 3"), "{out}");
    assert_eq!((&rows[1][..5], rows[1].len()), (&["works", "Succeed", "0/1", "0/0", "0"][..], 6), "{out}");
    assert_eq!(output_of(&place.run(&["ps", "-o", "name"])).1, "fails\nworks\n");
    assert_eq!(output_of(&place.run(&["ps", "wo", "-o", "name"])).1, "works\n");
    assert_eq!(output_of(&place.run(&["ps", "--live"])), (Some(0), String::new(), "no jobs\n".to_owned()));
    let wide = output_of(&place.run(&["ps", "-o", "wide"])).1;
    assert!(wide.lines().nth(2).is_some_and(|line| line.contains("AITrainingJob   Succeed")), "{wide}");
    let list: Value = serde_json::from_str(&output_of(&place.run(&["ps", "-o", "json"])).1).unwrap();
    assert_eq!((&list["jobs"][0]["phase"], &list["jobs"][0]["replicas"]), (&"Failed".into(), &2.into()), "{list}");
    let yaml: Value = serde_saphyr::from_str(&output_of(&place.run(&["ps", "-o", "yaml"])).1).unwrap();
    assert_eq!(yaml, list, "the same in YAML");
    // The same of an export, without the directory.
    output_of(&place.run(&["log", "export", "--to", "story.jsonl"]));
    let of_log = output_of(&place.run(&["ps", "--log", "story.jsonl", "--data-dir", "none"])).1;
    assert_eq!(table(&of_log)[0][..5], rows[0][..5]);
}

#[test]
fn one_job_is_shown_with_its_pods_or_as_its_object() {
    let place = two_jobs();
    let (_, out, _) = output_of(&place.run(&["get", "fails"]));
    let pods: Vec<&str> = out.lines().skip_while(|line| !line.starts_with("RANK")).collect();
    assert!(pods[1].starts_with("0      fails-trainer-0   ") && pods.len() == 3, "{out}");
    let object: Value = serde_json::from_str(&output_of(&place.run(&["get", "fails", "-o", "json"])).1).unwrap();
    assert_eq!(object["spec"]["replicaSpecs"]["trainer"]["replicas"], 2, "{object}");
    assert_eq!((&object["kind"], &object["status"]["phase"]), (&"AITrainingJob".into(), &"Failed".into()), "{object}");
    let yaml: Value = serde_saphyr::from_str(&output_of(&place.run(&["get", "fails", "-o", "yaml"])).1).unwrap();
    assert_eq!(yaml, object);
    assert_eq!(output_of(&place.run(&["get", "default/works", "-o", "name"])).1, "works\n");
}

#[test]
fn a_name_is_needed_where_there_are_several_jobs_and_a_wrong_one_is_corrected() {
    let place = two_jobs();
    for command in ["get", "explain", "history", "logs", "wait"] {
        let (code, _, err) = output_of(&place.run(&[command]));
        assert_eq!(code, Some(2), "{command}: {err}");
        assert_eq!(err, "trainyard: which job? There are fails, works\n", "{command}");
        let (code, _, err) = output_of(&place.run(&[command, "work"]));
        assert_eq!(code, Some(1), "{command}: {err}");
        assert_eq!(
            err, "trainyard: work: this log has no such job: did you mean works? There are fails, works\n",
            "{command}"
        );
    }
    let one = Place::new();
    one.write("job.yaml", &job("j", "true"));
    for command in ["ps", "get", "explain", "history", "logs", "wait", "queue"] {
        let (code, _, err) = output_of(&one.run(&[command]));
        assert_eq!(code, Some(2), "{command}: {err}");
        assert!(err.contains("trainyard-data/log: there is no log. `trainyard run` makes one"), "{command}: {err}");
    }
    assert_eq!(output_of(&one.run(&["run", "job.yaml"])).0, Some(0));
    for command in ["get", "explain", "history", "wait"] {
        let (code, out, err) = output_of(&one.run(&[command]));
        assert_eq!((code, &*err), (Some(0), ""), "{command}: {out}");
    }
}

#[test]
fn a_job_is_waited_for_beside_its_run() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "until test -e go; do sleep 0.05; done; exit 3"));
    let mut run = place.trainyard(&["run", "-q", "job.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the log", || output_of(&place.run(&["ps"])).0 == Some(0));
    let (code, out, err) = output_of(&place.run(&["wait", "j", "--for=running", "--timeout=60s"]));
    assert_eq!((code, &*out), (Some(0), "j Running\n"), "{err}");
    let (code, _, err) = output_of(&place.run(&["wait", "j", "--timeout=500ms"]));
    assert_eq!(code, Some(124), "{err}");
    assert!(err.contains("j did not get there in time; where it is: trainyard ps"), "{err}");
    let row = output_of(&place.run(&["ps"])).1;
    assert_eq!(table(&row)[0][..4], ["j", "Running", "1/1", "0/0"], "{row}");
    place.write("go", "");
    let (code, _, err) = output_of(&place.run(&["wait", "--for=succeeded"]));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("j has ended: Failed; why: trainyard explain j"), "{err}");
    assert_eq!(output_of(&place.run(&["wait", "--for=phase=failed"])).0, Some(0));
    assert_eq!(ended(&mut run), Some(1));
    let (code, _, err) = output_of(&place.run(&["wait", "--for=soon"]));
    assert!(code == Some(2) && err.contains("wait for ended, running, succeeded"), "{err}");
}

#[test]
fn what_no_run_goes_on_with_is_not_waited_for() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "touch up; sleep 300"));
    let mut run = place.trainyard(&["run", "-q", "job.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    until("the pod", || place.path("up").exists());
    output_of(&place.run(&["wait", "--for=running"]));
    signal(&run, "KILL");
    ended(&mut run);
    let (code, _, err) = output_of(&place.run(&["wait"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("j is Running, and no run is active"), "{err}");
}

#[test]
fn the_build_says_what_it_is() {
    let place = Place::new();
    let (code, out, _) = output_of(&place.run(&["version"]));
    assert_eq!(code, Some(0));
    assert!(out.starts_with(concat!("trainyard ", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(out.contains("\nserves AITrainingJob (elasticdeeplearning.ai/v1)\n"), "{out}");
    let value: Value = serde_json::from_str(&output_of(&place.run(&["version", "-o", "json"])).1).unwrap();
    assert!(
        value["kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == "ElasticJob")),
        "{value}"
    );
}
