//! Observed objects: of pods, services and nodes the facts are read, and the object itself is dropped where it came in. Job
//! objects stay whole: their spec is translated only when it changed.
//!
//! Owns the step from an object to the job it is about. It must not judge. Tests: at the end of this file.

use std::sync::Arc;

use model::{ClassFact, JobKey, Kind, NamespaceFact, NodeFact, OwnedFact, PodFact, QuotaFact, ServiceFact};
use serde_json::Value;

use crate::api::JobApi;
use crate::call::{Observation, Resource};
use crate::foreign::ForeignPod;
use crate::registry::Registry;

/// An observed object, read.
#[derive(Debug, Clone, PartialEq)]
pub enum ObservedObject {
    /// The object of a job.
    Job(JobKey, Arc<Value>),
    /// A pod of a job.
    Pod(JobKey, Box<PodFact>),
    /// A service of a job.
    Service(JobKey, Box<ServiceFact>),
    /// Another object that a job owns.
    Owned(JobKey, Box<OwnedFact>),
    /// A node.
    Node(Box<NodeFact>),
    /// A PriorityClass.
    Class(Box<ClassFact>),
    /// A ResourceQuota.
    Quota(Box<QuotaFact>),
    /// A namespace.
    Namespace(Box<NamespaceFact>),
    /// A pod of others.
    Foreign(Box<ForeignPod>),
}

impl ObservedObject {
    /// Reads an object; `None` when it is of no served API and owned by no job of one.
    pub fn read(registry: &Registry, object: Arc<Value>) -> Option<Self> {
        let owner = || {
            let key = registry.owner(&object)?;
            let api = registry.api_of(&key)?;
            Some((key, api))
        };
        let resource = Resource::of(&object);
        let is = |(api_version, kind): (&str, &str)| *resource.api_version == *api_version && *resource.kind == *kind;
        match &*resource.kind {
            "Pod" => {
                let (key, api) = owner()?;
                let mut fact = crate::pod::fact(&**api, &object).ok()?;
                // A slot has one name. A copy of a pod, with its labels and owner, is surplus.
                fact.slot = fact.slot.filter(|slot| api.slot_name(&key, slot) == fact.name);
                Some(Self::Pod(key, Box::new(fact)))
            }
            "Service" => {
                let (key, api) = owner()?;
                if api.pods().is_none_or(|pods| pods.is_of_job(&object)) && owns(&**api, &object) {
                    return Some(Self::Owned(key, Box::new(crate::owned::fact(&object).ok()?)));
                }
                let mut fact = crate::service::fact(&**api, &object).ok()?;
                fact.slot = fact.slot.filter(|slot| api.slot_name(&key, slot) == fact.name);
                Some(Self::Service(key, Box::new(fact)))
            }
            "Node" => Some(Self::Node(Box::new(crate::node::fact(&object).ok()?))),
            _ if is(crate::quota::TYPE) => Some(Self::Quota(Box::new(crate::quota::fact(&object).ok()?))),
            _ if is(crate::class::TYPE) => Some(Self::Class(Box::new(crate::class::fact(&object).ok()?))),
            _ if is(crate::namespace::TYPE) => Some(Self::Namespace(Box::new(crate::namespace::fact(&object).ok()?))),
            _ => {
                if let Some(key) = registry.job_key(&object) {
                    return Some(Self::Job(key, object));
                }
                let (key, api) = owner()?;
                let fact = owns(&**api, &object).then(|| crate::owned::fact(&object).ok())??;
                Some(Self::Owned(key, Box::new(fact)))
            }
        }
    }

    /// Reads a pod of others; `None` for one that the watch of its job's API shows: it has a served job as its owner, and that API's
    /// labels.
    pub fn read_foreign(registry: &Registry, object: &Value) -> Option<Self> {
        let api = registry.owner(object).and_then(|key| registry.api_of(&key).cloned());
        let is_of_job = api.is_some_and(|api| api.pods().is_some() && api.selector().selects(object));
        let pod = crate::foreign::pod(object).ok()?;
        // Places stand for the pods of jobs with GPUs.
        (!is_of_job || pod.amounts.gpus.is_empty()).then(|| Self::Foreign(Box::new(pod)))
    }

    /// Reads an object that a watch of this kind reports.
    pub fn read_of(registry: &Registry, kind: Kind, object: Arc<Value>) -> Option<Self> {
        if kind == Kind::Foreign { Self::read_foreign(registry, &object) } else { Self::read(registry, object) }
    }

    /// Returns the kind of object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Job(..) => Kind::Job,
            Self::Pod(..) => Kind::Pod,
            Self::Service(..) => Kind::Service,
            // Services of whole jobs are listed and watched with those of slots.
            Self::Owned(_, fact) if is_service(fact) => Kind::Service,
            Self::Owned(..) => Kind::Owned,
            Self::Node(_) => Kind::Node,
            Self::Foreign(_) => Kind::Foreign,
            Self::Class(_) => Kind::Class,
            Self::Quota(_) => Kind::Quota,
            Self::Namespace(_) => Kind::Namespace,
        }
    }

    /// Returns the job that it is, or that it belongs to.
    pub const fn job(&self) -> Option<&JobKey> {
        match self {
            Self::Job(key, _) | Self::Pod(key, _) | Self::Service(key, _) | Self::Owned(key, _) => Some(key),
            Self::Node(_) | Self::Class(_) | Self::Quota(_) | Self::Namespace(_) | Self::Foreign(_) => None,
        }
    }
}

/// Returns true if jobs of an API own objects of this type.
fn owns(api: &dyn JobApi, object: &Value) -> bool {
    let resource = Resource::of(object);
    api.descriptor()
        .owned_types
        .iter()
        .any(|owned| (owned.api_version, owned.kind) == (&*resource.api_version, &*resource.kind))
}

fn is_service(fact: &OwnedFact) -> bool {
    (&*fact.object.api_version, &*fact.object.kind) == ("v1", "Service")
}

impl Observation {
    /// Reads the objects. Those of no served API are left out; `None` when nothing is left of a watch event.
    pub fn read(self, registry: &Registry) -> Option<Observation<ObservedObject>> {
        self.filter_map(|object| ObservedObject::read(registry, object))
    }
}

#[cfg(test)]
mod tests {
    use model::ResourceVersion;
    use serde_json::json;

    use super::*;

    fn pod(owner_kind: &str) -> Arc<Value> {
        Arc::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j-a-0", "namespace": "n", "uid": "p",
            "ownerReferences": [{"apiVersion": "elasticdeeplearning.ai/v1", "kind": owner_kind, "name": "j", "uid": "u",
                "controller": true}]}}))
    }

    #[test]
    fn objects_of_no_served_api_are_left_out_of_a_list() {
        let items = vec![pod("AITrainingJob"), pod("ReplicaSet")];
        let listed = Observation::Listed { kind: Kind::Pod, of: None, rv: ResourceVersion(7), items };
        let Some(Observation::Listed { rv, items, .. }) = listed.read(&Registry::all()) else { panic!("it is a list") };
        assert_eq!(rv, ResourceVersion(7));
        assert!(
            matches!(items.as_slice(), [ObservedObject::Pod(key, fact)] if &*key.name == "j" && &*fact.uid.0 == "p")
        );
        assert!(Observation::Applied(pod("ReplicaSet")).read(&Registry::all()).is_none());
    }

    #[test]
    fn a_copy_under_another_name_claims_no_slot() {
        let slot_of = |kind: &str, name: &str| {
            let mut object = (*pod("AITrainingJob")).clone();
            object["kind"] = json!(kind);
            object["metadata"]["name"] = json!(name);
            object["metadata"]["labels"] = json!({"TrainingJobReplicaName": "a", "TrainingJobReplicaIndex": "0"});
            match ObservedObject::read(&Registry::all(), Arc::new(object)) {
                Some(ObservedObject::Pod(_, fact)) => fact.slot.map(|slot| slot.to_string()),
                Some(ObservedObject::Service(_, fact)) => fact.slot.map(|slot| slot.to_string()),
                other => panic!("{other:?}"),
            }
        };
        for kind in ["Pod", "Service"] {
            assert_eq!(slot_of(kind, "j-a-0").as_deref(), Some("a-0"), "{kind}");
            assert_eq!(slot_of(kind, "copy"), None, "{kind}");
        }
    }

    #[test]
    fn every_kind_is_reported() {
        let node = Arc::new(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
        assert_eq!(ObservedObject::read(&Registry::all(), node).map(|s| s.kind()), Some(Kind::Node));
        let job = Arc::new(json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "n", "uid": "u"}}));
        assert_eq!(ObservedObject::read(&Registry::all(), job).map(|s| s.kind()), Some(Kind::Job));
        let other = Arc::new(json!({"apiVersion": "elasticdeeplearning.ai/v2", "kind": "AITrainingJob",
            "metadata": {"name": "j", "namespace": "n", "uid": "u"}}));
        assert_eq!(ObservedObject::read(&Registry::all(), other), None);
    }
}
