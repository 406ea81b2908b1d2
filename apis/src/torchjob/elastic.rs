//! Elastic training: annotations by which AIMaster, users and the operator talk, and what pods and the master's service of such a job
//! have besides.
//!
//! Owns the keys and their values. It must not decide when a pod is replaced or let go: the engine does. Tests: `tests/elastic.rs`.

use model::json::merge_patch;
use model::{AnnotationChanges, Checkpoint, Elastic, ObjectAnnotations, Timestamp};
use serde_json::{Map, Value, json};

use super::autoscaler;
use super::constants::{CONTAINER, ELASTIC, Task};
use super::network::Network;
use super::storage_node::{self, STORAGE_NODE};
use super::tasks::PATH;
use crate::api::{PodSlot, RenderInput, ReportedEvent};
use crate::events::normal;
use crate::fields::Findings;
use crate::modelversion::constants::FAILOVER;
use crate::objects::{SIZE, annotation, at, text_at};
use crate::replicas::slot_name;
use crate::template::{append_list, containers};

/// Finalizer of pods: they stay until a checkpoint is written.
pub(super) const PROTECTOR: &str = "distributed.io/preempt-protector";
/// Label of pods and of the master's service: generation of the job's object.
pub(super) const GENERATION: &str = "distributed.io/job-generation";
/// Annotation of pods: number of pods that train.
pub(super) const WORLD_SIZE: &str = "distributed.io/world-size";

/// Annotation on a job: pods are being replaced, or were.
const SCALE_STATE: &str = "distributed.io/scale-state";
/// Values of that annotation.
const SCALE_STATES: [(&str, bool); 2] = [("inflight", true), ("done", false)];
/// Annotation on a job: the checkpoint that was asked for.
const REQUESTED: &str = "distributed.io/ckpt-requested-version";
/// Annotation on a job: the checkpoint that was written.
const COMPLETED: &str = "distributed.io/ckpt-completed-version";
/// Annotation on a job: old pods may be replaced.
const READY: &str = "distributed.io/ready-to-start-worker";
/// Annotation on a job: they may be without waiting.
const AT_ONCE: &str = "distributed.io/immediately-start-worker";
/// Annotation of a pod template: it changes, and the generation of the job's object with it.
const INCREASE: &str = "distributed.io/generation-to-increase";

/// Image of the container that waits for the master.
const WAITER_IMAGE: &str = "docker.io/alpine:3.10";

/// Annotations that specs reference.
pub(super) const ANNOTATIONS: [&str; 8] =
    [FAILOVER, SCALE_STATE, REQUESTED, COMPLETED, READY, AT_ONCE, autoscaler::RESTART, STORAGE_NODE];

/// Reads the notes on a job object.
pub(super) fn read(object: &Value, findings: &mut Findings) -> ObjectAnnotations {
    let failed_over = annotation(object, FAILOVER).and_then(Timestamp::parse_rfc3339);
    let restarts = annotation(object, autoscaler::RESTART).and_then(|text| text.parse().ok());
    let noted = ObjectAnnotations {
        failed_over,
        restarts,
        storage_node: storage_node::read(object),
        ..ObjectAnnotations::default()
    };
    let (key, on) = ELASTIC;
    if annotation(object, key) != Some(on) {
        return noted;
    }
    let is_true = |key: &str| annotation(object, key) == Some("true");
    let mut checkpoint = |key: &str| {
        let text = annotation(object, key)?;
        let value: Option<Value> = serde_json::from_str(text).ok();
        let version = value.as_ref().and_then(|value| value.get("version")?.as_u64());
        if version.is_none() {
            let problem =
                "must be JSON with a version, such as {\"version\": 7, \"status\": \"Succeeded\"}; it does not count";
            findings.mistake(format!("metadata.annotations.{key}"), Some(&Value::from(text)), problem);
        }
        let done = value.as_ref().and_then(|value| text_at(value, &["status"])) == Some("Succeeded");
        Some(Checkpoint { version: version?, done })
    };
    let (requested, completed) = (checkpoint(REQUESTED), checkpoint(COMPLETED));
    let state = annotation(object, SCALE_STATE);
    let elastic = Elastic {
        generation: generation(object),
        starts: is_true(READY),
        at_once: is_true(AT_ONCE),
        scaling: SCALE_STATES.into_iter().find(|(word, _)| Some(*word) == state).map(|(_, scaling)| scaling),
        requested,
        completed: completed.map(|checkpoint| checkpoint.version),
    };
    ObjectAnnotations { elastic: Some(elastic), ..noted }
}

/// Returns the generation of an object; 1 where it has none.
pub(super) fn generation(object: &Value) -> u64 {
    at(object, &["metadata", "generation"]).and_then(Value::as_u64).unwrap_or(1)
}

/// Renders the merge patch that writes notes on a job object.
pub(super) fn patch(source: RenderInput<'_>, notes: &AnnotationChanges, now: Timestamp) -> Value {
    let mut annotations = Map::new();
    let mut add = |key: &str, value: Option<String>| {
        annotations.extend(value.map(|value| (key.to_owned(), json!(value))));
    };
    add(FAILOVER, notes.failed_over.map(Timestamp::to_rfc3339));
    add(READY, notes.starts.map(|starts| starts.to_string()));
    add(autoscaler::RESTART, notes.restarts.map(|restarts| restarts.to_string()));
    add(AT_ONCE, notes.at_once.map(|at_once| at_once.to_string()));
    let word = |scaling: bool| SCALE_STATES.into_iter().find(|(_, state)| *state == scaling).map(|(word, _)| word);
    add(SCALE_STATE, notes.scaling.and_then(word).map(str::to_owned));
    let requested = notes.requested.map(|asked| {
        let status = if asked.done { "Succeeded" } else { "InProgress" };
        let context = if asked.done { "the pods were let go" } else { "pods are being deleted" };
        let value =
            json!({"version": asked.version, "status": status, "context": context, "timestamp": now.to_rfc3339()});
        value.to_string()
    });
    add(REQUESTED, requested);
    add(STORAGE_NODE, notes.storage_node.as_ref().map(ToString::to_string));
    let mut patch = json!({"metadata": {"annotations": annotations}});
    // Keys as the user spelt them.
    let mut set = |key: &str, value: Value| {
        if let Some(key) = text_at(source.manifest, &[key]) {
            merge_patch(&mut patch, &json!({"spec": {PATH.trim_start_matches("spec."): {key: value}}}));
        }
    };
    if let Some(generation) = notes.generation {
        set("masterKey", json!({"template": {"metadata": {"annotations": {INCREASE: generation.to_string()}}}}));
    }
    if let Some(replicas) = notes.replicas {
        set("workerKey", json!({"numTasks": replicas}));
    }
    patch
}

/// Returns the Kubernetes Events that report written notes.
pub(super) fn events(notes: &AnnotationChanges) -> Vec<ReportedEvent> {
    let asked = notes.requested.map(|asked| {
        let (reason, what) = if asked.done {
            ("CheckpointSucceeded", "is written; the pods that are being deleted go")
        } else {
            ("CheckpointStarted", "is asked for, because pods are being deleted")
        };
        normal(reason, format!("checkpoint {} {what}", asked.version))
    });
    let scaled =
        (notes.scaling == Some(false)).then(|| normal("ScaleSucceed", "all pods are of one generation".to_owned()));
    let resized = notes.replicas.map(|replicas| normal("SuccessfulRescale", format!("Worker: new size: {replicas}")));
    asked.into_iter().chain(scaled).chain(resized).collect()
}

/// Returns the generation of an elastic job's object in its manifest; `None` for another job.
pub(super) fn of(manifest: &Value) -> Option<u64> {
    at(manifest, &["elastic"]).and_then(Value::as_u64)
}

/// Labels the master's service with the generation, and has it select pods of that alone. A job that is not elastic has it select pods
/// of any: what is null is taken away from a service that is there.
pub(super) fn follow_generation(service: &mut Value, generation: Option<u64>) {
    for path in ["/metadata/labels", "/spec/selector"] {
        if let Some(labels) = service.pointer_mut(path).and_then(Value::as_object_mut) {
            labels.insert(GENERATION.to_owned(), json!(generation.map(|generation| generation.to_string())));
        }
    }
}

/// Adds to a rendered pod what an elastic job's pods have besides.
pub(super) fn add(source: RenderInput<'_>, pod: PodSlot<'_>, generation: u64, rendered: &mut Value) {
    let trains = &*pod.slot.group != Task::AiMaster.lower();
    if let Some(metadata) = rendered.get_mut("metadata").and_then(Value::as_object_mut) {
        append(metadata, "finalizers", json!(PROTECTOR));
        insert(metadata, "labels", GENERATION, json!(generation.to_string()));
        if trains {
            let size = Network::of(source).world_size();
            for key in [WORLD_SIZE, SIZE] {
                insert(metadata, "annotations", key, json!(size.to_string()));
            }
        }
    }
    if !trains {
        return;
    }
    let Some(spec) = rendered.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.insert("restartPolicy".to_owned(), json!("OnFailure"));
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        read_world_size(container);
    }
    if &*pod.slot.group == Task::Worker.lower() {
        let template = json!({"spec": {"containers": spec.get("containers")}});
        let waiters = init_containers(&source.job.name, &template);
        let all = spec.entry("initContainers").or_insert(Value::Null);
        if all.is_null() {
            *all = json!([]);
        }
        if let Some(all) = all.as_array_mut() {
            all.extend(waiters);
        }
    }
}

/// Has the last variable of a container, which is ours, follow the annotation of its pod.
fn read_world_size(container: &mut Value) {
    let env = container.get_mut("env").and_then(Value::as_array_mut);
    let own = env.and_then(|env| env.iter_mut().rfind(|variable| text_at(variable, &["name"]) == Some("WORLD_SIZE")));
    if let Some(own) = own {
        let path = format!("metadata.annotations['{WORLD_SIZE}']");
        *own = json!({"name": "WORLD_SIZE", "valueFrom": {"fieldRef": {"fieldPath": path}}});
    }
}

/// Returns the containers that run before the training of a worker: one has the image pulled, one waits for the master.
fn init_containers(job: &str, template: &Value) -> Vec<Value> {
    let torch = containers(template).iter().find(|each| text_at(each, &["name"]) == Some(CONTAINER));
    let warmup = torch.map(|torch| {
        let mut warmup = json!({
            "name": "warmup",
            "image": torch.get("image"),
            "command": ["sh", "-c", "echo the image is there"],
            "resources": torch.get("resources"),
        });
        let asks = |kind: &str| at(torch, &["resources", kind, "nvidia.com/gpu"]).is_some();
        if asks("limits") || asks("requests") {
            let env = [
                json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}),
                json!({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}),
            ];
            append_list(&mut warmup, "env", &env);
        }
        if let Some(warmup) = warmup.as_object_mut() {
            warmup.retain(|_, value| !value.is_null());
        }
        warmup
    });
    // Pods as processes have this machine's programs, where `ping` may be missing. There the training's own rendezvous has to wait.
    let wait = "command -v ping >/dev/null || { echo 'no ping to wait with'; exit 0; }\n\
                until ping -c 1 -W 1 \"$MASTER_ADDR\" >/dev/null 2>&1; do sleep 0.1; done";
    let waiter = json!({
        "name": "master-waiter",
        "image": WAITER_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", wait],
        "env": [{"name": "MASTER_ADDR", "value": slot_name(job, Task::Master.lower(), 0)}],
    });
    warmup.into_iter().chain([waiter]).collect()
}

fn append(metadata: &mut Map<String, Value>, key: &str, value: Value) {
    if let Some(all) = metadata.entry(key).or_insert_with(|| json!([])).as_array_mut()
        && !all.contains(&value)
    {
        all.push(value);
    }
}

fn insert(metadata: &mut Map<String, Value>, map: &str, key: &str, value: Value) {
    if let Some(all) = metadata.entry(map).or_insert_with(|| json!({})).as_object_mut() {
        all.insert(key.to_owned(), value);
    }
}
