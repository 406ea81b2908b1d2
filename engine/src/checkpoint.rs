//! Time for a checkpoint: which deletions of pods leave them the grace period that their job asks for.
//!
//! A deletion that answers no failure does: the program is sound, and what it saves is what it continues from. It follows from the state, so
//! a lost log changes nothing. It must not delete pods ([`crate::effects`] does). Tests: `checkpoint/tests.rs`, and the scenarios
//! `checkpoint-grace-*`.

#[cfg(test)]
mod tests;

use model::fact::EndRequest;
use model::{CauseKind, Decision, Phase};

use crate::job::{Job, Pod};

impl Job {
    /// Returns the grace period in seconds with which a pod is deleted; `None` for that of its template.
    pub(crate) fn checkpoint_grace_seconds(&self, pod: &Pod) -> Option<u32> {
        self.spec()?.checkpoint_grace_seconds.filter(|_| self.answers_no_failure(pod))
    }

    /// Returns true if the deletion of this pod answers no failure: its job is halted, suspended, preempted or resized.
    fn answers_no_failure(&self, pod: &Pod) -> bool {
        let is_surplus = || pod.fact.slot.as_ref().is_none_or(|id| self.slot(id).is_none());
        match &self.decision {
            Some(Decision::Halt { .. }) => true,
            Some(Decision::End { cause, .. }) => cause.kind == CauseKind::EndRequested(EndRequest::Preempted),
            Some(Decision::Restart { cause, .. }) => cause.kind == CauseKind::Resized || is_surplus(),
            None => self.phase == Phase::Suspended || is_surplus(),
        }
    }

    /// Returns what happens to the pods of a halted job, in words.
    pub(crate) fn deletion_words(&self) -> String {
        let grace = self.spec().and_then(|spec| spec.checkpoint_grace_seconds);
        let time = grace.map(|seconds| format!(", which have {seconds} s to save a checkpoint"));
        format!("deleting pods{}", time.unwrap_or_default())
    }
}
