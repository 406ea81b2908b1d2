//! Job and queue -> the manifest that pods and claims are rendered from: every alias and default resolved, the template complete.
//!
//! Owns who wins where both say something. It must not hold numbers that may change while the job runs: those stand in the
//! [`model::JobSpec`]. Tests: `tests/pods.rs`.

use serde_json::{Map, Value, json};
use settings::Quantity;

use super::fields::{Fields, Policy};
use super::size::Size;
use crate::objects::{at, text_at};
use crate::template::is_gpu;
use crate::torchrunqueue::constants::{KAI_SCHEDULER, TRAINER};
use crate::torchrunqueue::datasets_claim;
use crate::torchrunqueue::settings::{Queue, Rendezvous};
use crate::torchrunqueue::storage::{Source, Volume, WorkspaceSettings, times};
use crate::torchrunqueue::templates::name_claims;

/// Endpoint that definitions of the original wrote where none was given.
const ETCD: &str = "etcd.etcd-system.svc.cluster.local:2379";
/// Port at which worker 0 serves the rendezvous.
const PORT: u16 = 29_500;
/// GPUs of a node whose template names none.
const GPU: &str = "nvidia.com/gpu";
/// Sizes that definitions of the original wrote where none was given.
const OLD_SIZES: [&str; 2] = ["1Gi", "10Gi"];
/// Size of a workspace.
const SIZE: &str = "1Gi";

/// Returns the GPUs of a node of a queue, and their resource.
pub(super) fn gpus_per_node<'a>(queue: &Queue<'a>) -> (u32, &'a str) {
    let found = queue.trainer().and_then(|trainer| {
        ["requests", "limits"].iter().find_map(|kind| {
            let amounts = at(trainer, &["resources", kind])?.as_object()?;
            let (name, amount) = amounts.iter().find(|(name, _)| is_gpu(name))?;
            Some((u32::try_from(Quantity::read(amount)?.ceil()).ok()?, name.as_str()))
        })
    });
    match (queue.node.gpus, found) {
        (Some(gpus), Some((_, name))) => (gpus, name),
        (Some(gpus), None) => (gpus, GPU),
        (None, Some(found)) => found,
        (None, None) => (0, GPU),
    }
}

/// Name of the claim of the workspace that a job has one of its own for.
pub(super) fn workspace_claim(job_name: &str) -> String {
    format!("{job_name}-workspace")
}

/// Name of the claim of the checkpoints.
pub(super) fn checkpoints_claim(job_name: &str) -> String {
    format!("{job_name}-checkpoints")
}

/// Returns the manifest of a job on a queue.
pub(super) fn recipe(job: &Fields<'_>, queue: &Queue<'_>, size: &Size) -> Value {
    let (per_node, gpu) = gpus_per_node(queue);
    // Without GPUs, a size per GPU is the size.
    let units = size.total(per_node).max(1);
    let rendezvous = job.distributed.rendezvous.or(queue.distributed.rendezvous).unwrap_or(Rendezvous::C10d);
    let endpoint = job.distributed.endpoint.or(queue.distributed.endpoint);
    let endpoint = match rendezvous {
        Rendezvous::C10d | Rendezvous::Static => endpoint.filter(|endpoint| *endpoint != ETCD),
        Rendezvous::Etcd | Rendezvous::EtcdV2 => Some(endpoint.unwrap_or(ETCD)),
    };
    let backend = job.distributed.backend.or(queue.distributed.backend).unwrap_or("nccl");
    let scheduler = queue.scheduling("scheduler").and_then(Value::as_str).or_else(|| queue.kai.map(|_| KAI_SCHEDULER));
    let of_job = |path: &[&str]| at(job.spec, path).filter(|value| !value.is_null());
    let shared = |volume: Option<Volume<'_>>, claim: String, path: &str| {
        volume.map(|volume| {
            json!({
                "claim": volume.existing.map_or(claim, str::to_owned),
                "owned": volume.existing.is_none(),
                "path": volume.mount_path.unwrap_or(path),
                "size": volume.size.map(|size| times(size, units)),
                "class": volume.class,
                "retain": volume.retain,
            })
        })
    };
    json!({
        "name": job.name,
        "jobName": job.job_name,
        "jobID": job.job_id,
        "queue": job.queue,
        "command": job.command,
        "setup": job.setup,
        "workingDir": job.working_dir,
        "restartPolicy": match job.reliability.policy { Policy::OnFailure => "OnFailure", Policy::Never => "Never" },
        "maxRestarts": job.reliability.max_restarts,
        "labels": of_job(&["labels"]),
        "annotations": of_job(&["annotations"]),
        "env": of_job(&["env"]),
        "volumes": of_job(&["volumes", "additionalVolumes"]),
        "mounts": of_job(&["volumes", "additionalMounts"]),
        "rendezvous": rendezvous.word(),
        "endpoint": endpoint,
        "port": job.distributed.port.or(queue.distributed.port).unwrap_or(PORT),
        "backend": if size.total(per_node) == 0 { "gloo" } else { backend },
        "gpusPerNode": per_node,
        "gpu": gpu,
        "fixedGpus": queue.node.gpus.is_some(),
        "cpus": queue.node.cpus,
        "memory": queue.node.memory,
        "gpuType": queue.node.gpu_type,
        "shmPerGpu": queue.volumes.shm_per_gpu,
        "scheduler": scheduler,
        "kai": queue.kai.filter(|_| scheduler == Some(KAI_SCHEDULER)),
        "template": template(queue),
        "workspace": workspace(job, queue, size, units),
        "checkpoints": shared(queue.volumes.checkpoints, checkpoints_claim(job.job_name), "/checkpoints"),
        "datasets": shared(queue.volumes.datasets, datasets_claim(job.queue), "/datasets"),
    })
}

/// Returns the settings of the workspace; null where there is none.
fn workspace(job: &Fields<'_>, queue: &Queue<'_>, size: &Size, units: u32) -> Value {
    if queue.volumes.without_workspace || !job.has_workspace {
        return Value::Null;
    }
    let volume = queue.volumes.workspace.unwrap_or_default();
    let on_queue = queue.workspace;
    let own = without_old_defaults(job.workspace, on_queue);
    let (source, url) = match own.source {
        Some(source) => (source, own.url),
        None => (on_queue.source.unwrap_or(Source::Zip), on_queue.url),
    };
    let image = match source {
        Source::S3 => "amazon/aws-cli:latest",
        Source::Zip | Source::Git | Source::Existing => "alpine/git:latest",
    };
    let per_gpu = || volume.size.map(|size| times(size, units));
    let of_either = own.size.or(on_queue.size).map(str::to_owned);
    json!({
        "claim": volume.existing.map_or_else(|| workspace_claim(job.job_name), str::to_owned),
        "owned": volume.existing.is_none(),
        "retain": volume.retain.unwrap_or_default(),
        "size": of_either.or_else(per_gpu).unwrap_or_else(|| SIZE.to_owned()),
        "class": own.class.or(on_queue.class).or(volume.class),
        "path": own.mount_path.or(on_queue.mount_path).or(volume.mount_path).unwrap_or("/app"),
        "image": own.image.or(on_queue.image).unwrap_or(image),
        "pullPolicy": own.pull_policy.or(on_queue.pull_policy).unwrap_or("IfNotPresent"),
        "source": match source {
            Source::Zip => "zip",
            Source::Git => "git",
            Source::S3 => "s3",
            Source::Existing => "existing",
        },
        "url": url,
        "serviceAccount": queue.service_account,
        "shared": size.most() > 1,
    })
}

/// Takes away what a definition of the original wrote into the job, where the queue says something else.
fn without_old_defaults<'a>(job: WorkspaceSettings<'a>, queue: WorkspaceSettings<'_>) -> WorkspaceSettings<'a> {
    let mut own = job;
    own.size = own.size.filter(|size| queue.size.is_none() || !OLD_SIZES.contains(size));
    let is_default = own.source == Some(Source::Zip) && own.url.is_none();
    own.source = own.source.filter(|_| queue.source.is_none() || !is_default);
    own
}

/// Returns the template of the workers: the queue's, with its image, its scheduling, and its claims by their own names.
fn template(queue: &Queue<'_>) -> Value {
    let mut template = queue.template.cloned().unwrap_or_else(|| {
        let metadata = at(queue.spec, &["podTemplate", "metadata"]);
        json!({"metadata": metadata, "spec": {"containers": [{"name": TRAINER}]}})
    });
    name_claims(&queue.templates, &mut template);
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    for container in crate::template::containers_mut(spec, "containers") {
        let is_trainer = text_at(container, &["name"]) == Some(TRAINER);
        if let (Some(container), Some(image)) = (container.as_object_mut().filter(|_| is_trainer), queue.image) {
            container.entry("image").or_insert_with(|| json!(image));
        }
    }
    for key in ["priorityClassName", "tolerations", "affinity"] {
        if let Some(value) = queue.scheduling(key) {
            spec.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(Value::Object(selector)) = queue.scheduling("nodeSelector") {
        let all = spec.entry("nodeSelector").or_insert_with(|| Value::Object(Map::new()));
        if let Some(all) = all.as_object_mut() {
            all.extend(selector.clone());
        }
    }
    template
}
