//! Keeps the part of a job that queues decide by, so that a change is distinguished from an echo and sums walk no pods.
//!
//! Derived from the job; never stored. Tests: through [`super`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::{Charge, JobKey, JobSpec, PodPhase, Resize, Share, SizeRange, SlotId, Term, Text, Timestamp, Usage};

use super::filter::Requirements;
use super::{Classes, leftovers, speed_samples};
use crate::allocation::requested;
use crate::job::Job;

/// Candidate for GPUs: a job that holds places or asks for some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(super) priority: i32,
    pub(super) submitted: Timestamp,
    /// True if it may be granted places.
    pub(super) wants: bool,
    /// The resource that it needs.
    pub(super) resource: Text,
    /// GPUs of its widest pod.
    pub(super) width: u32,
    /// Queue and GPUs that its places count for; those of its spec while it has none.
    pub(super) charge: Charge,
    /// Its slots that need GPUs, in order, each with their number.
    pub(super) slots: Vec<(SlotId, u32)>,
    /// Numbers of these slots that it may be granted.
    pub(super) sizes: SizeRange,
    /// Category of jobs that it learns from.
    pub(super) category: Text,
    /// Units of work in all, as it says before it reports.
    pub(super) units: Option<u64>,
    /// Queue of policies by attained service that it starts in.
    pub(super) level: u32,
    /// Use of GPUs up to the last change of its share.
    pub(super) usage: Usage,
    pub(super) share: Share,
    /// Time before which it is granted nothing.
    pub(super) start_after: Option<Timestamp>,
    /// Time of the last change of its share.
    pub(super) changed: Option<Timestamp>,
    /// Nodes on which each slot counts.
    pub(super) places: BTreeMap<SlotId, BTreeSet<Text>>,
    /// Nodes of pods that have not ended and are not being deleted.
    pub(super) bound: BTreeMap<SlotId, Text>,
    /// Nodes of pods that its job keeps although it wants no places any more.
    pub(super) kept: BTreeMap<SlotId, Text>,
    /// Requirements of its pods with GPUs on their nodes.
    pub(super) requirements: Requirements,
    /// Nodes that are left out until a time: a pod placed there stayed unschedulable.
    pub(super) refused: BTreeMap<Text, Timestamp>,
    /// True if any of its pods may be on any of its nodes: another controller creates them, from one template.
    pub(super) interchanges: bool,
    /// True if pods are being deleted or creations are unresolved.
    pub(super) leaving: bool,
    /// True if its spec can be accepted and asks for GPUs.
    asks: bool,
    /// True if it has pods or plans, and the queues never granted it anything.
    pub(super) found: bool,
    /// Term that stands in its mirror.
    term: Term,
}

impl Candidate {
    /// Returns the part of a job; `None` when it neither holds nor asks for anything.
    pub(super) fn of(key: &JobKey, job: &Job, classes: &Classes) -> Option<Self> {
        let asks = job.spec().and_then(|spec| Some((spec, spec.demand.as_ref()?)));
        let Some((spec, demand)) = asks else { return Self::without_demand(job) };
        let allocation = &job.allocation;
        let kept = job.kept_charge();
        if !allocation.gated && kept.is_none() {
            return None;
        }
        let requested = requested(spec);
        // An edit of queue or GPUs takes effect once the places granted before are free.
        let is_same = kept.is_none_or(|kept| *kept == requested);
        let (resource, charge) = (requested.resource.clone(), kept.cloned().unwrap_or(requested));
        let slots: Vec<(SlotId, u32)> = job.gpu_slots(spec).collect();
        let width = spec.gpu_groups().map(|(_, request)| request.count).fold(1, u32::max);
        let is_active =
            job.object.is_present() && job.quarantine.is_none() && !job.phase.is_terminal() && job.ending().is_none();
        // A pod without a slot has no place.
        let live = || job.live_pods().filter(|pod| pod.fact.slot.is_some());
        let needs = |slot: &SlotId| slots.iter().any(|(needed, _)| needed == slot);
        let bound = live().filter(|pod| !pod.is_leaving()).filter_map(|pod| {
            let slot = pod.fact.slot.as_ref().filter(|slot| needs(slot))?;
            Some((slot.clone(), pod.fact.node.clone()?))
        });
        let mut places = job.places();
        places.retain(|slot, _| spec.group(&slot.group).is_none_or(|group| group.gpu_request.is_some()));
        // GPUs are asked for once nothing else blocks the pods, and kept from then on.
        let is_open =
            |group: &&model::GroupSpec| job.is_gated(group) && job.blocked_besides_share(spec, group).is_none();
        let is_ready =
            || !job.allocation.share.is_empty() || is_same && spec.groups.iter().any(|group| is_open(&group));
        let wants = is_active && job.allocation.gated && !spec.suspended && !slots.is_empty() && is_ready();
        // Another controller may have created pods of a job that was not seen yet: those that run already are left.
        let runs = |pod: &crate::job::Pod| !spec.externally_managed || pod.fact.phase == PodPhase::Running;
        let found = wants
            && job.allocation.at.is_none()
            && job.allocation.share.is_empty()
            && !job.is_halting()
            && live().any(|pod| !pod.is_leaving() && runs(pod));
        let candidate = Self {
            charge,
            priority: classes.priority(demand),
            submitted: demand.submitted,
            wants,
            resource,
            width,
            bound: bound.collect(),
            kept: if wants { BTreeMap::new() } else { kept_pods(job) },
            requirements: requirements(spec),
            refused: job.allocation.refused.iter().map(|(node, refusal)| (node.clone(), refusal.until)).collect(),
            interchanges: spec.externally_managed,
            leaving: is_leaving(job),
            asks: true,
            slots,
            sizes: sizes_of(job, spec),
            category: speed_samples::category(key, demand.category.as_ref()),
            units: demand.units,
            level: demand.level,
            usage: job.allocation.usage,
            share: job.allocation.share.clone(),
            start_after: job.allocation.start_after,
            changed: job.allocation.at,
            places,
            found,
            term: job.stamps.acknowledged().term,
        };
        let holds = !candidate.places.is_empty() || !candidate.share.is_empty();
        (candidate.wants || holds).then_some(candidate)
    }

    /// Returns what counts of a job whose spec cannot be accepted, or asks for no GPUs any more: it keeps what it has.
    fn without_demand(job: &Job) -> Option<Self> {
        let Some(charge) = job.kept_charge().cloned() else { return Self::of_leftovers(job) };
        let mut places = job.places();
        places.retain(|slot, _| charge.gpus.contains_key(&slot.group));
        (!places.is_empty()).then(|| Self {
            resource: charge.resource.clone(),
            width: charge.gpus.values().copied().fold(1, u32::max),
            charge,
            usage: job.allocation.usage,
            share: job.allocation.share.clone(),
            changed: job.allocation.at,
            places,
            kept: kept_pods(job),
            leaving: is_leaving(job),
            term: job.stamps.acknowledged().term,
            ..Self::default()
        })
    }

    /// Returns what counts of pods of which neither a spec nor a mirror says what they hold.
    fn of_leftovers(job: &Job) -> Option<Self> {
        let (charge, places) = leftovers::of(job)?;
        Some(Self {
            resource: charge.resource.clone(),
            width: charge.gpus.values().copied().fold(1, u32::max),
            charge,
            places,
            leaving: true,
            ..Self::default()
        })
    }

    /// Returns true if targets follow from both alike.
    pub(super) fn asks_alike(&self, other: &Self) -> bool {
        /// Members that targets follow from, in two parts.
        fn compared(candidate: &Candidate) -> (impl PartialEq + '_, impl PartialEq + '_) {
            let Candidate { charge, priority, level, submitted, wants, resource, width, slots, sizes, .. } = candidate;
            let Candidate { category, units, share, start_after, requirements, refused, kept, .. } = candidate;
            (
                (charge, priority, level, submitted, wants, resource, width, slots, sizes),
                (category, units, share, start_after, requirements, refused, kept),
            )
        }
        compared(self) == compared(other)
    }

    /// Returns the GPUs that a slot asks for.
    pub(super) fn gpus(&self, slot: &SlotId) -> u32 {
        let found = self.slots.iter().find(|(needed, _)| needed == slot);
        found.map_or(self.width, |(_, count)| *count)
    }

    /// Returns the GPUs that a place of a slot counts as.
    pub(super) fn charged(&self, slot: &SlotId) -> u32 {
        self.charge.gpus.get(&slot.group).copied().unwrap_or_else(|| self.gpus(slot))
    }

    /// Returns its place in the order of grants: a higher priority first, then an earlier submission.
    pub(super) fn order<'a>(&self, key: &'a JobKey) -> (Reverse<i32>, Timestamp, &'a JobKey) {
        (Reverse(self.priority), self.submitted, key)
    }

    /// Returns true if all of its pods are deleted and created again when their number changes.
    pub(super) fn restarts_to_resize(&self) -> bool {
        self.sizes.resize == Resize::Restart
    }

    /// Returns its use of GPUs up to a time.
    pub(super) fn used(&self, now: Timestamp) -> Usage {
        self.changed.map_or(self.usage, |changed| self.usage.until(now, self.charge.gpus_of(&self.share), changed))
    }

    /// Returns the name of its queue.
    pub(super) fn queue(&self) -> &str {
        self.charge.queue.as_deref().unwrap_or(super::ROOT)
    }

    /// Returns true if it holds places and needs none any more: it was scaled until no pod needs GPUs.
    pub(super) fn is_idle(&self) -> bool {
        self.asks && self.slots.is_empty() && !self.share.is_empty() && !self.leaving
    }

    /// Returns the slots in the order in which workers are asked for: those held, then the others.
    pub(super) fn workers(&self, held: &Share) -> Vec<(&SlotId, Option<Text>)> {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for (slot, _) in &self.slots {
            match held.node(slot) {
                Some(node) => all.push((slot, Some(node.clone()))),
                None => missing.push((slot, None)),
            }
        }
        all.extend(missing);
        all
    }
}

/// Returns the requirements of the pods of each group with GPUs on their nodes.
fn requirements(spec: &JobSpec) -> Requirements {
    let of = |group: &model::GroupSpec| Some((group.name.clone(), group.requirements.clone()?));
    spec.gpu_groups().filter_map(|(group, _)| of(group)).collect()
}

/// Returns the nodes of pods that stay although their job wants no places: those that it keeps at its end. What is being deleted, and
/// what goes with a deleted job, is on its way out.
fn kept_pods(job: &Job) -> BTreeMap<SlotId, Text> {
    // What another controller created goes when that controller decides so.
    let is_external = job.spec().is_some_and(|spec| spec.externally_managed);
    if !job.object.is_present() || is_external {
        return BTreeMap::new();
    }
    let stays = |pod: &&crate::job::Pod| !pod.is_leaving() && !job.is_halting();
    let pods = job.live_pods().filter(stays);
    pods.filter_map(|pod| Some((pod.fact.slot.clone()?, pod.fact.node.clone()?))).collect()
}

/// Returns true if pods are being deleted or creations are unresolved.
fn is_leaving(job: &Job) -> bool {
    let mut live = job.live_pods().filter(|pod| pod.fact.slot.is_some());
    job.has_planned_pods() || live.any(|pod| pod.is_leaving() || job.is_halting())
}

/// Returns the numbers of slots with GPUs that a job may be granted.
fn sizes_of(job: &Job, spec: &JobSpec) -> SizeRange {
    let mut all = SizeRange::fixed(0);
    for (group, _) in spec.gpu_groups() {
        let SizeRange { min, preferred, max, resize } = job.size_range(group);
        all.min = all.min.saturating_add(min);
        all.preferred = all.preferred.saturating_add(preferred);
        all.max = all.max.saturating_add(max);
        if resize == Resize::Restart {
            all.resize = Resize::Restart;
        }
    }
    all
}
