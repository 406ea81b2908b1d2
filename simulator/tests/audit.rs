//! The audit finds what exceeds a limit, and nothing else.

use cluster::{Cluster, NodeSpec, Options};
use serde_json::{Value, json};
use simulator::audit::Audit;

const GPU: &str = "nvidia.com/gpu";

fn world() -> Cluster {
    let node = NodeSpec::named("n1").with(GPU, "8");
    let mut cluster = Cluster::new(&Options { nodes: vec![node], ..Options::default() });
    for api in apis::Registry::all().iter() {
        cluster.register(&api.crd()).unwrap();
    }
    cluster
}

fn queue(name: &str, cohort: Option<&str>, nominal: u32, borrowing: u32) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
        "spec": {"cohort": cohort, "quota": {GPU: {"nominal": nominal, "borrowing": borrowing}}}})
}

/// A pod on node n1. The embedded cluster refuses more than a node holds, so it is stored as it is.
fn pod(cluster: &mut Cluster, name: &str, queue: &str, gpus: u32, phase: &str) {
    let container = json!({"name": "c", "image": "i", "resources": {"limits": {GPU: gpus}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"trainyard.dev/queue": queue}},
        "spec": {"nodeName": "n1", "containers": [container]}, "status": {"phase": phase}});
    cluster.store_unchecked(&pod).unwrap();
}

#[test]
fn nodes_queues_and_cohorts_have_their_limits() {
    let mut cluster = world();
    for queue in [queue("a", Some("pool"), 4, 4), queue("b", Some("pool"), 2, 4), queue("alone", None, 1, 9)] {
        cluster.apply(&queue).unwrap();
    }
    let mut audit = Audit::default();
    pod(&mut cluster, "p1", "a", 4, "Running");
    pod(&mut cluster, "p2", "b", 2, "Pending");
    pod(&mut cluster, "p3", "b", 9, "Succeeded");
    assert_eq!(audit.check(&cluster), [""; 0], "what has ended does not count");
    pod(&mut cluster, "p4", "b", 1, "Running");
    assert_eq!(audit.check(&cluster), ["cohort pool, nvidia.com/gpu: 7 in use, 6 allowed"]);
    pod(&mut cluster, "p5", "alone", 2, "Running");
    let found = audit.check(&cluster);
    assert!(found.contains(&"queue alone, nvidia.com/gpu: 2 in use, 1 allowed".to_owned()), "{found:?}");
    assert!(found.contains(&"node n1, nvidia.com/gpu: 9 in use, 8 allowed".to_owned()), "{found:?}");
}

#[test]
fn a_limit_that_was_lowered_counts_as_it_was() {
    let mut cluster = world();
    cluster.apply(&queue("a", None, 4, 0)).unwrap();
    let mut audit = Audit::default();
    pod(&mut cluster, "p1", "a", 4, "Running");
    assert_eq!(audit.check(&cluster), [""; 0]);
    cluster.apply(&queue("a", None, 2, 0)).unwrap();
    assert_eq!(audit.check(&cluster), [""; 0]);
    pod(&mut cluster, "p2", "a", 1, "Running");
    assert_eq!(audit.check(&cluster), ["queue a, nvidia.com/gpu: 5 in use, 4 allowed"]);
}

#[test]
fn a_pod_is_created_within_the_share_of_its_jobs_mirror() {
    let mut cluster = world();
    let mut audit = Audit::default();
    let job = |share: Value| {
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "default", "uid": "u1"}, "spec": {}, "status": {"trainyard": {"share": share}}})
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "j-trainer-0", "namespace": "default", "labels": {"trainyard.dev/queue": "a"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "AITrainingJob", "name": "j", "uid": "u1"}]},
        "spec": {"containers": []}});
    cluster.store_unchecked(&job(json!({}))).unwrap();
    cluster.store_unchecked(&pod).unwrap();
    assert_eq!(audit.check(&cluster), ["pod j-trainer-0: created before its job's mirror shows a share"]);
    cluster.store_unchecked(&job(json!({"trainer": [["n1", 1]]}))).unwrap();
    assert_eq!(audit.check(&cluster), [""; 0]);
}

#[test]
fn a_pod_is_created_while_the_workload_of_its_job_is_admitted() {
    let owner = |kind: &str| json!([{"apiVersion": "elasticdeeplearning.ai/v1", "kind": kind, "name": "j", "uid": "u1", "controller": true}]);
    let status = |kind: &str, word: &str| json!({"type": kind, "status": word});
    let workload = |name: &str, conditions: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owner("AITrainingJob")},
            "spec": {"podSets": [{"name": "trainer"}]}, "status": {"conditions": conditions}})
    };
    let pod = |group: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("j-{group}-0"), "namespace": "default",
            "labels": {"TrainingJobReplicaName": group, "TrainingJobReplicaIndex": "0"}, "ownerReferences": owner("AITrainingJob")},
            "spec": {"containers": []}})
    };
    let admitted = json!([status("Admitted", "True")]);
    let evicted = json!([status("Admitted", "True"), status("Evicted", "True")]);
    let too_early = "pod j-trainer-0: created before its job's Workload is admitted";
    let two = "pod j-trainer-0: its job has 2 Workloads";
    for (workloads, group, want) in [
        (vec![], "trainer", None),
        (vec![("w", json!([]))], "trainer", Some(too_early)),
        (vec![("w", json!([]))], "other", None),
        (vec![("w", admitted.clone())], "trainer", None),
        (vec![("w", evicted)], "trainer", Some(too_early)),
        (vec![("w", admitted.clone()), ("v", admitted)], "trainer", Some(two)),
    ] {
        let mut cluster = world();
        cluster.register(&definition()).unwrap();
        for (name, conditions) in &workloads {
            cluster.store_unchecked(&workload(name, conditions.clone())).unwrap();
        }
        let mut audit = Audit::default();
        assert_eq!(audit.check(&cluster), [""; 0]);
        cluster.store_unchecked(&pod(group)).unwrap();
        let found = audit.check(&cluster);
        assert_eq!(found.first().map(String::as_str), want, "{workloads:?} {group}");
        assert_eq!(audit.check(&cluster), [""; 0], "a pod is looked at once");
    }
}

/// The definition of Workloads, without a schema.
fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": {"kind": "Workload", "plural": "workloads"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}]}})
}

#[test]
fn a_pod_is_on_a_node_that_its_queue_selects_or_selected_in_the_life_of_its_job() {
    let node =
        |name: &str, pool: &str| NodeSpec { labels: [("pool".into(), pool.into())].into(), ..NodeSpec::named(name) };
    let mut cluster = world();
    cluster.add_node(&node("n1", "a"));
    cluster.add_node(&node("n2", "b"));
    let mut audit = Audit::default();
    let mut selecting = queue("a", None, 8, 0);
    selecting["spec"]["nodes"] = json!({"selector": {"matchLabels": {"pool": "a"}}});
    cluster.apply(&selecting).unwrap();
    let mirror = json!({"charge": {"queue": "a", "gpus": {}}, "share": {"trainer": [["n1", 2]]}});
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "u1", "labels": {"trainyard.dev/queue": "a"}},
        "spec": {}, "status": {"trainyard": mirror}});
    cluster.store_unchecked(&job).unwrap();
    let pod = |name: &str, node: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"trainyard.dev/queue": "a"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "AITrainingJob", "name": "j", "uid": "u1"}]},
            "spec": {"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}})
    };
    cluster.store_unchecked(&pod("p1", "n1")).unwrap();
    assert_eq!(audit.check(&cluster), [""; 0]);
    cluster.add_node(&node("n1", "b"));
    cluster.store_unchecked(&pod("p2", "n1")).unwrap();
    assert_eq!(audit.check(&cluster), [""; 0], "n1 was selected when the job was there");
    cluster.store_unchecked(&pod("p3", "n2")).unwrap();
    assert_eq!(audit.check(&cluster), ["pod p3: on node n2, which queue a does not select"]);
}
