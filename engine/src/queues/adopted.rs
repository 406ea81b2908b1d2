//! Checks shares that were read from mirrors after a lost log, and that no bound pod confirms.
//!
//! Owns which of them fit. A user may have written one; while the log is there, it counts instead. Tests: scenarios
//! `mpijob/state-is-forged-before-the-log-is-lost`, `-beyond-the-quota`, and the crash sweep with a lost log.

use std::collections::BTreeSet;

use model::{JobKey, Share, Timestamp};

use super::grant::Room;
use super::holder::Holder;
use crate::holding::asked;
use crate::job::Job;
use crate::state::State;

/// Returns the jobs whose adopted share does not fit beside bound pods and the shares of other jobs. Only jobs whose pods another controller
/// creates are checked: their state stands in an annotation, that of others in a status, which users may not write.
pub(super) fn without_room(state: &State, now: Timestamp) -> BTreeSet<JobKey> {
    let is_unproven = |(key, holder): &(&JobKey, &Holder)| {
        let is_adopted = |job: &Job| job.holding.stamp <= job.adopted || job.holding.stamp > state.stamp;
        let is_bound = |share: &Share| share.cells().all(|(slot, _)| holder.bound.contains_key(&slot));
        holder.interchanges
            && !holder.share.is_empty()
            && state.jobs.live(key).is_some_and(is_adopted)
            && !is_bound(&holder.share)
    };
    let mut unproven: Vec<(&JobKey, &Holder)> = state.queues.holders.iter().filter(is_unproven).collect();
    // Before the watched types are listed, no pod is known.
    if unproven.is_empty() || state.awaits_watched() {
        return BTreeSet::new();
    }
    unproven.sort_by_key(|(key, holder)| holder.order(key));
    let keys: BTreeSet<JobKey> = unproven.iter().map(|(key, _)| (*key).clone()).collect();
    let mut room = Room::new(state, now, &keys);
    unproven.retain(|(key, holder)| {
        // As if it asked for its places now: of the queue that its spec names, which has to select its namespace.
        let mut asks = (*holder).clone();
        asks.places.clear();
        asks.share = Share::default();
        let spec = state.jobs.live(key).and_then(Job::spec);
        let is_own = spec.is_some_and(|spec| asked(spec) == holder.charge);
        let fit = room.take(key, &asks, state.queues.gpu_type(&holder.resource), &holder.share);
        !(is_own && fit.in_amounts)
    });
    unproven.into_iter().map(|(key, _)| key.clone()).collect()
}
