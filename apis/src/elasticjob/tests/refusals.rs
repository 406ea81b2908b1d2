//! Object -> field errors: every refusal with its path and value.

use serde_json::{Value, json};

use super::{base, edited, errors, without};

#[test]
fn refusals_name_the_field_and_the_value() {
    let worker = || base()["spec"]["replicaSpecs"]["Worker"].clone();
    let annotations = |word: &str| json!({"elastic.pytorch.org/rdzv-backend": word});
    // (pointer, value there, start of the error: path and problem); `@W` is the group Worker
    let rows: Vec<(&str, Value, &str)> = vec![
        ("/spec", json!(null), "spec: must be an object with replicaSpecs (null)"),
        ("/spec/rdzvEndpoint", json!(null), "spec.rdzvEndpoint: must be the host:port of the etcd"),
        ("/spec/rdzvEndpoint", json!(""), "spec.rdzvEndpoint: must be the host:port of the etcd"),
        ("/spec/rdzvEndpoint", json!(2379), "spec.rdzvEndpoint: must be text, not a number (2379)"),
        (
            "/metadata/annotations",
            annotations("gloo"),
            "metadata.annotations.elastic.pytorch.org/rdzv-backend: must be one of",
        ),
        ("/spec/minReplicas", json!(0), "spec.minReplicas: must be at least 1 (0)"),
        ("/spec/minReplicas", json!("1"), "spec.minReplicas: must be a whole number, not text (\"1\")"),
        ("/spec/minReplicas", json!(5), "spec.minReplicas: must be at most maxReplicas, which is 4 (5)"),
        ("/spec/minReplicas", json!(3), "@W.replicas: must be at least minReplicas, which is 3 (2)"),
        ("/spec/maxReplicas", json!(0), "spec.maxReplicas: must be at least 1 (0)"),
        ("/spec/maxReplicas", json!(1), "@W.replicas: must be at most maxReplicas, which is 1 (2)"),
        ("@W/replicas", json!(5), "@W.replicas: must be at most maxReplicas, which is 4 (5)"),
        ("@W/replicas", json!(0), "@W.replicas: must be at least minReplicas, which is 1 (0)"),
        ("@W/replicas", json!(-1), "@W.replicas: must be at least 0 (-1)"),
        ("@W/replicas", json!("2"), "@W.replicas: must be a whole number, not text (\"2\")"),
        ("@W/restartPolicy", json!("Sometimes"), "@W.restartPolicy: must be one of Always, OnFailure, Never, ExitCode"),
        (
            "@W/restartPolicy",
            json!("exitcode"),
            "@W.restartPolicy: must be one of Always, OnFailure, Never, ExitCode (\"exitcode\"); did you mean ExitCode?",
        ),
        ("@W/template", json!(null), "@W.template: a group of replicas needs a pod template (missing)"),
        ("@W/template/spec/containers", json!([]), "@W.template.spec.containers: a pod template needs at least one"),
        ("/spec/replicaSpecs", json!({}), "spec.replicaSpecs: must name at least one group of replicas ({})"),
        ("@W", json!(null), "@W: must be an object with a template, not null (null)"),
        ("/spec/replicaSpecs", json!({"Helper": worker()}), "@W: a job needs a group Worker"),
        (
            "/spec/replicaSpecs",
            json!({"worker": worker()}),
            "spec.replicaSpecs.worker: a job needs a group Worker: its pods decide about the job (misspelt); did you mean Worker?",
        ),
        ("/spec/replicaSpecs/a_b", worker(), "spec.replicaSpecs.a_b: must be letters, digits and inner hyphens"),
        ("/metadata/name", json!("a.b"), "metadata.name: must have no dots: each pod gets a service of its own name"),
        ("/metadata/name", json!("3b"), "metadata.name: must start with a letter: each pod gets a service"),
        ("/spec/cleanPodPolicy", json!("Some"), "spec.cleanPodPolicy: must be one of All, Running, None (\"Some\")"),
        ("/spec/ttlSecondsAfterFinished", json!(-1), "spec.ttlSecondsAfterFinished: must be at least 0 (-1)"),
        ("/spec/activeDeadlineSeconds", json!("1h"), "spec.activeDeadlineSeconds: must be a whole number, not text"),
        ("/spec/backoffLimit", json!(-1), "spec.backoffLimit: must be at least 0 (-1)"),
        ("/spec/RunPolicy", json!([]), "spec.RunPolicy: must be an object, not a list ([])"),
        ("/spec/RunPolicy", json!({"backoffLimit": 1.5}), "spec.RunPolicy.backoffLimit: must be a whole number (1.5)"),
        ("/spec/runPolicy", json!({"cleanPodPolicy": "all"}), "spec.runPolicy.cleanPodPolicy: must be one of"),
        ("/spec/schedulingPolicy", json!({"minAvailable": "x"}), "spec.schedulingPolicy.minAvailable: must be a whole"),
    ];
    for (pointer, value, want) in rows {
        let job = edited(&[(&pointer.replace("@W", "/spec/replicaSpecs/Worker"), value)]);
        let errors = errors(&job);
        let want = want.replace("@W", "spec.replicaSpecs.Worker");
        assert_eq!(errors.len(), 1, "{pointer}: {errors:?}");
        assert!(errors[0].starts_with(&want), "{pointer}:\n  {}\n  {want}", errors[0]);
    }
}

#[test]
fn two_spellings_of_one_field_must_agree() {
    let job = edited(&[
        ("/spec/backoffLimit", json!(1)),
        ("/spec/RunPolicy", json!({"backoffLimit": 2, "cleanPodPolicy": "All"})),
        ("/spec/runPolicy", json!({"backoffLimit": 1, "cleanPodPolicy": "None"})),
    ]);
    assert_eq!(
        errors(&job),
        [
            "spec.RunPolicy.backoffLimit: is 1 in spec.backoffLimit: write the field once (2)",
            "spec.runPolicy.cleanPodPolicy: is \"All\" in spec.RunPolicy.cleanPodPolicy: write the field once (\"None\")",
        ]
    );
}

#[test]
fn absent_replicas_are_one_and_may_be_too_few() {
    let mut job = without(&["/spec/replicaSpecs/Worker/replicas"]);
    assert_eq!(errors(&job), [""; 0]);
    job["spec"]["minReplicas"] = json!(2);
    assert_eq!(
        errors(&job),
        ["spec.replicaSpecs.Worker.replicas: must be at least minReplicas, which is 2; it is 1 when absent (missing)"]
    );
}

#[test]
fn names_leave_room_for_the_greatest_number_of_workers() {
    let name = "n".repeat(54);
    let job = |max: u32| edited(&[("/metadata/name", json!(name)), ("/spec/maxReplicas", json!(max))]);
    assert_eq!(errors(&job(10)), [""; 0]);
    let errors = errors(&job(11));
    assert!(errors.len() == 1 && errors[0].contains("is 64 characters long, 63 at most"), "{errors:?}");
}
