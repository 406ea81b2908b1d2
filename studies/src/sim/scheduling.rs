//! Decides by `scheduler::scheduling`, as the operator does: whole workers on nodes, a queue's quota and permissions, and a
//! reservation for the first job that waits.
//!
//! Owns what the operator keeps between decisions: nodes of each job, and the time of its last change. Tests: `run/tests.rs`, and
//! recorded logs played again (`cli/tests/local/recorded.rs`).

use std::collections::{BTreeMap, BTreeSet};

use model::id::Text;
use scheduler::placement::{Node, Packing};
use scheduler::scheduling::{
    self, Claim, Decision, Fixed, History, PlacementTarget, QueueSnapshot, Sizes, Snapshot, SpeedEstimate, Usage,
};
use scheduler::{Grant, JobView, Micros};

use crate::input::WorkloadJob;

/// Workers of a job: each has as many GPUs, all on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// GPUs of a worker, at least 1.
    pub width: u32,
    /// Priority of the job, higher first.
    pub priority: i32,
    /// Index of its queue in [`ClusterSetup::queues`]; `None`: it belongs to no queue.
    pub queue: Option<usize>,
}

/// Cluster that jobs are scheduled on: queues, nodes and workers.
#[derive(Debug, Clone)]
pub struct ClusterSetup {
    /// Queues and cohorts. The policy of each queue decides on its jobs.
    pub queues: Vec<QueueSnapshot>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Way in which nodes are filled.
    pub packing: Packing,
    /// Workers by the name of the job; those of other jobs have one GPU, and are of the first queue.
    pub workers: BTreeMap<Text, Workers>,
}

impl ClusterSetup {
    fn workers(&self, job: &WorkloadJob) -> Workers {
        self.workers.get(&job.name).copied().unwrap_or(Workers { width: 1, priority: 0, queue: Some(0) })
    }
}

/// Nodes of each job that holds GPUs, by its key, and the last change of each.
#[derive(Debug, Default)]
pub(super) struct Held {
    on: BTreeMap<Text, Vec<Text>>,
    changed: BTreeMap<Text, Micros>,
}

impl Held {
    /// Returns the decision on the jobs. Changes nothing.
    pub(super) fn ask(
        &self,
        setup: &ClusterSetup,
        history: &History,
        now: Micros,
        jobs: &[(&WorkloadJob, &JobView)],
    ) -> Result<Decision, scheduling::Error> {
        let estimates: Vec<SpeedEstimate> = jobs.iter().map(|(_, view)| estimate(view)).collect();
        let claim = |((job, view), estimate)| self.claim(setup.workers(job), view, estimate);
        let claims: Vec<Claim<'_>> = jobs.iter().copied().zip(&estimates).map(claim).collect();
        let snapshot = Snapshot {
            now,
            nodes: &setup.nodes,
            closed: &BTreeSet::new(),
            queues: &setup.queues,
            taken: &BTreeMap::new(),
            claims: &claims,
            packing: setup.packing,
            wake: None,
        };
        scheduling::decide(history, &snapshot)
    }

    fn claim<'a>(&'a self, workers: Workers, view: &'a JobView, estimate: &'a SpeedEstimate) -> Claim<'a> {
        let of = |gpus: u32| gpus / workers.width.max(1);
        Claim {
            id: &view.id,
            queue: workers.queue,
            sizes: Sizes { min: of(view.min), num: of(view.num), max: of(view.max) },
            width: workers.width,
            priority: workers.priority,
            level: view.level,
            submitted: view.submitted,
            usage: Usage {
                attained: view.attained,
                ran: view.ran,
                spell: view.spell,
                first_start: view.first_start,
                since: view.since,
                changed: self.changed.get(&view.id).copied(),
            },
            estimate,
            held: self.on.get(&view.id).map_or(&[], Vec::as_slice),
            fixed: Fixed::No,
            avoid: &[],
            fits: None,
            needs: &[],
            not_before: Micros::ZERO,
        }
    }

    /// Applies a target, and returns what the job holds from now on. `true`: it is on other nodes than before.
    pub(super) fn take(
        &mut self,
        setup: &ClusterSetup,
        job: &WorkloadJob,
        target: PlacementTarget,
        now: Micros,
    ) -> (Grant, bool) {
        let gpus = u32::try_from(target.on.len()).unwrap_or(u32::MAX).saturating_mul(setup.workers(job).width);
        let moved = target.change.is_some();
        if moved {
            self.changed.insert(target.id.clone(), now);
            self.on.insert(target.id, target.on);
        }
        (Grant::of(target.gpu_type, gpus), moved)
    }

    /// Returns the nodes of a job.
    pub(super) fn nodes(&self, key: &Text) -> &[Text] {
        self.on.get(key).map_or(&[], Vec::as_slice)
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&mut self, key: &Text) {
        self.on.remove(key);
        self.changed.remove(key);
    }
}

/// Returns the estimate that decisions use of a job.
fn estimate(view: &JobView) -> SpeedEstimate {
    SpeedEstimate {
        speeds: view.speeds.clone(),
        remaining: view.remaining,
        expected: view.expected,
        done: view.done,
        tried: view.tried,
        restart_cost: view.restart_cost,
    }
}
