//! The work: jobs of a shape, and the very pods and services that the operator makes of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use apis::api::{PodSlot, RenderInput};
use apis::{ApiCall, JobApi, Registry, Resource, Verb};
use k8s_driver::harness::collection;
use model::{Incarnation, ObjectRef, Position, SlotId, Stamp, Term, Text};
use serde_json::{Value, json};

use crate::table::AnyError;

/// `jobs` jobs with `pods` pods each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) jobs: u32,
    pub(crate) pods: u32,
    /// Pods without ports and services, as other job kinds have them by default.
    pub(crate) plain: bool,
}

impl Shape {
    pub(crate) const fn new(jobs: u32, pods: u32) -> Self {
        Self { jobs, pods, plain: false }
    }

    /// Pods of all jobs.
    pub(crate) const fn all_pods(self) -> u32 {
        self.jobs * self.pods
    }

    /// Services of all jobs.
    pub(crate) const fn all_services(self) -> u32 {
        if self.plain { 0 } else { self.all_pods() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, pods, plain } = self;
        let (job, pod) = (if *jobs == 1 { "job" } else { "jobs" }, if *pods == 1 { "pod" } else { "pods" });
        write!(f, "{jobs} {job} x {pods} {pod}, {}", if *plain { "no services" } else { "a service each" })
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no shape such as 100x10 (jobs x pods) or 100x10:plain (no services)");
        let (size, plain) = match text.split_once(':') {
            None => (text, false),
            Some((size, "plain")) => (size, true),
            Some(_) => return Err(wrong()),
        };
        let (jobs, pods) = size.split_once('x').ok_or_else(wrong)?;
        let count = |text: &str| text.parse().ok().filter(|count| (1..=100_000).contains(count)).ok_or_else(wrong);
        Ok(Self { jobs: count(jobs)?, pods: count(pods)?, plain })
    }
}

/// The APIs whose jobs are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
#[allow(clippy::enum_variant_names)] // the names that the flag has
pub(crate) enum JobKind {
    AiTrainingJob,
    ElasticJob,
    TorchJob,
}

impl JobKind {
    /// Its API, as this build serves it.
    pub(crate) fn api(self) -> Result<Arc<dyn JobApi>, AnyError> {
        let kind = match self {
            Self::AiTrainingJob => "AITrainingJob",
            Self::ElasticJob => "ElasticJob",
            Self::TorchJob => "TorchJob",
        };
        let found = Registry::all().iter().find(|api| *api.resource().kind == *kind).cloned();
        found.ok_or_else(|| format!("this build serves no {kind}").into())
    }

    /// Path of its jobs in a namespace.
    pub(crate) fn path(self, namespace: &str) -> Result<String, AnyError> {
        let api = self.api()?;
        Ok(collection(&api.resource().api_version, api.descriptor().plural, Some(namespace)))
    }

    /// Arguments of its operator. The bare client creates all pods at once; so does an operator whose jobs and types do not wait for each
    /// other.
    pub(crate) fn arguments(self) -> Vec<String> {
        match self {
            Self::AiTrainingJob | Self::ElasticJob => Vec::new(),
            Self::TorchJob => vec!["--feature-gates=DAGScheduling=false,JobCoordinator=false".to_owned()],
        }
    }

    /// A job's manifest. `annotations` are its pods'; kwok reads them.
    pub(crate) fn job(self, namespace: &str, name: &str, pods: u32, plain: bool, annotations: &Value) -> Value {
        match self {
            Self::AiTrainingJob => job(namespace, name, pods, plain, annotations),
            // Its pods always have services.
            Self::ElasticJob => elastic_job(namespace, name, pods, annotations),
            Self::TorchJob => torch_job(namespace, name, pods, annotations),
        }
    }
}

fn elastic_job(namespace: &str, name: &str, pods: u32, annotations: &Value) -> Value {
    json!({
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "rdzvEndpoint": "etcd:2379",
            "minReplicas": 1,
            "maxReplicas": pods,
            "cleanPodPolicy": "All",
            "replicaSpecs": {"Worker": {
                "replicas": pods,
                "restartPolicy": "ExitCode",
                "template": {
                    "metadata": {"annotations": annotations},
                    "spec": {"containers": [{"name": "elasticjob-worker", "image": "none"}]},
                },
            }},
        },
    })
}

/// A master, and workers that others reach as well: each pod has a service.
fn torch_job(namespace: &str, name: &str, pods: u32, annotations: &Value) -> Value {
    let ports = json!([{"name": "torchjob-port", "containerPort": 23456}]);
    let template = json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "torch", "image": "none", "ports": ports}]},
    });
    json!({
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "cleanPodPolicy": "All",
            "torchTaskSpecs": {
                "Master": {"template": template},
                "Worker": {"numTasks": pods.saturating_sub(1), "template": template},
            },
        },
    })
}

/// The manifest of an AITrainingJob.
pub(crate) fn job(namespace: &str, name: &str, pods: u32, plain: bool, annotations: &Value) -> Value {
    // Containers of other names do not take part in the job: their pods get no service.
    let container = if plain {
        json!({"name": "worker", "image": "none"})
    } else {
        json!({"name": "aitj-main", "image": "none", "ports": [{"name": "aitj-ring", "containerPort": 29400}]})
    };
    json!({
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "cleanPodPolicy": "All",
            "replicaSpecs": {"w": {
                "replicas": pods,
                "restartPolicy": "OnFailure",
                "restartScope": "Pod",
                "restartLimit": 100,
                "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}},
            }},
        },
    })
}

/// The manifests of a shape.
pub(crate) fn jobs(kind: JobKind, namespace: &str, shape: Shape) -> Vec<Value> {
    let none = json!({});
    (0..shape.jobs).map(|n| kind.job(namespace, &format!("j{n}"), shape.pods, shape.plain, &none)).collect()
}

/// The calls that create what the operator would create for a job: its pods, then its services. They have no owner, because
/// that job is not there.
pub(crate) fn creations(manifest: &Value) -> Result<Vec<ApiCall>, AnyError> {
    let registry = Registry::all();
    let mut manifest = manifest.clone();
    manifest["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let key = registry.job_key(&manifest).ok_or("not a job")?;
    let api = registry.api_of(&key).ok_or("its kind is not served")?;
    let fact = api.spec_fact(&manifest);
    let spec = fact.spec.as_ref().map_err(|errors| format!("{errors:?}"))?;
    let parsed: Value = serde_json::from_str(&fact.manifest)?;
    let source = RenderInput { job: &key, spec, manifest: &parsed };
    let cause = Stamp { term: Term(1), position: Position(1) };
    let mut calls = Vec::new();
    let mut services = Vec::new();
    let creation = |object, kind: &str, name: Text, mut body: Value| {
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
        ApiCall {
            id: 0,
            job: key.clone(),
            object: Some(object),
            cause,
            verb: Verb::Create,
            resource: Resource::new("v1", kind),
            namespace: key.namespace.clone(),
            name,
            body: Some(body),
            uid: None,
            rv: None,
            grace_seconds: None,
        }
    };
    for owned in spec.owned.iter().filter(|owned| &*owned.object.kind == "Service") {
        let Some(of_jobs) = api.owned() else { continue };
        let service = of_jobs
            .render_owned(source, &engine::Job::default(), &owned.object)
            .map_err(|error| format!("{error:?}"))?;
        let (object, name) = (ObjectRef::Owned(owned.object.clone()), owned.object.name.clone());
        services.push(creation(object, "Service", name, service));
    }
    let Some(of_pods) = api.pods() else { return Err("its API has no pods".into()) };
    for group in &spec.groups {
        let slots: Vec<SlotId> = (0..group.replicas).map(|index| SlotId { group: group.name.clone(), index }).collect();
        let wanted: Vec<PodSlot<'_>> =
            slots.iter().map(|slot| PodSlot { slot, group, incarnation: Incarnation(1), count: 0 }).collect();
        let call =
            |slot: &SlotId, object, kind, body| creation(object, kind, Text::from(api.slot_name(&key, slot)), body);
        for (slot, pod) in slots.iter().zip(of_pods.render(source, &wanted)) {
            calls.push(call(slot, ObjectRef::Pod(slot.clone()), "Pod", pod.map_err(|error| format!("{error:?}"))?));
        }
        for slot in slots.iter().filter(|_| group.services) {
            let service = of_pods.service(source, slot).map_err(|error| format!("{error:?}"))?;
            services.push(call(slot, ObjectRef::Service(slot.clone()), "Service", service));
        }
    }
    calls.extend(services);
    Ok(calls)
}
