//! TorchrunQueue object -> what jobs and the KAI Queue are made of, in all shapes that manifests in use have.
//!
//! Owns the aliases and defaults of the fields of a queue. It must not render anything. Tests: `tests.rs`.

use serde_json::{Value, json};

use super::constants::{KAI_SCHEDULER, TRAINER};
use super::storage::{Volumes, WorkspaceSettings, size};
use super::templates::{self, Templated};
use crate::fields::{Findings, Unknown, Word, join};
use crate::names::is_dns_subdomain;
use crate::objects::{at, list_at, text_at};
use crate::pod_rules::{self, MOUNTED, Place};
use crate::template;

/// Accepted values of `distributed.backend`.
pub(crate) const BACKENDS: [Word<&str>; 3] = [("nccl", "nccl"), ("gloo", "gloo"), ("mpi", "mpi")];

/// Back end of the rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rendezvous {
    /// An etcd.
    Etcd,
    /// The same, by the second version of its interface.
    EtcdV2,
    /// Worker 0.
    C10d,
    /// Worker 0, with ranks that are given.
    Static,
}

/// Accepted values of `distributed.rdzvBackend`.
pub(crate) const RENDEZVOUS: [Word<Option<Rendezvous>>; 4] = [
    ("c10d", Some(Rendezvous::C10d)),
    ("etcd-v2", Some(Rendezvous::EtcdV2)),
    ("etcd", Some(Rendezvous::Etcd)),
    ("static", Some(Rendezvous::Static)),
];

impl Rendezvous {
    /// Spells it as the launcher does.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::EtcdV2 => "etcd-v2",
            Self::C10d => "c10d",
            Self::Static => "static",
        }
    }
}

/// Settings of `distributed`, on a queue or a job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Distributed<'a> {
    /// Back end of the communication.
    pub(crate) backend: Option<&'a str>,
    /// Back end of the rendezvous.
    pub(crate) rendezvous: Option<Rendezvous>,
    /// Place of the rendezvous.
    pub(crate) endpoint: Option<&'a str>,
    /// Port of worker 0.
    pub(crate) port: Option<u16>,
}

impl<'a> Distributed<'a> {
    /// Reads `distributed` of a spec.
    pub(crate) fn read(spec: &'a Value, findings: &mut Findings) -> Self {
        const BASE: &str = "spec.distributed";
        if findings.object(spec, "spec", "distributed").is_none() {
            return Self::default();
        }
        let parent = spec.get("distributed").unwrap_or(&Value::Null);
        let backend = findings.word(parent, BASE, "backend", &BACKENDS, "", Unknown::Refused);
        let port = findings.integer(parent, BASE, "port", 1024, 65_535);
        Self {
            backend: Some(backend).filter(|word| !word.is_empty()),
            rendezvous: findings.word(parent, BASE, "rdzvBackend", &RENDEZVOUS, None, Unknown::Refused),
            endpoint: findings.text(parent, BASE, "rdzvEndpoint").filter(|text| !text.is_empty()),
            port: port.and_then(|port| u16::try_from(port).ok()),
        }
    }
}

/// Resources of each node, as `nodeResources` says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeResources<'a> {
    /// GPUs.
    pub(crate) gpus: Option<u32>,
    /// CPUs.
    pub(crate) cpus: Option<u32>,
    /// Memory.
    pub(crate) memory: Option<&'a str>,
    /// Type of the GPUs, for people.
    pub(crate) gpu_type: Option<&'a str>,
}

/// A queue, as jobs that reference it.
#[derive(Debug, Clone)]
pub(crate) struct Queue<'a> {
    /// Its `spec`.
    pub(crate) spec: &'a Value,
    /// Name of its KAI Queue; `None` where it has none.
    pub(crate) kai: Option<&'a str>,
    /// Name of that one's parent.
    pub(super) parent: &'a str,
    /// Its `distributed`.
    pub(crate) distributed: Distributed<'a>,
    /// Its `workspaceStorage`.
    pub(crate) workspace: WorkspaceSettings<'a>,
    /// Its `storage`.
    pub(crate) volumes: Volumes<'a>,
    /// Its `nodeResources`.
    pub(crate) node: NodeResources<'a>,
    /// Its pod template; `None` where it has none.
    pub(crate) template: Option<&'a Value>,
    /// Image of the training container where the template has none.
    pub(crate) image: Option<&'a str>,
    /// Account of the pods that fill workspaces.
    pub(crate) service_account: Option<&'a str>,
    /// Objects that are made beside it.
    pub(crate) templates: Vec<Templated<'a>>,
}

impl<'a> Queue<'a> {
    /// Reads a queue object.
    pub(crate) fn read(object: &'a Value, findings: &mut Findings) -> Option<Self> {
        let spec = object.get("spec");
        let Some(spec) = spec.filter(|spec| spec.is_object()) else {
            findings.error("spec", spec, "must be an object");
            return None;
        };
        findings.object(spec, "spec", "queue");
        let inner = spec.get("queue").unwrap_or(&Value::Null);
        let kai = alias((inner, "spec.queue", "name"), (spec, "spec", "kaiQueue"), findings);
        let parent = alias((inner, "spec.queue", "parentQueue"), (spec, "spec", "parentKaiQueue"), findings);
        check_kai_queue(spec, kai, parent, findings);
        check_amounts(inner, findings);
        let queue = Self {
            spec,
            kai,
            parent: parent.unwrap_or("default"),
            distributed: Distributed::read(spec, findings),
            workspace: WorkspaceSettings::read(spec, findings),
            volumes: Volumes::read(spec, findings),
            node: node_resources(spec, findings),
            template: pod_template(spec, findings),
            image: findings.text(spec, "spec", "image").filter(|text| !text.is_empty()),
            service_account: findings.text(spec, "spec", "serviceAccountName").filter(|text| !text.is_empty()),
            templates: templates::read(object, spec, findings),
        };
        if queue.template.is_none() && queue.image.is_none() && !findings.has_errors() {
            findings.warn("spec.podTemplate", None, "without a podTemplate or an image no job of the queue can start");
        }
        if queue.distributed.backend == Some("mpi") {
            findings.warn(
                "spec.distributed.backend",
                None,
                "the launcher starts no MPI; the word reaches the program alone",
            );
        }
        if let Some(scheduling) = findings.object(spec, "spec", "scheduling") {
            const PLACES: [(&str, &str); 4] = [
                (".spec.affinity", "spec.scheduling.affinity"),
                (".spec.nodeSelector", "spec.scheduling.nodeSelector"),
                (".spec.priorityClassName", "spec.scheduling.priorityClassName"),
                (".spec.tolerations", "spec.scheduling.tolerations"),
            ];
            pod_rules::check_parts(&json!({"spec": scheduling}), &PLACES, pod_rules::AS_WRITTEN, findings);
        }
        Some(queue)
    }

    /// Returns a member of `scheduling`.
    pub(crate) fn scheduling(&self, key: &str) -> Option<&'a Value> {
        at(self.spec, &["scheduling", key]).filter(|value| !value.is_null())
    }

    /// Returns the training container of its template.
    pub(crate) fn trainer(&self) -> Option<&'a Value> {
        let containers = template::containers(self.template?);
        containers.iter().find(|container| text_at(container, &["name"]) == Some(TRAINER))
    }

    /// Returns why no job can be started with it.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match self.trainer() {
            None if self.image.is_none() => Some("it has neither a podTemplate with a container trainer nor an image"),
            Some(trainer) if trainer.get("image").is_none() && self.image.is_none() => {
                Some("its container trainer has no image")
            }
            Some(_) | None => None,
        }
    }
}

/// Checks the name of the KAI Queue. A queue needs none; without one, what is written of it has no effect.
fn check_kai_queue(spec: &Value, kai: Option<&str>, parent: Option<&str>, findings: &mut Findings) {
    const NAME: &str = "spec.queue.name";
    match kai {
        Some(name) if !is_dns_subdomain(name) => {
            let value = Value::from(name);
            findings.error(NAME, Some(&value), "must be lower-case letters, digits and inner hyphens");
        }
        None if spec.get("queue").is_some_and(Value::is_object) && !findings.has_error_at(NAME) => {
            findings.error(NAME, None, "a KAI Queue needs a name: write it, or leave spec.queue out");
        }
        None if parent.is_some() => {
            let problem = "no KAI Queue is created without kaiQueue: the parent has no effect";
            findings.warn("spec.parentKaiQueue", spec.get("parentKaiQueue"), problem);
        }
        Some(_) | None => {}
    }
    if kai.is_none() && at(spec, &["scheduling", "scheduler"]).and_then(Value::as_str) == Some(KAI_SCHEDULER) {
        findings.warn(
            "spec.scheduling.scheduler",
            at(spec, &["scheduling", "scheduler"]),
            "the KAI scheduler places pods of KAI Queues: write kaiQueue as well",
        );
    }
}

/// Reads a field of two spellings. Two different values are an error.
pub(crate) fn alias<'a>(
    (parent, base, key): (&'a Value, &str, &str),
    (other, other_base, other_key): (&'a Value, &str, &str),
    findings: &mut Findings,
) -> Option<&'a str> {
    let one = findings.text(parent, base, key).filter(|text| !text.is_empty());
    let two = findings.text(other, other_base, other_key).filter(|text| !text.is_empty());
    if let (Some(a), Some(b)) = (one, two)
        && a != b
    {
        let path = join(base, key);
        findings.error(
            join(other_base, other_key),
            other.get(other_key),
            format!("is {a} in {path}: write the field once"),
        );
    }
    one.or(two)
}

/// Amounts of KAI's queues, for each of these resources.
pub(super) const AMOUNTS: [(&str, i64); 3] = [("quota", -1), ("limit", -1), ("overQuotaWeight", 1)];
/// Resources of KAI's queues.
pub(super) const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];

fn check_amounts(queue: &Value, findings: &mut Findings) {
    if findings.object(queue, "spec.queue", "resources").is_none() {
        return;
    }
    let resources = queue.get("resources").unwrap_or(&Value::Null);
    for resource in RESOURCES {
        if findings.object(resources, "spec.queue.resources", resource).is_none() {
            continue;
        }
        let amounts = resources.get(resource).unwrap_or(&Value::Null);
        let base = join("spec.queue.resources", resource);
        for (key, _) in AMOUNTS {
            let amount = findings.integer(amounts, &base, key, -1, i64::MAX);
            let problem = match (resource, amount) {
                ("cpu", Some(1..=999)) => "KAI counts thousandths of a CPU: this is less than one CPU",
                ("memory", Some(1..=99_999)) => "KAI counts megabytes: this is less than 100 GB",
                _ => continue,
            };
            if key != "overQuotaWeight" {
                findings.warn(join(&base, key), amounts.get(key), problem);
            }
        }
    }
}

fn node_resources<'a>(spec: &'a Value, findings: &mut Findings) -> NodeResources<'a> {
    const BASE: &str = "spec.nodeResources";
    if findings.object(spec, "spec", "nodeResources").is_none() {
        return NodeResources::default();
    }
    let parent = spec.get("nodeResources").unwrap_or(&Value::Null);
    let mut count = |key: &str| {
        let count = findings.integer(parent, BASE, key, 0, i64::from(u16::MAX))?;
        u32::try_from(count).ok()
    };
    let (gpus, cpus) = (count("gpus"), count("cpus"));
    NodeResources {
        gpus,
        cpus: cpus.filter(|cpus| *cpus > 0),
        memory: size(parent, BASE, "memory", findings),
        gpu_type: findings.text(parent, BASE, "gpuType").filter(|text| !text.is_empty()),
    }
}

/// Jobs add volumes. The training container gets the image of the queue, and the GPUs of its job as requests and limits.
fn completes(rule: &str, place: &Place<'_, '_>) -> bool {
    match rule {
        MOUNTED => true,
        "image-missing" | "request-other-than-limit" | "request-without-limit" => {
            place.container_name() == Some(TRAINER)
        }
        _ => false,
    }
}

/// Reads the pod template. Its first container trains.
fn pod_template<'a>(spec: &'a Value, findings: &mut Findings) -> Option<&'a Value> {
    const PATH: &str = "spec.podTemplate";
    let template = spec.get("podTemplate").filter(|template| !template.is_null())?;
    if template.is_object() && template.get("spec").is_none_or(Value::is_null) {
        return None;
    }
    template::check_at(template, PATH, completes, findings);
    let first = list_at(template, &["spec", "containers"]).first();
    let path = format!("{PATH}.spec.containers[0].name");
    if let Some(first) = first.filter(|first| text_at(first, &["name"]) != Some(TRAINER))
        && !findings.has_error_at(&path)
    {
        findings.error(
            path,
            first.get("name"),
            "the first container must be named trainer: it runs the command of the jobs",
        );
    }
    Some(template)
}
