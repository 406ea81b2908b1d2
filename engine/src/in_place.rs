//! Restarts of an old pod's containers in place, by an object of another system for each pod.
//!
//! A pod is marked with the number of pods that it will train with, then its containers are restarted, then it gets its new shape. Each
//! step follows from what stands on the pod and on that object, so a lost log loses nothing. Where the cluster does not serve the
//! type of the object, pods are created again. It must not decide which pods are old ([`crate::decide`]). Tests: the scenarios
//! `restart-in-place-*` of TorchJob.

use model::{GroupSpec, JobSpec, ObjectRef, OwnedRef, PodMark, Uid};

use crate::job::{Job, Pod};

/// The next step to restart an old pod in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestartStep {
    /// Mark the pod.
    Mark(PodMark),
    /// Create the object.
    Create(OwnedRef),
    /// Delete the object: it is of an older shape.
    Delete(OwnedRef),
    /// Create the pod again: its containers could not be restarted, or nothing can restart them.
    Recreate,
    /// Wait for the object.
    Wait,
}

impl Job {
    /// Returns the next step to restart a pod of a group in place.
    pub(crate) fn restart_step(&self, spec: &JobSpec, group: &GroupSpec, pod: &Pod) -> RestartStep {
        let Some((api_version, kind)) = &spec.restarts_by else { return RestartStep::Recreate };
        let object = OwnedRef { api_version: api_version.clone(), kind: kind.clone(), name: pod.fact.name.clone() };
        let has_ended = pod.fact.phase.is_terminal();
        if has_ended || self.lacks_restarts() {
            return RestartStep::Recreate;
        }
        if pod.fact.size != group.size {
            return group.size.clone().map_or(RestartStep::Recreate, |size| RestartStep::Mark(PodMark::Size(size)));
        }
        let Some(owned) = self.owned.get(&object) else { return RestartStep::Create(object) };
        let Some(fact) = owned.fact.as_ref().filter(|fact| !fact.deleting && owned.deletion.is_none()) else {
            return RestartStep::Wait;
        };
        match (&group.shape, fact) {
            (shape, fact) if *shape != fact.digest => RestartStep::Delete(object),
            (_, fact) if fact.failed.is_some() => RestartStep::Recreate,
            (Some(shape), fact) if fact.ready => RestartStep::Mark(PodMark::Shape(shape.clone())),
            _ => RestartStep::Wait,
        }
    }

    /// Returns the marks that old pods get now.
    pub(crate) fn marks(&self, spec: &JobSpec) -> Vec<(Uid, PodMark)> {
        let Some((group, pods)) = crate::decide::old_pods(self, spec) else { return Vec::new() };
        let mark = |pod: &Pod| match self.restart_step(spec, group, pod) {
            RestartStep::Mark(mark) => Some((pod.fact.uid.clone(), mark)),
            RestartStep::Create(_) | RestartStep::Delete(_) | RestartStep::Recreate | RestartStep::Wait => None,
        };
        // The first object shows whether the cluster serves its type.
        let most = if self.knows_restarts() { usize::MAX } else { 1 };
        pods.into_iter().filter_map(mark).take(most).collect()
    }

    /// Returns true for an object that has restarted the containers of a pod, or whose pod is gone.
    pub(crate) fn has_restarted(&self, spec: &JobSpec, object: &OwnedRef) -> bool {
        if !self.restarts_pods(object) {
            return false;
        }
        let is_old = |pod: &Pod| {
            let slot = pod.fact.slot.as_ref();
            let shape = slot.and_then(|slot| spec.group(&slot.group)).and_then(|group| group.shape.clone());
            pod.fact.name == object.name && !pod.is_leaving() && pod.fact.shape != shape
        };
        !self.pods.values().any(|pod| is_old(pod))
    }

    /// Returns true for an object of the type that restarts containers.
    pub(crate) fn restarts_pods(&self, object: &OwnedRef) -> bool {
        let by = self.spec().and_then(|spec| spec.restarts_by.as_ref());
        by.is_some_and(|(api_version, kind)| (api_version, kind) == (&object.api_version, &object.kind))
    }

    /// Returns true if the cluster does not serve the type of the object.
    fn lacks_restarts(&self) -> bool {
        let is_of_type = |object: &ObjectRef| matches!(object, ObjectRef::Owned(owned) if self.restarts_pods(owned));
        self.attempts.keys().any(|object| is_of_type(object) && self.does_without(object))
    }

    /// Returns true once an object of that type was seen.
    pub(crate) fn knows_restarts(&self) -> bool {
        self.owned.iter().any(|(object, owned)| owned.fact.is_some() && self.restarts_pods(object))
    }
}
