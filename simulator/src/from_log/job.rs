//! Turns records about the job itself into steps: changes of its object, its pods and what else it owns.
//!
//! Owns which facts came from outside: what follows from the operator's own calls is no step.

use std::collections::BTreeMap;

use engine::{Job, Record, State};
use model::{JobFact, ObjectFact, OwnedFact, PodFact, SpecFact, Timestamp, Uid};
use serde_json::{Value, json};

use super::calls::{self, CallStep};
use super::manifest::Unknown;
use super::pods;
use super::recorded::RecordedStep;
use super::recording::Recording;

impl Recording {
    /// Takes in a record about the job.
    pub(super) fn job(&mut self, state: &State, record: &Record) -> Result<(), Unknown> {
        if self.first.is_none() {
            let begins = record.job_facts().iter().find_map(|fact| match fact {
                JobFact::Spec(spec) => Some(spec),
                _ => None,
            });
            // What was adopted began before this log.
            let adopted = record.job_facts().iter().any(|fact| matches!(fact, JobFact::Adopted(_)));
            let known = state.job(&self.key).is_some_and(|job| job.spec.is_some());
            if let Some(spec) = begins.filter(|_| !adopted && !known) {
                self.begin(record, spec)?;
            }
            return Ok(());
        }
        let job = state.job(&self.key);
        let job = job.as_deref();
        // What the job owns goes with its object.
        let going = job.is_some_and(|job| job.object.is_going() || is_expired(job, record.at))
            || record.job_facts().iter().any(|fact| match fact {
                JobFact::Gone => true,
                JobFact::Object(fact) => fact.deleting,
                _ => false,
            });
        let (mut actions, mut remarks) = (Vec::new(), Vec::new());
        // Pods as earlier facts of this record have them.
        let mut seen: BTreeMap<Uid, PodFact> = BTreeMap::new();
        for fact in record.job_facts() {
            match fact {
                JobFact::Spec(spec) => self.edited(spec, &mut actions, &mut remarks),
                JobFact::Object(fact) => self.marked(job, fact, &mut actions, &mut remarks),
                JobFact::Gone => actions.extend(self.gone(job, record.at)),
                JobFact::Pod(fact) => {
                    let before = seen.get(&fact.uid);
                    self.pod(job, (before, fact), (record.at, going), &mut actions, &mut remarks);
                    seen.insert(fact.uid.clone(), (**fact).clone());
                }
                JobFact::PodGone { uid, .. } => actions.extend(self.pod_gone(job, seen.get(uid), uid, going)),
                JobFact::ServiceGone { uid } => {
                    let service =
                        job.and_then(|job| job.services.get(uid)).filter(|service| service.deletion.is_none());
                    if let Some(service) = service.filter(|_| !going) {
                        actions.push(json!({"delete": {"kind": "Service", "name": self.name(&service.name)}}));
                    }
                }
                JobFact::Owned(fact) => self.owned(job, fact, going, &mut actions, &mut remarks),
                JobFact::OwnedGone { uid } => actions.extend(self.owned_gone(job, uid).filter(|_| !going)),
                JobFact::Answered { object, outcome } => match calls::read(object, outcome, job, &self.key.kind) {
                    CallStep::Usual => {}
                    CallStep::Fails(step) => self.fail(record, step),
                    CallStep::Inexpressible(remark) => remarks.push(remark),
                },
                JobFact::Measured { .. } => {
                    remarks.push("a line of a pod's log was read; the log does not hold it".to_owned());
                }
                JobFact::Adopted(_) => self.log_was_lost(record),
                _ => {}
            }
        }
        if !actions.is_empty() {
            // A node that changed in the same turn.
            let caused = |step: &RecordedStep| step.node.is_some() && record.causes.contains(&step.position);
            while self.steps.last().is_some_and(caused) {
                let cause = self.steps.pop();
                actions.splice(0..0, cause.into_iter().flat_map(|step| step.actions));
            }
        }
        self.push(record, actions, remarks, None);
        let deadline = job.and_then(|job| job.deadline).filter(|deadline| *deadline <= record.at);
        if let Some((step, deadline)) = self.steps.last_mut().zip(deadline)
            && step.position == record.position
        {
            step.overdue = record.at.since_ms(deadline) + 1;
        }
        Ok(())
    }

    /// The name of an object of the job's namespace, as scenarios write it.
    fn name(&self, name: &str) -> String {
        model::id::name_in(&self.key.namespace, name)
    }

    fn edited(&mut self, spec: &SpecFact, actions: &mut Vec<Value>, remarks: &mut Vec<String>) {
        let Some(before) = self.spec.replace(spec.clone()) else { return };
        if before.missing != spec.missing || before.needs != spec.needs {
            remarks.push("other objects that the spec references came or went".to_owned());
        }
        let completed = |fact: &SpecFact| fact.notes.as_ref().and_then(|notes| notes.elastic?.completed);
        if completed(&before) != completed(spec) {
            remarks.push("the annotation of a completed checkpoint was written".to_owned());
        }
        if before.spec == spec.spec && before.manifest == spec.manifest && before.warnings == spec.warnings {
            return;
        }
        let Some(mut patch) = self.manifests.edit(&before, spec) else {
            remarks.push(
                "the job was edited, and no known manifest is what it became: give that one with --manifest".to_owned(),
            );
            return;
        };
        if let Some(members) = patch.as_object_mut() {
            members.insert("job".to_owned(), self.key.written().into());
        }
        actions.push(json!({"patch": patch}));
    }

    fn marked(&self, job: Option<&Job>, fact: &ObjectFact, actions: &mut Vec<Value>, remarks: &mut Vec<String>) {
        let name = self.key.written();
        let had = job.map(|job| job.object.end_requests().clone()).unwrap_or_default();
        for (request, message) in fact.end_requests.iter().filter(|(request, text)| had.get(*request) != Some(*text)) {
            match self.manifests.end_annotation(*request) {
                Some(annotation) => {
                    actions.push(json!({"annotate": {"job": name, "set": {annotation: &**message}}}));
                }
                None => remarks.push(format!("the end of the job was requested ({request:?})")),
            }
        }
        for annotation in had.keys().filter(|request| !fact.end_requests.contains_key(*request)) {
            let annotation = self.manifests.end_annotation(*annotation);
            actions.extend(annotation.map(|annotation| json!({"annotate": {"job": name, "remove": [annotation]}})));
        }
        if let Some(progress) =
            fact.progress.as_deref().filter(|own| job.and_then(|job| job.progress.as_deref()) != Some(own))
        {
            let mut patch = apis::progress::patch(progress);
            if let Some(members) = patch.as_object_mut() {
                members.insert("job".to_owned(), name.into());
            }
            actions.push(json!({"patch": patch}));
        }
        if fact.reported_end.as_deref() != job.and_then(|job| job.reported_end.as_deref()) {
            remarks.push("the controller of its pods reported the end of the job".to_owned());
        }
        if fact.deleting && !job.is_some_and(|job| job.object.is_deleting()) {
            actions.push(self.deletion());
        }
    }

    fn deletion(&self) -> Value {
        json!({"delete": {"kind": &*self.key.kind, "name": self.key.written()}})
    }

    /// The job's object is gone: its user deleted it, unless that is known already or its time to live has passed.
    fn gone(&self, job: Option<&Job>, at: Timestamp) -> Option<Value> {
        let job = job?;
        (!job.object.is_going() && !is_expired(job, at)).then(|| self.deletion())
    }

    fn pod(
        &mut self,
        job: Option<&Job>,
        (seen, fact): (Option<&PodFact>, &PodFact),
        (at, going): (Timestamp, bool),
        actions: &mut Vec<Value>,
        remarks: &mut Vec<String>,
    ) {
        let pod = job.and_then(|job| job.pods.get(&fact.uid));
        let before = seen.or_else(|| pod.map(|pod| &pod.fact));
        let name = self.name(&fact.name);
        if self.is_foreign(fact) {
            if before.is_none() {
                remarks.push(format!("pod {name} was created by another than the operator"));
            }
            return;
        }
        self.used_nodes.extend(fact.node.clone());
        let change = pods::change(before, fact, &name, at);
        actions.extend(change.actions);
        remarks.extend(change.remarks);
        let ordered = pod.is_some_and(|pod| pod.deletion.is_some()) || before.is_some_and(|pod| pod.deleting.is_some());
        if fact.deleting.is_some() && !ordered && !going {
            actions.push(json!({"delete": {"kind": "Pod", "name": name}}));
        }
    }

    /// Returns whether a pod is none that the operator creates: its name is not that of its slot.
    fn is_foreign(&self, fact: &PodFact) -> bool {
        let own = fact.slot.as_ref().map(|slot| self.api.slot_name(&self.key, slot));
        own.is_some_and(|own| own != fact.name)
    }

    fn pod_gone(&self, job: Option<&Job>, seen: Option<&PodFact>, uid: &Uid, going: bool) -> Option<Value> {
        let pod = job.and_then(|job| job.pods.get(uid));
        let fact = seen.or_else(|| pod.map(|pod| &pod.fact)).filter(|fact| !self.is_foreign(fact))?;
        let name = self.name(&fact.name);
        let going = pod.is_some_and(|pod| pod.deletion.is_some()) || fact.deleting.is_some() || going;
        let vanished = || json!({"delete": {"kind": "Pod", "name": name, "gracePeriodSeconds": 0}});
        // A pod that has ended, or has no node, vanishes when it is deleted.
        let at_once = fact.deleting.is_none() && (fact.phase.is_terminal() || fact.node.is_none());
        if going { (!at_once).then(|| json!({"gone": name})) } else { Some(vanished()) }
    }

    fn owned(
        &self,
        job: Option<&Job>,
        fact: &OwnedFact,
        going: bool,
        actions: &mut Vec<Value>,
        remarks: &mut Vec<String>,
    ) {
        let Some(before) = job.and_then(|job| job.owned.get(&fact.object)?.fact.as_ref()) else { return };
        let name = self.name(&fact.object.name);
        if fact.ready && !before.ready && &*fact.object.kind == "PersistentVolumeClaim" {
            let bound = json!({"kind": &*fact.object.kind, "name": name, "status": {"phase": "Bound"}});
            actions.push(json!({"patch": bound}));
        } else if (fact.ready, &fact.failed, &fact.gate) != (before.ready, &before.failed, &before.gate) {
            remarks.push(format!("{} changed by another controller", fact.object));
        }
        let ordered = job.and_then(|job| job.owned.get(&fact.object)).is_some_and(|owned| owned.deletion.is_some());
        if fact.deleting && !before.deleting && !ordered && !going {
            actions.push(json!({"delete": {"kind": &*fact.object.kind, "name": name}}));
        }
    }

    fn owned_gone(&self, job: Option<&Job>, uid: &Uid) -> Option<Value> {
        let (object, owned) =
            job?.owned.iter().find(|(_, owned)| owned.fact.as_ref().is_some_and(|fact| fact.uid == *uid))?;
        let known = owned.deletion.is_some() || owned.fact.as_ref().is_some_and(|fact| fact.deleting);
        (!known).then(|| json!({"delete": {"kind": &*object.kind, "name": self.name(&object.name)}}))
    }
}

/// Returns whether the time to live of a job that ended has passed: the operator deletes its object.
fn is_expired(job: &Job, at: Timestamp) -> bool {
    job.ended_at.zip(job.spec().and_then(|spec| spec.ttl_ms)).is_some_and(|(end, ttl)| end.plus_ms(ttl) <= at)
}
