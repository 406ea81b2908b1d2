//! Observations become facts.
//!
//! Owns the facts of a turn before they are staged, and what of the step needs API objects. It must not decide which facts
//! count: [`engine::admit`] does.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::{Observation, ObservedObject};
use engine::Arrival;
use engine::admit::{Admission, DropReason, ListView, MirrorWriter, ObjectReading, Present, absent_waits};
use model::{ClusterFact, JobFact, JobKey, Kind, ObjectRef, ResourceVersion, Text, Uid};
use serde_json::Value;

use crate::error::Error;
use crate::inbox::kind_of;
use crate::operator::Operator;

/// Facts that came in this turn, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// A term begins with this turn.
    pub(crate) term_begins: bool,
    pub(crate) cluster: Vec<(ClusterFact, Arrival)>,
    pub(crate) jobs: BTreeMap<JobKey, Vec<(JobFact, Arrival)>>,
    /// Kind, source and version of the lists that came in this turn. What their watches reported before may be gone by then.
    lists: Vec<(Kind, Option<Text>, ResourceVersion)>,
}

impl Intake {
    pub(crate) fn new(term_begins: bool) -> Self {
        Self { term_begins, ..Self::default() }
    }

    /// Has the job decided and dispatched in this turn, with or without a fact.
    pub(crate) fn touch(&mut self, key: &JobKey) {
        self.jobs.entry(key.clone()).or_default();
    }

    /// Adds a fact about a job that no object was read for.
    pub(crate) fn push(&mut self, key: &JobKey, fact: JobFact) {
        self.push_read(key, fact, self.arrival(None));
    }

    /// Adds a fact about a job that was read of an object.
    fn push_read(&mut self, key: &JobKey, fact: JobFact, arrival: Arrival) {
        self.jobs.entry(key.clone()).or_default().push((fact, arrival));
    }

    /// Adds a fact about the cluster that no object was read for.
    pub(crate) fn push_cluster(&mut self, fact: ClusterFact) {
        self.cluster.push((fact, self.arrival(None)));
    }

    const fn arrival(&self, list_rv: Option<ResourceVersion>) -> Arrival {
        Arrival { list_rv, term_begins: self.term_begins }
    }

    /// Returns the newest version of the lists of a source that came in this turn.
    fn list_rv(&self, kind: Kind, source: Option<&Text>) -> ResourceVersion {
        let lists =
            self.lists.iter().filter(|(listed, of, _)| *listed == kind && (of.is_none() || of.as_ref() == source));
        lists.map(|(_, _, rv)| *rv).max().unwrap_or_default()
    }

    /// Adds the ends of the pods that a mirror adopted in this turn waits for, and that a list of pods does not hold.
    fn end_absent_waits(&mut self, present: &Present, shows: impl Fn(&JobKey) -> bool) {
        let arrival = self.arrival(None);
        for (_, facts) in self.jobs.iter_mut().filter(|(key, _)| shows(key)) {
            let mut ends = Vec::new();
            for (fact, _) in &*facts {
                if let JobFact::Adopted(adopted) = fact {
                    ends.extend(absent_waits(adopted, present));
                }
            }
            facts.extend(ends.into_iter().map(|end| (end, arrival)));
        }
    }
}

impl Operator {
    /// Turns everything in the inbox into facts.
    pub(crate) fn take_observations(&mut self, facts: &mut Intake) -> Result<(), Error> {
        let observations = self.inbox.take_observations();
        for observation in &observations {
            if let Observation::Listed { kind, of, rv, .. } = observation {
                facts.lists.push((*kind, of.clone(), *rv));
            }
        }
        self.find_referenced(&observations);
        if !self.watches(Kind::Foreign) {
            self.foreign.forget();
        }
        for observation in observations {
            // What a watch reported that is not needed any more.
            let kind = kind_of(&observation);
            if kind == Kind::Namespace && !self.watches(kind) {
                continue;
            }
            let unserved = |seen: &ObservedObject| seen.job().is_some_and(|job| !self.sources.serves(job));
            match observation {
                Observation::Applied(seen) | Observation::Deleted(seen) if unserved(&seen) => {}
                Observation::Applied(seen) => self.applied(seen, facts, false),
                Observation::Deleted(seen) => self.deleted(seen, facts),
                Observation::Listed { kind, of, rv, items } => {
                    self.listed(List { kind, of, rv, items }, facts)?;
                }
            }
        }
        Ok(())
    }

    /// Notes the objects that specs reference, before any spec is translated: lists and watches have no order.
    fn find_referenced(&mut self, observations: &[Observation<ObservedObject>]) {
        let mut found = |seen: &ObservedObject| {
            if let ObservedObject::Job(key, object) = seen
                && self.registry.is_referenced(&key.kind)
                && let Some(api) = self.registry.api_of(key)
            {
                self.references.found(&**api, key, object);
            }
        };
        for observation in observations {
            match observation {
                Observation::Applied(seen) => found(seen),
                Observation::Listed { items, .. } => items.iter().for_each(&mut found),
                Observation::Deleted(_) => {}
            }
        }
    }

    /// Translates a job's spec where its object, or an object that it needs, changed.
    fn translate(&mut self, key: &JobKey, object: &Arc<Value>, facts: &mut Intake) {
        let Some(api) = self.registry.api_of(key).cloned() else { return };
        let referenced = self.references.of(&*api, key, object);
        if self.specs.is_new(&*api, key, object, &referenced) {
            let fact = apis::translation::spec_fact(&*api, key, object, &referenced);
            facts.push(key, JobFact::Spec(Box::new(fact)));
        }
    }

    /// Translates again the specs of the jobs that reference an object, and has a job that waits for the last of them decided.
    fn referenced_changed(&mut self, key: &JobKey, facts: &mut Intake) {
        if !self.registry.is_referenced(&key.kind) {
            return;
        }
        for (referrer, object) in self.references.referrers(key) {
            self.translate(&referrer, &object, facts);
        }
    }

    /// Takes in an object that exists. One that a list holds (`listed`) exists even if it is older than that list.
    pub(crate) fn applied(&mut self, seen: ObservedObject, facts: &mut Intake, listed: bool) {
        let source = self.sources.source_of(&seen);
        let list_rv = self.state.list_rv(seen.kind(), source).max(facts.list_rv(seen.kind(), source));
        let arrival = facts.arrival((!listed).then_some(list_rv));
        match seen {
            ObservedObject::Pod(key, fact) => facts.push_read(&key, JobFact::Pod(fact), arrival),
            ObservedObject::Service(key, fact) => facts.push_read(&key, JobFact::Service(fact), arrival),
            ObservedObject::Owned(key, fact) => facts.push_read(&key, JobFact::Owned(fact), arrival),
            ObservedObject::Node(fact) => {
                self.foreign.node_applied(&fact);
                facts.cluster.push((ClusterFact::Node(fact), arrival));
            }
            ObservedObject::Class(fact) => facts.cluster.push((ClusterFact::Class(fact), arrival)),
            ObservedObject::Quota(fact) => facts.cluster.push((ClusterFact::Quota(fact), arrival)),
            ObservedObject::Namespace(fact) => facts.cluster.push((ClusterFact::Namespace(fact), arrival)),
            ObservedObject::Foreign(pod) => self.foreign.applied(*pod),
            ObservedObject::Job(key, object) => self.applied_job(&key, &object, facts, arrival),
        }
    }

    fn applied_job(&mut self, key: &JobKey, object: &Arc<Value>, facts: &mut Intake, arrival: Arrival) {
        let Some(api) = self.registry.api_of(key).cloned() else { return };
        let writer = if api.is_external() {
            MirrorWriter::Anyone { begins: facts.term_begins.then(|| self.terms.current()) }
        } else {
            MirrorWriter::Operator
        };
        let fact = match self.state.read_object(key, api.object_fact(object), arrival, writer, || api.adopt(object)) {
            ObjectReading::Deleted => return,
            ObjectReading::Known(fact) => fact,
            ObjectReading::Adopted(adopted, fact) => {
                facts.push(key, JobFact::Adopted(adopted));
                self.specs.forget(key);
                fact
            }
        };
        facts.push_read(key, JobFact::Object(fact), arrival);
        self.translate(key, object, facts);
        self.referenced_changed(key, facts);
    }

    pub(crate) fn deleted(&mut self, seen: ObservedObject, facts: &mut Intake) {
        match seen {
            ObservedObject::Pod(key, fact) => {
                self.in_flight.note_deleted(&key, &fact.uid);
                self.name_is_free(&key, &fact.name, facts);
                facts.push(&key, JobFact::PodGone { uid: fact.uid, rv: Some(fact.rv) });
            }
            ObservedObject::Service(key, fact) => {
                self.in_flight.note_deleted(&key, &fact.uid);
                facts.push(&key, JobFact::ServiceGone { uid: fact.uid });
            }
            ObservedObject::Owned(key, fact) => {
                self.in_flight.note_deleted(&key, &fact.uid);
                facts.push(&key, JobFact::OwnedGone { uid: fact.uid });
            }
            ObservedObject::Node(fact) => {
                self.foreign.node_gone(&fact.name);
                facts.push_cluster(ClusterFact::NodeGone { name: fact.name });
            }
            ObservedObject::Class(fact) => facts.push_cluster(ClusterFact::ClassGone { name: fact.name }),
            ObservedObject::Quota(fact) => {
                facts.push_cluster(ClusterFact::QuotaGone { namespace: fact.namespace, name: fact.name });
            }
            ObservedObject::Namespace(fact) => facts.push_cluster(ClusterFact::NamespaceGone { name: fact.name }),
            ObservedObject::Foreign(pod) => self.foreign.gone(&pod.uid),
            ObservedObject::Job(key, _) => self.job_gone(&key, facts),
        }
    }

    fn job_gone(&mut self, key: &JobKey, facts: &mut Intake) {
        if let Some(ended_at) = self.state.job(key).and_then(|job| job.ended_at) {
            self.recent_ends.note(key, ended_at, self.state.at);
        }
        for deleting in self.references.deleting(key) {
            facts.touch(&deleting);
        }
        self.forget(key);
        self.references.gone(key);
        facts.push(key, JobFact::Gone);
        self.referenced_changed(key, facts);
    }

    /// Reports a freed name to the jobs that wait for it: a pod is gone whose job has the name of another one.
    fn name_is_free(&self, gone: &JobKey, name: &Text, facts: &mut Intake) {
        // Jobs are kept by namespace and name, so those of one name stand together.
        let first = JobKey { kind: Text::from(""), uid: Uid::from(""), ..gone.clone() };
        let named = self.state.jobs.live_from(Some(&first));
        let named = named.take_while(|(key, _)| key.namespace == gone.namespace && key.name == gone.name);
        for (key, job) in named.filter(|(key, _)| key.uid != gone.uid) {
            let Some(api) = self.registry.api_of(key) else { continue };
            for slot in job.planned_pods.iter().filter(|slot| api.slot_name(key, slot) == *name) {
                let object = ObjectRef::Pod(slot.clone());
                if job.attempts.contains_key(&object) {
                    facts.push(key, JobFact::Answered { object, outcome: model::Outcome::Gone });
                }
            }
        }
    }

    /// Takes a list in: what it holds exists, and what else its source would show is gone. It says nothing of what another
    /// source of the kind shows: that source's watch continues from a version of its own.
    fn listed(&mut self, listed: List, facts: &mut Intake) -> Result<(), Error> {
        let List { kind, of, rv, items } = listed;
        if kind == Kind::Foreign {
            self.foreign.replace(rv, items);
            return Ok(());
        }
        let shows = |key: &JobKey| self.sources.shows(kind, of.as_ref(), key);
        let resource = self.sources.resource_of(kind, of.as_ref());
        let object_type = resource.map_or(("", ""), |resource| (&*resource.api_version, &*resource.kind));
        let list = ListView { kind, of: of.as_ref(), rv, shows: &shows, object_type };
        match self.state.admit_list(&list, facts.term_begins) {
            Admission::Regressed { known } => {
                return Err(Error::ClusterWentBack { kind, have: rv.0, known: known.0 });
            }
            Admission::Dropped(DropReason::Stale) => return Ok(()),
            Admission::Admitted | Admission::Dropped(_) => {}
        }
        let items: Vec<ObservedObject> = items.into_iter().filter(|item| item.job().is_none_or(shows)).collect();
        let mut present = Present::default();
        for item in &items {
            match item {
                ObservedObject::Job(key, _) => present.uids.insert(key.uid.clone()),
                ObservedObject::Pod(_, fact) => present.uids.insert(fact.uid.clone()),
                ObservedObject::Service(_, fact) => present.uids.insert(fact.uid.clone()),
                ObservedObject::Owned(_, fact) => present.uids.insert(fact.uid.clone()),
                ObservedObject::Node(fact) => present.nodes.insert(fact.name.clone()),
                ObservedObject::Class(fact) => present.classes.insert(fact.name.clone()),
                ObservedObject::Quota(fact) => present.quotas.insert((fact.namespace.clone(), fact.name.clone())),
                ObservedObject::Namespace(fact) => present.namespaces.insert(fact.name.clone()),
                ObservedObject::Foreign(_) => false,
            };
        }
        let gone = self.state.absent(&list, &present);
        for item in items {
            self.applied(item, facts, true);
        }
        for fact in gone.cluster {
            facts.push_cluster(fact);
        }
        for (key, fact) in gone.jobs {
            if fact == JobFact::Gone {
                self.job_gone(&key, facts);
            } else {
                facts.push(&key, fact);
            }
        }
        if kind == Kind::Pod {
            facts.end_absent_waits(&present, |key| self.sources.shows(kind, of.as_ref(), key));
        }
        facts.push_cluster(ClusterFact::Relisted { kind, of, rv });
        Ok(())
    }
}

/// A list, taken out of its observation.
struct List {
    kind: Kind,
    of: Option<Text>,
    rv: ResourceVersion,
    items: Vec<ObservedObject>,
}
