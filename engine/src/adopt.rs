//! A job whose log does not cover its mirror starts again from its object.
//!
//! Facts about its spec, pods and services follow in the same record; they find the counts and waits set here.

use std::collections::BTreeMap;

use model::fact::Adopted;
use model::{Incarnation, Mirror, SlotId, Stamp, Text, Timestamp, Uid};

use crate::allocation::Allocation;
use crate::autoscaler::JobAutoscaler;
use crate::job::Job;
use crate::object_state::ObjectState;
use crate::ranges;
use crate::retry_counts::RetryCounts;
use crate::status_stamps::StatusStamps;

/// Maximum number of deleting pods that the mirror names by uid; of more, whole groups are named by an incarnation.
const MAX_WAIT_UIDS: usize = 64;
/// Maximum number of slots whose back-off the mirror names; of more, the last one stands for the whole job.
const MAX_SLOT_RETRIES: usize = 64;

/// Resets `job` to what its object shows.
pub(crate) fn adopt(job: &mut Job, adopted: &Adopted, stamp: Stamp, at: Timestamp) {
    let mirror = &adopted.mirror;
    // The index of deadlines holds the old one until the record is finished.
    let (rv, deadline) = (job.object.rv(), job.deadline);
    *job = Job {
        object: ObjectState::of_version(rv),
        deadline,
        phase: mirror.phase,
        milestones: adopted.milestones.iter().cloned().collect(),
        decision: mirror.decision.clone(),
        decided: mirror.stamp,
        deleting_pods: mirror.wait_uids.clone(),
        retry_at: mirror.retry_at,
        stamps: StatusStamps::of_mirror(mirror.stamp),
        started_at: adopted.started_at,
        running_at: adopted.running_at,
        // The original operator's objects have no mirror; what they have comes nearest.
        first_running_at: mirror
            .first_running_at
            .or_else(|| adopted.running_at.filter(|_| mirror.stamp == Stamp::default())),
        creating_at: mirror.first_creating_at,
        ended_at: if mirror.phase.is_terminal() { adopted.ended_at.or(Some(at)) } else { None },
        finals: adopted.finals.clone(),
        admitted_at: mirror.admitted_at,
        limit_paused_at: mirror.limit_paused_at,
        retry_counts: RetryCounts::of_mirror(mirror),
        dequeued_at: mirror.dequeued_at,
        autoscaler: mirror.scaling.clone().map(|scaling| Box::new(JobAutoscaler::new(*scaling, at))),
        orphan_since: Some(at),
        speed_samples: mirror.speed_samples.clone(),
        adopted: stamp,
        allocation: Allocation {
            share: mirror.share.clone(),
            charge: mirror.charge.clone(),
            stamp: mirror.stamp,
            at: mirror.share_at,
            usage: mirror.usage,
            failed_starts: mirror.failed_starts,
            start_after: mirror.start_after,
            refused: mirror.refused.clone(),
            loss: mirror.share_loss.as_deref().cloned(),
            ..Allocation::default()
        },
        ..Job::default()
    };
    for (name, restarts) in &adopted.restarts {
        job.groups.entry(name.clone()).or_default().restarts = *restarts;
    }
    for (name, charged) in &mirror.charged {
        job.groups.entry(name.clone()).or_default().charged = *charged;
    }
    for (slot, until) in mirror.slot_retry.iter().filter_map(|(name, until)| Some((SlotId::parse(name)?, *until))) {
        job.groups.entry(slot.group).or_default().delay(slot.index, until);
    }
    for (name, from) in &mirror.grown_from {
        job.groups.entry(name.clone()).or_default().grown_from = Some(*from);
    }
    for (name, replicas) in &mirror.replicas {
        job.groups.entry(name.clone()).or_default().replicas = *replicas;
    }
    for (name, lost) in &mirror.lost {
        job.groups.entry(name.clone()).or_default().lost = ranges::parse(lost);
    }
    for (name, run) in &mirror.achieved {
        job.groups.entry(name.clone()).or_default().achieved = Some(run.clone());
    }
    if adopted.remarks {
        job.stamps.change(stamp);
    }
    job.waits_below.clone_from(&mirror.wait_below);
    job.slot_counts.clone_from(&mirror.slot_counts);
    job.note(stamp, at, format!("adopted from its object: phase {:?}, mirror {}", mirror.phase, mirror.stamp));
}

impl Job {
    /// The mirror of this job.
    pub fn mirror(&self) -> Mirror {
        let ended = self.phase.is_terminal();
        let mut mirror = Mirror {
            stamp: self.stamps.wanted(),
            phase: self.phase,
            decision: self.decision.clone(),
            wait_uids: self.deleting_pods.clone(),
            charged: self.groups.iter().filter(|(_, g)| g.charged > 0).map(|(n, g)| (n.clone(), g.charged)).collect(),
            retry_at: self.retry_at.filter(|_| !ended),
            first_creating_at: self.creating_at.filter(|_| !ended),
            first_running_at: self.first_running_at,
            scaling: self.autoscaler.as_ref().map(|own| Box::new(own.scaling.clone())),
            ..Mirror::default()
        };
        if self.deleting_pods.len() > MAX_WAIT_UIDS {
            self.shorten_waits(&mut mirror);
        }
        // Keep completed runs in the mirror of an ended job: its status is written once more when its last pods are gone.
        let achieved = self.groups.iter().filter_map(|(name, group)| Some((name.clone(), group.achieved.clone()?)));
        mirror.achieved = achieved.collect();
        if !ended {
            let lost = self.groups.iter().filter(|(_, group)| !group.lost.is_empty());
            mirror.lost = lost.map(|(name, group)| (name.clone(), ranges::text(&group.lost))).collect();
            mirror.share.clone_from(&self.allocation.share);
            mirror.charge.clone_from(&self.allocation.charge);
            mirror.share_at = self.allocation.at;
            mirror.usage = self.allocation.usage;
            mirror.failed_starts = self.allocation.failed_starts;
            mirror.start_after = self.allocation.start_after;
            mirror.refused.clone_from(&self.allocation.refused);
            mirror.speed_samples.clone_from(&self.speed_samples);
            mirror.admitted_at = self.admitted_at;
            mirror.limit_paused_at = self.limit_paused_at;
            mirror.share_loss = self.allocation.loss.clone().filter(|_| self.allocation.share.is_empty()).map(Box::new);
            self.retry_counts.write_to(&mut mirror);
            mirror.dequeued_at = self.dequeued_at;
            mirror.slot_counts = self.pinned_counts();
            let grown = self.groups.iter().filter_map(|(name, group)| Some((name.clone(), group.grown_from?)));
            mirror.grown_from = grown.collect();
            let restarted = self.groups.iter().filter(|(_, group)| group.restarts > 0);
            mirror.replicas = restarted.map(|(name, group)| (name.clone(), group.replicas)).collect();
            if self.groups.values().map(|g| g.delays.len()).sum::<usize>() > MAX_SLOT_RETRIES {
                mirror.retry_at = self.last_delay();
            } else {
                mirror.slot_retry = self.delays().map(|(slot, until)| (slot.to_string(), until)).collect();
            }
        }
        mirror
    }

    fn place_of(&self, uid: &Uid) -> Option<(&SlotId, Incarnation)> {
        let pod = self.pods.get(uid)?;
        Some((pod.fact.slot.as_ref()?, pod.fact.incarnation))
    }

    /// Restart counts that a restart set for slots whose new pod is still to come.
    fn pinned_counts(&self) -> BTreeMap<String, u32> {
        let deleting = self.deleting_pods.iter().filter_map(|uid| Some(self.place_of(uid)?.0.clone()));
        let missing = |(name, group): (&Text, &crate::group::Group)| -> Vec<SlotId> {
            group.missing.iter().map(|index| SlotId { group: name.clone(), index: *index }).collect()
        };
        let waiting = self
            .groups
            .iter()
            .map(|(name, group)| (name, &**group))
            .flat_map(missing)
            .chain(self.planned_pods.iter().cloned())
            .chain(deleting);
        let mut all = BTreeMap::new();
        let mut shown = BTreeMap::new();
        for id in waiting {
            let restarts = self.groups.get(&id.group).map_or(0, |g| g.restarts);
            if let Some(count) = self.slot(&id).and_then(|s| s.count) {
                all.insert(id.to_string(), count);
                if count != restarts {
                    shown.insert(id.to_string(), count);
                }
            }
        }
        // A count that is its group's differs from it only once another restart comes before the pod: a loss worth taking
        // where whole groups are replaced, for a mirror of bounded size.
        if all.len() > MAX_WAIT_UIDS { shown } else { all }
    }

    /// Names the deleting pods of groups that are deleted as a whole by one incarnation each.
    fn shorten_waits(&self, mirror: &mut Mirror) {
        let mut deleting: BTreeMap<&Text, (u32, Incarnation)> = BTreeMap::new();
        for (slot, incarnation) in self.deleting_pods.iter().filter_map(|uid| self.place_of(uid)) {
            let (count, newest) = deleting.entry(&slot.group).or_default();
            *count = count.saturating_add(1);
            *newest = (*newest).max(incarnation);
        }
        for (name, group) in &self.groups {
            let held = group.slots.iter().filter(|s| s.pod.is_some()).count();
            let whole = deleting.get(name).filter(|(count, _)| usize::try_from(*count).is_ok_and(|n| n >= held));
            if let Some((_, newest)) = whole {
                mirror.wait_below.insert(name.clone(), newest.next());
            }
        }
        let named = |uid: &Uid| self.place_of(uid).is_some_and(|(slot, _)| mirror.wait_below.contains_key(&slot.group));
        mirror.wait_uids = self.deleting_pods.iter().filter(|uid| !named(uid)).cloned().collect();
    }
}
