//! `trainyard queue` on the log of a simulation: who runs, who waits, and why.

use serde_json::Value;

use crate::place::{Place, output_of};

/// A queue of 4 GPUs, two jobs that need all of it, one for the root queue that needs 8, and one for a queue that is not there.
fn manifests() -> String {
    let job = |name: &str, labels: &str, replicas: u32, gpus: u32| {
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
    };
    let queue = "apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {name: research}
spec: {quota: {nvidia.com/gpu: {nominal: 4}}}
";
    let jobs = [
        job("first", "trainyard.dev/queue: research", 2, 2),
        job("second", "trainyard.dev/queue: research", 1, 4),
        job("large", "", 1, 8),
        job("lost", "trainyard.dev/queue: nowhere", 1, 1),
    ];
    format!("{queue}{}", jobs.concat())
}

fn place() -> Place {
    let place = Place::new();
    place.write("jobs.yaml", &manifests());
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
