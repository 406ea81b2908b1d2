//! The `CustomResourceDefinition` of AITrainingJob.
//!
//! The original had no schema, so this one refuses only what made the original crash: a replica group that is null and a
//! negative number of replicas. Everything else is kept as written, and what cannot be served becomes a condition. That is
//! why fields of the spec have no type, and why there is no CEL rule: a rule sees typed fields only, and a type would refuse
//! what users have stored. The definition is made from the schema as it is meant ([`spec_schema`]), which manifests are checked
//! against. Must not hold anything of other APIs. Tests: `tests/crd.rs`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::spec::{CLEAN, GROUP_END, JOB_END, RESTART, SCOPE};
use super::words::{GROUP, KIND, PLURAL};
use crate::fields::Word;
use crate::kubernetes;

/// Returns the definition, as `apiextensions.k8s.io/v1`.
pub(super) fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": PLURAL,
                "singular": "aitrainingjob",
                "shortNames": ["aitj"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Phase", "string", ".status.phase", 0, "Where the job stands."),
                    column("Restarts", "string", ".status.RestartCount", 0, "Restarts so far, by replica group."),
                    column("Restarting", "string", ".status.RestartReplicaName", 1, "The group a restart waits for."),
                    column("Running-Since", "date", ".status.startRunningTime", 1, "When every pod first ran."),
                    column("Ended", "date", ".status.endTime", 1, "When the job ended."),
                    column("Age", "date", ".metadata.creationTimestamp", 0, "When the job was created."),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A distributed training job of named replica groups.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "apiVersion": {"type": "string", "description": "Version of this object's schema."},
                        "kind": {"type": "string", "description": "AITrainingJob."},
                        "metadata": {"type": "object"},
                        "spec": spec(),
                        "status": status(),
                    },
                }},
            }],
        },
    })
}

/// Returns a column of `kubectl get`; priority 1 is shown by `-o wide` only.
fn column(name: &str, kind: &str, path: &str, priority: u32, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description})
}

/// Returns the schema of a field of one type whose members are kept as written.
fn open(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema of `spec` as it is meant: types, accepted words, and the fields of pod templates.
pub(super) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

/// Returns the schema of `spec`. It refuses only what made the original operator fail.
fn spec() -> Value {
    let mut spec = strict_spec();
    let fields = [&["properties"][..], &["properties", "replicaSpecs", "additionalProperties", "properties"]];
    for path in fields {
        let Some(fields) = path.iter().try_fold(&mut spec, |schema, key| schema.get_mut(*key)) else { continue };
        for (name, field) in fields.as_object_mut().into_iter().flatten() {
            if name != "replicaSpecs" {
                loosen(field);
            }
        }
    }
    for path in [&[][..], &["properties", "replicaSpecs", "additionalProperties"]] {
        let schema = path.iter().try_fold(&mut spec, |schema, key| schema.get_mut(*key));
        keep_unknown(schema.and_then(Value::as_object_mut));
    }
    spec
}

/// Makes a field one of any type: a wrong one is a condition on the job, not a refusal.
fn loosen(field: &mut Value) {
    let Some(field) = field.as_object_mut() else { return };
    field.retain(|key, _| matches!(key.as_str(), "description" | "minimum"));
    keep_unknown(Some(field));
}

fn keep_unknown(schema: Option<&mut Map<String, Value>>) {
    if let Some(schema) = schema {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
}

fn strict_spec() -> Value {
    json!({
        "type": "object",
        "description": "What the job asks for.",
        "properties": {
            "restartingExitCode": {
                "x-kubernetes-int-or-string": true,
                "description": "Exit codes that count as restartable: numbers between commas, or one number.",
            },
            "frameworkType": field("string", "Name of the framework; not acted on."),
            "faultTolerant": field("boolean", "Not acted on: each group's restartPolicy says what is restarted."),
            "priority": field("string", "Value of the label `priority` of every pod."),
            "schedulerName": field("string", "Scheduler of every pod; the template's own when empty."),
            "timeLimit": field("integer", "Seconds from the first pod running after which the job ends as Timeout."),
            "cleanPodPolicy": one_of(
                &CLEAN,
                "What becomes of the pods of a job that succeeded or failed: All (deleted) or None (kept).",
            ),
            "failPolicy": one_of(&JOB_END, "Which groups fail the job: Any (default), All or None."),
            "completePolicy": one_of(&JOB_END, "Which groups complete the job: All (default), Any or None."),
            "replicaSpecs": {
                "type": "object",
                "description": "The replica groups by name.",
                "additionalProperties": {"type": "object", "properties": replica_spec()},
            },
        },
    })
}

fn replica_spec() -> Value {
    json!({
        "replicas": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of pods, with indices from 0; 1 when absent.",
        },
        "minReplicas": field("integer", "Not acted on."),
        "maxReplicas": field("integer", "Not acted on."),
        "edlPolicy": one_of(&[("Auto", ()), ("Manual", ()), ("Never", ())], "Not acted on."),
        "restartPolicy": one_of(
            &RESTART,
            "Which failures are restarted: Always, OnFailure, OnNodeFail, Never (default), ExitCode or \
             OnNodeFailWithExitCode.",
        ),
        "restartScope": one_of(&SCOPE, "What a restart takes along: All (default), Replica or Pod."),
        "restartLimit": field("integer", "Restarts this group may cause; unlimited when absent."),
        "failPolicy": one_of(&GROUP_END, "Which pods fail the group: Any (default), Rank0, All or None."),
        "completePolicy": one_of(&GROUP_END, "Which pods complete the group: All (default), Any, Rank0 or None."),
        "template": {
            "$ref": kubernetes::POD_TEMPLATE,
            "description": "The pod template, a core/v1 PodTemplateSpec. Containers whose names start with aitj- decide the \
                pod's result; their ports of such names are announced to all pods of the job.",
        },
    })
}

fn field(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

fn one_of<T>(words: &[Word<T>], description: &str) -> Value {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    json!({"type": "string", "enum": words, "description": description})
}

/// Returns the schema of the status. Only Trainyard writes it, so its fields have types; `null` stays possible where the
/// original operator wrote it. Maps are written as a whole (`atomic`): merged member by member, server-side apply leaves
/// `null` where a map has lost its last member.
fn status() -> Value {
    let mut status = open("object", "What has become of the job. Written by the operator.");
    if let Some(status) = status.as_object_mut() {
        // Server-side apply then replaces it as a whole: what others left there goes, and an emptied map stays a map (apply would
        // merge it to null).
        status.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        status.insert(
            "properties".to_owned(),
            json!({
                "phase": {
                    "type": "string",
                    "description": "Empty before the first decision, then Pending, Creating, Running, Terminating or Restarting; \
                        at the end Succeed, Failed, Timeout, Preempted or NodeFail.",
                },
                "conditions": {
                    "type": "array",
                    "nullable": true,
                    "description": "The phases the job went through, in order, the last one True. Before them what needs \
                        attention: Invalid, NameTaken, Degraded or Warning.",
                    "items": condition(),
                },
                "replicaStatuses": {
                    "type": "object",
                    "nullable": true,
                    "x-kubernetes-map-type": "atomic",
                    "description": "Pods by replica group and state.",
                    "additionalProperties": counters(),
                },
                "RestartCount": {
                    "type": "object",
                    "nullable": true,
                    "x-kubernetes-map-type": "atomic",
                    "description": "Restarts so far, by replica group.",
                    "additionalProperties": {"type": "integer"},
                },
                "RestartReplicaName": {
                    "type": "string",
                    "description": "The group that asked for the restart under way, while its old pods are not gone yet.",
                },
                "startTime": time("When the job was first Pending."),
                "startRunningTime": time("When every pod first ran; restarts do not change it."),
                "endTime": time("When the job ended."),
                "lastReconcileTime": time("Not written."),
                "trainyard": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "description": "What the operator needs to go on when its log is lost. Not an interface.",
                },
            }),
        );
    }
    status
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "nullable": true, "description": description})
}

fn condition() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "type": {"type": "string", "description": "A phase, or Invalid, NameTaken, Degraded, Warning."},
            "status": {"type": "string", "description": "True or False."},
            "reason": {"type": "string", "description": "One word."},
            "message": {"type": "string", "description": "For people."},
            "lastProbeTime": time("When it was seen last."),
            "lastTransitionTime": time("When it became so."),
        },
    })
}

fn counters() -> Value {
    let count = |description: &str| json!({"type": "integer", "description": description});
    json!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "pending": count("Pods without a node."),
            "scheduled": count("Pods with a node that do not run yet."),
            "active": count("Pods that run."),
            "succeeded": count("Pods that succeeded."),
            "restarting": count("Pods of a restart that do not run yet."),
            "failed": count("Pods that failed."),
        },
    })
}
