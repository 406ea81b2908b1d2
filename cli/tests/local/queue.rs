//! `trainyard queue` on the log of a simulation: who runs, who waits, and why.

use serde_json::Value;

use crate::place::{Place, output_of};

fn job(name: &str, labels: &str, replicas: u32, gpus: u32) -> String {
    format!(
        "---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {{name: {name}, namespace: default, labels: {{{labels}}}}}
spec:
  replicaSpecs:
    trainer:
      replicas: {replicas}
      template: {{spec: {{containers: [{{name: aitj-main, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}
"
    )
}

/// A queue of 4 GPUs.
fn queue(name: &str) -> String {
    format!(
        "---
apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {{name: {name}}}
spec: {{quota: {{nvidia.com/gpu: {{nominal: 4}}}}}}
"
    )
}

/// A queue, two jobs that need all of it, one for the root queue that needs 8, and one for a queue that is not there.
fn manifests() -> String {
    let jobs = [
        job("first", "trainyard.dev/queue: research", 2, 2),
        job("second", "trainyard.dev/queue: research", 1, 4),
        job("large", "", 1, 8),
        job("lost", "trainyard.dev/queue: nowhere", 1, 1),
    ];
    format!("{}{}", queue("research"), jobs.concat())
}

fn place() -> Place {
    simulated(&manifests())
}

/// A place with the log of the first ten seconds.
fn simulated(manifests: &str) -> Place {
    let place = Place::new();
    place.write("jobs.yaml", manifests);
    let simulate = ["simulate", "jobs.yaml", "--nodes", "2", "--gpus", "8", "--limit", "10s", "--log", "story.jsonl"];
    let (code, _, err) = output_of(&place.run(&simulate));
    assert_eq!(code, Some(1), "no job has ended: {err}");
    place
}

#[test]
fn the_queues_of_a_log_are_listed_with_reasons() {
    let place = place();
    let (code, out, err) = output_of(&place.run(&["queue", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0), "{err}");
    insta::assert_snapshot!(out);
    let (code, out, _) = output_of(&place.run(&["explain", "second", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0));
    assert!(out.contains("place 1 of queue research: needs 4 GPUs; its queue has 0 of 4 left"), "{out}");
}

#[test]
fn one_queue_is_chosen_by_name() {
    let place = place();
    let (code, out, _) = output_of(&place.run(&["queue", "research", "--output", "json", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0));
    let queues: Value = serde_json::from_str(&out).unwrap();
    let queues = queues["queues"].as_array().unwrap();
    assert_eq!(queues.len(), 1);
    assert_eq!(queues[0]["running"][0]["job"], "default/first");
    assert_eq!(queues[0]["waiting"][0]["reason"], "Quota");
    assert_eq!(queues[0]["usage"]["nvidia.com/gpu"], 4);
    let (code, _, err) = output_of(&place.run(&["queue", "reserch", "--log", "story.jsonl"]));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("queue reserch: there is no such queue, and no job names it"), "{err}");
}

#[test]
fn a_start_is_expected_where_time_limits_say_when_places_come_back() {
    let limited =
        |name: &str, seconds: u32| job(name, "trainyard.dev/queue: timed", 1, 4) + &format!("  timeLimit: {seconds}\n");
    let jobs = [limited("t1", 600), limited("t2", 300), job("t3", "trainyard.dev/queue: timed", 1, 4)];
    let last = job("t4", "trainyard.dev/queue: timed", 1, 4);
    let open = [job("o1", "trainyard.dev/queue: open", 1, 4), job("o2", "trainyard.dev/queue: open", 1, 4)];
    let place = simulated(&[queue("timed"), queue("open"), jobs.concat(), open.concat(), last].concat());
    let (code, out, err) = output_of(&place.run(&["queue", "--output", "json", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0), "{err}");
    let queues: Value = serde_json::from_str(&out).unwrap();
    let waiting = |name: &str| {
        let queue = queues["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == name).unwrap();
        let jobs = queue["waiting"].as_array().unwrap().iter();
        let reported = jobs.map(|job| format!("{}: {} {}", job["job"], job["expectedStart"], job["startUnknown"]));
        reported.collect::<Vec<_>>()
    };
    insta::assert_debug_snapshot!(waiting("timed"));
    insta::assert_debug_snapshot!(waiting("open"));
    let (code, out, _) = output_of(&place.run(&["explain", "t2", "--log", "story.jsonl"]));
    assert_eq!(code, Some(0));
    assert!(out.contains("; expected start 2026-01-01T00:10:"), "{out}");
}

#[test]
fn a_run_ends_with_its_jobs_although_its_queue_goes_on() {
    let place = Place::new();
    let job = "---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: short, namespace: default}
spec:
  replicaSpecs:
    trainer:
      replicas: 1
      template: {spec: {containers: [{name: aitj-main, image: i, command: [\"true\"]}]}}
";
    place.write("jobs.yaml", &(queue("research") + job));
    let (code, out, err) = output_of(&place.run(&["run", "jobs.yaml", "--timeout", "60s"]));
    assert_eq!(code, Some(0), "{out}{err}");
}
