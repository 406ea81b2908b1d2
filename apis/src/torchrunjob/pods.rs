//! Slot -> Pod of a worker: labels, volumes, resources, and the launcher in the training container.
//!
//! The template is the queue's and stays as it is but for the members named here. It must not decide whether a pod is wanted.
//! Tests: `tests/pods.rs`.

use model::FieldError;
use serde_json::{Map, Value, json};

use super::constants::{
    GPU_LABEL, ID_LABEL, INDEX_LABEL, KAI_LABEL, NAME_LABEL, OBJECT_LABEL, QUEUE_LABEL, ROLE_LABEL, WORKER,
};
use super::launcher::{Worker, command, set_environment};
use super::size::Shape;
use super::workspace;
use crate::api::{PodSlot, RenderInput};
use crate::objects::{at, list_at, text_at, text_members};
use crate::template::{self, PodParts, containers_mut};
use crate::torchrunqueue::constants::{API_VERSION, APP, APP_LABEL, TRAINER};
use crate::torchrunqueue::storage::{scaled, times};

/// Renders the pod of a worker.
///
/// # Errors
/// Returns an error if the manifest has no template.
pub(super) fn pod(source: RenderInput<'_>, pod: PodSlot<'_>) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let (template, mut spec) = template_of(manifest)?;
    let shape = Shape::read(pod.group.shape.as_deref());
    let per_node = count(manifest, "gpusPerNode");
    let index = pod.slot.index;
    let worker = Worker { index, gpus: shape.gpus_of(index, per_node), shape };

    let mut volumes = Volumes::default();
    workspace::attach(manifest, &mut spec, &mut volumes);
    attach_claims(manifest, worker, &mut volumes);
    volumes.add_to(&mut spec, manifest);
    for container in containers_mut(&mut spec, "containers") {
        let is_trainer = text_at(container, &["name"]) == Some(TRAINER);
        if let Some(trainer) = container.as_object_mut().filter(|_| is_trainer) {
            trainer.insert("command".to_owned(), command(source, worker));
            set_resources(trainer, manifest, worker.gpus, per_node);
            set_environment(trainer, manifest, worker);
            let mounts = trainer.entry("volumeMounts").or_insert_with(|| json!([]));
            if let Value::Array(mounts) = mounts {
                mounts.extend(volumes.mounts.iter().cloned());
                mounts.extend(list_at(manifest, &["mounts"]).iter().cloned());
            }
            let has_place = trainer.get("workingDir").is_some_and(|place| !place.is_null());
            let of_job = at(manifest, &["workingDir"]).filter(|place| !place.is_null());
            let place = of_job.or_else(|| at(manifest, &["workspace", "path"]).filter(|_| !has_place));
            if let Some(place) = place {
                trainer.insert("workingDir".to_owned(), place.clone());
            }
        }
    }
    // Without a scheduler of the queue the template's stays.
    let scheduler = at(manifest, &["scheduler"]).filter(|scheduler| scheduler.is_string());
    spec.extend(scheduler.map(|scheduler| ("schedulerName".to_owned(), scheduler.clone())));
    spec.insert("restartPolicy".to_owned(), at(manifest, &["restartPolicy"]).cloned().unwrap_or_default());
    if shape.is_distributed() {
        let name = worker_name(&job.name, index);
        spec.insert("hostname".to_owned(), json!(name));
        spec.insert("subdomain".to_owned(), json!(&*job.name));
    }

    let mut labels = template::labels(template);
    if let Some(kind) = at(manifest, &["gpuType"]).filter(|kind| kind.is_string()) {
        labels.insert(GPU_LABEL.to_owned(), kind.clone());
    }
    if let Some(queue) = at(manifest, &["kai"]).filter(|queue| queue.is_string()) {
        labels.insert(KAI_LABEL.to_owned(), queue.clone());
    }
    labels.extend(texts(manifest, "labels"));
    labels.extend(slot_labels(manifest, WORKER, index));
    let mut annotations = template::annotations(template);
    for (key, member) in [(ID_LABEL, "jobID"), (NAME_LABEL, "jobName"), (QUEUE_LABEL, "queue")] {
        annotations.insert(key.to_owned(), at(manifest, &[member]).cloned().unwrap_or_default());
    }
    annotations.extend(texts(manifest, "annotations"));
    template::mark(&mut annotations, pod);
    let name = worker_name(&job.name, index);
    Ok(template::pod(PodParts { api_version: API_VERSION, job, name: &name, template, labels, annotations, spec }))
}

/// Returns the name of a worker's pod, which is its host name as well.
pub(super) fn worker_name(job: &str, index: u32) -> String {
    format!("{job}-{index}")
}

/// Returns the template of the workers, and a copy of its spec.
///
/// # Errors
/// Returns an error if the manifest has none.
pub(super) fn template_of(manifest: &Value) -> Result<(&Value, Map<String, Value>), FieldError> {
    let template = at(manifest, &["template"]).unwrap_or(&Value::Null);
    let spec = template.get("spec").and_then(Value::as_object).cloned();
    let lost = || FieldError::new("spec.podTemplate", "missing", "the manifest in force has no template");
    Ok((template, spec.ok_or_else(lost)?))
}

/// Returns the labels of every object of a job.
pub(super) fn family_labels(manifest: &Value) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert(APP_LABEL.to_owned(), json!(APP));
    for (key, member) in [(ID_LABEL, "jobID"), (NAME_LABEL, "jobName"), (QUEUE_LABEL, "queue"), (OBJECT_LABEL, "name")]
    {
        labels.insert(key.to_owned(), at(manifest, &[member]).cloned().unwrap_or_default());
    }
    labels
}

/// Returns the labels of a pod, by which we find its slot.
pub(super) fn slot_labels(manifest: &Value, group: &str, index: u32) -> Map<String, Value> {
    let mut labels = family_labels(manifest);
    labels.insert(ROLE_LABEL.to_owned(), json!(group));
    labels.insert(INDEX_LABEL.to_owned(), json!(index.to_string()));
    labels
}

fn texts(manifest: &Value, key: &str) -> impl Iterator<Item = (String, Value)> {
    text_members(at(manifest, &[key])).map(|(key, value)| (key.to_owned(), json!(value)))
}

fn count(manifest: &Value, key: &str) -> u32 {
    at(manifest, &[key]).and_then(crate::replicas::count_of).unwrap_or_default()
}

/// Volumes that are added to a worker, and their mounts in the training container.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl Volumes {
    /// Adds a volume that the training container does not see itself.
    pub(super) fn add(&mut self, volume: Value) {
        self.volumes.push(volume);
    }

    /// Adds a volume, mounted at a path.
    pub(super) fn add_mounted(&mut self, name: &str, volume: Value, path: &Value, read_only: bool) {
        self.volumes.push(volume);
        let mut mount = json!({"name": name, "mountPath": path});
        if let Some(mount) = mount.as_object_mut().filter(|_| read_only) {
            mount.insert("readOnly".to_owned(), json!(true));
        }
        self.mounts.push(mount);
    }

    /// Adds the volumes to a pod's spec, and those of the job after them.
    fn add_to(&mut self, spec: &mut Map<String, Value>, manifest: &Value) {
        let of_job = list_at(manifest, &["volumes"]).iter().cloned();
        let added: Vec<Value> = self.volumes.drain(..).chain(of_job).collect();
        if added.is_empty() {
            return;
        }
        if let Value::Array(all) = spec.entry("volumes").or_insert_with(|| json!([])) {
            all.extend(added);
        }
    }
}

/// Adds the shared claims, and the shared memory.
fn attach_claims(manifest: &Value, worker: Worker<'_>, volumes: &mut Volumes) {
    for (volume, read_only) in [("checkpoints", false), ("datasets", true)] {
        if let (Some(claim), Some(path)) = (text_at(manifest, &[volume, "claim"]), at(manifest, &[volume, "path"])) {
            let body = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
            volumes.add_mounted(volume, body, path, read_only);
        }
    }
    if let Some(size) = text_at(manifest, &["shmPerGpu"]) {
        let body =
            json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": times(size, worker.gpus.max(1))}});
        volumes.add_mounted("shm", body, &json!("/dev/shm"), false);
    }
}

/// Gives the training container the GPUs of its worker, and of CPU and memory the part that goes with them. A template that
/// asks for a whole node stays as it is.
fn set_resources(trainer: &mut Map<String, Value>, manifest: &Value, gpus: u32, per_node: u32) {
    let is_fixed = at(manifest, &["fixedGpus"]).and_then(Value::as_bool).unwrap_or_default();
    let written = [("cpu", at(manifest, &["cpus"])), ("memory", at(manifest, &["memory"]))];
    let written: Vec<(&str, &Value)> =
        written.into_iter().filter_map(|(key, value)| Some((key, value.filter(|value| !value.is_null())?))).collect();
    if !is_fixed && gpus == per_node && written.is_empty() {
        return;
    }
    let resource = text_at(manifest, &["gpu"]).unwrap_or_default();
    let resources = trainer.entry("resources").or_insert_with(|| json!({}));
    let Some(resources) = resources.as_object_mut() else { return };
    for kind in ["requests", "limits"] {
        let Some(amounts) = resources.entry(kind).or_insert_with(|| json!({})).as_object_mut() else { continue };
        for (key, value) in &written {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            amounts.insert((*key).to_owned(), json!(text));
        }
        if gpus > 0 {
            amounts.insert(resource.to_owned(), json!(gpus.to_string()));
        } else {
            amounts.remove(resource);
        }
        for key in ["cpu", "memory"].into_iter().filter(|_| 0 < gpus && gpus < per_node) {
            if let Some(part) = amounts.get(key).and_then(|amount| scaled(amount, gpus, per_node, key == "cpu")) {
                amounts.insert(key.to_owned(), json!(part));
            }
        }
    }
}
