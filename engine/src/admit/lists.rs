//! Lists: the versions they may have, and the known objects they end by not holding them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use model::fact::Adopted;
use model::{Fact, JobKey, Kind, OwnedFact, ResourceVersion, Text, Uid};

use super::Admission;
use crate::state::{Scope, State};

/// A list of a kind's objects, or of those that one source shows.
#[derive(Clone, Copy)]
pub struct ListView<'a> {
    /// The kind.
    pub kind: Kind,
    /// The source; `None` for the whole kind.
    pub of: Option<&'a Text>,
    /// resourceVersion of the list.
    pub rv: ResourceVersion,
    /// Returns true for a job that the source shows, or whose pods or services it shows. The list says nothing about others.
    pub shows: &'a dyn Fn(&JobKey) -> bool,
    /// API version and kind of the list's objects.
    pub object_type: (&'a str, &'a str),
}

/// The objects that a list holds.
#[derive(Debug, Clone, Default)]
pub struct Present {
    /// Uids of its jobs, pods, services or owned objects.
    pub uids: BTreeSet<Uid>,
    /// Names of its nodes.
    pub nodes: BTreeSet<Text>,
    /// Names of its priority classes.
    pub classes: BTreeSet<Text>,
    /// Names of its namespaces.
    pub namespaces: BTreeSet<Text>,
    /// Namespaces and names of its quotas.
    pub quotas: BTreeSet<(Text, Text)>,
}

impl State {
    /// Returns the verdict on a list. While leading, a list that is older than one before is stale. When a term begins it
    /// must hold everything known: an older one is that of a cluster that was restored from a copy.
    pub fn admit_list(&self, list: &ListView<'_>, term_begins: bool) -> Admission {
        if term_begins {
            let known = self.newest_version(list);
            if list.rv < known {
                return Admission::Regressed { known };
            }
        }
        after(list.rv, self.list_rv(list.kind, list.of))
    }

    /// Returns the newest version known of what the list's source shows: of its last list, or of an object seen since.
    fn newest_version(&self, list: &ListView<'_>) -> ResourceVersion {
        let seen = match list.kind {
            Kind::Node => self.nodes.values().map(|node| node.fact.rv).max(),
            Kind::Job => self.jobs.summaries().filter(|(key, _)| (list.shows)(key)).map(|(_, job)| job.rv).max(),
            Kind::Pod => self.jobs.pods().filter(|(key, _)| (list.shows)(key)).map(|(_, pod)| pod.fact.rv).max(),
            Kind::Service => {
                let shown = self.jobs.services().filter(|(key, ..)| (list.shows)(key));
                shown.map(|(.., service)| service.rv).chain(self.owned_in(list).map(|(_, fact)| fact.rv)).max()
            }
            Kind::Owned => self.owned_in(list).map(|(_, fact)| fact.rv).max(),
            Kind::Class => self.queues.classes.by_name.values().map(|class| class.rv).max(),
            Kind::Quota => self.queues.coordinator.quotas().map(|quota| quota.rv).max(),
            Kind::Namespace => self.queues.namespaces.values().map(|namespace| namespace.rv).max(),
            Kind::Foreign => None,
        };
        self.list_rv(list.kind, list.of).max(seen.unwrap_or_default())
    }

    /// Returns the ends of the known objects that an admitted list would show and does not hold. An object that is newer than
    /// the list may have been created after it.
    pub fn absent(&self, list: &ListView<'_>, present: &Present) -> Vec<(Scope, Fact)> {
        let (rv, here) = (list.rv, &present.uids);
        let mut gone = Vec::new();
        match list.kind {
            Kind::Node => {
                let known = self.nodes.values().map(|node| &node.fact);
                let absent = known.filter(|node| node.rv <= rv && !present.nodes.contains(&node.name));
                gone.extend(absent.map(|node| (Scope::Cluster, Fact::NodeGone { name: node.name.clone() })));
            }
            Kind::Job => {
                let shown = self.jobs.summaries().filter(|(key, _)| (list.shows)(key));
                let absent = shown.filter(|(key, job)| job.known && job.rv <= rv && !here.contains(&key.uid));
                gone.extend(absent.map(|(key, _)| (Scope::Job(key.clone()), Fact::JobGone)));
            }
            Kind::Pod => {
                let shown = self.jobs.pods().filter(|(key, _)| (list.shows)(key));
                let absent = shown.filter(|(_, pod)| pod.fact.rv <= rv && !here.contains(&pod.fact.uid));
                gone.extend(absent.map(|(key, pod)| {
                    (Scope::Job(key.clone()), Fact::PodGone { uid: pod.fact.uid.clone(), rv: Some(rv) })
                }));
                for (key, job) in self.jobs.live_from(None).filter(|(key, _)| (list.shows)(key)) {
                    let awaited = job.deleting_pods.iter().filter(|uid| !job.pods.contains_key(*uid));
                    gone.extend(ends_of_absent(awaited, present).map(|end| (Scope::Job(key.clone()), end)));
                }
            }
            Kind::Service => {
                let shown = self.jobs.services().filter(|(key, ..)| (list.shows)(key));
                let absent = shown.filter(|(_, uid, known)| known.rv <= rv && !here.contains(*uid));
                gone.extend(
                    absent.map(|(key, uid, _)| (Scope::Job(key.clone()), Fact::ServiceGone { uid: uid.clone() })),
                );
            }
            Kind::Class => {
                let known = self.queues.classes.by_name.values();
                let absent = known.filter(|class| class.rv <= rv && !present.classes.contains(&class.name));
                gone.extend(absent.map(|class| (Scope::Cluster, Fact::ClassGone { name: class.name.clone() })));
            }
            Kind::Quota => {
                let known = self.queues.coordinator.quotas().filter(|quota| quota.rv <= rv);
                let names = known.map(|quota| (quota.namespace.clone(), quota.name.clone()));
                let absent = names.filter(|name| !present.quotas.contains(name));
                gone.extend(absent.map(|(namespace, name)| (Scope::Cluster, Fact::QuotaGone { namespace, name })));
            }
            Kind::Namespace => {
                let known = self.queues.namespaces.values().filter(|namespace| namespace.rv <= rv);
                let absent = known.filter(|namespace| !present.namespaces.contains(&namespace.name));
                let names = absent.map(|namespace| namespace.name.clone());
                gone.extend(names.map(|name| (Scope::Cluster, Fact::NamespaceGone { name })));
            }
            Kind::Owned | Kind::Foreign => {}
        }
        if matches!(list.kind, Kind::Service | Kind::Owned) {
            let absent = self.owned_in(list).filter(|(_, fact)| fact.rv <= rv && !here.contains(&fact.uid));
            gone.extend(absent.map(|(key, fact)| (Scope::Job(key.clone()), Fact::OwnedGone { uid: fact.uid.clone() })));
        }
        gone
    }

    /// Returns the known owned objects that the list would show.
    fn owned_in<'a>(&'a self, list: &ListView<'a>) -> impl Iterator<Item = (&'a JobKey, &'a OwnedFact)> {
        let (shows, object_type) = (list.shows, list.object_type);
        let is_of_type = move |fact: &OwnedFact| (&*fact.object.api_version, &*fact.object.kind) == object_type;
        self.jobs.owned().filter(move |(key, fact)| shows(key) && is_of_type(fact))
    }
}

/// Returns the verdict on a list at version `rv` when the source's last one was at `last`.
pub(super) fn after(rv: ResourceVersion, last: ResourceVersion) -> Admission {
    match rv.cmp(&last) {
        Ordering::Less => Admission::STALE,
        Ordering::Equal => Admission::UNCHANGED,
        Ordering::Greater => Admission::Admitted,
    }
}

/// Returns the ends of the pods that an adopted mirror waits for and that a list of pods does not hold.
pub fn absent_waits(adopted: &Adopted, present: &Present) -> Vec<Fact> {
    ends_of_absent(adopted.mirror.wait_uids.iter(), present).collect()
}

/// Pods that were never seen have no version by which they were gone.
fn ends_of_absent<'a>(awaited: impl Iterator<Item = &'a Uid>, present: &'a Present) -> impl Iterator<Item = Fact> {
    awaited.filter(|uid| !present.uids.contains(*uid)).map(|uid| Fact::PodGone { uid: uid.clone(), rv: None })
}
