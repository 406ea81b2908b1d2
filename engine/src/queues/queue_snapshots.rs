//! Queues and cohorts in the form of `scheduler::scheduling`: quotas, rules, and the nodes that a queue selects.
//!
//! Translates settings; decides nothing. Tests: through [`super`], and the studies that simulate an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{JobKey, NodeFact, QueueSpec, QuotaSpec, Text};
use scheduler::placement::Packing;
use scheduler::scheduling::{self, QueueSnapshot};
use scheduler::{GpuType, Micros};

use super::ROOT;
use super::candidate::Candidate;
use super::cycle::future_nodes;
use crate::state::State;

/// Policy of the root queue.
pub const ROOT_POLICY: &str = "fifo-backfill";

/// Returns the settings of the root queue in the form of `scheduler::scheduling`.
fn root_rules() -> Option<scheduling::QueueSettings> {
    scheduler::by_name(ROOT_POLICY).ok().map(|policy| scheduling::QueueSettings::new(Arc::from(policy)))
}

/// Returns the settings of a queue in the form of `scheduler::scheduling`, but for its nodes; `None` for a policy that this build does not know.
fn rules(spec: &QueueSpec) -> Option<scheduling::QueueSettings> {
    let policy = scheduler::by_name(&spec.policy).ok()?;
    Some(scheduling::QueueSettings {
        by_priority: spec.by_priority,
        within: match spec.within {
            model::WithinQueue::Never => scheduling::WithinQueue::Never,
            model::WithinQueue::LowerPriority => scheduling::WithinQueue::LowerPriority,
            model::WithinQueue::Any => scheduling::WithinQueue::Any,
        },
        reclaim: match spec.reclaim {
            model::Reclaim::Never => scheduling::Reclaim::Never,
            model::Reclaim::LowerPriority => scheduling::Reclaim::LowerPriority,
            model::Reclaim::Any => scheduling::Reclaim::Any,
        },
        min_run: Micros::from_millis(spec.min_run_ms),
        paused: spec.paused,
        // A policy that may halt any job has an order of its own; a reservation in the queue's order would start the halted job again.
        backfill: match spec.within {
            model::WithinQueue::Any => scheduling::Backfill::Policy,
            model::WithinQueue::Never | model::WithinQueue::LowerPriority => scheduling::Backfill::Reserve,
        },
        ..scheduling::QueueSettings::new(Arc::from(policy))
    })
}

/// Queues and cohorts in the form of `scheduler::scheduling`.
#[derive(Debug)]
pub struct QueueSnapshots {
    /// All of them; the root queue is the first.
    pub all: Vec<QueueSnapshot>,
    queues: BTreeMap<Text, usize>,
    specs: BTreeMap<Text, QueueSpec>,
    /// Labels of namespaces, by name.
    namespaces: BTreeMap<Text, BTreeMap<Text, Text>>,
    /// Jobs that hold no share and shall have one.
    decided: BTreeSet<JobKey>,
}

/// Returns the nodes with GPUs that a queue selects; `None`: all.
fn selected<'a>(spec: &QueueSpec, nodes: impl Iterator<Item = &'a NodeFact>) -> Option<Arc<BTreeSet<Text>>> {
    let selector = spec.nodes.as_ref()?;
    let nodes = nodes.filter(|node| !node.gpus.is_empty() && selector.selects(&node.labels));
    Some(Arc::new(nodes.map(|node| node.name.clone()).collect()))
}

impl QueueSnapshots {
    pub(super) fn new(state: &State) -> Self {
        let specs = state.queues.objects.iter().map(|(name, (_, spec))| (name, &**spec));
        let nodes = || state.nodes.values().map(|node| &node.fact);
        let mut snapshots = Self::of(specs, nodes, |resource| state.queues.gpu_type(resource));
        snapshots.namespaces = state.queues.namespace_labels();
        let decided = state.queues.targets.iter().filter(|(_, target)| !target.share.is_empty());
        snapshots.decided = decided.map(|(key, _)| key.clone()).collect();
        // What a cluster adds for a pod is a node that the pod asks for, and pods ask for nodes that their queue selects.
        let settings = snapshots.all.iter_mut().filter_map(|queue| queue.settings.as_mut());
        for selected in settings.filter_map(|settings| settings.nodes.as_mut()) {
            Arc::make_mut(selected).extend(future_nodes(state).map(|(name, _)| name));
        }
        snapshots
    }

    /// Takes the queues with these settings, by name, on these nodes. `gpu_type`: that of a resource.
    pub fn of<'a, N: Iterator<Item = &'a NodeFact>>(
        specs: impl Iterator<Item = (&'a Text, &'a QueueSpec)>,
        nodes: impl Fn() -> N,
        gpu_type: impl Fn(&Text) -> GpuType,
    ) -> Self {
        let mut snapshots = Self {
            all: Vec::new(),
            queues: BTreeMap::new(),
            specs: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            decided: BTreeSet::new(),
        };
        snapshots.queues.insert(Text::from(ROOT), 0);
        snapshots.all.extend(root_rules().map(|settings| QueueSnapshot::root(ROOT, settings)));
        let mut cohorts: BTreeMap<&Text, usize> = BTreeMap::new();
        for (name, spec) in specs {
            // A policy that this build does not know is refused when the object is read.
            let Some(settings) = rules(spec) else { continue };
            let settings = scheduling::QueueSettings { nodes: selected(spec, nodes()), ..settings };
            let parent = spec.cohort.as_ref().map(|cohort| {
                *cohorts.entry(cohort).or_insert_with(|| {
                    snapshots.all.push(QueueSnapshot {
                        name: Text::from(format!("cohort {cohort}")),
                        parent: None,
                        quota: Some(BTreeMap::new()),
                        weight: 1,
                        priority: 0,
                        settings: None,
                    });
                    snapshots.all.len().saturating_sub(1)
                })
            });
            let quota = spec.quota.iter().map(|(resource, quota)| {
                let QuotaSpec { nominal, borrowing, lending } = *quota;
                (gpu_type(resource), scheduling::Quota { nominal, borrowing, lending })
            });
            snapshots.queues.insert(name.clone(), snapshots.all.len());
            snapshots.all.push(QueueSnapshot {
                name: name.clone(),
                parent,
                quota: Some(quota.collect()),
                weight: spec.weight,
                priority: 0,
                settings: Some(settings),
            });
            snapshots.specs.insert(name.clone(), spec.clone());
        }
        snapshots
    }

    /// Returns the place of a job's queue; `None` when there is no such queue, or it does not select the job's namespace. A job that
    /// was admitted stays so, whatever becomes of its namespace.
    pub(super) fn place(&self, key: &JobKey, candidate: &Candidate) -> Option<usize> {
        let is_admitted = !candidate.share.is_empty() || self.decided.contains(key);
        let may_use = is_admitted || self.selects(candidate.queue(), &key.namespace);
        may_use.then(|| self.charged(candidate))?
    }

    /// Returns the place of the queue that a job's places count for; `None` when there is no such queue.
    pub(super) fn charged(&self, candidate: &Candidate) -> Option<usize> {
        self.place_of(candidate.queue())
    }

    /// Returns the place of a queue; `None` when there is no such queue.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.queues.get(name).copied()
    }

    /// Returns true if a queue selects a namespace, or there is no such queue.
    pub(super) fn selects(&self, name: &str, namespace: &str) -> bool {
        let selector = self.specs.get(name).and_then(|spec| spec.namespaces.as_ref());
        selector.is_none_or(|selector| selector.selects_namespace(namespace, self.namespaces.get(namespace)))
    }

    /// Returns true if a queue places new workers on a node; the empty name stands for one that is not known yet.
    pub(super) fn takes(&self, queue: usize, node: &Text) -> bool {
        let nodes = self.all.get(queue).and_then(|queue| queue.settings.as_ref()?.nodes.as_ref());
        nodes.is_none_or(|nodes| node.is_empty() || nodes.contains(node))
    }

    /// Returns the rule by which nodes are filled: that of the queues, where all say the same.
    pub fn packing(&self) -> Packing {
        let spreads = !self.specs.is_empty() && self.specs.values().all(|spec| spec.spread);
        if spreads { Packing::Spread } else { Packing::Pack }
    }
}
