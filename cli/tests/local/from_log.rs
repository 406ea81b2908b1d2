//! `trainyard scenario from-log`: what was recorded happens again, and what cannot is said.

use serde_json::Value;

use crate::place::{Place, job, output_of};
use crate::scenarios::scenario;

/// Scenarios of every sort of happening: ends, restarts, waits, lost nodes, evictions, edits, annotations, deletions, crashes,
/// refused calls, queues.
const RECORDED: [&str; 24] = [
    "aitrainingjob/backoff-has-a-ceiling",
    "aitrainingjob/crash-between-steps",
    "aitrainingjob/creation-restart-by-timer",
    "aitrainingjob/scale-in",
    "aitrainingjob/mark-of-higher-rank-wins",
    "aitrainingjob/gpu-fault-in-last-words",
    "aitrainingjob/node-comes-back",
    "aitrainingjob/node-lost-while-restarting",
    "aitrainingjob/pod-deleted-by-hand",
    "aitrainingjob/quota-refusal-then-more-replicas",
    "aitrainingjob/time-limit-ignores-clean-none",
    "aitrainingjob/job-deleted",
    "aitrainingjob/restart-failure-beside-a-final-failure",
    "aitrainingjob/time-limit-and-failure-together",
    "elasticjob/time-to-live",
    "elasticjob/on-failure-evicted",
    "elasticjob/scale-by-the-subresource",
    "elasticjob/service-deleted-by-hand",
    "torchjob/elastic-job-cleans-up",
    "torchjob/master-fails-before-workers",
    "torchjob/limit-of-container-restarts",
    "torchrunjob/workers-after-the-workspace",
    "torchrunjob/suspended-and-resumed",
    "trainingqueue/start-deadline-gives-the-share-back",
];

/// Runs a scenario of the repository, records its log, and writes its manifests to a file of their own.
fn record(place: &Place, name: &str) -> Value {
    let text = scenario(&format!("{name}.yaml"));
    place.write("recorded.yaml", &text);
    let (code, out, err) = output_of(&place.run(&["replay", "recorded.yaml", "-o", "json", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0), "{name}: {err}");
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let manifests: Vec<String> = file["manifests"].as_array().unwrap().iter().map(Value::to_string).collect();
    place.write("job.yaml", &manifests.join("\n---\n"));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn what_was_recorded_happens_again() {
    for name in RECORDED {
        let place = Place::new();
        let before = record(&place, name);
        let from_log = ["scenario", "from-log", "story.jsonl", "--manifest", "job.yaml", "-o", "again.yaml"];
        let (code, out, err) = output_of(&place.run(&from_log));
        assert_eq!((code, &*out, &*err), (Some(0), "", ""), "{name}:\n{}", place.read("again.yaml"));
        let (code, out, err) = output_of(&place.run(&["replay", "again.yaml", "-o", "json"]));
        assert_eq!(code, Some(0), "{name}: {out}{err}");
        let again: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(again["phases"], before["phases"], "{name}");
        let (code, out, _) = output_of(&place.run(&["test", "again.yaml"]));
        assert_eq!((code, out.starts_with("ok ")), (Some(0), true), "{name}: {out}");
    }
}

/// An edit that changes more than sizes, suspension or templates needs the later manifest.
#[test]
fn an_edit_is_found_in_another_manifest_or_said() {
    let place = Place::new();
    record(&place, "aitrainingjob/time-limit-lowered");
    let from_log = ["scenario", "from-log", "story.jsonl", "--manifest", "job.yaml"];
    let (code, out, err) = output_of(&place.run(&from_log));
    assert_eq!(code, Some(1), "{err}");
    for text in [&out, &err] {
        assert!(text.contains("the job was edited, and no known manifest is what it became"), "{text}");
        assert!(text.contains("oes not do what the log recorded: phases of default/j: wanted"), "{text}");
    }
    let mut job: Value = serde_json::from_str(&place.read("job.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&place.read("recorded.yaml")).unwrap();
    let steps = file["steps"].as_array().unwrap();
    let patch = steps.iter().find_map(|step| step.get("patch")).unwrap();
    for (member, value) in patch["spec"].as_object().unwrap() {
        job["spec"][member] = value.clone();
    }
    place.write("later.yaml", &job.to_string());
    let (code, out, err) = output_of(&place.run(&[&from_log[..], &["--manifest", "later.yaml"]].concat()));
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    assert!(out.contains("- patch: {job: j, spec: {timeLimit: "), "{out}");
}

/// What no step does is a comment and a warning, and a log without the beginning of a job is refused.
#[test]
fn what_cannot_happen_again_is_said() {
    let place = Place::new();
    let from_log = ["scenario", "from-log", "story.jsonl", "--manifest", "job.yaml"];
    record(&place, "aitrainingjob/name-taken");
    let (code, out, err) = output_of(&place.run(&from_log));
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("  # not in the scenario: the name of pod trainer-1 was taken by an object of another"),
        "{out}"
    );
    assert!(err.contains("records 5, 7: the name of pod trainer-1 was taken by an object of another owner"), "{err}");
    record(&place, "aitrainingjob/log-lost-while-running");
    let (code, out, err) = output_of(&place.run(&from_log));
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("story.jsonl: the log begins after j: what happened before"), "{err}");
    // Whether a failed call took effect is found by trying, and said.
    record(&place, "aitrainingjob/api-status-500-taken");
    let (code, out, err) = output_of(&place.run(&from_log));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("- fail: {applied: true, code: 500"), "{out}");
    assert!(err.contains("is not recorded; the scenario takes it that it did\n"), "{err}");
    // Settings by which manifests are translated are in no log.
    record(&place, "torchjob/gang-switched-off");
    let (code, _, err) = output_of(&place.run(&from_log));
    assert!(code == Some(2) && err.contains("no manifest of TorchJob j1 translates to what the log recorded"), "{err}");
    let (code, out, err) =
        output_of(&place.run(&[&from_log[..], &["--flag", "enable-gang-scheduling=false"]].concat()));
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
}

/// The job's object stands in a data directory: no manifest has to be named.
#[test]
fn a_run_of_this_machine_becomes_a_scenario() {
    let place = Place::new();
    place.write("job.yaml", &job("j", "exit 3"));
    assert_eq!(output_of(&place.run(&["run", "-q", "job.yaml"])).0, Some(1));
    let (code, text, err) = output_of(&place.run(&["scenario", "from-log", "trainyard-data"]));
    assert_eq!((code, &*err), (Some(0), ""), "{text}");
    for part in ["- exit: {code: 3", "phases: {default/j: [", "Failed]}", "final: {job: j, state: Failed}"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    place.write("again.yaml", &text);
    assert_eq!(output_of(&place.run(&["test", "again.yaml"])).0, Some(0));
    // The log alone holds no manifest.
    assert_eq!(output_of(&place.run(&["log", "export", "trainyard-data", "--to", "story.jsonl"])).0, Some(0));
    let (code, out, err) = output_of(&place.run(&["scenario", "from-log", "story.jsonl"]));
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("not the manifest: name its file with --manifest FILE"), "{err}");
    // Another manifest is no replacement.
    place.write("other.yaml", &job("j", "exit 4"));
    let (code, _, err) =
        output_of(&place.run(&["scenario", "from-log", "story.jsonl", "j", "--manifest", "other.yaml"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("no manifest of AITrainingJob j translates to what the log recorded"), "{err}");
    assert!(err.contains("exit 3") && err.contains("exit 4"), "{err}");
    let (code, _, err) = output_of(&place.run(&["scenario", "from-log", "story.jsonl", "k"]));
    assert!(code == Some(1) && err.contains("k: this log has no such job; there is j"), "{err}");
}
