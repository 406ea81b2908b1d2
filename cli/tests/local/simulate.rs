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
