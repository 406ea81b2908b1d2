//! A small cluster whose jobs follow decisions at once, for the tests of scheduling.

#![allow(dead_code)] // Each test file uses a part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Text;
use scheduler::placement::{Node, Packing};
use scheduler::scheduling::{
    Claim, Decision, Fixed, History, PendingClaim, QueueSettings, QueueSnapshot, Quota, Reason, Sizes, Snapshot,
    SpeedEstimate, Usage, decide,
};
use scheduler::{Curve, GpuMicros, GpuType, Micros, Speeds, by_name};

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: Text,
    pub(crate) queue: Option<usize>,
    pub(crate) sizes: Sizes,
    pub(crate) width: u32,
    pub(crate) priority: i32,
    pub(crate) submitted: Micros,
    pub(crate) usage: Usage,
    pub(crate) estimate: SpeedEstimate,
    pub(crate) held: Vec<Text>,
    pub(crate) fixed: Fixed,
    pub(crate) avoid: Vec<Text>,
    pub(crate) fits: Option<Arc<BTreeSet<Text>>>,
    pub(crate) needs: Vec<u64>,
    pub(crate) not_before: Micros,
}

/// A rigid job of the first queue, with an hour of work.
pub(crate) fn job(id: &str, workers: u32, submitted: u64) -> Job {
    let speeds = Speeds::single(Curve::linear(64));
    Job {
        id: id.into(),
        queue: Some(0),
        sizes: Sizes::rigid(workers),
        width: 1,
        priority: 0,
        submitted: Micros::from_secs(submitted),
        usage: Usage { since: Micros::from_secs(submitted), ..Usage::default() },
        estimate: SpeedEstimate { speeds, remaining: Some(Micros::from_secs(3600)), ..SpeedEstimate::default() },
        held: Vec::new(),
        fixed: Fixed::No,
        avoid: Vec::new(),
        fits: None,
        needs: Vec::new(),
        not_before: Micros::ZERO,
    }
}

impl Job {
    /// The same with an effect.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same on these nodes alone.
    pub(crate) fn on(self, names: &[&str]) -> Self {
        let names = names.iter().map(|name| Text::from(*name)).collect();
        self.with(|job| job.fits = Some(Arc::new(names)))
    }

    /// The same with workers of so many GPUs.
    pub(crate) fn wide(self, gpus: u32) -> Self {
        self.with(|job| job.width = gpus)
    }

    /// The same in another queue.
    pub(crate) fn of(self, queue: usize) -> Self {
        self.with(|job| job.queue = Some(queue))
    }
}

/// Settings of a queue with a policy by name.
pub(crate) fn queue(policy: &str) -> QueueSettings {
    QueueSettings::new(Arc::from(by_name(policy).unwrap()))
}

/// A queue in a cohort, with a quota of type 0.
pub(crate) fn member(name: &str, parent: usize, quota: Quota, settings: QueueSettings) -> QueueSnapshot {
    let quota = Some([(GpuType(0), quota)].into());
    QueueSnapshot { name: name.into(), parent: Some(parent), quota, weight: 1, priority: 0, settings: Some(settings) }
}

/// A cohort without a quota of its own.
pub(crate) fn cohort(name: &str) -> QueueSnapshot {
    QueueSnapshot {
        name: name.into(),
        parent: None,
        quota: Some(BTreeMap::new()),
        weight: 1,
        priority: 0,
        settings: None,
    }
}

/// Nodes of these numbers of GPUs.
pub(crate) fn nodes(slots: &[u32]) -> Vec<Node> {
    slots.iter().zip(1..).map(|(&slots, n)| Node::new(format!("n{n}"), slots)).collect()
}

/// The cluster.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) nodes: Vec<Node>,
    pub(crate) closed: BTreeSet<Text>,
    pub(crate) taken: BTreeMap<Text, Vec<u64>>,
    pub(crate) queues: Vec<QueueSnapshot>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) history: History,
    pub(crate) wake: Option<Micros>,
}

impl World {
    pub(crate) fn new(slots: &[u32], queues: Vec<QueueSnapshot>, jobs: Vec<Job>) -> Self {
        let now = Micros::from_secs(10_000);
        let (closed, history) = (BTreeSet::new(), History::default());
        let taken = BTreeMap::new();
        Self { now, nodes: nodes(slots), closed, taken, queues, jobs, history, wake: None }
    }

    /// One queue over everything.
    pub(crate) fn alone(slots: &[u32], queue: QueueSettings, jobs: Vec<Job>) -> Self {
        Self::new(slots, vec![QueueSnapshot::root("all", queue)], jobs)
    }

    pub(crate) fn ask(&self) -> Decision {
        let claims: Vec<Claim<'_>> = (self.jobs.iter())
            .map(|job| Claim {
                id: &job.id,
                queue: job.queue,
                sizes: job.sizes,
                width: job.width,
                priority: job.priority,
                level: 0,
                submitted: job.submitted,
                usage: job.usage,
                estimate: &job.estimate,
                held: &job.held,
                fixed: job.fixed,
                avoid: &job.avoid,
                fits: job.fits.as_ref(),
                needs: &job.needs,
                not_before: job.not_before,
            })
            .collect();
        let snapshot = Snapshot {
            now: self.now,
            nodes: &self.nodes,
            closed: &self.closed,
            queues: &self.queues,
            taken: &self.taken,
            claims: &claims,
            packing: Packing::Pack,
            wake: self.wake,
        };
        decide(&self.history, &snapshot).unwrap()
    }

    /// Makes what was decided what is.
    pub(crate) fn enact(&mut self, decision: &Decision) {
        for (job, target) in self.jobs.iter_mut().zip(&decision.targets) {
            if target.change.is_none() {
                continue;
            }
            if job.held.is_empty() != target.on.is_empty() {
                job.usage.since = self.now;
                job.usage.spell = if target.on.is_empty() { job.usage.spell } else { Micros::ZERO };
            }
            if !target.on.is_empty() {
                job.usage.first_start = job.usage.first_start.or(Some(self.now));
            }
            job.usage.changed = Some(self.now);
            job.held.clone_from(&target.on);
        }
        self.history.apply(&decision.memory);
        self.wake = decision.wake;
    }

    /// Asks, and makes what was decided what is.
    pub(crate) fn round(&mut self) -> Decision {
        let decision = self.ask();
        self.enact(&decision);
        decision
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, secs: u64) {
        let span = Micros::from_secs(secs);
        self.now = self.now.plus(span);
        for job in self.jobs.iter_mut().filter(|job| !job.held.is_empty()) {
            let gpus = u32::try_from(job.held.len()).unwrap() * job.width;
            job.usage.attained = job.usage.attained.plus(GpuMicros::of(gpus, span));
            job.usage.ran = job.usage.ran.plus(span);
            job.usage.spell = job.usage.spell.plus(span);
        }
    }

    /// Workers by job, in the order of the jobs.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.jobs.iter().map(|job| job.held.len()).collect()
    }

    /// GPUs in use on each node.
    pub(crate) fn by_node(&self) -> BTreeMap<Text, u32> {
        let mut used = BTreeMap::new();
        for job in &self.jobs {
            for node in &job.held {
                *used.entry(node.clone()).or_default() += job.width;
            }
        }
        used
    }
}

/// Formats the changes of a decision.
pub(crate) fn changes(decision: &Decision) -> Vec<String> {
    let text = |target: &scheduler::scheduling::PlacementTarget| {
        let change = target.change.as_ref()?;
        let beneficiary = change.beneficiary.as_ref().map(|id| format!(" for {id}")).unwrap_or_default();
        Some(format!("{} {:?}{beneficiary}", target.id, change.why))
    };
    decision.targets.iter().filter_map(text).collect()
}

/// Returns the pending claims of a decision: position, name, reason.
pub(crate) fn waiting(decision: &Decision) -> Vec<(u32, &str, &Reason)> {
    decision.pending.iter().map(|PendingClaim { id, place, reason, .. }| (*place, &**id, reason)).collect()
}
