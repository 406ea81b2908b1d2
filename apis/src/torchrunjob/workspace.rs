//! The workspace in the pods of a job: the pod that fills its claim, and the containers that copy it into each worker.
//!
//! Owns the scripts. Values of users reach them as environment, never as text. Tests: `tests/pods.rs`.

use model::FieldError;
use serde_json::{Map, Value, json};

use super::constants::SYNC;
use super::pods::{Volumes, slot_labels, template_of};
use crate::api::{PodSlot, RenderInput, Upload};
use crate::objects::{at, list_at, text_at};
use crate::replicas::slot_name;
use crate::template::{self, PodParts};
use crate::torchrunqueue::constants::API_VERSION;

/// Variable of the pod that fills the workspace: the generation it fills.
const GENERATION: &str = "WORKSPACE_GENERATION";
/// Variable of the pod that fills the workspace: the archive it waits for.
const UPLOAD: &str = "WORKSPACE_UPLOAD";
/// The archive, in that pod.
const ARCHIVE: &str = "/workspace/workspace.zip";
/// Image of the containers that copy the workspace.
const COPIER: &str = "alpine:3.18";
/// Place of the claim in a worker.
const CLAIM_PATH: &str = "/workspace-pvc";
/// Starts of the names of variables that the pod that fills the workspace gets of the job's.
const CREDENTIALS: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Members of the workers' template that its pod has as well: it has to get onto the same nodes, pull images from the same place and
/// reach the same hosts.
pub(super) const INHERITED: [&str; 10] = [
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
];
/// Annotation of its pod: the members of the template that it has.
const INHERITED_BY: &str = "torchrun.ai/inherited";

/// Tests the archive, with what the image has.
const TEST: &str = "is_whole() {
  if command -v unzip >/dev/null; then unzip -tq workspace.zip; else python3 -m zipfile -t workspace.zip; fi >/dev/null 2>&1
}
";
/// Unpacks the archive, over what an earlier generation left.
const UNPACK: &str =
    "if command -v unzip >/dev/null; then unzip -oq workspace.zip; else python3 -m zipfile -e workspace.zip .; fi
rm -f workspace.zip
";
/// Waits for an archive that is uploaded. Parts of it are named `.upload-*`; as long as they grow, no time passes.
const AWAIT_UPLOAD: &str = "waited=0
parts=
until is_whole; do
  now=$(ls -l .upload-* 2>/dev/null || true)
  if [ \"$now\" != \"$parts\" ]; then
    waited=0
    parts=$now
  fi
  if [ \"$waited\" -ge 600 ]; then
    echo 'no archive was uploaded to /workspace/workspace.zip within 600 s' >&2
    exit 1
  fi
  sleep 1
  waited=$((waited + 1))
done
";
const DOWNLOAD: &str = "wget -q -O workspace.zip \"$WORKSPACE_URL\"\n";
/// Clones a branch or tag after `#`, or the default branch.
const CLONE: &str = "rm -rf .checkout
case \"$WORKSPACE_URL\" in
  *#*) git clone -q --depth 1 --branch \"${WORKSPACE_URL#*#}\" -- \"${WORKSPACE_URL%%#*}\" .checkout ;;
  *) git clone -q --depth 1 -- \"$WORKSPACE_URL\" .checkout ;;
esac
cp -a .checkout/. .
rm -rf .checkout
";
const FROM_STORE: &str = "aws s3 cp \"$WORKSPACE_URL\" workspace.tar.gz
tar -xzf workspace.tar.gz
rm -f workspace.tar.gz
";
/// Says that the workspace is complete.
const FINISH: &str = "printf '%s' \"$WORKSPACE_GENERATION\" > .generation\ntouch .sync_success\n";

/// Copies the workspace, once it is complete.
const COPY: &str = "until [ -f \"$FROM/.sync_success\" ]; do sleep 5; done\ncp -a \"$FROM/.\" \"$TO/\"\n";
/// Copies each later generation of the workspace.
const FOLLOW: &str = "trap 'exit 0' TERM
have=$(cat \"$FROM/.generation\" 2>/dev/null || true)
while true; do
  sleep 5 & wait $!
  now=$(cat \"$FROM/.generation\" 2>/dev/null || true)
  if [ -n \"$now\" ] && [ \"$now\" != \"$have\" ]; then
    cp -a \"$FROM/.\" \"$TO/\" && have=$now
  fi
done
";

/// Renders the pod that fills the workspace.
///
/// # Errors
/// Returns an error if the manifest has no template.
pub(super) fn pod(source: RenderInput<'_>, pod: PodSlot<'_>) -> Result<Value, FieldError> {
    let RenderInput { job, manifest, .. } = source;
    let (_, of_workers) = template_of(manifest)?;
    let of = |key: &str| at(manifest, &["workspace", key]).cloned().unwrap_or_default();
    let is_credential = |variable: &&Value| {
        text_at(variable, &["name"]).is_some_and(|name| CREDENTIALS.iter().any(|start| name.starts_with(start)))
    };
    let generation = pod.group.shape.as_deref().unwrap_or_default();
    let mut env = vec![json!({"name": GENERATION, "value": generation})];
    env.extend(awaits_upload(manifest).then(|| json!({"name": UPLOAD, "value": ARCHIVE})));
    env.extend(of("url").is_string().then(|| json!({"name": "WORKSPACE_URL", "value": of("url")})));
    env.extend(list_at(manifest, &["env"]).iter().filter(is_credential).cloned());
    let mut spec = inherited(&of_workers);
    let mut annotations = Map::new();
    if !spec.is_empty() {
        let keys: Vec<&str> = spec.keys().map(String::as_str).collect();
        annotations.insert(INHERITED_BY.to_owned(), json!(keys.join(",")));
    }
    spec.insert("restartPolicy".to_owned(), json!("OnFailure"));
    if of("serviceAccount").is_string() {
        spec.insert("serviceAccountName".to_owned(), of("serviceAccount"));
    }
    spec.entry("serviceAccountName").or_insert_with(|| json!("default"));
    spec.insert(
        "containers".to_owned(),
        json!([{
            "name": SYNC,
            "image": of("image"),
            "imagePullPolicy": of("pullPolicy"),
            "command": ["/bin/sh", "-c", script(manifest)],
            "workingDir": "/workspace",
            "env": env,
            "resources": {
                "requests": {"cpu": "100m", "memory": "1Gi"},
                "limits": {"cpu": "200m", "memory": "2Gi"},
            },
            "volumeMounts": [{"name": "workspace", "mountPath": "/workspace"}],
        }]),
    );
    spec.insert(
        "volumes".to_owned(),
        json!([{"name": "workspace", "persistentVolumeClaim": {"claimName": of("claim")}}]),
    );
    template::mark(&mut annotations, pod);
    let labels = slot_labels(manifest, SYNC, pod.slot.index);
    let name = slot_name(&job.name, SYNC, pod.slot.index);
    Ok(template::pod(PodParts {
        api_version: API_VERSION,
        job,
        name: &name,
        template: &Value::Null,
        labels,
        annotations,
        spec,
    }))
}

/// Returns the members that the pod has of the template of the workers. Of their affinity that is the part about nodes: its own pod is
/// there before the workers are.
fn inherited(of_workers: &Map<String, Value>) -> Map<String, Value> {
    let written = |key: &str| of_workers.get(key).filter(|value| !value.is_null()).cloned();
    let mut spec: Map<String, Value> =
        INHERITED.iter().filter_map(|key| Some(((*key).to_owned(), written(key)?))).collect();
    let nodes = of_workers.get("affinity").and_then(|affinity| affinity.get("nodeAffinity"));
    let affinity = nodes.filter(|nodes| !nodes.is_null()).map(|nodes| json!({"nodeAffinity": nodes}));
    spec.extend(affinity.map(|affinity| ("affinity".to_owned(), affinity)));
    spec
}

/// Returns whether the workspace is filled by an upload.
pub(super) fn awaits_upload(manifest: &Value) -> bool {
    let of = |key: &str| text_at(manifest, &["workspace", key]);
    of("source") == Some("zip") && of("url").is_none()
}

/// Returns the upload that a pod waits for.
pub(super) fn awaited_upload(pod: &Value) -> Option<Upload<'_>> {
    let container = list_at(pod, &["spec", "containers"]).first()?;
    let variables = list_at(container, &["env"]);
    let value = |name: &str| {
        let found = variables.iter().find(|variable| text_at(variable, &["name"]) == Some(name))?;
        text_at(found, &["value"])
    };
    Some(Upload { container: text_at(container, &["name"])?, file: value(UPLOAD)?, generation: value(GENERATION)? })
}

fn script(manifest: &Value) -> String {
    let has_url = at(manifest, &["workspace", "url"]).is_some_and(Value::is_string);
    let steps: &[&str] = match text_at(manifest, &["workspace", "source"]) {
        Some("git") => &[CLONE],
        Some("s3") => &[FROM_STORE],
        Some("existing") => &[],
        Some(_) | None if has_url => &[DOWNLOAD, UNPACK],
        Some(_) | None => &[TEST, AWAIT_UPLOAD, UNPACK],
    };
    format!("set -eu\n{}{FINISH}", steps.concat())
}

/// Adds the workspace to a worker: its claim, a copy of its own, and the containers that copy.
pub(super) fn attach(manifest: &Value, spec: &mut Map<String, Value>, volumes: &mut Volumes) {
    let (Some(claim), Some(path)) = (text_at(manifest, &["workspace", "claim"]), at(manifest, &["workspace", "path"]))
    else {
        return;
    };
    volumes.add(json!({"name": "workspace-pvc", "persistentVolumeClaim": {"claimName": claim, "readOnly": true}}));
    volumes.add_mounted("workspace", json!({"name": "workspace", "emptyDir": {}}), path, false);
    let copier = |name: &str, script: &str| {
        json!({
            "name": name,
            "image": COPIER,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", script],
            "env": [{"name": "FROM", "value": CLAIM_PATH}, {"name": "TO", "value": path}],
            "volumeMounts": [
                {"name": "workspace-pvc", "mountPath": CLAIM_PATH, "readOnly": true},
                {"name": "workspace", "mountPath": path},
            ],
        })
    };
    let mut follower = copier("workspace-refresh", FOLLOW);
    if let Some(follower) = follower.as_object_mut() {
        // It runs beside the worker's containers and does not keep the pod from ending.
        follower.insert("restartPolicy".to_owned(), json!("Always"));
    }
    if let Value::Array(all) = spec.entry("initContainers").or_insert_with(|| json!([])) {
        all.extend([follower, copier("workspace-sync", COPY)]);
    }
}
