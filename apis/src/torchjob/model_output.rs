//! Volume into which the training writes its model, and the ModelVersion that a job leaves behind when it succeeded.
//!
//! Owns `spec.modelVersion`. It must not know containers (that is `pods.rs`), nor how an image is built of the model. Tests:
//! `tests/pods.rs`, scenarios `model-*`.

use engine::Job;
use model::{CreatePhase, OwnedRef, OwnedSpec, ReadinessGate, Retain, SlotId, Text};
use serde_json::{Value, json};
use settings::ModelStorage;

use super::constants::Task;
use crate::api::RenderInput;
use crate::fields::Findings;
use crate::modelversion::storage::{Place, Storage};
use crate::modelversion::{self, first_five};
use crate::objects::{at, text_at};

/// Path of the spec of the version.
const PATH: &str = "spec.modelVersion.spec";
/// Path of a node's name in the spec of a version.
const NODE: [&str; 3] = ["storage", "localStorage", "nodeName"];

/// Returns where the volume is mounted, and the volume without its name; `None` where no storage is named. With it, true for local
/// storage without a node.
pub(super) fn read(spec: &Value, allowed: &ModelStorage, findings: &mut Findings) -> (Option<Value>, bool) {
    if findings.object(spec, "spec", "modelVersion").is_none() {
        return (None, false);
    }
    let none = Value::Null;
    let version = at(spec, &["modelVersion", "spec"]).unwrap_or(&none);
    for key in ["modelName", "imageRepo"] {
        if text_at(version, &[key]).is_none_or(str::is_empty) {
            findings.mistake(
                format!("{PATH}.{key}"),
                version.get(key),
                "is not written: no image is built of the model",
            );
        }
    }
    match Storage::read(version, PATH, true, allowed, findings) {
        Storage::At(Place::Nfs { server, path }, mount) => {
            (Some(json!({"mountPath": mount, "volume": {"nfs": {"server": server, "path": path}}})), false)
        }
        Storage::At(Place::Local { path, node }, mount) => {
            (Some(json!({"mountPath": mount, "volume": {"hostPath": {"path": path}}})), node.is_none())
        }
        Storage::Absent => {
            let problem = "names no storage: the training gets no volume for its model";
            findings.mistake(format!("{PATH}.storage"), version.get("storage"), problem);
            (None, false)
        }
        Storage::Wrong => (None, false),
    }
}

/// Returns the version of a job for its manifest: its name and its spec; `None` for a job that leaves none.
pub(super) fn version(object: &Value) -> Option<Value> {
    let written = at(object, &["spec", "modelVersion"]).filter(|version| version.is_object())?;
    let job = text_at(object, &["metadata", "name"])?;
    let uid = text_at(object, &["metadata", "uid"])?;
    Some(json!({"name": format!("mv-{job}-{}", first_five(uid)), "spec": written.get("spec")}))
}

/// Returns the name of the version of a job.
pub(super) fn name(manifest: &Value) -> Option<&str> {
    text_at(manifest, &["version", "name"])
}

/// Returns the version as an object that a job leaves behind. It is not the job's: it stays when the job is deleted.
pub(super) fn owned(manifest: &Value) -> Option<OwnedSpec> {
    Some(OwnedSpec {
        object: OwnedRef::new(modelversion::API_VERSION, modelversion::KIND, name(manifest)?),
        when: CreatePhase::Succeeded,
        awaits: ReadinessGate::Nothing,
        keep: Retain::Left,
        digest: None,
        follows: None,
        pods: None,
    })
}

/// Renders the version. Where the node of its model is not known, its own status shows that it lacks one.
pub(super) fn render(source: RenderInput<'_>, job: &Job) -> Value {
    let mut spec =
        at(source.manifest, &["version", "spec"]).filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    let node = node(job).or_else(|| written_node(source.manifest).map(Text::from));
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("createdBy".to_owned(), json!(&*source.job.name));
    }
    if let Some(local) = spec.pointer_mut("/storage/localStorage").and_then(Value::as_object_mut) {
        local.insert("nodeName".to_owned(), json!(node.as_deref()));
    }
    json!({"metadata": {"namespace": &*source.job.namespace}, "spec": spec})
}

/// Returns the nodes that the manifest names and on which the model was written, where they differ.
pub(super) fn moved<'a>(manifest: &'a Value, job: &Job) -> Option<(&'a str, Text)> {
    let written = written_node(manifest)?;
    let found = node(job)?;
    (written != &*found).then_some((written, found))
}

fn written_node(manifest: &Value) -> Option<&str> {
    text_at(at(manifest, &["version", "spec"])?, &NODE).filter(|node| !node.is_empty())
}

/// Returns the node on which the model was written: the master's, or else that of another pod.
fn node(job: &Job) -> Option<Text> {
    let master = SlotId { group: Task::Master.lower().into(), index: 0 };
    let of_master = job.slot(&master).and_then(|slot| job.pods.get(slot.pod.as_ref()?));
    let of_others = || job.pods.values().find_map(|pod| pod.fact.node.clone());
    of_master.and_then(|pod| pod.fact.node.clone()).or_else(of_others)
}
