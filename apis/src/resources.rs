//! The one table of what the operator reads and writes: types of objects, their plurals and scopes, and the rights they need.
//!
//! Request paths, watch targets, roles and `trainyard rbac` come from it. It must not know selectors, which are `watched`'s, nor
//! which APIs are installed on a cluster. Tests: at the end of this file.

use model::Kind;

use crate::api::JobApi;
use crate::call::{Resource, Verb};
use crate::owned::{OwnedType, Pods};
use crate::registry::Registry;

/// Verbs on one resource or subresource, and what needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The subresource; empty for the resource itself.
    pub subresource: &'static str,
    /// Verbs of the API server's authorisation.
    pub verbs: Vec<&'static str>,
    /// Reasons for them, for readers of the role. Lines of one sentence each.
    pub reasons: Vec<&'static str>,
}

/// A type of object that the operator reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// Its type.
    pub resource: Resource,
    /// Plural name of the type, as in URLs.
    pub plural: &'static str,
    /// False for a type whose objects have no namespace.
    pub namespaced: bool,
    /// True for a type that a cluster may lack: that of an API whose definition is not installed.
    pub optional: bool,
    /// The kind its objects are to the engine; `None` for those that are only written.
    pub kind: Option<Kind>,
    /// Verbs of the operator on its objects.
    pub rights: Vec<Right>,
}

/// A type that every cluster has.
struct Core {
    api_version: &'static str,
    name: &'static str,
    plural: &'static str,
    kind: Option<Kind>,
    verbs: &'static [&'static str],
    reason: &'static str,
}

const CORE: [Core; 8] = [
    Core {
        api_version: "v1",
        name: "Node",
        plural: "nodes",
        kind: Some(Kind::Node),
        verbs: &["list", "watch"],
        reason: "A lost node, or one with a broken GPU, restarts or ends jobs.",
    },
    Core {
        api_version: crate::class::TYPE.0,
        name: crate::class::TYPE.1,
        plural: "priorityclasses",
        kind: Some(Kind::Class),
        verbs: &["list", "watch"],
        reason: "A job in a queue has the priority of the classes that its pods name.",
    },
    Core {
        api_version: crate::quota::TYPE.0,
        name: crate::quota::TYPE.1,
        plural: "resourcequotas",
        kind: Some(Kind::Quota),
        verbs: &["list", "watch"],
        reason: "A TorchJob waits until the quotas of its namespace have room for it.",
    },
    Core {
        api_version: crate::namespace::TYPE.0,
        name: crate::namespace::TYPE.1,
        plural: "namespaces",
        kind: Some(Kind::Namespace),
        verbs: &["get", "list", "watch"],
        reason: "Labels of a namespace say which queues admit its jobs, and which volumes and KAI Queues it may have.",
    },
    Core {
        api_version: "v1",
        name: "Pod",
        plural: "pods",
        kind: Some(Kind::Pod),
        verbs: &["get", "list", "watch", "create", "delete"],
        reason: "Pods are created and deleted, never changed.",
    },
    Core {
        api_version: "v1",
        name: "Service",
        plural: "services",
        kind: Some(Kind::Service),
        verbs: &["get", "list", "watch", "create", "delete"],
        reason: "Services are created and deleted, never changed.",
    },
    Core {
        api_version: "v1",
        name: "Event",
        plural: "events",
        kind: None,
        verbs: &["create"],
        reason: "Events report a job's changes in `kubectl describe`.",
    },
    Core {
        api_version: "apiextensions.k8s.io/v1",
        name: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        kind: None,
        verbs: &["get", "list", "watch"],
        reason: "An API that is not installed is not asked for until its definition appears.",
    },
];

impl Core {
    fn resource(&self) -> Resource {
        Resource::new(self.api_version, self.name)
    }

    fn served(&self) -> ServedResource {
        let right = Right { subresource: "", verbs: self.verbs.to_vec(), reasons: vec![self.reason] };
        ServedResource {
            resource: self.resource(),
            plural: self.plural,
            namespaced: !matches!(self.kind, Some(Kind::Node | Kind::Class | Kind::Namespace))
                && !self.api_version.starts_with("apiextensions"),
            optional: false,
            kind: self.kind,
            rights: vec![right],
        }
    }
}

/// The right to name an object as an owner whose deletion waits for what it owns.
fn finalizers(reason: &'static str) -> Right {
    let asked = "An API server with OwnerReferencesPermissionEnforcement asks for this right then.";
    Right { subresource: "finalizers", verbs: vec!["update"], reasons: vec![reason, asked] }
}

fn jobs(api: &dyn JobApi) -> ServedResource {
    let mut own = Right {
        subresource: "",
        verbs: vec!["get", "list", "watch"],
        reasons: vec!["Watches jobs, and reads one again after a conflict."],
    };
    for verb in api.descriptor().verbs {
        let (verb, reason) = match verb {
            Verb::Patch if api.descriptor().finalizer.is_some() => {
                ("patch", "Puts the finalizer on an object, and takes it off.")
            }
            Verb::Patch if api.descriptor().pod_finalizer.is_some() => {
                ("patch", "Notes on a job how far its scaling is, and writes the number of workers of an autoscaler.")
            }
            Verb::Patch if api.is_external() => {
                ("patch", "Writes what was decided, for the controller of the pods, and the job's state beside it.")
            }
            Verb::Patch => ("patch", "Writes the annotation that older tools read."),
            Verb::Delete if api.descriptor().finalizer.is_some() => (
                "delete",
                "Writes the owner of an object: OwnerReferencesPermissionEnforcement asks for this right then.",
            ),
            Verb::Delete => ("delete", "Deletes a job whose time to live has passed."),
            Verb::Create => ("create", "Creates what a job of another kind leaves to be served."),
            Verb::ApplyStatus | Verb::PatchStatus | Verb::Get | Verb::Log | Verb::List => continue,
        };
        own.verbs.push(verb);
        own.reasons.push(reason);
    }
    let status =
        Right { subresource: "status", verbs: vec!["patch"], reasons: vec!["Writes the status by server-side apply."] };
    let finalizers = finalizers("Pods and services name their job as an owner whose deletion waits for them.");
    let is_owner = api.pods().is_some() || !api.descriptor().owned_types.is_empty();
    let rights = match (api.is_external(), is_owner) {
        (true, _) => vec![own],
        (false, true) => vec![own, status, finalizers],
        (false, false) => vec![own, status],
    };
    ServedResource {
        resource: api.resource(),
        plural: api.descriptor().plural,
        namespaced: api.descriptor().namespaced,
        optional: true,
        kind: Some(Kind::Job),
        rights,
    }
}

fn owned_by_jobs(owned: &OwnedType) -> ServedResource {
    let own = Right { subresource: "", verbs: owned.access.verbs(), reasons: vec![owned.reason] };
    let status =
        owned.reports.map(|reason| Right { subresource: "status", verbs: vec!["patch"], reasons: vec![reason] });
    let owns = (owned.pods == Pods::Dependents)
        .then(|| finalizers("Pods name an object as an owner whose deletion waits for them."));
    ServedResource {
        resource: owned.resource(),
        plural: owned.plural,
        namespaced: owned.namespaced,
        optional: owned.optional,
        kind: owned.access.is_watched().then_some(Kind::Owned),
        rights: std::iter::once(own).chain(status).chain(owns).collect(),
    }
}

impl ServedResource {
    /// Adds the rights of another row of the same type.
    fn merge(&mut self, other: Self) {
        self.kind = self.kind.or(other.kind);
        for right in other.rights {
            match self.rights.iter_mut().find(|known| known.subresource == right.subresource) {
                Some(known) => {
                    let known_verbs = known.verbs.clone();
                    known.verbs.extend(right.verbs.into_iter().filter(|verb| !known_verbs.contains(verb)));
                    known.reasons.extend(right.reasons);
                }
                None => self.rights.push(right),
            }
        }
    }
}

impl Registry {
    /// Returns every type of object that the operator reads or writes: the jobs of each API, then what every cluster has.
    pub fn resources(&self) -> Vec<ServedResource> {
        let has_coordinator = self.iter().any(|api| api.has_coordinator());
        let has_queues = self.iter().any(|api| api.descriptor().is_queue);
        let writes_outside = self.owned_types().any(|owned| !owned.namespaced);
        let is_used = |core: &&Core| match core.kind {
            Some(Kind::Class) => has_coordinator || has_queues,
            Some(Kind::Quota) => has_coordinator,
            Some(Kind::Namespace) => has_queues || writes_outside,
            Some(Kind::Job | Kind::Pod | Kind::Service | Kind::Node | Kind::Owned | Kind::Foreign) | None => true,
        };
        let core = CORE.iter().filter(is_used).map(|core| {
            let mut served = core.served();
            let patched = self.owned_types().find(|owned| owned.resource() == served.resource);
            let reason = patched.map(|owned| owned.reason);
            let protects =
                core.kind == Some(Kind::Pod) && self.iter().any(|api| api.descriptor().pod_finalizer.is_some());
            let reason = reason
                .or_else(|| protects.then_some("Pods are created, deleted, and let go by taking a finalizer off."));
            if let (Some(reason), Some(right)) = (reason, served.rights.first_mut()) {
                right.verbs.push("patch");
                right.reasons = vec![reason];
            }
            if core.kind == Some(Kind::Pod) && self.owned_types().any(|owned| owned.pods == Pods::Owners) {
                served.rights.push(finalizers("Objects name a pod as an owner whose deletion waits for them."));
            }
            if core.kind == Some(Kind::Pod) && self.iter().any(|api| api.scaling().is_some()) {
                let reasons = vec!["The autoscaler of TorchElastic measures by the last line of a worker's log."];
                served.rights.push(Right { subresource: "log", verbs: vec!["get"], reasons });
            }
            served
        });
        self.iter().map(|api| jobs(&**api)).chain(core).chain(self.owned_resources()).collect()
    }

    /// Returns the types of objects that jobs own, each once, by their place in the APIs.
    fn owned_types(&self) -> impl Iterator<Item = &'static OwnedType> {
        let mut all: Vec<&'static OwnedType> = Vec::new();
        for owned in self.successors_first().into_iter().flat_map(|api| api.descriptor().owned_types) {
            if !all.contains(&owned) {
                all.push(owned);
            }
        }
        all.into_iter()
    }

    /// Returns the types of owned objects that not every cluster's pods and jobs have. APIs may have other access to one type each.
    fn owned_resources(&self) -> impl Iterator<Item = ServedResource> {
        let others = self.owned_types().filter(|owned| !CORE.iter().any(|core| core.resource() == owned.resource()));
        let mut rows: Vec<ServedResource> = Vec::new();
        for row in others.map(owned_by_jobs) {
            match rows.iter_mut().find(|known| known.resource == row.resource) {
                Some(known) => known.merge(row),
                None => rows.push(row),
            }
        }
        rows.into_iter()
    }

    /// Returns the plural name of a type that the operator reads or writes.
    pub fn plural(&self, resource: &Resource) -> Option<&'static str> {
        let core = CORE.iter().find(|core| core.resource() == *resource).map(|core| core.plural);
        let owned = || self.owned_types().find(|owned| owned.resource() == *resource).map(|owned| owned.plural);
        core.or_else(|| self.get(resource).map(|api| api.descriptor().plural)).or_else(owned)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_type_has_one_row_and_one_path() {
        let registry = Registry::all();
        let rows = registry.resources();
        let types: BTreeSet<&Resource> = rows.iter().map(|row| &row.resource).collect();
        assert_eq!(types.len(), rows.len());
        for row in &rows {
            assert_eq!(registry.plural(&row.resource), Some(row.plural), "{:?}", row.resource);
            assert!(row.rights.iter().all(|right| !right.verbs.is_empty() && !right.reasons.is_empty()), "{row:?}");
        }
        for unknown in [Resource::new("v1", "Secret"), Resource::new("elasticdeeplearning.ai/v2", "AITrainingJob")] {
            assert_eq!(registry.plural(&unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn every_watched_type_may_be_listed_and_watched() {
        let registry = Registry::all();
        for target in registry.watch_targets() {
            let rows = registry.resources();
            let row = rows.iter().find(|row| row.resource == target.resource).unwrap();
            let verbs = &row.rights[0].verbs;
            assert!(verbs.contains(&"list") && verbs.contains(&"watch"), "{row:?}");
            assert_eq!((row.kind, row.namespaced), (Some(target.kind), target.namespaced));
        }
    }
}
