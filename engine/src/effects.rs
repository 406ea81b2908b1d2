//! Derives what follows from state: the same walk finds unfinished work after a commit and after a crash.
//!
//! It says what is to be done, not what is under way: `operator` knows which calls are out.

use std::cmp::Reverse;

use model::{
    Command, CreatePhase, Effect, JobKey, ObjectRef, Outcome, OwnedFact, OwnedSpec, Phase, ReadinessGate, RestartScope,
    Retain, ScalingStep, Term, Text, Uid,
};

use crate::job::{Job, PendingDeletion, Pod};
use crate::nodes::NodeTrouble;
use crate::state::State;

impl State {
    /// Returns what is to be done for a job, in dispatch order: status, pods, services, deletions, annotation; then when to look again.
    pub fn effects_of(&self, key: &JobKey) -> Vec<Effect> {
        let Some(job) = self.jobs.live(key) else { return Vec::new() };
        let ready =
            |c: &Command| job.attempts.get(&c.object()).is_none_or(|a| a.retry_at.is_some_and(|at| at <= self.at));
        let mut effects: Vec<Effect> = self.wanted(key, job).into_iter().filter(ready).map(Effect::Dispatch).collect();
        effects.extend(job.deadline.map(Effect::WakeAt));
        effects
    }

    /// Returns what is to be done for a job, now or when it may be tried again.
    pub(crate) fn wanted(&self, key: &JobKey, job: &Job) -> Vec<Command> {
        let mut commands = Vec::new();
        if job.quarantine.is_none() {
            if job.object.is_present() {
                self.own(job, &mut commands);
            } else if job.object.is_deleting() && job.finalized && !job.object.is_gone() {
                self.finalize(key, job, &mut commands);
            }
            self.deletions(job, &mut commands);
            if let Some((_, true, _)) = job.ending()
                && job.object.is_present()
                && !job.object.end_annotated()
                && job.spec().is_none_or(|spec| spec.end_annotation)
                && job.stamps.acknowledged() >= job.decided
            {
                commands.push(Command::WriteEndAnnotation);
            }
            let is_expired = job.phase.is_terminal() && job.expires_at().is_some_and(|at| at <= self.at);
            if is_expired && job.object.is_present() && !job.stamps.is_behind() {
                commands.push(Command::DeleteJob);
            }
        }
        commands
    }

    /// Status and creations.
    fn own(&self, job: &Job, commands: &mut Vec<Command>) {
        if job.stamps.is_behind() {
            commands.push(Command::WriteStatus { stamp: job.stamps.wanted(), rv: job.object.rv() });
        }
        // A read changes nothing.
        let reads = job.autoscaler.as_ref().is_some_and(|own| own.next == ScalingStep::ReadLog);
        let pod = job.measured_pod().filter(|_| reads);
        commands.extend(pod.map(|pod| Command::ReadLog { pod: pod.fact.name.clone() }));
        commands.extend(job.seeks_node().then_some(Command::FindNode));
        if !job.is_fenced(self.stamp.term) {
            return;
        }
        let (has_share, is_admitted) = (job.has_acked_share(), job.blocked_by_gate().is_none());
        let is_blocked = |group: &Text| !has_share || (!is_admitted && !job.runs_once(group));
        for slot in &job.planned_pods {
            commands.push(match job.slot(slot) {
                // The mirror shows a pod's place before the pod is created, and another system has admitted it.
                Some(state) if !state.cancelled && is_blocked(&slot.group) => continue,
                Some(state) if !state.cancelled => {
                    let restarts = job.groups.get(&slot.group).map_or(0, |g| g.restarts);
                    Command::CreatePod {
                        slot: slot.clone(),
                        incarnation: state.incarnation,
                        count: state.count.unwrap_or(restarts),
                    }
                }
                // Given up, or its slot was scaled away: it only needs to be known whether it was created.
                Some(_) | None => Command::ReadPod { slot: slot.clone() },
            });
        }
        for slot in &job.planned_services {
            commands.push(Command::CreateService { slot: slot.clone() });
        }
        Self::own_objects(job, commands);
        for (uid, mark) in job.spec().map(|spec| job.marks(spec)).unwrap_or_default() {
            let Some(pod) = job.pods.get(&uid) else { continue };
            commands.push(Command::MarkPod { name: pod.fact.name.clone(), uid, mark });
        }
        commands.extend(job.missing_notes().map(|notes| Command::WriteAnnotations { notes, rv: job.object.rv() }));
    }

    /// The finalizer and the objects that the job owns besides pods and services of slots.
    fn own_objects(job: &Job, commands: &mut Vec<Command>) {
        let Some(spec) = job.spec() else { return };
        if spec.finalizer && !job.finalized && !job.phase.is_terminal() {
            commands.push(Command::SetFinalizer { on: true, rv: job.object.rv() });
        }
        for wanted in &spec.owned {
            let Some(owned) = job.owned.get(&wanted.object) else { continue };
            // What has no owner reference is created once the finalizer sees to its end.
            let is_covered = wanted.keep != Retain::Finalized || job.finalized;
            // Pods that exist are not in it.
            let is_late = wanted.awaits == ReadinessGate::ExistsIfServed && job.has_lasting_pods();
            if owned.planned && is_covered && !is_late {
                commands.push(Command::CreateOwned { object: wanted.object.clone() });
            }
            if let Some(fact) = job.outdated(wanted) {
                let (object, uid) = (wanted.object.clone(), fact.uid.clone());
                commands.push(Command::UpdateOwned { object, uid, rv: fact.rv });
            }
        }
        let restarts = job.owned.iter().filter(|(object, owned)| owned.planned && job.restarts_pods(object));
        commands.extend(restarts.map(|(object, _)| Command::CreateOwned { object: object.clone() }));
        if !job.phase.is_terminal() {
            commands.extend(job.unread().map(|object| Command::ReadOwned { object: object.clone() }));
        }
        if let Some((fact, report)) = job.gate_report() {
            let (object, uid) = (fact.object.clone(), fact.uid.clone());
            commands.push(Command::ReportOwned { object, uid, rv: fact.rv, report });
        }
    }

    /// A job whose object is deleted and carries the finalizer: its status, the creations that may have happened, and in the
    /// end the finalizer.
    fn finalize(&self, key: &JobKey, job: &Job, commands: &mut Vec<Command>) {
        if job.stamps.is_behind() {
            commands.push(Command::WriteStatus { stamp: job.stamps.wanted(), rv: job.object.rv() });
        }
        if self.needed_by(key) > 0 {
            return;
        }
        let planned = job.owned.iter().filter(|(_, owned)| owned.planned);
        let reads: Vec<Command> = planned.map(|(object, _)| Command::ReadOwned { object: object.clone() }).collect();
        let is_free = reads.is_empty() && crate::decide::owned::unowned(job).next().is_none();
        commands.extend(reads);
        if is_free {
            commands.push(Command::SetFinalizer { on: false, rv: job.object.rv() });
        }
    }

    fn deletions(&self, job: &Job, commands: &mut Vec<Command>) {
        let with_deletion = |uid| {
            let pod: &Pod = job.pods.get(uid)?;
            Some((uid, pod, pod.deletion.as_deref()?))
        };
        let mut deleting: Vec<(&Uid, &Pod, &PendingDeletion)> = if job.left_nothing_yet() {
            Vec::new()
        } else {
            job.deleting_pods.iter().filter_map(with_deletion).collect()
        };
        // An elastic group shrinks from its highest index down.
        let is_elastic = |group: &Text| {
            let spec = job.spec().and_then(|spec| spec.group(group));
            spec.is_some_and(|group| group.scope == RestartScope::Each)
        };
        let shrinks = |pod: &Pod| {
            let slot = pod.fact.slot.as_ref().filter(|id| job.slot(id).is_none() && is_elastic(&id.group))?;
            Some(Reverse(slot.index))
        };
        deleting.sort_by_cached_key(|(_, pod, _)| shrinks(pod));
        for (uid, pod, deletion) in deleting {
            let lost = self.is_lost(pod);
            let asked = deletion.ordered || pod.fact.deleting.is_some();
            if job.stamps.acknowledged() >= deletion.requires && (!asked || (lost && !deletion.forced)) {
                commands.push(Command::DeletePod {
                    uid: uid.clone(),
                    name: pod.fact.name.clone(),
                    grace_seconds: if lost { Some(0) } else { job.checkpoint_grace_seconds(pod) },
                });
            }
        }
        for (uid, pod) in &job.pods {
            if let Some(others) = job.released(pod) {
                let (name, others) = (pod.fact.name.clone(), others.clone());
                commands.push(Command::ReleasePod { uid: uid.clone(), name, rv: pod.fact.rv, others });
            }
        }
        for (object, owned) in &job.owned {
            let due = |deletion: &PendingDeletion| !deletion.ordered && job.stamps.acknowledged() >= deletion.requires;
            let fact = owned.fact.as_ref().filter(|fact| !fact.deleting && owned.deletion.as_deref().is_some_and(due));
            if let Some(fact) = fact {
                commands.push(Command::DeleteOwned { object: object.clone(), uid: fact.uid.clone() });
            }
        }
        for (uid, service) in &job.services {
            let due = |deletion: &PendingDeletion| {
                !deletion.ordered && !service.deleting && job.stamps.acknowledged() >= deletion.requires
            };
            if service.deletion.as_deref().is_some_and(due) {
                commands.push(Command::DeleteService { uid: uid.clone(), name: service.name.clone() });
            }
        }
    }

    /// Returns true if the pod's node is lost, so that no kubelet ends it gracefully.
    fn is_lost(&self, pod: &Pod) -> bool {
        let trouble = pod.fact.node.as_ref().and_then(|node| self.node_view().trouble(node, self.at));
        trouble == Some(NodeTrouble::Lost)
    }
}

impl Job {
    /// Returns true if this term stands in the job's mirror, so that it may act on it.
    pub fn is_fenced(&self, term: Term) -> bool {
        self.stamps.acknowledged().term >= term
    }

    /// Returns true if something is held back until the object's mirror shows this term and the last decision.
    pub fn awaits_mirror(&self, term: Term) -> bool {
        !self.is_fenced(term) || self.stamps.acknowledged() < self.decided || !self.has_acked_share()
    }

    /// Returns the digest that an owned object shall show: of its contents, and of the run that is a part of them. `None` for one
    /// that is only created.
    pub fn owned_digest(&self, owned: &OwnedSpec) -> Option<Text> {
        let digest = owned.digest.as_ref()?;
        let run = owned.follows.as_ref().and_then(|group| self.groups.get(group)?.achieved.as_ref());
        Some(run.map_or_else(|| digest.clone(), |run| Text::from(format!("{digest}-{run}"))))
    }

    /// Returns true for a job that succeeded, where an object that is created for its success does not exist yet. That object may name
    /// the job's pods.
    fn left_nothing_yet(&self) -> bool {
        let is_missing = |owned: &OwnedSpec| {
            let is_refused = self
                .attempts
                .get(&ObjectRef::Owned(owned.object.clone()))
                .is_some_and(|attempt| matches!(attempt.last, Outcome::Refused { .. }));
            let exists = self.owned.get(&owned.object).is_some_and(|owned| owned.fact.is_some());
            owned.when == CreatePhase::Succeeded && !exists && !is_refused
        };
        let is_ours = self.object.is_present() && self.phase == Phase::Succeeded;
        is_ours && self.spec().is_some_and(|spec| spec.owned.iter().any(is_missing))
    }

    /// Returns an owned object whose contents are not those that it shall have. What an ended job left stays as it is, and so does a
    /// gate that holds quota.
    fn outdated(&self, wanted: &OwnedSpec) -> Option<&OwnedFact> {
        let owned = self.owned.get(&wanted.object).filter(|owned| !owned.planned && owned.deletion.is_none())?;
        let is_fixed = |fact: &OwnedFact| fact.gate.as_ref().is_some_and(|gate| gate.holds_quota || gate.finished);
        let fact = owned.fact.as_ref().filter(|fact| !fact.deleting && !self.phase.is_terminal() && !is_fixed(fact))?;
        let digest = self.owned_digest(wanted)?;
        (fact.digest.as_deref() != Some(&*digest)).then_some(fact)
    }

    /// Returns true if calls wait for the fence that follow from no decision: the finalizer, contents of an owned object, a report
    /// on one, or a read.
    pub(crate) fn has_outdated_objects(&self) -> bool {
        let Some(spec) = self.spec() else { return false };
        let needs_finalizer = spec.finalizer && !self.finalized && !self.phase.is_terminal();
        let reads = !self.phase.is_terminal() && self.unread().next().is_some();
        needs_finalizer
            || reads
            || self.gate_report().is_some()
            || spec.owned.iter().any(|owned| self.outdated(owned).is_some())
    }

    /// Returns the calls about its objects that could not be done, for its users.
    pub fn refusals(&self) -> impl Iterator<Item = (&ObjectRef, &Outcome)> {
        let attempts = self.attempts.iter().filter(|(object, _)| !self.does_without(object));
        attempts.filter_map(|(object, attempt)| match &attempt.last {
            outcome @ (Outcome::Refused { .. } | Outcome::Taken { waiting: false, .. }) => Some((object, outcome)),
            Outcome::Done
            | Outcome::Forced
            | Outcome::Gone
            | Outcome::Taken { waiting: true, .. }
            | Outcome::Unknown { .. } => None,
        })
    }
}
