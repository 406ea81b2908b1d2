//! Applies facts about the job's object: its metadata, and its spec with what an edit changes.

use model::{Edits, ObjectFact, Outcome, OwnedSpec, Phase, ReadinessGate, SpecFact, Stamp};

use crate::job::Job;
use crate::record_context::RecordContext;
use crate::slots;

/// Takes the metadata of the job's object in.
pub(super) fn object(job: &mut Job, fact: &ObjectFact) {
    job.object.observe(fact);
    job.orphan_since = None;
    job.finalizers.clone_from(&fact.finalizers);
    job.finalized = fact.finalized;
    job.reported_end.clone_from(&fact.reported_end);
    // A report stands until there is another.
    if fact.progress.is_some() {
        job.progress.clone_from(&fact.progress);
    }
    job.stamps.observe(fact.mirror);
}

impl RecordContext<'_> {
    pub(super) fn spec(&self, job: &mut Job, fact: &SpecFact) {
        let fact = std::sync::Arc::new(fact.clone());
        // An edit after the ending was decided changes nothing any more.
        let too_late = job.valid.is_some() && job.ending().is_some();
        if fact.spec.is_ok() && !too_late {
            let edited = job.valid.is_some();
            let before = job.spec().and_then(crate::autoscaler::settings).map(|(_, replicas)| replicas);
            job.valid = Some(job.sized(in_force(job, &fact)));
            // What was refused may be accepted now.
            job.attempts.retain(|_, attempt| !matches!(attempt.last, Outcome::Refused { .. }));
            slots::rebuild_slots(job, edited, self);
            job.follow_edit(before);
            let waits = matches!(job.phase, Phase::New | Phase::Suspended)
                || job.phase.is_terminal()
                || (matches!(job.phase, Phase::Pending | Phase::Preparing)
                    && (job.spec().is_some_and(|spec| spec.phase_rules.queued)
                        || self.behaviour.pauses_limits() && job.stamps.observed() != Stamp::default()));
            if !waits {
                // The object of another operator, or one whose clock counted from elsewhere before.
                job.admit(job.started_at.unwrap_or(self.at));
            }
        }
        if job.spec.is_some() || fact.spec.is_err() || !fact.warnings.is_empty() {
            job.stamps.change(self.stamp);
        }
        job.spec = Some(fact);
    }

    /// Brings the numbers of pods in step with the share, where the queues choose them.
    pub(super) fn resize(&self, job: &mut Job) {
        let Some(valid) = &job.valid else { return };
        let sized = job.sized(valid.clone());
        if !std::sync::Arc::ptr_eq(&sized, valid) {
            job.valid = Some(sized);
            slots::rebuild_slots(job, true, self);
        }
    }
}

/// Returns the spec that is in force after an edit: with what objects are rendered from as it was, where that cannot change
/// under the job's pods.
fn in_force(job: &Job, edit: &std::sync::Arc<SpecFact>) -> std::sync::Arc<SpecFact> {
    let Some(valid) = job.valid.as_ref().filter(|_| job.has_lasting_pods()) else { return edit.clone() };
    match edit.spec.as_ref().map(|spec| spec.edits).unwrap_or_default() {
        Edits::BeforePods => return valid.clone(),
        Edits::Numbers if valid.manifest != edit.manifest => {}
        Edits::Numbers | Edits::All => return edit.clone(),
    }
    let mut kept = SpecFact { manifest: valid.manifest.clone(), ..(**edit).clone() };
    // What the job owns is rendered from the same manifest, and its digests are those of it. A gate counts the pods that are asked
    // for: with others the job is halted, and the edit takes effect.
    if let (Ok(spec), Ok(before)) = (&mut kept.spec, &valid.spec) {
        let is_gate = |owned: &OwnedSpec| owned.awaits == ReadinessGate::Admitted;
        spec.owned.retain(is_gate);
        spec.owned.extend(before.owned.iter().filter(|owned| !is_gate(owned)).cloned());
    }
    kept.into()
}
