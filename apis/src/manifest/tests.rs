//! Manifests of every kind: what is said of kind, metadata and contents.

use serde_json::{Value, json};

use super::findings;
use crate::fields::Severity;
use crate::registry::Registry;

const API: &str = "elasticdeeplearning.ai/v1";

fn job() -> Value {
    json!({"apiVersion": API, "kind": "AITrainingJob", "metadata": {"name": "j"}, "spec": {"replicaSpecs": {"trainer": {
        "replicas": 2, "template": {"spec": {"containers": [{"name": "aitj-main", "image": "i", "command": ["true"]}]}}}}}})
}

fn texts(manifest: &Value) -> Vec<String> {
    findings(&Registry::all(), manifest).iter().map(|finding| finding.field.to_string()).collect()
}

fn with(pointer: &str, value: Value) -> Value {
    let mut job = job();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    job.pointer_mut(parent).unwrap()[key] = value;
    job
}

#[test]
fn right_manifests_have_no_findings() {
    assert_eq!(texts(&job()), [""; 0]);
    for manifest in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aGk="},
            "stringData": {"b": "plain"}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
    ] {
        assert_eq!(texts(&manifest), [""; 0], "{manifest}");
    }
}

#[test]
fn wrong_manifests_say_what_was_meant() {
    let rows: Vec<(Value, Vec<&str>)> = vec![
        (json!([1]), vec![": a manifest must be an object ([1])"]),
        (
            json!({"kind": 5}),
            vec![
                "apiVersion: must name the type of the object (missing)",
                "kind: must name the type of the object (5)",
            ],
        ),
        (
            with("/apiVersion", json!("elasticdeeplearning.ai/v2")),
            vec![
                "apiVersion: AITrainingJob is served in another version (\"elasticdeeplearning.ai/v2\"); did you mean \
                elasticdeeplearning.ai/v1?",
            ],
        ),
        (with("/sepc", json!({})), vec!["sepc: unknown field; it has no effect ({}); did you mean spec?"]),
        (
            with(
                "/metadata",
                json!({"name": "My_Job", "namespace": "Team A", "label": {}, "labels": {"a b": "c", "x": 1, "y": "a b"}}),
            ),
            vec![
                "metadata.name: must be lower-case letters, digits and inner hyphens: it is part of the names of all pods \
                 (\"My_Job\"); did you mean my-job?",
                "metadata.namespace: must be lower-case letters, digits and inner hyphens, at most 63 (\"Team A\"); did you \
                 mean team-a?",
                "metadata.labels.a b: a name must be letters, digits and inner -_. up to 63, after a domain and / or not \
                 (\"c\")",
                "metadata.labels.y: must be letters, digits and inner -_. up to 63 (\"a b\")",
                "metadata.label: unknown field in Kubernetes 1.36 ({}); did you mean labels?",
                "metadata.labels.x: must be text, not a number (1); did you mean \"1\"?",
            ],
        ),
        (
            json!({"apiVersion": "v1", "kind": "Configmap", "metadata": {"name": "c"}, "data": {"n": 1}}),
            vec![
                "kind: this kind is not served (\"Configmap\"); did you mean ConfigMap?",
                "data.n: must be text, not a number (1); did you mean \"1\"?",
            ],
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "plain!"}}),
            vec!["data.a: must be base64; stringData takes plain text (\"plain!\")"],
        ),
        (json!({"apiVersion": "v1", "kind": "Secret"}), vec!["metadata.name: an object needs a name (missing)"]),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": "s"}),
            vec!["metadata: must be an object, not text (\"s\")"],
        ),
    ];
    for (manifest, want) in rows {
        assert_eq!(texts(&manifest), want, "{manifest}");
    }
}

#[test]
fn a_job_is_checked_by_its_api() {
    let group = "/spec/replicaSpecs/trainer";
    let rows: Vec<(String, Value, Severity, &str)> = vec![
        (
            format!("{group}/replica"),
            json!(2),
            Severity::Mistake,
            "spec.replicaSpecs.trainer.replica: unknown field; it has no effect (2); did you mean replicas?",
        ),
        (
            format!("{group}/restartPolicy"),
            json!("onfailure"),
            Severity::Mistake,
            "spec.replicaSpecs.trainer.restartPolicy: is none of Always, OnFailure, OnNodeFail, Never, ExitCode, \
             OnNodeFailWithExitCode; it acts as Never (\"onfailure\"); did you mean OnFailure?",
        ),
        (
            format!("{group}/restartScope"),
            json!("pod"),
            Severity::Error,
            "spec.replicaSpecs.trainer.restartScope: must be one of All, Replica, Pod (\"pod\"); did you mean Pod?",
        ),
        (
            "/spec/timeLimit".to_owned(),
            json!("60"),
            Severity::Error,
            "spec.timeLimit: must be a whole number, not text (\"60\"); did you mean 60?",
        ),
        (
            format!("{group}/edlPolicy"),
            json!("auto"),
            Severity::Mistake,
            "spec.replicaSpecs.trainer.edlPolicy: must be one of Auto, Manual, Never (\"auto\"); did you mean Auto?",
        ),
        (
            "/spec/replicas".to_owned(),
            json!(2),
            Severity::Mistake,
            "spec.replicas: unknown field; it has no effect (2); did you mean replicaSpecs.*.replicas?",
        ),
        (
            format!("{group}/image"),
            json!("i"),
            Severity::Mistake,
            "spec.replicaSpecs.trainer.image: unknown field; it has no effect (\"i\"); did you mean \
             template.spec.containers[].image?",
        ),
        (
            format!("{group}/template/spec/containers/0/comand"),
            json!([]),
            Severity::Mistake,
            "spec.replicaSpecs.trainer.template.spec.containers[0].comand: unknown field in Kubernetes 1.36 ([]); did you mean \
             command?",
        ),
    ];
    for (pointer, value, severity, text) in rows {
        let mut manifest = job();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[key] = value;
        let found = findings(&Registry::all(), &manifest);
        let reported: Vec<_> = found.iter().map(|f| (f.severity, f.field.to_string())).collect();
        assert_eq!(reported, [(severity, text.to_owned())]);
    }
}

#[test]
fn a_name_that_the_api_server_makes_is_no_missing_name() {
    let named = |metadata: Value| with("/metadata", metadata);
    assert_eq!(texts(&named(json!({"generateName": "exp-"}))), [""; 0]);
    let long = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c".repeat(300)}});
    assert_eq!(texts(&long), [""; 0], "an API server cuts it");
    for metadata in [json!({"generateName": ""}), json!({"generateName": null}), json!({})] {
        assert_eq!(texts(&named(metadata)), ["metadata.name: a job needs a name (missing)"]);
    }
    let wrong = texts(&named(json!({"generateName": "Exp_"})));
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].starts_with("metadata.generateName: must be lower-case letters"), "{wrong:?}");
    assert!(wrong[0].ends_with("(\"Exp_\"); did you mean exp-?"), "{wrong:?}");
}

#[test]
fn a_former_kind_is_checked_as_its_successor() {
    let queue = json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "JobQueue", "metadata": {"name": "q"},
        "spec": {"kaiQueue": "k", "image": "i", "nodeResources": {"gpus": "x"}}});
    let found = findings(&Registry::all(), &queue);
    let remark = found.iter().find(|finding| finding.severity == Severity::Remark).unwrap();
    assert_eq!(remark.field.path, "kind");
    let error = found.iter().find(|finding| finding.severity == Severity::Error).unwrap();
    assert_eq!(error.field.path, "spec.nodeResources.gpus");
}

#[test]
fn fields_of_other_apis_are_named_with_their_place() {
    let group = "/spec/replicaSpecs/trainer";
    let torch = |task: Value| {
        let mut task = task;
        task["template"] = json!({"spec": {"containers": [{"name": "torch", "image": "i"}]}});
        json!({"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "metadata": {"name": "j"},
            "spec": {"torchTaskSpecs": {"Master": task}}})
    };
    let torchrun = |field: &str| {
        json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "metadata": {"name": "j"},
            "spec": {"queue": "q", "command": "c", field: 2}})
    };
    for (manifest, path, meant) in [
        (with("/spec/backoffLimit", json!(3)), "spec.backoffLimit", "replicaSpecs.*.restartLimit"),
        (with(&format!("{group}/backoffLimit"), json!(3)), "spec.replicaSpecs.trainer.backoffLimit", "restartLimit"),
        (with(&format!("{group}/numTasks"), json!(3)), "spec.replicaSpecs.trainer.numTasks", "replicas"),
        (with(&format!("{group}/timeLimit"), json!(3)), "spec.replicaSpecs.trainer.timeLimit", "spec.timeLimit"),
        (
            with("/spec/runPolicy", json!({"activeDeadlineSeconds": 9, "cleanPodPolicy": "All", "x": 1})),
            "spec.runPolicy",
            "timeLimit for activeDeadlineSeconds, cleanPodPolicy",
        ),
        (torch(json!({"replicas": 1})), "spec.torchTaskSpecs.Master.replicas", "numTasks"),
        (torchrun("replicas"), "spec.replicas", "numNodes"),
        (torchrun("backoffLimit"), "spec.backoffLimit", "reliability.maxRestarts"),
    ] {
        let found = findings(&Registry::all(), &manifest);
        let found: Vec<_> = found.iter().filter(|finding| finding.field.path == path).collect();
        assert_eq!(found.len(), 1, "{path}");
        assert_eq!((found[0].in_name, found[0].field.suggestion.as_deref()), (true, Some(meant)), "{path}");
    }
}
