//! `deploy/components/namespace-limits` on a real API server: what a job may ask of queues is its namespace's to say.

use std::path::Path;

use control_plane::{Options, until};
use serde_json::{Value, json};

use crate::common::Cluster;

fn job(kind: (&str, &str), name: &str, labels: &Value, spec: &Value) -> Value {
    json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name, "namespace": "vision", "labels": labels}, "spec": spec})
}

fn labelled(name: &str, labels: &Value) -> Value {
    let pod = json!({"containers": [{"name": "aitj-main", "image": "i"}]});
    let spec = json!({"replicaSpecs": {"trainer": {"replicas": 1, "template": {"spec": pod}}}});
    job(("elasticdeeplearning.ai/v1", "AITrainingJob"), name, labels, &spec)
}

fn torch(name: &str, priority: i64) -> Value {
    let pod = json!({"containers": [{"name": "torch", "image": "i"}]});
    let spec =
        json!({"schedulingPolicy": {"priority": priority}, "torchTaskSpecs": {"Master": {"template": {"spec": pod}}}});
    job(("train.distributed.io/v1alpha1", "TorchJob"), name, &json!({}), &spec)
}

#[test]
fn a_job_names_the_queues_and_priorities_of_its_namespace() {
    let cluster =
        Cluster::start(Options { scheduler: false, controller_manager: false, kwok: false, ..Options::default() });
    cluster.kubectl(&["create", "namespace", "vision"]);
    cluster.kubectl(&["create", "serviceaccount", "default", "--namespace=vision"]);
    let apply = |job: &Value| cluster.plane.apply(&job.to_string()).map(|_| ()).map_err(|error| error.to_string());
    let mut high = labelled("before", &json!({"trainyard.dev/queue": "gpus", "trainyard.dev/priority": "99"}));
    high["spec"]["replicaSpecs"]["trainer"]["template"]["spec"]["priorityClassName"] = json!("urgent");
    apply(&high).expect("nothing bounds it yet");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/components/namespace-limits");
    cluster.kubectl(&["apply", "-k", &folder.to_string_lossy()]);
    until("the policy is in force", || match apply(&labelled("probe", &json!({"trainyard.dev/priority": "1"}))) {
        Err(refused) if refused.contains("1 is more than 0, the most of namespace vision") => Ok(()),
        other => {
            cluster.kubectl(&["delete", "aitrainingjob", "probe", "--namespace=vision", "--ignore-not-found"]);
            Err(format!("{other:?}"))
        }
    });
    apply(&labelled("any", &json!({"trainyard.dev/queue": "gpus"}))).expect("without the annotation the queue decides");
    cluster.kubectl(&[
        "annotate",
        "namespace",
        "vision",
        "trainyard.dev/queues=vision, shared",
        "trainyard.dev/max-priority=10",
        "trainyard.dev/priority-classes=batch",
        "trainyard.dev/kai-queues=vision, shared",
    ]);
    let refused = |job: &Value, words: &str| {
        let error = apply(job).expect_err(words);
        assert!(error.contains(words), "{error}");
    };
    until("the annotations are seen", || apply(&labelled("ten", &json!({"trainyard.dev/priority": "10"}))));
    refused(
        &labelled("eleven", &json!({"trainyard.dev/priority": "11"})),
        "trainyard.dev/priority: 11 is more than 10",
    );
    refused(
        &labelled("other", &json!({"trainyard.dev/queue": "gpus"})),
        "trainyard.dev/queue: gpus: annotation trainyard.dev/queues",
    );
    let class_of = |name: &str, class: &str| {
        let mut job = labelled(name, &json!({}));
        job["spec"]["replicaSpecs"]["trainer"]["template"]["spec"]["priorityClassName"] = json!(class);
        job
    };
    let other_class = "priorityClassName of a pod template: urgent: annotation trainyard.dev/priority-classes";
    refused(&class_of("class", "urgent"), other_class);
    let mut of_torch = torch("class", 0);
    of_torch["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["priorityClassName"] = json!("urgent");
    refused(&of_torch, other_class);
    apply(&class_of("class", "batch")).expect("the annotation names it");
    let pod = |name: &str, queue: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision",
            "labels": {"kai.scheduler/queue": queue}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    let other_queue = "kai.scheduler/queue: speech: annotation trainyard.dev/kai-queues";
    refused(&pod("pod", "speech"), other_queue);
    refused(&labelled("kai", &json!({"kai.scheduler/queue": "speech"})), other_queue);
    apply(&pod("pod", "shared")).expect("the annotation names it");
    refused(&pod("pod", "speech"), other_queue);
    refused(&torch("torch", 11), "spec.schedulingPolicy.priority: 11 is more than 10");
    apply(&torch("torch", 10)).expect("it is within the bound");
    for labels in [
        json!({}),
        json!({"trainyard.dev/queue": "shared", "trainyard.dev/priority": "5"}),
        json!({"trainyard.dev/priority": "high"}),
    ] {
        apply(&labelled("good", &labels)).unwrap_or_else(|error| panic!("{labels}: {error}"));
    }
    // A job from before stays as it is, and may be edited.
    let mut edited = high;
    edited["spec"]["replicaSpecs"]["trainer"]["replicas"] = json!(2);
    apply(&edited).expect("it had these before");
    edited["metadata"]["labels"]["trainyard.dev/priority"] = json!("100");
    refused(&edited, "trainyard.dev/priority: 100 is more than 10");
}
