//! Applies the restart of a group, of single pods or of the whole job: counts, back-offs and the pods that are deleted.

use model::{RestartScope, SlotId, Stamp, Text, Timestamp, Uid};

use super::pods::schedule_deletion;
use crate::job::Job;
use crate::nodes::NodeView;
use crate::slots;

/// Charges the restart, and deletes the pods that it replaces.
pub(super) fn restart(
    job: &mut Job,
    group: &Text,
    scope: RestartScope,
    slot: &SlotId,
    is_charged: bool,
    stamp: Stamp,
    node_view: &NodeView<'_>,
) {
    if let Some(charged) = job.groups.get_mut(group).filter(|_| is_charged) {
        charged.charged = charged.charged.saturating_add(1);
    }
    let is_single = is_single(scope);
    let taken = groups_taken(job, group, scope);
    for name in &taken {
        let Some(group) = job.groups.get_mut(name) else { continue };
        if !is_charged {
            continue;
        }
        group.restarts = group.restarts.saturating_add(1);
        if !is_single {
            group.forget_growth();
        }
        let (restarts, len) = (group.restarts, group.replicas);
        for (index, each) in (0..len).zip(&mut group.slots) {
            if !is_single || index == slot.index {
                each.count = Some(restarts);
                each.done = false;
            }
        }
    }
    let victims: Vec<Uid> = match scope {
        RestartScope::All => job.pods.keys().cloned().collect(),
        RestartScope::Replica => {
            let of_group = |p: &crate::job::Pod| p.fact.slot.as_ref().is_some_and(|id| id.group == *group);
            // Where no pod failed, those that ended stay ended.
            let taken = |p: &crate::job::Pod| of_group(p) && (is_charged || !p.fact.phase.is_terminal());
            job.pods.values().filter(|p| taken(p)).map(|p| p.fact.uid.clone()).collect()
        }
        RestartScope::Pod | RestartScope::Each => job.slot(slot).and_then(|s| s.pod.clone()).into_iter().collect(),
    };
    for uid in &victims {
        schedule_deletion(job, uid, stamp, node_view);
    }
    for name in &taken {
        slots::refresh_group(job, name, node_view);
    }
}

/// Returns true if a restart takes one pod along.
const fn is_single(scope: RestartScope) -> bool {
    matches!(scope, RestartScope::Pod | RestartScope::Each)
}

/// Groups that a restart takes along, wholly or in part.
fn groups_taken(job: &Job, group: &Text, scope: RestartScope) -> Vec<Text> {
    match scope {
        RestartScope::All => job.spec().map(|s| s.groups.iter().map(|g| g.name.clone()).collect()).unwrap_or_default(),
        RestartScope::Replica | RestartScope::Pod | RestartScope::Each => vec![group.clone()],
    }
}

/// Holds back the replacements of a restart, and nothing else.
pub(super) fn delay(job: &mut Job, group: &Text, scope: RestartScope, slot: &SlotId, until: Timestamp) {
    for name in groups_taken(job, group, scope) {
        let Some(group) = job.groups.get_mut(&name) else { continue };
        let indexes = if is_single(scope) { slot.index..slot.index.saturating_add(1) } else { 0..group.replicas };
        for index in indexes {
            group.delay(index, until);
        }
    }
}
