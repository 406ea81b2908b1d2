//! Folds answers to calls in, where no observed object shows them: done, rejected, or unknown and to be tried again.

use model::command::Outcome;
use model::{ObjectRef, SlotId, Stamp, Timestamp};

use crate::job::{Attempt, Job};

/// Returns true if the status shows an answer.
const fn shows(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { .. } | Outcome::Taken { .. })
}

/// Forgets the calls about an object that did not succeed. What the status says of them goes with the next write.
pub(crate) fn forget(job: &mut Job, object: &ObjectRef, stamp: Stamp) {
    if job.attempts.remove(object).is_some_and(|attempt| shows(&attempt.last)) {
        job.stamps.change(stamp);
    }
}

/// Forgets the planned creation of a pod.
pub(crate) fn give_up(job: &mut Job, id: &SlotId, stamp: Stamp) {
    job.planned_pods.remove(id);
    forget(job, &ObjectRef::Pod(id.clone()), stamp);
    if let Some(slot) = job.slot_mut(id) {
        slot.planned = false;
        slot.cancelled = false;
        slot.planned_on = None;
    }
}

/// Gives a planned pod up. One that may have been created stays planned until that is known.
pub(crate) fn cancel(job: &mut Job, id: &SlotId, stamp: Stamp) {
    let refused = job
        .attempts
        .get(&ObjectRef::Pod(id.clone()))
        .is_some_and(|a| matches!(a.last, Outcome::Refused { .. } | Outcome::Taken { .. }));
    if refused {
        give_up(job, id, stamp);
    } else if let Some(slot) = job.slot_mut(id) {
        slot.cancelled = true;
    }
}

/// Returns true if a planned pod was given up: its slot says so, or was scaled away.
fn is_cancelled(job: &Job, id: &SlotId) -> bool {
    job.slot(id).is_none_or(|slot| slot.cancelled)
}

pub(super) fn answered(
    job: &mut Job,
    object: &ObjectRef,
    outcome: &Outcome,
    stamp: Stamp,
    at: Timestamp,
    config: &model::Config,
) {
    match (object, outcome) {
        (ObjectRef::PodUid(uid), Outcome::Done | Outcome::Forced) => {
            forget(job, object, stamp);
            if let Some(pod) = job.pods.get_mut(uid)
                && let Some(deletion) = &mut pod.deletion
            {
                deletion.forced |= *outcome == Outcome::Forced;
                deletion.ordered = true;
            }
        }
        (ObjectRef::PodUid(uid), Outcome::Gone) => {
            // Its protection is.
            forget(job, object, stamp);
            if let Some(pod) = job.pods.get_mut(uid) {
                pod.fact.protected = None;
            }
        }
        (ObjectRef::ServiceUid(uid), Outcome::Done) => {
            forget(job, object, stamp);
            if let Some(service) = job.services.get_mut(uid)
                && let Some(deletion) = &mut service.deletion
            {
                deletion.ordered = true;
            }
        }
        (ObjectRef::Owned(name), Outcome::Done) => {
            forget(job, object, stamp);
            if let Some(deletion) = job.owned.get_mut(name).and_then(|owned| owned.deletion.as_mut()) {
                deletion.ordered = true;
            }
        }
        (ObjectRef::Owned(name), Outcome::Gone) => {
            // A creation that was given up did not happen.
            forget(job, object, stamp);
            if let Some(owned) = job.owned.get_mut(name)
                && owned.fact.is_none()
            {
                job.owned.remove(name);
            }
        }
        (ObjectRef::Owned(name), Outcome::Refused { code: 404, .. }) if job.is_optional(name) => {
            // The cluster does not serve the type: the object is given up until the spec changes, without a remark.
            if job.is_gate(name) && job.ended_at.is_none() {
                // What the job waits for is another thing now.
                job.stamps.change(stamp);
            }
            job.attempts.insert(object.clone(), Attempt { failures: 1, retry_at: None, last: outcome.clone() });
            if job.owned.get(name).is_some_and(|owned| owned.fact.is_none()) {
                job.owned.remove(name);
            }
        }
        (ObjectRef::EndAnnotation, Outcome::Done | Outcome::Gone) => {
            forget(job, object, stamp);
            job.object.note_end_annotation();
        }
        (ObjectRef::Job, Outcome::Done | Outcome::Gone) => {
            // Its watch shows the rest.
            forget(job, object, stamp);
            job.object.note_deletion();
        }
        (ObjectRef::Pod(id), Outcome::Gone) => {
            // A creation that was given up did not happen; or a name that was taken is free.
            forget(job, object, stamp);
            if is_cancelled(job, id) {
                give_up(job, id, stamp);
            }
        }
        (_, Outcome::Done | Outcome::Forced | Outcome::Gone) => forget(job, object, stamp),
        (_, Outcome::Taken { .. } | Outcome::Refused { .. } | Outcome::Unknown { .. }) => {
            let failures = job.attempts.get(object).map_or(0, |a| a.failures).saturating_add(1);
            let retry_at = match outcome {
                Outcome::Refused { code: 422 | 400, .. } => None,
                Outcome::Refused { .. } => Some(at.plus_ms(config.retry_max_ms)),
                Outcome::Taken { .. } | Outcome::Unknown { .. } | Outcome::Done | Outcome::Forced | Outcome::Gone => {
                    Some(at.plus_ms(backoff(failures, config.retry_ms, config.retry_max_ms)))
                }
            };
            let before = job.attempts.insert(object.clone(), Attempt { failures, retry_at, last: outcome.clone() });
            let said = before.map(|attempt| attempt.last).filter(shows);
            if said.as_ref() != Some(outcome).filter(|outcome| shows(outcome)) {
                job.stamps.change(stamp);
            }
            // A creation that was given up and refused did not happen.
            if let (ObjectRef::Pod(id), Outcome::Refused { .. }) = (object, outcome)
                && is_cancelled(job, id)
            {
                give_up(job, id, stamp);
            }
        }
    }
}

/// Delay before try `failures + 1`: none for the second, then `first` doubling up to `max`.
pub(crate) fn backoff(failures: u32, first: u64, max: u64) -> u64 {
    match failures.checked_sub(2) {
        None => 0,
        Some(doublings) => {
            let times = 1u64.checked_shl(doublings.min(63));
            times.and_then(|times| first.checked_mul(times)).map_or(max, |ms| ms.min(max))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::backoff;

    #[test]
    fn the_second_try_is_at_once_and_later_ones_wait_longer_up_to_a_limit() {
        let delays: Vec<u64> = (0..9).map(|failures| backoff(failures, 1000, 60_000)).collect();
        assert_eq!(delays, [0, 0, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000]);
        assert_eq!(backoff(u32::MAX, 1000, 60_000), 60_000);
        assert_eq!(backoff(40, 1 << 40, 60_000), 60_000);
    }
}
