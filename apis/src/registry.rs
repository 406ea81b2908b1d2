//! The registry of served APIs, and the step from an object to the job it is about.
//!
//! It must not name an API: `served` lists those of this build. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{JobKey, Text, Uid};
use serde_json::Value;

use crate::api::JobApi;
use crate::call::Resource;
use crate::objects::{annotated_owner, list_at, name, namespace, uid};

/// The served APIs, by kind and API version.
#[derive(Clone, Default)]
pub struct Registry {
    apis: BTreeMap<(Text, Text), Arc<dyn JobApi>>,
}

impl Registry {
    /// Adds an API. Kinds are distinguished by their names in keys of jobs, so a second API of one kind is not found by those.
    pub fn add(&mut self, api: Arc<dyn JobApi>) {
        let Resource { api_version, kind } = api.resource();
        self.apis.insert((kind, api_version), api);
    }

    /// Returns the API of a type of object.
    pub fn get(&self, resource: &Resource) -> Option<&Arc<dyn JobApi>> {
        self.apis.get(&(resource.kind.clone(), resource.api_version.clone()))
    }

    /// Returns the API of a job.
    pub fn api_of(&self, job: &JobKey) -> Option<&Arc<dyn JobApi>> {
        let first = (job.kind.clone(), Text::from(""));
        self.apis.range(first..).next().filter(|((kind, _), _)| *kind == job.kind).map(|(_, api)| api)
    }

    /// Returns the registry without the APIs whose objects have no namespace, for an operator that serves one namespace.
    #[must_use]
    pub fn namespaced(mut self) -> Self {
        self.apis.retain(|_, api| api.descriptor().namespaced);
        self
    }

    /// Returns true if jobs of some API may reference objects of this kind.
    pub fn is_referenced(&self, kind: &str) -> bool {
        self.apis.values().any(|api| api.descriptor().referenced_kinds.contains(&kind))
    }

    /// Returns true if objects of this kind are jobs. Queues are objects of served APIs as well: without pods, or among what jobs
    /// reference.
    pub fn is_job(&self, kind: &str) -> bool {
        self.apis.values().all(|api| &*api.resource().kind != kind || api.pods().is_some()) && !self.is_referenced(kind)
    }

    /// Returns true if objects of this type are jobs of a served API.
    pub fn serves_jobs(&self, resource: &Resource) -> bool {
        self.get(resource).is_some() && self.is_job(&resource.kind)
    }

    /// Returns the APIs by kind, those of former kinds last: what they share with their successors stands where those have it.
    pub(crate) fn successors_first(&self) -> Vec<&Arc<dyn JobApi>> {
        let mut apis: Vec<&Arc<dyn JobApi>> = self.iter().collect();
        apis.sort_by_key(|api| api.descriptor().is_former);
        apis
    }

    /// Iterates over the APIs, by kind.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn JobApi>> {
        self.apis.values()
    }

    /// Returns the key of a job object; `None` when no served API has its type.
    pub fn job_key(&self, object: &Value) -> Option<JobKey> {
        let resource = Resource::of(object);
        self.get(&resource)?;
        Some(JobKey { namespace: namespace(object), name: name(object), kind: resource.kind, uid: uid(object).ok()? })
    }

    /// Returns the job that controls an object, or that an object without owners names as its owner; `None` when that is no job
    /// of a served API.
    pub fn owner(&self, object: &Value) -> Option<JobKey> {
        self.controller(object).or_else(|| self.named_owner(object))
    }

    /// Returns the job that an annotation names, if objects of this type may belong to it and stand in its namespace. Every client with the
    /// right to write an object can write the annotation.
    fn named_owner(&self, object: &Value) -> Option<JobKey> {
        let key = annotated_owner(object).filter(|_| list_at(object, &["metadata", "ownerReferences"]).is_empty())?;
        let resource = Resource::of(object);
        let owned = self.api_of(&key)?.descriptor().owned_types.iter().find(|owned| owned.resource() == resource)?;
        (!owned.namespaced || namespace(object) == key.namespace).then_some(key)
    }

    fn controller(&self, object: &Value) -> Option<JobKey> {
        let reference = list_at(object, &["metadata", "ownerReferences"])
            .iter()
            .find(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true))?;
        let member = |key: &str| reference.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let resource = Resource::of(reference);
        self.get(&resource)?;
        Some(JobKey {
            namespace: namespace(object),
            name: Text::from(member("name")?),
            kind: resource.kind,
            uid: Uid::from(member("uid")?),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::owner_reference;

    fn pod(reference: &Value) -> Value {
        json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u", "ownerReferences": [reference]}})
    }

    fn reference() -> Value {
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "j", "uid": "ju", "controller": true})
    }

    #[test]
    fn only_the_controller_of_a_served_api_is_an_owner() {
        let registry = Registry::all();
        let want = JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "ju".into() };
        assert_eq!(registry.owner(&pod(&reference())), Some(want));
        for (member, value) in [
            ("apiVersion", json!("elasticdeeplearning.ai/v2")),
            ("kind", json!("ReplicaSet")),
            ("controller", json!(false)),
            ("controller", Value::Null),
            ("uid", json!("")),
            ("name", json!(7)),
        ] {
            let mut changed = reference();
            changed[member] = value.clone();
            assert_eq!(registry.owner(&pod(&changed)), None, "{member} {value}");
        }
        assert_eq!(registry.owner(&json!({"metadata": {"ownerReferences": null}})), None);
        assert_eq!(registry.owner(&json!("no object")), None);
    }

    #[test]
    fn an_annotation_is_believed_of_what_jobs_own_without_a_reference_in_their_namespace() {
        let registry = Registry::all();
        let owner = |api_version: &str, kind: &str, namespace: &str, owner: &str| {
            let annotations = json!({crate::objects::OWNED_BY: owner});
            let metadata = json!({"name": "x", "namespace": namespace, "uid": "u", "annotations": annotations});
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            registry.owner(&object).map(|key| key.to_string())
        };
        let (version, queue) = ("ns/ModelVersion/v/u", "ns/TorchrunQueue/q/u");
        assert!(owner("v1", "PersistentVolumeClaim", "ns", version).is_some());
        assert!(owner("v1", "PersistentVolume", "", version).is_some(), "a volume has no namespace");
        // A pod has its job as its owner, and nothing of another namespace belongs to a job.
        assert_eq!(owner("v1", "Pod", "ns", "ns/AITrainingJob/j/u"), None);
        assert_eq!(owner("v1", "Service", "ns", version), None);
        assert_eq!(owner("v1", "PersistentVolumeClaim", "other", version), None);
        assert_eq!(owner("v1", "PersistentVolume", "", queue), None, "no queue owns volumes");
    }

    #[test]
    fn what_is_rendered_as_owner_is_read_as_owner() {
        let job = JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "ju".into() };
        let object = pod(&owner_reference("elasticdeeplearning.ai/v1", &job));
        assert_eq!(Registry::all().owner(&object), Some(job));
    }

    #[test]
    fn job_keys_need_a_served_api_and_a_uid() {
        let registry = Registry::all();
        let mut job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "ns", "uid": "u1"}});
        assert_eq!(registry.job_key(&job).map(|key| key.uid), Some(Uid::from("u1")));
        job["metadata"]["uid"] = Value::Null;
        assert_eq!(registry.job_key(&job), None);
        assert_eq!(uid(&job).unwrap_err().path, "metadata.uid");
        job["metadata"]["uid"] = json!("u1");
        job["apiVersion"] = json!("other/v1");
        assert_eq!(registry.job_key(&job), None);
    }
}
