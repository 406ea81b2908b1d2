//! Objects that a job owns besides pods and services of slots: which are created and which go.
//!
//! Bringing one up to date needs no decision: [`crate::effects`] compares digests. It must not know what an object holds.

use model::{
    CreatePhase, JobEvent, JobKey, JobSpec, ObjectRef, OwnedRef, OwnedSpec, Phase, ReadinessGate, Retain, Text, Uid,
};

use crate::job::{Job, Owned, Pod};
use crate::state::State;

/// Creates what the job's state asks for, and drops what it does not.
pub(super) fn reconcile(job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let exists = |object: &OwnedRef| job.owned.get(object).is_some_and(|owned| owned.planned || owned.fact.is_some());
    let planned = spec.owned.iter().filter(|owned| is_due(job, spec, owned) && !exists(&owned.object));
    let planned: Vec<OwnedRef> = planned.map(|owned| owned.object.clone()).collect();
    let dropped = job.owned.iter().filter(|(object, owned)| is_over(job, spec, object, owned));
    let dropped: Vec<OwnedRef> = dropped.map(|(object, _)| object.clone()).collect();
    let mut events = Vec::new();
    if !planned.is_empty() {
        events.push(JobEvent::OwnedPlanned { objects: planned });
    }
    if !dropped.is_empty() {
        events.push(JobEvent::OwnedDropped { objects: dropped });
    }
    events
}

fn is_due(job: &Job, spec: &JobSpec, owned: &OwnedSpec) -> bool {
    match owned.when {
        CreatePhase::Accepted if job.enqueued().is_some() => false,
        CreatePhase::Accepted if owned.awaits == ReadinessGate::ExistsIfServed => {
            let is_refused = job.attempts.contains_key(&ObjectRef::Owned(owned.object.clone()));
            !job.phase.is_terminal() && !is_refused && !job.has_lasting_pods()
        }
        CreatePhase::Accepted if owned.awaits == ReadinessGate::Admitted => {
            let is_refused = job.attempts.contains_key(&ObjectRef::Owned(owned.object.clone()));
            !job.phase.is_terminal() && !is_refused && !spec.suspended && !job.is_halting()
        }
        CreatePhase::Accepted => !job.phase.is_terminal() && follows_others(job, spec, owned),
        CreatePhase::Succeeded => job.phase == Phase::Succeeded,
    }
}

/// Returns true unless the object waits for one that the spec lists before it. An object of [`Retain::Finalized`] may name the uid of another
/// one, so they are created one after the other.
fn follows_others(job: &Job, spec: &JobSpec, owned: &OwnedSpec) -> bool {
    let is_there = |before: &OwnedSpec| job.owned.get(&before.object).is_some_and(|owned| owned.fact.is_some());
    let before = spec.owned.iter().take_while(|before| before.object != owned.object);
    owned.keep != Retain::Finalized || before.filter(|before| before.keep == Retain::Finalized).all(is_there)
}

/// Returns true if an object that is there is no longer to be kept.
fn is_over(job: &Job, spec: &JobSpec, object: &OwnedRef, owned: &Owned) -> bool {
    let Some(fact) = owned.fact.as_ref().filter(|fact| !fact.deleting && owned.deletion.is_none()) else {
        return false;
    };
    match spec.owned.iter().find(|wanted| wanted.object == *object) {
        // One that waits for nothing, or counts other pods, is in the way once nothing runs on its quota.
        Some(wanted) if wanted.awaits == ReadinessGate::Admitted => {
            let is_useless = spec.suspended || job.counts_other_pods(wanted);
            is_useless && !job.phase.is_terminal() && !job.has_unended_pods() && !job.is_halting()
        }
        Some(wanted) => wanted.keep == Retain::UntilEnd && job.phase.is_terminal(),
        // Nothing else would delete it, or free the quota that it holds.
        None => fact.keep == Retain::Finalized || fact.gate.is_some() || job.has_restarted(spec, object),
    }
}

/// Lets go of a job whose object is deleted and carries the finalizer: what has no owner reference goes first, and the pods that use
/// it, once no other job needs this one.
pub(super) fn finalize(state: &State, key: &JobKey, job: &Job) -> Vec<JobEvent> {
    if !job.finalized {
        return Vec::new();
    }
    let users = state.needed_by(key);
    if users > 0 {
        let words =
            if users == 1 { "job that has not ended still needs" } else { "jobs that have not ended still need" };
        let message = Text::from(format!("deleted, but {users} {words} it"));
        let said = job.milestones.back().is_some_and(|last| last.message == message);
        if job.phase != Phase::Terminating {
            return vec![JobEvent::PhaseChanged { to: Phase::Terminating, message }];
        }
        return if said { Vec::new() } else { vec![JobEvent::MessageChanged { message }] };
    }
    let objects: Vec<OwnedRef> =
        unowned(job).filter(|(_, owned)| owned.deletion.is_none()).map(|(o, _)| o.clone()).collect();
    // A claim stays while there is a pod that uses it, ended or not, and the garbage collector deletes no pod before the job's object is
    // gone.
    let stays = |pod: &&Pod| !pod.is_leaving();
    let uids: Vec<Uid> = job.pods.values().map(|pod| &**pod).filter(stays).map(|pod| pod.fact.uid.clone()).collect();
    let pods = (!uids.is_empty()).then_some(JobEvent::PodsDropped { uids });
    let owned = (!objects.is_empty()).then_some(JobEvent::OwnedDropped { objects });
    pods.into_iter().chain(owned).collect()
}

impl Job {
    /// Returns the objects that are not kept beyond its own object. Once that is gone, they were left behind by the garbage collector.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = (&OwnedRef, &Owned)> {
        let ends = |owned: &&Owned| owned.fact.as_ref().is_some_and(|fact| fact.keep.ends_with_job());
        self.owned.iter().map(|(object, owned)| (object, &**owned)).filter(move |(_, owned)| ends(owned))
    }
}

/// Returns the objects that only the finalizer has deleted.
pub(crate) fn unowned(job: &Job) -> impl Iterator<Item = (&OwnedRef, &Owned)> {
    let is_kept = |owned: &&Owned| owned.fact.as_ref().is_some_and(|fact| fact.keep == Retain::Finalized);
    job.owned.iter().map(|(object, owned)| (object, &**owned)).filter(move |(_, owned)| is_kept(owned))
}
