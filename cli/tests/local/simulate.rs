//! `trainyard simulate`: the nodes that it makes up, and the pods of another operator.

use crate::place::{Place, output_of};

/// A queue of the torchrun controller without a KAI Queue, and a job that needs more than a plain node has.
const SELECTS: &str = "apiVersion: torchrun.ai/v1alpha1
kind: TorchrunQueue
metadata: {name: large}
spec:
  image: i
  nodeResources: {gpus: 8, cpus: 128, memory: 1024Gi}
  scheduling: {nodeSelector: {example.com/class: H100}}
  storage: {workspace: {enabled: false}}
---
apiVersion: torchrun.ai/v1alpha1
kind: TorchrunJob
metadata: {name: vision}
spec: {jobQueue: large, numGPUs: 16, command: python train.py}
";

#[test]
fn nodes_have_what_the_manifests_ask_for() {
    let place = Place::new();
    place.write("j.yaml", SELECTS);
    let (code, out, err) = output_of(&place.run(&["simulate", "j.yaml", "--nodes", "2"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("2 with example.com/class=H100; --node-label sets others"), "{err}");
    let labelled = ["simulate", "j.yaml", "--nodes", "2", "--node-label", "example.com/class=H100"];
    let (code, out, err) = output_of(&place.run(&labelled));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(!err.contains("node-label"), "{err}");
    let other = ["simulate", "j.yaml", "--nodes", "2", "--node-label", "example.com/class=A100"];
    let (code, out, err) = output_of(&place.run(&other));
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("vision waits for: "), "{out}{err}");
    assert_eq!(output_of(&place.run(&["simulate", "j.yaml", "--node-label", "class"])).0, Some(2));
}

/// A job of the MPI operator: in a queue, or left alone.
fn mpi_job(labels: &str) -> String {
    format!(
        "apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: j, labels: {{{labels}}}}}
spec:
  slotsPerWorker: 1
  runPolicy: {{cleanPodPolicy: Running, suspend: true}}
  mpiReplicaSpecs:
    Launcher: {{replicas: 1, template: {{spec: {{containers: [{{name: l, image: i}}]}}}}}}
    Worker:
      replicas: 2
      template: {{spec: {{containers: [{{name: w, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}}}
---
apiVersion: trainyard.dev/v1alpha1
kind: TrainingQueue
metadata: {{name: q}}
spec: {{quota: {{nvidia.com/gpu: {{nominal: 4}}}}}}
"
    )
}

#[test]
fn a_simulated_mpi_operator_runs_its_jobs() {
    let place = Place::new();
    place.write("j.yaml", &mpi_job("trainyard.dev/queue: q"));
    let (code, out, err) = output_of(&place.run(&["simulate", "j.yaml"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("the MPI operator creates its pods; Trainyard decides when it has them"), "{err}");
    assert!(out.contains("default/j  Completed: MPIJob default/j completed"), "{out}{err}");
    let (code, out, err) = output_of(&place.run(&["simulate", "j.yaml", "--fault", "exit=j-launcher:1@5s"]));
    assert_eq!(code, Some(1), "{out}{err}");
    place.write("alone.yaml", &mpi_job("team: a"));
    let (code, _, err) = output_of(&place.run(&["validate", "alone.yaml"]));
    assert_eq!(code, Some(0), "{err}");
    let reported = output_of(&place.run(&["validate", "alone.yaml"])).1;
    assert!(reported.contains("Trainyard leaves it alone: it names neither a queue"), "{reported}");
}
