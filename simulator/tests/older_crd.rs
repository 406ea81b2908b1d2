//! A cluster whose CRD is older than the operator: its API server prunes the mirror from every status write.

use apis::{Registry, Resource};
use embedded::EmbeddedCluster;
use model::Config;
use serde_json::{Value, json};
use simulator::scenario::NodeSpec;
use simulator::simulation::Simulation;

fn crd() -> Value {
    let registry = Registry::all();
    let api = registry.iter().next().expect("an API is served");
    api.crd()
}

/// The definition without `status.trainyard`, as the original operator's installs have it.
fn older() -> Value {
    let mut crd = crd();
    let status = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    status.as_object_mut().unwrap().remove("x-kubernetes-preserve-unknown-fields");
    let removed = status["properties"].as_object_mut().unwrap().remove("trainyard");
    assert!(removed.is_some(), "the mirror stands elsewhere now: {status}");
    crd
}

fn status(simulation: &Simulation<EmbeddedCluster>) -> Value {
    let resource = Resource::new("elasticdeeplearning.ai/v1", "AITrainingJob");
    let job = simulation.backend.cluster.get(&resource, "default", "j").expect("the job exists");
    job["status"].clone()
}

#[test]
fn a_pruned_mirror_counts_as_refused_until_the_definition_is_replaced() {
    let mut simulation = Simulation::new(&[NodeSpec::new("n1")], Config::default()).unwrap();
    simulation.backend.cluster.register(&older()).unwrap();
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"replicaSpecs": {"t": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "aitj-c", "image": "i", "command": ["true"]}]}}}}}});
    simulation.backend.cluster.apply(&job).unwrap();
    simulation.settle().unwrap();
    simulation.advance(600_000).unwrap();
    let writes = simulation.take_trace().done.len();
    // One a minute, and the second attempt at once; every second before, and 600 of them.
    assert!((2..=14).contains(&writes), "{writes} calls in ten minutes");
    let pods = simulation.backend.cluster.objects_of(&Resource::new("v1", "Pod"));
    assert_eq!(pods.len(), 0, "nothing is created before the term stands in the mirror");
    let seen = status(&simulation);
    assert_eq!(seen.get("trainyard"), None);
    let degraded = seen["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Degraded").expect("{seen}");
    assert!(degraded["message"].as_str().unwrap().contains("trainyard crd"), "{degraded}");

    simulation.backend.cluster.register(&crd()).unwrap();
    simulation.advance(61_000).unwrap();
    let seen = status(&simulation);
    assert!(seen.get("trainyard").is_some(), "{seen}");
    assert_eq!(seen["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Degraded"), None, "{seen}");
    assert_eq!(simulation.backend.cluster.objects_of(&Resource::new("v1", "Pod")).len(), 2);
}
