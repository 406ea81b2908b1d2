//! Checks shares that were read from mirrors after a lost log, and that no bound pod confirms.
//!
//! Owns which of them fit. A user may have written one; while the log is there, it counts instead. Tests: scenarios
//! `mpijob/state-is-forged-before-the-log-is-lost`, `-beyond-the-quota`, and the crash sweep with a lost log.

use std::collections::BTreeSet;

use model::{JobKey, Share, Timestamp};

use super::candidate::Candidate;
use super::grant::Room;
use crate::allocation::requested;
use crate::job::Job;
use crate::state::State;

/// Returns the jobs whose adopted share does not fit beside bound pods and the shares of other jobs. Only jobs whose pods another controller
/// creates are checked: their state stands in an annotation, that of others in a status, which users may not write.
pub(super) fn without_room(state: &State, now: Timestamp) -> BTreeSet<JobKey> {
    let is_unproven = |(key, candidate): &(&JobKey, &Candidate)| {
        let is_adopted = |job: &Job| job.allocation.stamp <= job.adopted || job.allocation.stamp > state.stamp;
        let is_bound = |share: &Share| share.cells().all(|(slot, _)| candidate.bound.contains_key(&slot));
        candidate.interchanges
            && !candidate.share.is_empty()
            && state.jobs.live(key).is_some_and(is_adopted)
            && !is_bound(&candidate.share)
    };
    let mut unproven: Vec<(&JobKey, &Candidate)> = state.queues.candidates.iter().filter(is_unproven).collect();
    // Before the watched types are listed, no pod is known.
    if unproven.is_empty() || state.awaits_watched() {
        return BTreeSet::new();
    }
    unproven.sort_by_key(|(key, candidate)| candidate.order(key));
    let keys: BTreeSet<JobKey> = unproven.iter().map(|(key, _)| (*key).clone()).collect();
    let mut room = Room::new(state, now, &keys);
    unproven.retain(|(key, candidate)| {
        // As if it asked for its places now: of the queue that its spec names, which has to select its namespace.
        let mut asks = (*candidate).clone();
        asks.places.clear();
        asks.share = Share::default();
        let spec = state.jobs.live(key).and_then(Job::spec);
        let is_own = spec.is_some_and(|spec| requested(spec) == candidate.charge);
        let fit = room.take(key, &asks, state.queues.gpu_type(&candidate.resource), &candidate.share);
        !(is_own && fit.in_amounts)
    });
    unproven.into_iter().map(|(key, _)| key.clone()).collect()
}
