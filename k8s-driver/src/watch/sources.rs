//! Paths and selectors of the watched collections, and the form their objects are read in. `apis::watched` owns the types and labels.
//!
//! Tests: at the end of this file.

use std::fmt;

use apis::Registry;
use model::{Kind, Text};

use crate::metrics::WatchName;
use crate::watch::decode::ObjectType;
use crate::watch::projection;

/// Which jobs are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// The only namespace that is looked at; `None` for all.
    pub namespace: Option<String>,
    /// Which jobs, by their labels; empty for all.
    pub label_selector: String,
}

/// One resource to list and watch.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path of the collection, as in `/api/v1/pods`.
    pub path: String,
    /// Plural name of the resource.
    pub plural: &'static str,
    /// Label selector; empty for every object.
    pub selector: String,
    /// Form its objects are read in.
    pub object_type: ObjectType,
    /// Set if metadata alone is requested.
    pub metadata_only: bool,
    /// True for a resource that may be missing: a custom resource whose definition is not installed.
    pub optional: bool,
    /// Name of its view, as in [`apis::WatchTarget::of`].
    pub of: Option<Text>,
    /// True for pods of others.
    pub is_of_others: bool,
}

/// Its path, with the selector where that distinguishes it from another source.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.is_of_others {
            return f.write_str(" of others");
        }
        if self.of.is_some() && !self.selector.is_empty() {
            write!(f, "?labelSelector={}", self.selector)?;
        }
        Ok(())
    }
}

impl Source {
    /// Name of its watch among the metrics.
    pub(crate) fn watch_name(&self) -> WatchName {
        let shared = self.of.is_some() && !self.optional;
        let selector = if shared { &*self.selector } else { "" };
        WatchName::new(&self.object_type.kind, if self.is_of_others { "others" } else { selector })
    }
}

/// Every source of a kind.
pub fn sources(kind: Kind, registry: &Registry, scope: &JobFilter) -> Vec<Source> {
    registry
        .watch_targets()
        .into_iter()
        .filter(|target| target.kind == kind)
        .map(|target| in_scope(target, scope))
        .collect()
}

/// Returns the source of a target.
pub(crate) fn in_scope(target: apis::WatchTarget, scope: &JobFilter) -> Source {
    let apis::WatchTarget { kind, resource, plural, namespaced, optional, selector, of } = target;
    let namespace = scope.namespace.as_deref().filter(|_| namespaced);
    let fields = match kind {
        Kind::Node => projection::NODE,
        Kind::Job => projection::JOB,
        Kind::Pod => projection::POD,
        Kind::Service => projection::SERVICE,
        Kind::Owned => projection::OWNED,
        Kind::Foreign => projection::FOREIGN,
        Kind::Class => projection::CLASS,
        Kind::Quota => projection::QUOTA,
        Kind::Namespace => projection::NAMESPACE,
    };
    Source {
        path: collection(&resource.api_version, plural, namespace),
        plural,
        // The user's labels choose jobs; what belongs to them is chosen by its owner.
        selector: if kind == Kind::Job { scope.label_selector.clone() } else { selector.to_string() },
        object_type: ObjectType { api_version: resource.api_version, kind: resource.kind, fields },
        metadata_only: kind == Kind::Service,
        optional,
        of,
        is_of_others: kind == Kind::Foreign,
    }
}

/// Path of the collection of a resource in a namespace; in all of them, or outside of them, without one.
pub fn collection(api_version: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
    match namespace {
        Some(namespace) => format!("{root}{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}{api_version}/{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(scope: &JobFilter) -> Vec<(String, String)> {
        // As the process chooses it: an operator of one namespace serves no objects without one.
        let registry = scope.namespace.as_ref().map_or_else(Registry::all, |_| Registry::all().namespaced());
        let all = Kind::ALL.into_iter().flat_map(|kind| sources(kind, &registry, scope));
        all.map(|source| (source.path, source.selector)).collect()
    }

    #[test]
    fn namespaces_and_labels_narrow_what_is_asked_for() {
        let (label, other) = ("GroupName=elasticdeeplearning.ai", "group-name=elastic.pytorch.org");
        let mpi = "training.kubeflow.org/operator-name=mpi-operator";
        let (torchrun, torch) = ("app=torchrun", "group-name=train.distributed.io");
        let model = "group-name=model.distributed.io";
        let all = [
            ("/api/v1/nodes", ""),
            ("/apis/scheduling.k8s.io/v1/priorityclasses", ""),
            ("/api/v1/resourcequotas", ""),
            ("/apis/elasticdeeplearning.ai/v1/aitrainingjobs", ""),
            ("/apis/elastic.pytorch.org/v1alpha1/elasticjobs", ""),
            ("/apis/torchrun.ai/v1alpha1/jobqueues", ""),
            ("/apis/kubeflow.org/v2beta1/mpijobs", ""),
            ("/apis/model.distributed.io/v1alpha1/models", ""),
            ("/apis/model.distributed.io/v1alpha1/modelversions", ""),
            ("/apis/train.distributed.io/v1alpha1/torchjobs", ""),
            ("/apis/torchrun.ai/v1alpha1/torchrunjobs", ""),
            ("/apis/torchrun.ai/v1alpha1/torchrunqueues", ""),
            ("/apis/trainyard.dev/v1alpha1/trainingqueues", ""),
            ("/apis/kueue.x-k8s.io/v1beta1/workloads", label),
            ("/apis/kueue.x-k8s.io/v1beta1/workloads", other),
            ("/apis/kueue.x-k8s.io/v1beta1/workloads", torch),
            ("/apis/kueue.x-k8s.io/v1beta1/workloads", torchrun),
            ("/api/v1/persistentvolumes", model),
            ("/api/v1/persistentvolumeclaims", model),
            ("/api/v1/persistentvolumeclaims", torchrun),
            ("/api/v1/configmaps", torchrun),
            ("/apis/scheduling.volcano.sh/v1beta1/podgroups", torch),
            ("/apis/apps.kruise.io/v1alpha1/containerrecreaterequests", torch),
            ("/apis/scheduling.run.ai/v2/queues", torchrun),
            ("/api/v1/pods", label),
            ("/api/v1/pods", other),
            ("/api/v1/pods", mpi),
            ("/api/v1/pods", model),
            ("/api/v1/pods", torch),
            ("/api/v1/pods", torchrun),
            ("/api/v1/services", label),
            ("/api/v1/services", other),
            ("/api/v1/services", mpi),
            ("/api/v1/services", model),
            ("/api/v1/services", torch),
            ("/api/v1/services", torchrun),
        ];
        assert_eq!(paths(&JobFilter::default()), all.map(|(path, selector)| (path.to_owned(), selector.to_owned())));
        let scope = JobFilter { namespace: Some("ml".to_owned()), label_selector: "team=a".to_owned() };
        let some = [
            ("/api/v1/nodes", ""),
            ("/apis/scheduling.k8s.io/v1/priorityclasses", ""),
            ("/api/v1/namespaces/ml/resourcequotas", ""),
            ("/apis/elasticdeeplearning.ai/v1/namespaces/ml/aitrainingjobs", "team=a"),
            ("/apis/elastic.pytorch.org/v1alpha1/namespaces/ml/elasticjobs", "team=a"),
            ("/apis/torchrun.ai/v1alpha1/namespaces/ml/jobqueues", "team=a"),
            ("/apis/kubeflow.org/v2beta1/namespaces/ml/mpijobs", "team=a"),
            ("/apis/model.distributed.io/v1alpha1/namespaces/ml/models", "team=a"),
            ("/apis/model.distributed.io/v1alpha1/namespaces/ml/modelversions", "team=a"),
            ("/apis/train.distributed.io/v1alpha1/namespaces/ml/torchjobs", "team=a"),
            ("/apis/torchrun.ai/v1alpha1/namespaces/ml/torchrunjobs", "team=a"),
            ("/apis/torchrun.ai/v1alpha1/namespaces/ml/torchrunqueues", "team=a"),
            ("/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads", label),
            ("/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads", other),
            ("/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads", torch),
            ("/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads", torchrun),
            ("/api/v1/persistentvolumes", model),
            ("/api/v1/namespaces/ml/persistentvolumeclaims", model),
            ("/api/v1/namespaces/ml/persistentvolumeclaims", torchrun),
            ("/api/v1/namespaces/ml/configmaps", torchrun),
            ("/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups", torch),
            ("/apis/apps.kruise.io/v1alpha1/namespaces/ml/containerrecreaterequests", torch),
            ("/apis/scheduling.run.ai/v2/queues", torchrun),
            ("/api/v1/namespaces/ml/pods", label),
            ("/api/v1/namespaces/ml/pods", other),
            ("/api/v1/namespaces/ml/pods", mpi),
            ("/api/v1/namespaces/ml/pods", model),
            ("/api/v1/namespaces/ml/pods", torch),
            ("/api/v1/namespaces/ml/pods", torchrun),
            ("/api/v1/namespaces/ml/services", label),
            ("/api/v1/namespaces/ml/services", other),
            ("/api/v1/namespaces/ml/services", mpi),
            ("/api/v1/namespaces/ml/services", model),
            ("/api/v1/namespaces/ml/services", torch),
            ("/api/v1/namespaces/ml/services", torchrun),
        ];
        assert_eq!(paths(&scope), some.map(|(path, selector)| (path.to_owned(), selector.to_owned())));
    }

    #[test]
    fn what_is_rendered_is_selected() {
        let registry = Registry::all();
        // Of APIs whose specs are built from several objects, or that have no pods, the scenarios are the test: their watches select as well.
        let stands_alone = |kind: &str| ["AITrainingJob", "ElasticJob"].contains(&kind);
        for api in registry.iter().filter(|api| stands_alone(&api.resource().kind)) {
            let selector = api.selector();
            let manifest = serde_json::json!({"apiVersion": &*api.resource().api_version, "kind": &*api.resource().kind,
                "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
                "spec": {"rdzvEndpoint": "etcd:2379", "replicaSpecs": {"Worker": {"template": {"spec": {"containers": [
                    {"name": "aitj-a", "image": "i", "ports": [{"name": "aitj-p", "containerPort": 80}]}]}}}}}});
            let fact = api.spec_fact(&manifest);
            let spec = fact.spec.unwrap();
            let parsed = serde_json::from_str(&fact.manifest).unwrap();
            let job = registry.job_key(&manifest).unwrap();
            let source = apis::api::RenderInput { job: &job, spec: &spec, manifest: &parsed };
            let slot = model::SlotId { group: spec.groups[0].name.clone(), index: 0 };
            let pod = apis::api::PodSlot {
                slot: &slot,
                group: &spec.groups[0],
                incarnation: model::Incarnation(1),
                count: 0,
            };
            let pod = api.pods().unwrap().render(source, &[pod]).remove(0).unwrap();
            let service = api.pods().unwrap().service(source, &slot).unwrap();
            for object in [pod, service] {
                assert!(selector.selects(&object), "{object}");
            }
        }
    }
}
