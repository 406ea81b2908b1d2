//! Targets of lists and watches: the types of each kind, and the labels that select objects of a type.
//!
//! Owns the one list that the driver asks a server for and that the embedded cluster serves. Pods and services are selected
//! by the label that every object of an API's jobs carries, so objects of others are not even sent. It must not know paths
//! or how a watch is kept open. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use model::{JobKey, Kind, Text};

use crate::api::JobApi;
use crate::call::Resource;
use crate::observed::ObservedObject;
use crate::owned::OwnedType;
use crate::registry::Registry;
use crate::resources::ServedResource;
use crate::selector::Selector;

/// Objects of one type that are listed and watched together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchTarget {
    /// The kind they are to the engine.
    pub kind: Kind,
    /// Their type.
    pub resource: Resource,
    /// Plural name of the type, as in URLs.
    pub plural: &'static str,
    /// False for a type whose objects have no namespace.
    pub namespaced: bool,
    /// True for a type that a cluster may lack.
    pub optional: bool,
    /// Selects those objects of the type.
    pub selector: Selector,
    /// Name of the source among those of its kind; `None` while it is the only one.
    pub of: Option<Text>,
}

impl WatchTarget {
    fn new(kind: Kind, row: ServedResource, selector: Selector) -> Self {
        let ServedResource { resource, plural, namespaced, optional, .. } = row;
        Self { kind, resource, plural, namespaced, optional, selector, of: None }
    }

    fn name(&self) -> Text {
        match self.kind {
            Kind::Job => self.resource.kind.clone(),
            Kind::Owned => Text::from(format!("{} {}", self.plural, self.selector)),
            Kind::Node | Kind::Class | Kind::Quota | Kind::Namespace | Kind::Pod | Kind::Service | Kind::Foreign => {
                Text::from(self.selector.to_string())
            }
        }
    }

    /// Returns true if it shows the jobs of an API, or what belongs to them.
    fn shows(&self, api: &dyn JobApi) -> bool {
        match self.kind {
            Kind::Node | Kind::Foreign | Kind::Namespace => false,
            // Queues and coordinators alone decide by them.
            Kind::Class => api.descriptor().is_queue || api.has_coordinator(),
            Kind::Quota => api.has_coordinator(),
            Kind::Job => self.resource == api.resource(),
            Kind::Pod | Kind::Service => self.selector == api.selector(),
            Kind::Owned => {
                let is_managed = |owned: &OwnedType| owned.resource() == self.resource && owned.access.is_watched();
                self.selector == api.selector() && api.descriptor().owned_types.iter().any(is_managed)
            }
        }
    }
}

/// Names of the sources that show each API's jobs, and what belongs to them, by kind and API. Empty while each kind has one
/// source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobSources {
    by_api: BTreeMap<Kind, BTreeMap<Text, Text>>,
    /// Sources of owned objects, by API and type.
    owned: BTreeMap<(Text, Resource), Text>,
}

impl JobSources {
    /// Returns the source of a kind that shows the job, or what belongs to it; `None` while the kind has one source.
    pub fn of(&self, kind: Kind, job: &JobKey) -> Option<&Text> {
        self.by_api.get(&kind)?.get(&job.kind)
    }

    /// Returns the source that shows an object; `None` while its kind has one source.
    pub fn of_object(&self, seen: &ObservedObject) -> Option<&Text> {
        match (seen, seen.kind()) {
            (ObservedObject::Owned(job, fact), Kind::Owned) => {
                let resource =
                    Resource { api_version: fact.object.api_version.clone(), kind: fact.object.kind.clone() };
                self.owned.get(&(job.kind.clone(), resource))
            }
            (_, kind) => self.of(kind, seen.job()?),
        }
    }

    /// Returns true if a source shows the job, or what belongs to it. `None` is the source of the whole kind.
    pub fn shows(&self, kind: Kind, source: Option<&Text>, job: &JobKey) -> bool {
        source.is_none_or(|source| match kind {
            Kind::Owned => self.owned.iter().any(|((api, _), of)| *api == job.kind && of == source),
            Kind::Node
            | Kind::Class
            | Kind::Quota
            | Kind::Namespace
            | Kind::Job
            | Kind::Pod
            | Kind::Service
            | Kind::Foreign => self.of(kind, job) == Some(source),
        })
    }
}

impl Registry {
    /// Returns every target, in the order of [`Kind::ALL`]. APIs that select the same objects share one.
    pub fn watch_targets(&self) -> Vec<WatchTarget> {
        let resources = self.resources();
        let mut targets: Vec<WatchTarget> = Vec::new();
        for kind in Kind::ALL {
            let selectors: Vec<Selector> = match kind {
                Kind::Node | Kind::Class | Kind::Quota | Kind::Job | Kind::Foreign | Kind::Namespace => {
                    vec![Selector::default()]
                }
                Kind::Pod | Kind::Service | Kind::Owned => {
                    let apis = self.successors_first().into_iter();
                    apis.filter(|api| api.pods().is_some()).map(|api| api.selector()).collect()
                }
            };
            let mut sources: Vec<WatchTarget> = Vec::new();
            for row in resources.iter().filter(|row| row.kind == Some(kind)) {
                for selector in &selectors {
                    let target = WatchTarget::new(kind, row.clone(), selector.clone());
                    let is_used = kind != Kind::Owned || self.iter().any(|api| target.shows(&**api));
                    if is_used && !sources.contains(&target) {
                        sources.push(target);
                    }
                }
            }
            if sources.len() > 1 {
                for target in &mut sources {
                    target.of = Some(target.name());
                }
            }
            targets.append(&mut sources);
        }
        targets
    }

    /// Returns the target of a kind of [`Kind::ON_DEMAND`]; `None` for another kind, and where no queues are served. No label selects
    /// pods of others: users set labels, and none may hide a pod.
    pub fn on_demand(&self, kind: Kind) -> Option<WatchTarget> {
        self.iter().find(|api| api.descriptor().is_queue)?;
        let of = match kind {
            Kind::Foreign => Kind::Pod,
            Kind::Namespace => Kind::Namespace,
            Kind::Job | Kind::Pod | Kind::Service | Kind::Node | Kind::Owned | Kind::Class | Kind::Quota => {
                return None;
            }
        };
        let row = self.resources().into_iter().find(|row| row.kind == Some(of))?;
        Some(WatchTarget::new(kind, row, Selector::default()))
    }

    /// Returns the targets that a term without some APIs needs: all but those that show the jobs of these kinds alone. The
    /// names of their sources are those of [`Registry::watch_targets`].
    pub fn watch_targets_without(&self, unserved: &BTreeSet<Text>) -> Vec<WatchTarget> {
        let mut targets = self.watch_targets();
        targets.retain(|target| {
            target.kind == Kind::Node || self.shown_by(target).iter().any(|kind| !unserved.contains(kind))
        });
        targets
    }

    /// Returns the kinds of the APIs whose jobs, pods or services a target shows.
    pub fn shown_by(&self, target: &WatchTarget) -> BTreeSet<Text> {
        self.iter().filter(|api| target.shows(&***api)).map(|api| api.resource().kind).collect()
    }

    /// Returns the sources that show each API's jobs, and what belongs to them.
    pub fn job_sources(&self) -> JobSources {
        let mut sources = JobSources::default();
        for target in self.watch_targets() {
            let Some(of) = &target.of else { continue };
            for api in self.iter().filter(|api| target.shows(&***api)) {
                if target.kind == Kind::Owned {
                    sources.owned.insert((api.resource().kind, target.resource.clone()), of.clone());
                } else {
                    sources.by_api.entry(target.kind).or_default().insert(api.resource().kind, of.clone());
                }
            }
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_targets_once() {
        let named = |target: &WatchTarget| format!("{:?} {} {}", target.kind, target.plural, target.selector);
        let want = [
            "Node nodes ",
            "Class priorityclasses ",
            "Quota resourcequotas ",
            "Job aitrainingjobs ",
            "Job elasticjobs ",
            "Job jobqueues ",
            "Job mpijobs ",
            "Job models ",
            "Job modelversions ",
            "Job torchjobs ",
            "Job torchrunjobs ",
            "Job torchrunqueues ",
            "Job trainingqueues ",
            "Owned workloads GroupName=elasticdeeplearning.ai",
            "Owned workloads group-name=elastic.pytorch.org",
            "Owned workloads group-name=train.distributed.io",
            "Owned workloads app=torchrun",
            "Owned persistentvolumes group-name=model.distributed.io",
            "Owned persistentvolumeclaims group-name=model.distributed.io",
            "Owned persistentvolumeclaims app=torchrun",
            "Owned configmaps app=torchrun",
            "Owned podgroups group-name=train.distributed.io",
            "Owned containerrecreaterequests group-name=train.distributed.io",
            "Owned queues app=torchrun",
            "Pod pods GroupName=elasticdeeplearning.ai",
            "Pod pods group-name=elastic.pytorch.org",
            "Pod pods training.kubeflow.org/operator-name=mpi-operator",
            "Pod pods group-name=model.distributed.io",
            "Pod pods group-name=train.distributed.io",
            "Pod pods app=torchrun",
            "Service services GroupName=elasticdeeplearning.ai",
            "Service services group-name=elastic.pytorch.org",
            "Service services training.kubeflow.org/operator-name=mpi-operator",
            "Service services group-name=model.distributed.io",
            "Service services group-name=train.distributed.io",
            "Service services app=torchrun",
        ];
        assert_eq!(Registry::all().watch_targets().iter().map(named).collect::<Vec<_>>(), want);
    }
}
