//! Lists: the versions they may have, and the known objects they end by not holding them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use model::fact::Adopted;
use model::{ClusterFact, JobFact, JobKey, Kind, OwnedFact, ResourceVersion, Text, Uid};

use super::{DropReason, STALE, UNCHANGED};
use crate::state::State;

/// Verdict on a list, or on an object that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It counts.
    Admitted,
    /// It changes nothing, for this reason.
    Dropped(DropReason),
    /// It is older than this version, which was seen before: the cluster was restored from a copy.
    Regressed {
        /// Newest version seen.
        known: ResourceVersion,
    },
}

/// The known objects that a list does not hold, by their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Absent {
    /// Ends of objects of the cluster.
    pub cluster: Vec<ClusterFact>,
    /// Ends of jobs, and of what they have.
    pub jobs: Vec<(JobKey, JobFact)>,
}

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
        match after(list.rv, self.list_rv(list.kind, list.of)) {
            Ok(()) => Admission::Admitted,
            Err(reason) => Admission::Dropped(reason),
        }
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
    pub fn absent(&self, list: &ListView<'_>, present: &Present) -> Absent {
        let (rv, here) = (list.rv, &present.uids);
        let mut gone = Absent::default();
        match list.kind {
            Kind::Node => {
                let known = self.nodes.values().map(|node| &node.fact);
                let absent = known.filter(|node| node.rv <= rv && !present.nodes.contains(&node.name));
                gone.cluster.extend(absent.map(|node| ClusterFact::NodeGone { name: node.name.clone() }));
            }
            Kind::Job => {
                let shown = self.jobs.summaries().filter(|(key, _)| (list.shows)(key));
                let absent = shown.filter(|(key, job)| job.known && job.rv <= rv && !here.contains(&key.uid));
                gone.jobs.extend(absent.map(|(key, _)| (key.clone(), JobFact::Gone)));
            }
            Kind::Pod => {
                let shown = self.jobs.pods().filter(|(key, _)| (list.shows)(key));
                let absent = shown.filter(|(_, pod)| pod.fact.rv <= rv && !here.contains(&pod.fact.uid));
                gone.jobs.extend(
                    absent
                        .map(|(key, pod)| (key.clone(), JobFact::PodGone { uid: pod.fact.uid.clone(), rv: Some(rv) })),
                );
                for (key, job) in self.jobs.live_from(None).filter(|(key, _)| (list.shows)(key)) {
                    let awaited = job.deleting_pods.iter().filter(|uid| !job.pods.contains_key(*uid));
                    gone.jobs.extend(ends_of_absent(awaited, present).map(|end| (key.clone(), end)));
                }
            }
            Kind::Service => {
                let shown = self.jobs.services().filter(|(key, ..)| (list.shows)(key));
                let absent = shown.filter(|(_, uid, known)| known.rv <= rv && !here.contains(*uid));
                gone.jobs.extend(absent.map(|(key, uid, _)| (key.clone(), JobFact::ServiceGone { uid: uid.clone() })));
            }
            Kind::Class => {
                let known = self.queues.classes.by_name.values();
                let absent = known.filter(|class| class.rv <= rv && !present.classes.contains(&class.name));
                gone.cluster.extend(absent.map(|class| ClusterFact::ClassGone { name: class.name.clone() }));
            }
            Kind::Quota => {
                let known = self.queues.coordinator.quotas().filter(|quota| quota.rv <= rv);
                let names = known.map(|quota| (quota.namespace.clone(), quota.name.clone()));
                let absent = names.filter(|name| !present.quotas.contains(name));
                gone.cluster.extend(absent.map(|(namespace, name)| ClusterFact::QuotaGone { namespace, name }));
            }
            Kind::Namespace => {
                let known = self.queues.namespaces.values().filter(|namespace| namespace.rv <= rv);
                let absent = known.filter(|namespace| !present.namespaces.contains(&namespace.name));
                let names = absent.map(|namespace| namespace.name.clone());
                gone.cluster.extend(names.map(|name| ClusterFact::NamespaceGone { name }));
            }
            Kind::Owned | Kind::Foreign => {}
        }
        if matches!(list.kind, Kind::Service | Kind::Owned) {
            let absent = self.owned_in(list).filter(|(_, fact)| fact.rv <= rv && !here.contains(&fact.uid));
            gone.jobs.extend(absent.map(|(key, fact)| (key.clone(), JobFact::OwnedGone { uid: fact.uid.clone() })));
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
pub(super) fn after(rv: ResourceVersion, last: ResourceVersion) -> Result<(), DropReason> {
    match rv.cmp(&last) {
        Ordering::Less => Err(STALE),
        Ordering::Equal => Err(UNCHANGED),
        Ordering::Greater => Ok(()),
    }
}

/// Returns the ends of the pods that an adopted mirror waits for and that a list of pods does not hold.
pub fn absent_waits(adopted: &Adopted, present: &Present) -> Vec<JobFact> {
    ends_of_absent(adopted.mirror.wait_uids.iter(), present).collect()
}

/// Pods that were never seen have no version by which they were gone.
fn ends_of_absent<'a>(awaited: impl Iterator<Item = &'a Uid>, present: &'a Present) -> impl Iterator<Item = JobFact> {
    awaited.filter(|uid| !present.uids.contains(*uid)).map(|uid| JobFact::PodGone { uid: uid.clone(), rv: None })
}
