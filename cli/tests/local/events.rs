//! Output of a run: progress on standard error, results on standard output, events for programs.

use serde_json::Value;

use crate::place::{Place, job, output_of};

#[test]
fn progress_and_results_have_streams_of_their_own() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo from the pod; sleep 0.5"));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "rank 0 | from the pod", "{out}");
    assert!(lines[1].starts_with("AITrainingJob default/j Succeed, 0 restarts, "), "{out}");
    assert_eq!(lines[2..], ["  logs: trainyard logs j"]);
    for reported in ["default/j  Pending: waiting for pods", "default/j  Running: every pod", "pod j-trainer-0 Running"]
    {
        assert_eq!(err.matches(reported).count(), 1, "{reported}: {err}");
    }
}

#[test]
fn a_quiet_run_prints_its_outcome_only() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "exit 3"));
    let (code, out, err) = output_of(&place.run(&["run", "--quiet", "job.yaml"]));
    assert_eq!((code, &*err), (Some(1), ""));
    assert!(out.contains("AITrainingJob default/j Failed"), "{out}");
}

#[test]
fn events_are_objects_one_a_line() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "echo loss 0.5; exit 3"));
    let (code, out, err) = output_of(&place.run(&["run", "--logs", "-o", "jsonl", "job.yaml"]));
    assert_eq!((code, &*err), (Some(1), ""));
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let phases: Vec<&str> =
        events.iter().filter(|event| event["event"] == "phase").map(|event| event["phase"].as_str().unwrap()).collect();
    assert_eq!(phases.first().zip(phases.last()), Some((&"Pending", &"Failed")), "{out}");
    assert!(
        events.iter().any(|e| e["event"] == "output" && e["pod"] == "j-trainer-0" && e["line"] == "loss 0.5"),
        "{out}"
    );
    let end = events.last().unwrap();
    assert_eq!((&end["event"], &end["job"], &end["phase"]), (&"end".into(), &"default/j".into(), &"Failed".into()));
    assert!(end["because"].as_str().unwrap().contains("exited with code 3") && end["milliseconds"].is_u64(), "{end}");
    assert!(place.read(end["log"].as_str().unwrap()).starts_with("loss"), "{end}");
    let at = events[0]["at"].as_str().unwrap();
    assert!(at.len() == "2026-01-31T12:00:00.000Z".len() && at.ends_with('Z'), "{at}");
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "sleep 300"));
    let (code, _, err) = output_of(&place.run(&["run", "--timeout", "1s", "job.yaml"]));
    assert_eq!(code, Some(124), "{err}");
    assert!(err.contains("the time limit has passed: stopping"), "{err}");
}
