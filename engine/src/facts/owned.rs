//! Folds facts about objects that a job owns in. Their contents are the business of its API.

use std::collections::BTreeSet;

use model::{GateFact, ObjectRef, OwnedFact, OwnedRef, Retain, Uid};

use super::answers;
use crate::job::{Job, Owned};
use crate::record_context::RecordContext;

impl RecordContext<'_> {
    pub(super) fn owned(&self, job: &mut Job, fact: &OwnedFact) {
        answers::forget(job, &ObjectRef::Owned(fact.object.clone()), self.stamp);
        let owned = job.owned.entry(fact.object.clone()).or_default();
        let before = owned.fact.as_ref();
        if before.is_some_and(|before| before.uid != fact.uid) {
            // The deletion was decided of the object that had the name before.
            owned.deletion = None;
        }
        let shown = |fact: &OwnedFact| {
            let why = fact.gate.as_ref().map(|gate| gate.message.clone());
            (fact.uid.clone(), fact.deleting, fact.ready, fact.failed.clone(), why)
        };
        let changed = before.map(shown) != Some(shown(fact));
        owned.planned = false;
        owned.fact = Some(fact.clone());
        if let Some(gate) = &fact.gate {
            forget_read(job, gate);
        }
        self.owned_changed(job, changed);
    }

    pub(super) fn owned_gone(&self, job: &mut Job, uid: &Uid) {
        let named = job.owned.iter_mut().find(|(_, owned)| owned.is(uid));
        let Some((object, owned)) = named else { return };
        let object = object.clone();
        owned.fact = None;
        owned.deletion = None;
        if !owned.planned {
            job.owned.remove(&object);
        }
        answers::forget(job, &ObjectRef::Owned(object), self.stamp);
        self.owned_changed(job, true);
    }

    /// Shows a change in the status of a job that continues. What an ended job shows is final.
    const fn owned_changed(&self, job: &mut Job, changed: bool) {
        if changed && job.ended_at.is_none() && !matches!(job.phase, model::Phase::New) {
            job.stamps.change(self.stamp);
        }
    }
}

/// Forgets what was read for an earlier admission.
fn forget_read(job: &mut Job, gate: &GateFact) {
    let named = job.spec().into_iter().flat_map(|spec| &spec.owned).map(|owned| &owned.object);
    let named: BTreeSet<OwnedRef> = named.chain(&gate.reads).cloned().collect();
    let is_read = |owned: &Owned| owned.fact.as_ref().is_some_and(|fact| fact.keep == Retain::Left);
    job.owned.retain(|object, owned| !is_read(owned) || named.contains(object));
}
