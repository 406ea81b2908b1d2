//! Gates: objects of other systems that admit the pods of a job, as Kueue's `Workload` does.
//!
//! Owns when a gate is open, and what is to be reported on it. Derived from what is known, never stored. It must not decide:
//! [`crate::decide`] creates and deletes gates, and halts jobs. It knows nothing of what a gate's object holds.
//! Tests: `gates/tests.rs`, the scenarios `kueue-*`.

use std::sync::Arc;

use model::{GateFact, GateReport, ObjectRef, OwnedFact, OwnedRef, OwnedSpec, Phase, Reached, ReadinessGate, SpecFact};

use crate::job::{Job, Owned};

impl Job {
    /// Returns the gate of its pods; `None` without one, and where the cluster does not serve its type.
    pub fn gate(&self) -> Option<&OwnedSpec> {
        self.wanted_gate().filter(|gate| !self.does_without(&ObjectRef::Owned(gate.object.clone())))
    }

    /// Returns true if the scheduler of another system starts its pods together, or will once it is known to be there.
    pub(crate) fn has_gang(&self) -> bool {
        let is_there = |object: &OwnedRef| self.owned.get(object).is_some_and(|owned| owned.fact.is_some());
        let may_come =
            |object: &OwnedRef| !self.has_lasting_pods() && !self.does_without(&ObjectRef::Owned(object.clone()));
        let owned = self.spec().into_iter().flat_map(|spec| &spec.owned);
        let mut gangs = owned.filter(|owned| owned.awaits == ReadinessGate::ExistsIfServed);
        gangs.any(|gang| is_there(&gang.object) || may_come(&gang.object))
    }

    /// Returns true for the gate that the spec asks for, whether the cluster serves its type or not.
    pub(crate) fn is_gate(&self, object: &OwnedRef) -> bool {
        self.wanted_gate().is_some_and(|gate| gate.object == *object)
    }

    /// Returns a gate that is still there and that the spec asks for no more.
    pub(crate) fn former_gate(&self) -> Option<&OwnedRef> {
        let is_gate = |owned: &Owned| owned.fact.as_ref().is_some_and(|fact| fact.gate.is_some());
        let former = self.owned.iter().find(|(object, owned)| is_gate(owned) && !self.is_gate(object));
        former.map(|(object, _)| object)
    }

    fn wanted_gate(&self) -> Option<&OwnedSpec> {
        self.spec()?.owned.iter().find(|owned| owned.awaits == ReadinessGate::Admitted)
    }

    /// Returns the spec that an owned object is rendered from. A gate is that of the latest one, as soon as that is in force.
    pub fn spec_of_owned(&self, object: &OwnedRef) -> Option<Arc<SpecFact>> {
        let of = |fact: &SpecFact| fact.spec.as_ref().ok()?.owned.iter().find(|owned| owned.object == *object).cloned();
        let in_force = self.valid.as_ref()?;
        let gate = of(in_force).filter(|owned| owned.awaits == ReadinessGate::Admitted);
        let latest = self.spec.as_ref().filter(|latest| gate.is_some() && of(latest) == gate);
        Some(Arc::clone(latest.unwrap_or(in_force)))
    }

    /// Returns a gate as it was last observed.
    pub(crate) fn gate_fact(&self, gate: &OwnedSpec) -> Option<(&OwnedFact, &GateFact)> {
        let fact = self.owned.get(&gate.object)?.fact.as_ref()?;
        Some((fact, fact.gate.as_deref()?))
    }

    /// Returns the states of the gates that it owns.
    pub fn gates(&self) -> impl Iterator<Item = &GateFact> {
        self.owned.values().filter_map(|owned| owned.fact.as_ref()?.gate.as_deref())
    }

    /// Returns the objects that its admitted pods get something from and that were not read yet.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &OwnedRef> {
        let state = self.gate().and_then(|gate| self.gate_fact(gate)).map(|(_, state)| state);
        let is_unread = |object: &&OwnedRef| self.owned.get(*object).is_none_or(|owned| owned.fact.is_none());
        state.into_iter().flat_map(|state| &state.reads).filter(is_unread)
    }

    /// Returns true if a gate admits the pods that the spec asks for.
    pub(crate) fn is_open(&self, gate: &OwnedSpec) -> bool {
        let is_kept = self.owned.get(&gate.object).is_some_and(|owned| owned.deletion.is_none());
        self.gate_fact(gate).is_some_and(|(fact, state)| {
            is_kept && fact.ready && !fact.deleting && fact.failed.is_none() && state.pods == gate.pods
        })
    }

    /// Returns true if a gate holds quota for other pods than the spec asks for. It cannot be changed then.
    pub(crate) fn counts_other_pods(&self, gate: &OwnedSpec) -> bool {
        self.gate_fact(gate).is_some_and(|(_, state)| state.holds_quota && state.pods != gate.pods)
    }

    /// Returns in words why the gate that is there does not admit the pods.
    pub(crate) fn withdrawal(&self) -> Option<String> {
        let gate = self.gate().filter(|gate| !self.is_open(gate))?;
        let object = &gate.object;
        let (fact, state) = self.gate_fact(gate)?;
        let is_going = fact.deleting || self.owned.get(object).is_some_and(|owned| owned.deletion.is_some());
        Some(match (&fact.failed, &state.message) {
            _ if is_going => format!("{object} is being deleted"),
            (Some(why), _) => format!("{object} cannot be used: {why}"),
            _ if state.pods != gate.pods => format!("its pods are not those of {object} any more"),
            (None, Some(why)) => format!("not admitted by {object}: {why}"),
            (None, None) => format!("not admitted by {object}"),
        })
    }

    /// Returns what is to be reported on the gate, and the gate as it stands.
    pub(crate) fn gate_report(&self) -> Option<(&OwnedFact, GateReport)> {
        let owned = self.owned.get(&self.wanted_gate()?.object)?;
        let fact = owned.fact.as_ref().filter(|fact| !fact.deleting && owned.deletion.is_none())?;
        let state = fact.gate.as_deref().filter(|state| !state.finished)?;
        if self.phase.is_terminal() {
            // A gate that is finished never opens again: the end is in the mirror first.
            let is_over = !self.has_unended_pods() && self.stamps.acknowledged() >= self.decided;
            let succeeded = self.phase == Phase::Succeeded;
            return is_over.then_some((fact, GateReport::Finished { succeeded }));
        }
        if state.evicted {
            let is_empty = !self.has_unended_pods() && self.decision.is_none();
            return (state.holds_quota && is_empty).then_some((fact, GateReport::Released));
        }
        let run = self.all_lasting_pods_run();
        let is_news = fact.ready && state.pods_ready != run && self.ending().is_none() && !self.is_halting();
        is_news.then_some((fact, GateReport::PodsReady(run)))
    }

    /// Returns true if all pods run or have succeeded, apart from those that run once.
    fn all_lasting_pods_run(&self) -> bool {
        let Some(spec) = self.spec() else { return false };
        spec.groups.iter().filter(|group| !group.once).all(|group| self.is_reached(group, Reached::Running))
    }
}

#[cfg(test)]
mod tests;
