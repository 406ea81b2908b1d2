//! Observations become facts; what changes nothing is dropped before it reaches the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use apis::{Observation, Seen, objects};
use engine::Scope;
use model::{Fact, JobKey, Kind, ObjectRef, PodFact, ResourceVersion, Stamp, Text, Uid};
use serde_json::Value;

use crate::operator::{Error, Operator};
use crate::turn::Intake;

impl Operator {
    /// Turns everything in the inbox into facts.
    pub(crate) fn take_observations(&mut self, facts: &mut Intake, begins: bool) -> Result<(), Error> {
        let mut inbox: Vec<Observation<Seen>> = std::mem::take(&mut self.inbox).into();
        // Order holds within a kind only. A job before what it owns: its pods then find its spec, and the counts of an adoption.
        inbox.sort_by_key(rank);
        for observation in inbox {
            let unserved = |seen: &Seen| seen.job().is_some_and(|job| !self.serves(job));
            match observation {
                Observation::Applied(seen) | Observation::Deleted(seen) if unserved(&seen) => {}
                Observation::Applied(seen) => self.applied(seen, facts, false),
                Observation::Deleted(seen) => self.deleted(seen, facts),
                Observation::Listed { kind, of, rv, items } => {
                    self.listed(&View { kind, of, rv }, items, facts, begins)?;
                }
            }
        }
        Ok(())
    }

    /// `whole`: the object comes from a complete view, so an unknown one is there however old it is.
    pub(crate) fn applied(&mut self, seen: Seen, facts: &mut Intake, whole: bool) {
        match seen {
            Seen::Pod(key, fact) => {
                if whole || !self.is_stale_pod(&key, &fact) {
                    facts.job(&key).push(Fact::Pod(fact));
                }
            }
            Seen::Service(key, fact) => {
                let floor = self.state.floor(Kind::Service, self.views.of(Kind::Service, &key));
                let known = self.state.job(&key).is_some_and(|j| j.services.contains_key(&fact.uid));
                if whole || known || fact.rv > floor {
                    facts.job(&key).push(Fact::Service(fact));
                }
            }
            Seen::Node(fact) => facts.cluster.push(Fact::Node(fact)),
            Seen::Job(key, object) => self.applied_job(key, &object, facts),
        }
    }

    fn applied_job(&mut self, key: JobKey, object: &Value, facts: &mut Intake) {
        let Some(api) = self.registry.get(&key.kind).cloned() else { return };
        let fact = api.job_fact(object);
        let known = self.state.jobs.brief(&key);
        let unknown_here = known.is_none_or(|j| !j.known);
        let uncovered = fact.mirror > Stamp::default()
            && !self.state.covers(fact.mirror)
            && known.is_none_or(|j| !j.known || (fact.mirror > j.acked && fact.rv > j.rv));
        let inherited =
            || fact.mirror == Stamp::default() && unknown_here && api.adopt(object).mirror.phase != model::Phase::New;
        if uncovered || inherited() {
            let list = facts.job(&key);
            list.push(Fact::Adopted(Box::new(api.adopt(object))));
            self.seen_specs.remove(&key);
        }
        let list = facts.job(&key);
        list.push(Fact::Job(Box::new(fact)));
        // The spec is translated only when something that it is made of has changed.
        let made_of = Arc::new(serde_json::json!([
            objects::at(object, &["metadata", "generation"]),
            objects::at(object, &["metadata", "labels"]),
        ]));
        let same = self.seen_specs.get(&key) == Some(&made_of);
        if !same || objects::at(object, &["metadata", "generation"]).is_none() {
            list.push(Fact::Spec(Box::new(api.spec_fact(object))));
            self.seen_specs.insert(key, made_of);
        }
    }

    fn deleted(&mut self, seen: Seen, facts: &mut Intake) {
        match seen {
            Seen::Pod(key, fact) => {
                self.name_is_free(&key, &fact.name, facts);
                facts.job(&key).push(Fact::PodGone { uid: fact.uid, rv: Some(fact.rv) });
            }
            Seen::Service(key, fact) => facts.job(&key).push(Fact::ServiceGone { uid: fact.uid }),
            Seen::Node(fact) => facts.cluster.push(Fact::NodeGone { name: fact.name }),
            Seen::Job(key, _) => self.job_gone(&key, facts),
        }
    }

    fn job_gone(&mut self, key: &JobKey, facts: &mut Intake) {
        self.forget(key);
        facts.job(key).push(Fact::JobGone);
    }

    /// Forgets what is held of a job besides its state: it is gone, or at rest.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.seen_specs.remove(key);
        self.pace.forget(key);
        self.rendered.remove(key);
    }

    /// A pod that held a name another job of that name waits for is gone: that job may try again.
    fn name_is_free(&self, gone: &JobKey, name: &Text, facts: &mut Intake) {
        // Jobs are kept by namespace and name, so those of one name stand together.
        let first = JobKey { kind: Text::from(""), uid: Uid::from(""), ..gone.clone() };
        let named = self.state.jobs.awake_from(&first);
        let named = named.take_while(|(key, _)| key.namespace == gone.namespace && key.name == gone.name);
        for (key, job) in named.filter(|(key, _)| key.uid != gone.uid) {
            let Some(api) = self.registry.get(&key.kind) else { continue };
            for slot in job.planned_pods.iter().filter(|slot| api.slot_name(key, slot) == *name) {
                let object = ObjectRef::Pod(slot.clone());
                if job.attempts.contains_key(&object) {
                    facts.job(key).push(Fact::Answered { object, outcome: model::Outcome::Gone });
                }
            }
        }
    }

    /// A complete view: everything in it is there, everything else of that age that it would show is gone. It says nothing
    /// of what another source of the kind shows: that source's watch goes on from a version of its own.
    fn listed(&mut self, view: &View, items: Vec<Seen>, facts: &mut Intake, begins: bool) -> Result<(), Error> {
        let View { kind, of, rv } = view.clone();
        let of = of.as_ref();
        let floor = if begins { self.newest(kind, of) } else { self.state.floor(kind, of) };
        if rv < floor {
            return if begins { Err(Error::ClusterWentBack { kind, have: rv.0, known: floor.0 }) } else { Ok(()) };
        }
        let mut uids: BTreeSet<Uid> = BTreeSet::new();
        let mut names: BTreeSet<Text> = BTreeSet::new();
        for item in items {
            if item.job().is_some_and(|key| !self.shows(kind, of, key)) {
                continue;
            }
            match &item {
                Seen::Job(key, _) => uids.insert(key.uid.clone()),
                Seen::Pod(_, fact) => uids.insert(fact.uid.clone()),
                Seen::Service(_, fact) => uids.insert(fact.uid.clone()),
                Seen::Node(fact) => names.insert(fact.name.clone()),
            };
            self.applied(item, facts, true);
        }
        match kind {
            Kind::Node => {
                let gone = self.state.nodes.values().filter(|n| n.fact.rv <= rv && !names.contains(&n.fact.name));
                facts.cluster.extend(gone.map(|n| Fact::NodeGone { name: n.fact.name.clone() }));
            }
            Kind::Job => {
                let shown = self.state.jobs.briefs().filter(|(key, _)| self.shows(kind, of, key));
                let gone = shown.filter(|(key, job)| job.known && job.rv <= rv && !uids.contains(&key.uid));
                let gone: Vec<JobKey> = gone.map(|(key, _)| key.clone()).collect();
                for key in &gone {
                    self.job_gone(key, facts);
                }
            }
            Kind::Pod => {
                for (key, job) in self.state.jobs.all_awake().filter(|(key, _)| self.shows(kind, of, key)) {
                    let gone = job.pods.values().filter(|p| p.fact.rv <= rv && !uids.contains(&p.fact.uid));
                    gone.for_each(|p| facts.job(key).push(Fact::PodGone { uid: p.fact.uid.clone(), rv: Some(rv) }));
                    // Pods that an adopted mirror waits for and that are not there are gone as well.
                    let never_seen =
                        job.doomed.iter().filter(|uid| !job.pods.contains_key(*uid) && !uids.contains(*uid));
                    never_seen.for_each(|uid| facts.job(key).push(Fact::PodGone { uid: uid.clone(), rv: None }));
                }
                let shown = facts.jobs.iter_mut().filter(|(key, _)| self.shows(kind, of, key));
                shown.for_each(|(_, list)| adopted_waits(list, &uids));
            }
            Kind::Service => {
                for (key, job) in self.state.jobs.all_awake().filter(|(key, _)| self.shows(kind, of, key)) {
                    let gone = job.services.iter().filter(|(uid, s)| s.rv <= rv && !uids.contains(*uid));
                    gone.for_each(|(uid, _)| facts.job(key).push(Fact::ServiceGone { uid: uid.clone() }));
                }
            }
        }
        facts.cluster.push(Fact::Relisted { kind, of: of.cloned(), rv });
        Ok(())
    }

    /// Returns true if a view shows the job, or what belongs to it, and the job's API is served.
    fn shows(&self, kind: Kind, view: Option<&Text>, job: &JobKey) -> bool {
        self.serves(job) && self.views.shows(kind, view, job)
    }

    /// The newest version that is known of what a view shows: of the last such view, or of any object seen since.
    fn newest(&self, kind: Kind, of: Option<&Text>) -> ResourceVersion {
        let shown = |key: &JobKey| self.shows(kind, of, key);
        let jobs = self.state.jobs.all_awake().filter(|(key, _)| shown(key)).map(|(_, job)| job);
        let seen = match kind {
            Kind::Node => self.state.nodes.values().map(|n| n.fact.rv).max(),
            Kind::Job => self.state.jobs.briefs().filter(|(key, _)| shown(key)).map(|(_, job)| job.rv).max(),
            Kind::Pod => jobs.flat_map(|j| j.pods.values()).map(|p| p.fact.rv).max(),
            Kind::Service => jobs.flat_map(|j| j.services.values()).map(|s| s.rv).max(),
        };
        self.state.floor(kind, of).max(seen.unwrap_or_default())
    }

    /// An unknown pod at or below the newest complete view was gone before that view.
    fn is_stale_pod(&self, key: &JobKey, fact: &PodFact) -> bool {
        let known = self.state.job(key).is_some_and(|j| j.pods.contains_key(&fact.uid));
        !known && fact.rv <= self.state.floor(Kind::Pod, self.views.of(Kind::Pod, key))
    }

    /// Whether a fact changes anything that is known. Heartbeats and echoes do not.
    pub(crate) fn is_news(&self, scope: &Scope, fact: &Fact) -> bool {
        let Scope::Job(key) = scope else {
            return match fact {
                Fact::Node(node) => self.state.nodes.get(&node.name).is_none_or(|known| {
                    known.fact.rv < node.rv
                        && (known.fact.ready != node.ready || known.fact.conditions != node.conditions)
                }),
                Fact::NodeGone { name } => self.state.nodes.contains_key(name),
                Fact::Relisted { kind, of, rv } => self.state.floor(*kind, of.as_ref()) < *rv,
                _ => true,
            };
        };
        let job = self.state.job(key);
        let job = job.as_deref();
        match fact {
            Fact::Pod(pod) => job.and_then(|j| j.pods.get(&pod.uid)).is_none_or(|known| {
                known.fact.rv < pod.rv && PodFact { rv: known.fact.rv, ..(**pod).clone() } != known.fact
            }),
            Fact::PodGone { uid, .. } => job.is_some_and(|j| {
                // Of a pod never seen it matters only while its creation may be unresolved, or a mirror waits for it.
                j.pods.contains_key(uid) || j.doomed.contains(uid) || !j.planned_pods.is_empty()
            }),
            Fact::Service(service) => job.and_then(|j| j.services.get(&service.uid)).is_none_or(|known| {
                known.rv < service.rv && (known.deleting != service.deleting || known.slot != service.slot)
            }),
            Fact::ServiceGone { uid } => job.is_some_and(|j| j.services.contains_key(uid)),
            Fact::Job(fact) => job.is_none_or(|j| {
                !j.known
                    || (fact.rv >= j.rv && (fact.rv, fact.deleting, fact.mirror) != (j.rv, j.deleting, j.mirror))
                    || (fact.rv >= j.rv && (fact.marks != j.marks || (fact.marker && !j.marker)))
            }),
            Fact::Spec(fact) => job.and_then(|j| j.spec.as_ref()).is_none_or(|known| **known != **fact),
            Fact::JobGone => job.is_some_and(|j| j.known && !j.gone),
            // What a watch has shown already still ends the attempts to write it.
            Fact::Published { stamp, rv } => {
                job.is_some_and(|j| *stamp > j.acked || *rv > j.rv || j.attempts.contains_key(&ObjectRef::Status))
            }
            _ => job.is_some() || matches!(fact, Fact::Adopted(_)),
        }
    }

    /// A mirror this log does not contain, seen while leading, means that another operator wrote: start again.
    pub(crate) fn check_coverage(&self, key: &JobKey, fact: &Fact, begins: bool) -> Result<(), Error> {
        match fact {
            Fact::Adopted(adopted) if !begins && self.state.job(key).is_some_and(|j| j.known) => {
                Err(Error::Superseded { job: key.to_string(), mirror: adopted.mirror.stamp.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// What a complete view is of, and its version.
#[derive(Debug, Clone)]
struct View {
    kind: Kind,
    of: Option<Text>,
    rv: ResourceVersion,
}

/// Nodes, then jobs, then pods, then services.
fn rank(observation: &Observation<Seen>) -> usize {
    let kind = match observation {
        Observation::Listed { kind, .. } => *kind,
        Observation::Applied(seen) | Observation::Deleted(seen) => seen.kind(),
    };
    Kind::ALL.iter().position(|k| *k == kind).unwrap_or_default()
}

/// Pods that a mirror adopted in this very turn waits for, and that the view does not hold, are gone.
fn adopted_waits(list: &mut Vec<Fact>, there: &BTreeSet<Uid>) {
    let gone: Vec<Fact> = list
        .iter()
        .filter_map(|fact| match fact {
            Fact::Adopted(adopted) => Some(&adopted.mirror.wait_uids),
            _ => None,
        })
        .flatten()
        .filter(|uid| !there.contains(*uid))
        .map(|uid| Fact::PodGone { uid: uid.clone(), rv: None })
        .collect();
    list.extend(gone);
}
