//! The part of a job that queues decide by, kept so that a change is told from an echo and sums walk no pods.
//!
//! Derived from the job; never stored. Tests: through [`super`].

use std::collections::{BTreeMap, BTreeSet};

use model::{Charge, JobSpec, PodPhase, Share, SizeRange, SlotId, Term, Text, Timestamp};

use crate::holding::asked;
use crate::job::Job;

/// A job that holds places or asks for some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
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
    pub(super) share: Share,
    /// Time before which it is granted nothing.
    pub(super) start_after: Option<Timestamp>,
    /// Time of the last change of its share.
    pub(super) changed: Option<Timestamp>,
    /// Nodes on which each slot counts.
    pub(super) places: BTreeMap<SlotId, BTreeSet<Text>>,
    /// Nodes of pods that have not ended and are not being deleted.
    pub(super) bound: BTreeMap<SlotId, Text>,
    /// True if pods are being deleted or creations are unresolved.
    pub(super) leaving: bool,
    /// True if it has pods or plans, and the queues never granted it anything.
    pub(super) found: bool,
    /// Term that stands in its mirror.
    term: Term,
}

impl Holder {
    /// Returns the part of a job; `None` when it neither holds nor asks for anything.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let spec = job.spec()?;
        let demand = spec.demand.as_ref()?;
        let holding = &job.holding;
        let kept = job.kept_charge();
        if !holding.gated && kept.is_none() {
            return None;
        }
        let asked = asked(spec);
        // An edit of queue or GPUs takes effect once the places granted before are free.
        let is_same = kept.is_none_or(|kept| *kept == asked);
        let charge = kept.cloned().unwrap_or(asked);
        let slots: Vec<(SlotId, u32)> = Job::gpu_slots(spec).collect();
        let requests = spec.groups.iter().filter(|group| !group.once).filter_map(|group| group.gpu_request.as_ref());
        let (resource, width) = requests.fold((Text::from(""), 1), |(name, width), request| {
            (if name.is_empty() { request.resource.clone() } else { name }, width.max(request.count))
        });
        let is_active = job.known
            && !job.gone
            && !job.deleting
            && job.quarantine.is_none()
            && !job.phase.is_terminal()
            && job.ending().is_none();
        let live = || {
            let has_slot = |pod: &crate::job::Pod| pod.fact.slot.as_ref().is_some_and(|id| !job.runs_once(&id.group));
            job.pods.values().filter(move |pod| has_slot(pod) && !pod.fact.phase.is_terminal())
        };
        let needs = |slot: &SlotId| slots.iter().any(|(needed, _)| needed == slot);
        let bound = live().filter(|pod| !pod.is_leaving()).filter_map(|pod| {
            let slot = pod.fact.slot.as_ref().filter(|slot| needs(slot))?;
            Some((slot.clone(), pod.fact.node.clone()?))
        });
        let mut places = job.places();
        places.retain(|slot, _| spec.group(&slot.group).is_none_or(|group| group.gpu_request.is_some()));
        // GPUs are asked for once nothing else holds the pods back, and kept from then on.
        let is_open = |group: &&model::GroupSpec| job.is_gated(group) && job.hold_besides_share(spec, group).is_none();
        let is_ready = || !job.holding.share.is_empty() || is_same && spec.groups.iter().any(|group| is_open(&group));
        let wants = is_active && job.holding.gated && !spec.suspended && !slots.is_empty() && is_ready();
        // Another controller may have created pods of a job that was not seen yet: those that run already are left.
        let runs = |pod: &crate::job::Pod| !spec.observes_pods || pod.fact.phase == PodPhase::Running;
        let found = wants
            && job.holding.at.is_none()
            && job.holding.share.is_empty()
            && !job.is_halting()
            && live().any(|pod| !pod.is_leaving() && runs(pod));
        let holder = Self {
            charge,
            priority: demand.priority,
            submitted: demand.submitted,
            wants,
            resource,
            width,
            bound: bound.collect(),
            leaving: live().any(|pod| pod.is_leaving() || job.is_halting())
                || job.planned_pods.iter().any(|id| !job.runs_once(&id.group)),
            slots,
            sizes: sizes_of(spec),
            share: job.holding.share.clone(),
            start_after: job.holding.start_after,
            changed: job.holding.at,
            places,
            found,
            term: job.acked_stamp.term,
        };
        let holds = !holder.places.is_empty() || !holder.share.is_empty();
        (holder.wants || holds).then_some(holder)
    }

    /// Returns true if targets follow from both alike.
    pub(super) fn asks_alike(&self, other: &Self) -> bool {
        let asked = |holder: &Self| {
            let Self { charge, priority, submitted, wants, resource, width, slots, sizes, share, start_after, .. } =
                holder.clone();
            (charge, priority, submitted, wants, resource, width, (slots, sizes), share, start_after)
        };
        asked(self) == asked(other)
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

    /// Returns the name of its queue.
    pub(super) fn queue(&self) -> &str {
        self.charge.queue.as_deref().unwrap_or(super::ROOT)
    }

    /// Returns true if it holds places and needs none any more: it was scaled until no pod needs GPUs.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty() && !self.share.is_empty() && !self.leaving
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

/// Returns the numbers of slots with GPUs that a job may be granted.
fn sizes_of(spec: &JobSpec) -> SizeRange {
    let mut all = SizeRange { min: 0, preferred: 0 };
    for group in spec.groups.iter().filter(|group| !group.once && group.gpu_request.is_some()) {
        let SizeRange { min, preferred } = group.size_range();
        all.min = all.min.saturating_add(min);
        all.preferred = all.preferred.saturating_add(preferred);
    }
    all
}
