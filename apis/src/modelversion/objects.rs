//! Objects of a version: its model, volume, claim and Dockerfile, the pod that builds the image, and the marks on its own object.
//!
//! It must not decide when they are created. Tests: `tests.rs`.

use engine::Job;
use model::{AnnotationChanges, FieldError, OwnedRef};
use serde_json::{Map, Value, json};

use super::constants::{API_VERSION, CONFIG_MAP, FAILOVER, GROUP, GROUP_LABEL, MODEL_LABEL, POD_ANNOTATION, VOLUME};
use crate::api::{PodSlot, RenderInput};
use crate::models;
use crate::names::LABEL_MAX;
use crate::objects::{at, list_at, text_at};
use crate::owned::CLAIM;
use crate::template::{self, PodParts};

/// Dockerfile of a model's image.
const DOCKERFILE: &str = "FROM busybox\nCOPY build/ /torch-on-k8s-model\n";
/// Secret with the credentials of the registry.
const CREDENTIALS: &str = "regcred";

/// Renders an object of a version.
///
/// # Errors
/// Returns an error for an object of another kind.
pub(super) fn owned(source: RenderInput<'_>, job: &Job, object: &OwnedRef) -> Result<Value, FieldError> {
    let in_namespace = json!({"namespace": &*source.job.namespace});
    Ok(match &*object.kind {
        models::KIND => json!({"metadata": in_namespace, "spec": {}}),
        kind if kind == VOLUME.kind => volume(source, job),
        kind if kind == CLAIM.kind => claim(source),
        kind if kind == CONFIG_MAP.kind => json!({"metadata": in_namespace, "data": {"dockerfile": DOCKERFILE}}),
        _ => {
            return Err(FieldError::new("kind", object.kind.to_string(), "a ModelVersion owns no object of this kind"));
        }
    })
}

/// Renders the volume, bound to the claim of the version: no claim of another namespace can take it.
fn volume(source: RenderInput<'_>, job: &Job) -> Value {
    let RenderInput { job: key, manifest, .. } = source;
    let claim = text_at(manifest, &["claim"]).unwrap_or_default();
    let made = job.owned.get(&CLAIM.named(claim)).and_then(|owned| owned.fact.as_ref());
    let mut spec = json!({
        "claimRef": {
            "apiVersion": CLAIM.api_version,
            "kind": CLAIM.kind,
            "namespace": &*key.namespace,
            "name": claim,
            "uid": made.map(|made| &*made.uid.0),
        },
        "capacity": {"storage": at(manifest, &["volume", "size"])},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
    });
    let source = at(manifest, &["volume", "source"]).and_then(Value::as_object);
    if let (Some(spec), Some(source)) = (spec.as_object_mut(), source) {
        spec.extend(source.clone());
    }
    json!({"metadata": {"labels": {GROUP_LABEL: GROUP}}, "spec": spec})
}

fn claim(source: RenderInput<'_>) -> Value {
    json!({
        "metadata": {"namespace": &*source.job.namespace, "labels": {GROUP_LABEL: GROUP}},
        "spec": {
            "volumeName": at(source.manifest, &["volume", "name"]),
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "50Mi"}},
            "storageClassName": "",
        },
    })
}

/// Renders the pod that builds the image.
pub(super) fn pod(source: RenderInput<'_>, pod: PodSlot<'_>) -> Value {
    let RenderInput { job, manifest, .. } = source;
    let name = text_at(manifest, &["pod"]).unwrap_or_default();
    let image = text_at(manifest, &["image"]).unwrap_or_default();
    let secret = json!({"secretName": CREDENTIALS, "items": [{"key": ".dockerconfigjson", "path": "config.json"}]});
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": container_name(name),
            "image": at(manifest, &["builder"]),
            "args": [
                "--skip-tls-verify=true",
                "--dockerfile=/workspace/dockerfile",
                "--context=dir:///workspace/",
                format!("--destination={image}"),
            ],
            "volumeMounts": [
                {"name": "kaniko-secret", "mountPath": "/kaniko/.docker"},
                {"name": "build-source", "mountPath": "/workspace/build"},
                {"name": "dockerfile", "mountPath": "/workspace/"},
            ],
        }],
        "volumes": [
            {"name": "kaniko-secret", "secret": secret},
            {"name": "build-source", "persistentVolumeClaim": {"claimName": at(manifest, &["claim"])}},
            {"name": "dockerfile", "configMap": {"name": "dockerfile"}},
        ],
    });
    let labels = [(GROUP_LABEL, json!(GROUP)), (MODEL_LABEL, at(manifest, &["model"]).cloned().unwrap_or_default())];
    let mut annotations = Map::new();
    template::mark(&mut annotations, pod);
    template::pod(PodParts {
        api_version: API_VERSION,
        job,
        name,
        template: &Value::Null,
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        annotations,
        spec: spec.as_object().cloned().unwrap_or_default(),
    })
}

/// Returns the name of the container: the pod's, as far as a container can be called so.
fn container_name(pod: &str) -> String {
    let plain = pod.replace('.', "-");
    plain.get(..LABEL_MAX).unwrap_or(&plain).trim_end_matches('-').to_owned()
}

/// Renders the merge patch that writes notes on a version: the marks of its model, and the time of a replaced pod.
pub(super) fn notes(manifest: &Value, notes: &AnnotationChanges) -> Value {
    let mut annotations = Map::new();
    let mut metadata = Map::new();
    if notes.marked {
        let mut owners = list_at(manifest, &["owners"]).to_vec();
        owners.retain(|owner| text_at(owner, &["kind"]) != Some(models::KIND));
        owners.push(json!({
            "apiVersion": API_VERSION,
            "kind": models::KIND,
            "name": at(manifest, &["model"]),
            "uid": at(manifest, &["owner"]),
        }));
        metadata.insert("labels".to_owned(), json!({MODEL_LABEL: at(manifest, &["model"])}));
        metadata.insert("ownerReferences".to_owned(), Value::Array(owners));
        annotations.insert(POD_ANNOTATION.to_owned(), json!(at(manifest, &["pod"])));
    }
    annotations.extend(notes.failed_over.map(|at| (FAILOVER.to_owned(), json!(at.to_rfc3339()))));
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    json!({"metadata": metadata})
}
