//! `trainyard schedule study --log`: the workload of a recorded log played again. A study and the operator decide alike: with
//! `--check` every start falls on the recorded time and nodes.

use crate::place::{Place, output_of};

/// A job of `pods` pods with `gpus` GPUs each that runs for some seconds.
fn job(name: &str, queue: &str, (pods, gpus, seconds): (u32, u32, u32), priority: usize) -> String {
    format!(
        "---
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {{name: {name}, namespace: default, labels: {{trainyard.dev/queue: {queue:?}, trainyard.dev/priority: {:?}}}}}
spec:
  cleanPodPolicy: None
  replicaSpecs:
    trainer:
      replicas: {pods}
      completePolicy: All
      template:
        metadata: {{annotations: {{trainyard.dev/simulate-duration: {seconds}s}}}}
        spec: {{containers: [{{name: aitj-main, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
",
        priority.to_string()
    )
}

/// Jobs of several sizes: some wait for others, small ones pass where nothing is reserved.
fn jobs(queue: &str) -> String {
    let sizes = [
        (2, 4, 300),
        (1, 2, 50),
        (4, 1, 700),
        (1, 8, 120),
        (3, 2, 90),
        (2, 4, 200),
        (1, 1, 400),
        (8, 1, 60),
        (1, 4, 35),
        (2, 2, 500),
        (1, 8, 75),
        (6, 1, 45),
    ];
    let job = |(n, size): (usize, (u32, u32, u32))| job(&format!("j{n:02}"), queue, size, n % 3);
    sizes.into_iter().enumerate().map(job).collect()
}

fn simulated(manifests: &str) -> Place {
    let place = Place::new();
    place.write("jobs.yaml", manifests);
    let simulate = ["simulate", "jobs.yaml", "--nodes", "2", "--gpus", "8", "--log", "story.jsonl", "--quiet"];
    let (code, _, err) = output_of(&place.run(&simulate));
    assert_eq!(code, Some(0), "a queue is no job that has to end: {err}");
    place
}

fn queue(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {{name: {name}}}
spec: {{quota: {{nvidia.com/gpu: {{nominal: 10}}}}{rest}}}
"
    )
}

fn study(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    let all: Vec<&str> = ["schedule", "study", "--log", "story.jsonl"].iter().chain(words).copied().collect();
    output_of(&place.run(&all))
}

#[test]
fn a_study_decides_what_the_operator_decided() {
    for (what, manifests) in [
        ("the root queue", jobs("")),
        ("a queue with a quota", queue("research", "") + &jobs("research")),
        ("spread, by submission", queue("research", ", placement: Spread, order: Submission") + &jobs("research")),
    ] {
        let (code, out, err) = study(&simulated(&manifests), &["--check"]);
        assert_eq!(code, Some(0), "{what}: {out}{err}");
        assert!(
            out.contains("12 of 12 jobs started at the recorded time, 12 of 12 on the recorded nodes"),
            "{what}: {out}"
        );
        assert!(out.contains("largest difference 0.000 s"), "{what}: {out}");
    }
}

#[test]
fn a_log_is_played_under_another_policy() {
    let place = simulated(&jobs(""));
    let (code, own, err) = study(&place, &[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(own.starts_with("fifo-backfill on story.jsonl: 12 jobs, 16 GPUs"), "{own}");
    let (code, other, err) = study(&place, &["--policy", "max-min"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(other.starts_with("max-min on story.jsonl: 12 jobs, 16 GPUs"), "{other}");
    assert!(other.contains("decided as the operator does"), "{other}");
    let (code, alone, err) = study(&place, &["--policy", "srtf", "--alone"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(!alone.contains("decided as the operator does"), "{alone}");
    assert_ne!(own.lines().nth(2), alone.lines().nth(2), "completion times");
    let (code, _, err) = study(&place, &["--policy", "max-min", "--check"]);
    assert_eq!(code, Some(2), "a check plays the policy of the log: {err}");
}

#[test]
fn what_cannot_be_played_is_said() {
    let place = simulated(&(queue("research", "") + &jobs("research") + &job("alone", "", (1, 1, 10), 0)));
    let (code, out, err) = study(&place, &["--check"]);
    assert_eq!(code, Some(0), "all queues are played together: {err}");
    assert!(out.contains("13 of 13 jobs started at the recorded time, 13 of 13 on the recorded nodes"), "{out}");
    let (code, _, err) = study(&place, &["--queue", "reserch"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("--queue reserch: story.jsonl has jobs of these queues: root, research"), "{err}");
    let (code, out, err) = study(&place, &["--queue", "root", "--check"]);
    assert_eq!(code, Some(1), "the other queue held GPUs that the study does not know of: {out}{err}");
    let (code, _, err) = output_of(&place.run(&["schedule", "study", "--policy", "srtf"]));
    assert_eq!((code, err.contains("--gpus or --cluster is needed")), (Some(2), true), "{err}");
}
