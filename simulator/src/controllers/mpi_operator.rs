//! The MPI operator (`kubeflow.org/v2beta1`), by its published behaviour: workers and a launcher while a job is not suspended, an end that
//! follows from the launcher.
//!
//! The launcher is a pod without the Job around it, and is not tried again. Source: kubeflow/mpi-operator, `pkg/controller`.

use std::sync::Arc;

use apis::objects::{at, list_at, name, namespace, owner_reference, text_at, uid};
use apis::{ApiError, Resource};
use model::JobKey;
use serde_json::{Value, json};

use crate::backend::ClusterBackend;

/// Label of a pod with the name of its job.
pub const JOB: &str = "training.kubeflow.org/job-name";
/// Label of a pod with its part in the job: launcher or worker.
pub const ROLE: &str = "training.kubeflow.org/job-role";

/// Returns the type of its jobs.
pub fn resource() -> Resource {
    Resource::new(apis::mpijob::API_VERSION, apis::mpijob::KIND)
}

/// Does what is to be done now, for all jobs. Returns true if it changed something.
///
/// # Errors
/// Returns an error if the API server refuses a write.
pub fn reconcile<B: ClusterBackend>(backend: &mut B) -> Result<bool, ApiError> {
    let resource = resource();
    let mut changed = false;
    for job in backend.cluster().objects_of(&resource) {
        if !is_deleting(&job) {
            changed |= Job::of(backend, &resource, job).reconcile(backend)?;
        }
    }
    Ok(changed)
}

/// Returns true for a job that its status says has ended.
pub(crate) fn has_ended(job: &Value) -> bool {
    condition(job, "Succeeded") == Some("True") || condition(job, "Failed") == Some("True")
}

fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = list_at(job, &["status", "conditions"]);
    let found = conditions.iter().find(|condition| text_at(condition, &["type"]) == Some(kind));
    found.and_then(|condition| text_at(condition, &["status"]))
}

fn is_deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some()
}

struct Job<'a> {
    resource: &'a Resource,
    object: Arc<Value>,
    namespace: String,
    name: String,
    pods: Vec<Arc<Value>>,
}

impl<'a> Job<'a> {
    fn of<B: ClusterBackend>(backend: &B, resource: &'a Resource, object: Arc<Value>) -> Self {
        let (namespace, name) = (namespace(&object).to_string(), name(&object).to_string());
        let is_own = |pod: &Arc<Value>| {
            text_at(pod, &["metadata", "namespace"]) == Some(&*namespace)
                && text_at(pod, &["metadata", "labels", JOB]) == Some(&*name)
        };
        let pods = backend.cluster().objects_of(&Resource::new("v1", "Pod")).into_iter().filter(is_own).collect();
        Self { resource, object, namespace, name, pods }
    }

    fn reconcile<B: ClusterBackend>(&self, backend: &mut B) -> Result<bool, ApiError> {
        if has_ended(&self.object) {
            return self.clean_up(backend);
        }
        let phase = |pod: &Value| text_at(pod, &["status", "phase"]).unwrap_or_default().to_owned();
        match self.launcher().map(|pod| phase(pod)).as_deref() {
            Some("Succeeded") => return self.end(backend, "Succeeded", "MPIJobSucceeded", "completed"),
            Some("Failed") => return self.end(backend, "Failed", "MPIJobFailed", "failed"),
            Some(_) | None => {}
        }
        let replicas = at(&self.object, &["spec", "mpiReplicaSpecs", "Worker", "replicas"]).and_then(Value::as_u64);
        let replicas = replicas.unwrap_or_default();
        let is_suspended = at(&self.object, &["spec", "runPolicy", "suspend"]) == Some(&json!(true));
        let mut changed = false;
        for pod in self.pods.iter().filter(|pod| !is_deleting(pod)) {
            let index = self.index(pod);
            // What has a higher index than the job has workers is deleted while it is not suspended, and the others while it is.
            if index.is_none_or(|index| index < replicas) == is_suspended {
                let (pods, name) = (Resource::new("v1", "Pod"), name(pod));
                backend.delete(&pods, &self.namespace, &name, None)?;
                changed = true;
            }
        }
        if !is_suspended {
            for index in 0..replicas {
                changed |= self.create(backend, "Worker", &format!("{}-worker-{index}", self.name))?;
            }
            changed |= self.create(backend, "Launcher", &format!("{}-launcher", self.name))?;
        }
        let shown = self.condition("Suspended");
        let wanted = if is_suspended { Some("True") } else { shown.map(|_| "False") };
        if wanted != shown {
            self.show(backend, "Suspended", wanted == Some("True"), "MPIJobSuspended", "suspended")?;
            changed = true;
        }
        Ok(changed)
    }

    /// Deletes the workers that its policy names.
    fn clean_up<B: ClusterBackend>(&self, backend: &mut B) -> Result<bool, ApiError> {
        let policy = text_at(&self.object, &["spec", "runPolicy", "cleanPodPolicy"]).unwrap_or("None");
        let has_ended = |pod: &Value| matches!(text_at(pod, &["status", "phase"]), Some("Succeeded" | "Failed"));
        let goes = |pod: &Value| policy == "All" || (policy == "Running" && !has_ended(pod));
        let mut changed = false;
        for pod in self.pods.iter().filter(|pod| self.index(pod).is_some() && !is_deleting(pod) && goes(pod)) {
            backend.delete(&Resource::new("v1", "Pod"), &self.namespace, &name(pod), None)?;
            changed = true;
        }
        Ok(changed)
    }

    fn launcher(&self) -> Option<&Arc<Value>> {
        self.pods.iter().find(|pod| text_at(pod, &["metadata", "labels", ROLE]) == Some("launcher"))
    }

    /// Returns the index of a worker.
    fn index(&self, pod: &Value) -> Option<u64> {
        name(pod).strip_prefix(&*self.name)?.strip_prefix("-worker-")?.parse().ok()
    }

    /// Creates a pod, unless one of that name is there.
    fn create<B: ClusterBackend>(&self, backend: &mut B, replica: &str, pod: &str) -> Result<bool, ApiError> {
        if self.pods.iter().any(|known| &*name(known) == pod) {
            return Ok(false);
        }
        let Some(template) = at(&self.object, &["spec", "mpiReplicaSpecs", replica, "template"]) else {
            return Ok(false);
        };
        let mut object = template.clone();
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Pod");
        object["metadata"]["namespace"] = json!(self.namespace);
        object["metadata"]["name"] = json!(pod);
        let labels = &mut object["metadata"]["labels"];
        labels["training.kubeflow.org/operator-name"] = json!("mpi-operator");
        labels[JOB] = json!(self.name);
        labels[ROLE] = json!(replica.to_lowercase());
        object["spec"]["restartPolicy"] = json!("Never");
        if replica == "Worker"
            && let Ok(uid) = uid(&self.object)
        {
            let key = JobKey {
                namespace: self.namespace.as_str().into(),
                name: self.name.as_str().into(),
                kind: self.resource.kind.clone(),
                uid,
            };
            object["metadata"]["ownerReferences"] = json!([owner_reference(&self.resource.api_version, &key)]);
        }
        backend.apply(&object)?;
        Ok(true)
    }

    fn condition(&self, kind: &str) -> Option<&str> {
        condition(&self.object, kind)
    }

    fn end<B: ClusterBackend>(&self, backend: &mut B, kind: &str, reason: &str, word: &str) -> Result<bool, ApiError> {
        self.show(backend, kind, true, reason, word)?;
        Ok(true)
    }

    fn show<B: ClusterBackend>(
        &self,
        backend: &mut B,
        kind: &str,
        is_true: bool,
        reason: &str,
        word: &str,
    ) -> Result<(), ApiError> {
        let mut conditions = list_at(&self.object, &["status", "conditions"]).to_vec();
        conditions.retain(|condition| text_at(condition, &["type"]) != Some(kind));
        conditions.push(json!({
            "type": kind,
            "status": if is_true { "True" } else { "False" },
            "reason": reason,
            "message": format!("MPIJob {}/{} {}{word}.", self.namespace, self.name, if is_true { "" } else { "not " }),
        }));
        let patch = json!({"status": {"conditions": conditions}});
        backend.merge_patch(self.resource, &self.namespace, &self.name, &patch, true)
    }
}
