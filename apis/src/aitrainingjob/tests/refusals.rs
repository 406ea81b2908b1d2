//! Object -> field errors: every refusal with its path and value.

use model::SpecFact;
use serde_json::{Value, json};

use super::{base, edited};
use crate::aitrainingjob::AiTrainingJob;
use crate::api::JobApi;
use crate::testing;

const TRAINER: &str = "/spec/replicaSpecs/trainer";
const CONTAINER: &str = "/spec/replicaSpecs/trainer/template/spec/containers/0";

fn fact(object: &Value) -> SpecFact {
    AiTrainingJob.spec_fact(object)
}

fn errors(object: &Value) -> Vec<String> {
    testing::errors(&AiTrainingJob, object)
}

/// `@G`, `@T` and `@C` stand for the group, its template and its container, in pointers and in paths.
fn spelt_out(text: &str, group: &str, template: &str, container: &str) -> String {
    text.replace("@G", group).replace("@T", template).replace("@C", container)
}

#[test]
fn refusals_name_the_field_and_the_value() {
    let trainer = || base()["spec"]["replicaSpecs"]["trainer"].clone();
    // (pointer, value there, start of the error: path and problem)
    let rows: Vec<(&str, Value, &str)> = vec![
        ("/spec", json!(null), "spec: must be an object with replicaSpecs (null)"),
        ("/spec", json!("x"), "spec: must be an object with replicaSpecs (\"x\")"),
        ("/spec/replicaSpecs", json!(null), "spec.replicaSpecs: must name at least one group of replicas (missing)"),
        ("/spec/replicaSpecs", json!({}), "spec.replicaSpecs: must name at least one group of replicas ({})"),
        ("/spec/replicaSpecs", json!([1]), "spec.replicaSpecs: must be an object, not a list ([1])"),
        ("@G", json!(null), "@G: must be an object with a template, not null (null)"),
        ("@G", json!([]), "@G: must be an object with a template, not a list ([])"),
        ("@G/replicas", json!(-1), "@G.replicas: must be at least 0 (-1)"),
        ("@G/replicas", json!("3"), "@G.replicas: must be a whole number, not text (\"3\")"),
        ("@G/replicas", json!(1.5), "@G.replicas: must be a whole number (1.5)"),
        ("@G/replicas", json!(100_001), "@G.replicas: must be at most 100000 (100001)"),
        ("@G/replicas", json!(u64::MAX), "@G.replicas: must be at most 100000 (18446744073709551615)"),
        ("@G/restartLimit", json!("1"), "@G.restartLimit: must be a whole number, not text (\"1\")"),
        ("@G/restartLimit", json!(1_i64 << 40), "@G.restartLimit: must be at most 2147483647"),
        ("@G/restartPolicy", json!(1), "@G.restartPolicy: must be text, not a number (1)"),
        ("@G/restartScope", json!("Node"), "@G.restartScope: must be one of All, Replica, Pod (\"Node\")"),
        ("@T", json!(null), "@T: a group of replicas needs a pod template (missing)"),
        ("@T", json!("x"), "@T: must be an object, not text (\"x\")"),
        ("@T", json!({}), "@T.spec.containers: a pod template needs at least one container (missing)"),
        ("@T/spec", json!(5), "@T.spec: must be an object, not a number (5)"),
        (
            "@T/spec/containers",
            json!(null),
            "@T.spec.containers: a pod template needs at least one container (missing)",
        ),
        ("@T/spec/containers", json!([]), "@T.spec.containers: a pod template needs at least one container ([])"),
        ("@T/spec/containers", json!({}), "@T.spec.containers: must be a list, not an object ({})"),
        ("@T/spec/initContainers", json!("i"), "@T.spec.initContainers: must be a list, not text (\"i\")"),
        ("@T/metadata", json!([]), "@T.metadata: must be an object, not a list ([])"),
        ("@T/metadata", json!({"labels": {"a": 1}}), "@T.metadata.labels.a: must be text, not a number (1)"),
        ("@T/metadata", json!({"annotations": []}), "@T.metadata.annotations: must be an object, not a list ([])"),
        ("@T/metadata", json!({"finalizers": {}}), "@T.metadata.finalizers: must be a list, not an object ({})"),
        ("@C", json!("main"), "@C: must be an object, not text (\"main\")"),
        ("@C/name", json!(null), "@C.name: a container needs a name (missing)"),
        ("@C/name", json!(7), "@C.name: must be text, not a number (7)"),
        (
            "@C/name",
            json!("Main"),
            "@C.name: must be lower-case letters, digits and inner hyphens, at most 63 (\"Main\")",
        ),
        ("@C/env", json!({"A": "b"}), "@C.env: must be a list, not an object ({\"A\":\"b\"})"),
        ("@C/ports", json!({}), "@C.ports: must be a list, not an object ({})"),
        ("@C/ports/0", json!(80), "@C.ports[0]: must be an object, not a number (80)"),
        ("@C/ports/0", json!({"name": "aitj-a"}), "@C.ports[0].containerPort: a port needs a number (missing)"),
        ("@C/ports/0", json!({"containerPort": "80"}), "@C.ports[0].containerPort: must be a whole number, not text"),
        ("@C/ports/0", json!({"containerPort": 65_536}), "@C.ports[0].containerPort: must be at most 65535 (65536)"),
        ("@C/ports/0", json!({"containerPort": 0}), "@C.ports[0].containerPort: must be at least 1 (0)"),
        ("@C/ports/0/protocol", json!("tcp"), "@C.ports[0].protocol: must be one of TCP, UDP, SCTP (\"tcp\")"),
        (
            "@C/ports",
            json!([{"name": "p", "containerPort": 1}, {"name": "p", "containerPort": 2}]),
            "@C.ports[1].name: is the name of another port of this container (\"p\")",
        ),
        (
            "@T/spec/initContainers",
            json!([{"name": "aitj-main", "image": "i"}]),
            "@T.spec.initContainers[0].name: is the name of another container of this pod (\"aitj-main\")",
        ),
        ("/spec/replicaSpecs/TRAINER", trainer(), "@G: names the same pods as `TRAINER`"),
        ("/spec/replicaSpecs/", trainer(), "spec.replicaSpecs.: a group of replicas needs a name (\"\")"),
        ("/spec/replicaSpecs/a_b", trainer(), "spec.replicaSpecs.a_b: must be letters, digits and inner hyphens"),
        ("/spec/replicaSpecs/a~1b", trainer(), "spec.replicaSpecs.a/b: must be letters, digits and inner hyphens"),
        ("/spec/replicaSpecs/é", trainer(), "spec.replicaSpecs.é: must be letters, digits and inner hyphens"),
        ("/spec/replicaSpecs/a.b", trainer(), "spec.replicaSpecs.a.b: must have no dots"),
        ("/metadata/name", json!(null), "metadata.name: a job needs a name (missing)"),
        ("/metadata/name", json!("a.b"), "metadata.name: must have no dots"),
        ("/metadata/name", json!("3b"), "metadata.name: must start with a letter"),
        ("/metadata/name", json!("UP"), "metadata.name: must be lower-case letters"),
        ("/metadata/name", json!("a b"), "metadata.name: must be lower-case letters"),
        ("/metadata/name", json!("n".repeat(64)), "metadata.name: must be at most 63 characters, not 64"),
        ("/spec/timeLimit", json!("1h"), "spec.timeLimit: must be a whole number, not text (\"1h\")"),
        ("/spec/timeLimit", json!(1.5), "spec.timeLimit: must be a whole number (1.5)"),
        ("/spec/restartingExitCode", json!([137]), "spec.restartingExitCode: must be exit codes between commas"),
        ("/spec/restartingExitCode", json!(1.5), "spec.restartingExitCode: must be exit codes"),
        ("/spec/restartingExitCode", json!(1_i64 << 40), "spec.restartingExitCode: must be exit codes"),
        ("/spec/priority", json!(5), "spec.priority: must be text, not a number (5)"),
        ("/spec/priority", json!("very high"), "spec.priority: must be a label value"),
        ("/spec/schedulerName", json!({}), "spec.schedulerName: must be text, not an object ({})"),
        ("/spec/cleanPodPolicy", json!(true), "spec.cleanPodPolicy: must be text, not a truth value (true)"),
        ("/spec/failPolicy", json!(0), "spec.failPolicy: must be text, not a number (0)"),
    ];
    for (pointer, value, want) in rows {
        let pointer = spelt_out(pointer, TRAINER, &format!("{TRAINER}/template"), CONTAINER);
        let template = "spec.replicaSpecs.trainer.template";
        let want = spelt_out(want, "spec.replicaSpecs.trainer", template, &format!("{template}.spec.containers[0]"));
        let job = edited(&[(&pointer, value)]);
        let errors = errors(&job);
        assert_eq!(errors.len(), 1, "{pointer}: {errors:?}");
        assert!(errors[0].starts_with(&want), "{pointer}:\n  {}\n  {want}", errors[0]);
        assert_eq!(&*fact(&job).manifest, "{}");
    }
}

#[test]
fn a_group_whose_services_names_get_too_long_is_refused() {
    let long = "x".repeat(60);
    let trainer = base()["spec"]["replicaSpecs"]["trainer"].clone();
    let errors = errors(&edited(&[(&format!("/spec/replicaSpecs/{long}"), trainer)]));
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with(&format!("spec.replicaSpecs.{long}: `j-{long}-1` is 64 characters long, 63 at most"))
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let job = edited(&[
        ("/spec/timeLimit", json!("x")),
        (&format!("{TRAINER}/replicas"), json!(-1)),
        ("/spec/replicaSpecs/ps", json!(null)),
    ]);
    let paths: Vec<_> = fact(&job).spec.unwrap_err().into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["spec.timeLimit", "spec.replicaSpecs.ps", "spec.replicaSpecs.trainer.replicas"]);
    assert_eq!(errors(&json!("no object")).len(), 1);
    assert_eq!(errors(&json!({})), ["spec: must be an object with replicaSpecs (missing)"]);
}

#[test]
fn the_number_of_pods_is_bounded_for_the_whole_job() {
    let mut group = base()["spec"]["replicaSpecs"]["trainer"].clone();
    group["replicas"] = json!(60_000);
    let job = edited(&[("/spec/replicaSpecs", json!({"a": group, "b": group}))]);
    assert_eq!(
        errors(&job),
        ["spec.replicaSpecs: asks for 120000 pods altogether; at most 100000 are possible (120000)"]
    );
}

#[test]
fn names_are_bound_by_services_only_where_there_are_any() {
    let no_services = (format!("{CONTAINER}/name"), json!("main"));
    for name in ["3b", "a.b", &"n".repeat(63)] {
        let job = edited(&[("/metadata/name", json!(name)), (&no_services.0, no_services.1.clone())]);
        assert!(fact(&job).spec.is_ok_and(|spec| !spec.groups[0].services), "{name}");
    }
    // The last index counts: one digit more is one too many.
    let name = "n".repeat(53);
    for (replicas, ok) in [(10, true), (11, false)] {
        let job = edited(&[("/metadata/name", json!(name)), (&format!("{TRAINER}/replicas"), json!(replicas))]);
        assert_eq!(fact(&job).spec.is_ok(), ok, "{replicas}");
    }
}
