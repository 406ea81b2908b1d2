//! Holds everything that is known: jobs, nodes, terms, and the indexes between them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Config, JobFact, JobKey, Kind, Position, ResourceVersion, Stamp, Term, Text, Timestamp};

use crate::job::Job;
use crate::jobs::Jobs;
use crate::nodes::{Node, NodeView};
use crate::queues::Queues;
use crate::referrers::Referrers;

/// Jobs that a fact touched, each with the facts its own record gets for it.
pub type Dirty = BTreeMap<JobKey, Vec<JobFact>>;

/// A numbered set of rules. What each number stands for is listed at [`crate::wire::BEHAVIOUR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Behaviour(pub(crate) u32);

impl Default for Behaviour {
    fn default() -> Self {
        Self(crate::wire::BEHAVIOUR)
    }
}

impl Behaviour {
    /// Returns whether each slot has a back-off of its own, instead of one for the whole job.
    pub(crate) const fn delays_slots(self) -> bool {
        self.0 >= 2
    }

    /// Returns whether the planned pod of a slot that was scaled away is cancelled, instead of forgotten.
    pub(crate) const fn cancels_plans(self) -> bool {
        self.0 >= 2
    }

    /// Returns whether only a pod that holds a slot starts the time limit.
    pub(crate) const fn times_by_slots(self) -> bool {
        self.0 >= 2
    }

    /// Returns whether pods that a group grew by after a restart are distinguished from those of the restart.
    pub(crate) const fn records_growth(self) -> bool {
        self.0 >= 2
    }

    /// Returns whether a time limit stands still while its job waits for an admission.
    pub(crate) const fn pauses_limits(self) -> bool {
        self.0 >= 3
    }

    /// Returns whether a job without an object is known as long as it owns an object that should be gone with it.
    pub(crate) const fn collects_owned(self) -> bool {
        self.0 >= 3
    }
}

/// Everything that is known.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Stamp of the record being folded, or of the last one.
    pub stamp: Stamp,
    /// Time of that record.
    pub at: Timestamp,
    /// Configuration in force.
    pub config: Config,
    /// Jobs by key.
    pub jobs: Jobs,
    /// Nodes by name.
    pub nodes: BTreeMap<Text, Node>,
    /// GPUs that pods of others hold, by node and resource. Reported while a queue counts them.
    pub foreign: BTreeMap<Text, BTreeMap<Text, u32>>,
    /// Other resources that pods without a place request, by node and resource, in thousandths of their units. Reported with
    /// [`Self::foreign`].
    pub foreign_requests: BTreeMap<Text, BTreeMap<Text, u64>>,
    /// resourceVersion of the newest list of each whole kind; 0 before the first.
    pub list_rvs: BTreeMap<Kind, ResourceVersion>,
    /// resourceVersion of the newest list of each source, where a kind has several.
    pub source_list_rvs: BTreeMap<(Kind, Text), ResourceVersion>,
    /// First position of each term in this log, in order.
    pub terms: Vec<(Term, Position)>,
    /// Targets of jobs, and what the queues decide by.
    pub queues: Queues,
    /// Jobs that are made of other objects.
    pub(crate) referrers: Referrers,
    /// Behaviour by which facts and events are folded: that of the record, or this build's.
    pub(crate) behaviour: Behaviour,
    /// Oldest format that can hold what was folded in.
    pub(crate) format: u16,
    pub(crate) on_node: BTreeMap<Text, BTreeMap<Arc<JobKey>, u32>>,
    pub(crate) deadlines: BTreeSet<(Timestamp, JobKey)>,
}

impl State {
    /// Begins a record: everything observed and applied from here on happened at `stamp` and `at`.
    pub const fn begin(&mut self, stamp: Stamp, at: Timestamp) {
        self.stamp = stamp;
        self.at = at;
    }

    /// Returns the job of that key, live or finished.
    pub fn job(&self, key: &JobKey) -> Option<Cow<'_, Job>> {
        self.jobs.get(key)
    }

    /// Returns the resourceVersion of the newest list of a source, or of a kind with all its sources (`None`). A list of the
    /// whole kind counts for each of its sources.
    pub fn list_rv(&self, kind: Kind, of: Option<&Text>) -> ResourceVersion {
        let whole = self.list_rvs.get(&kind).copied().unwrap_or_default();
        let sources = self.source_list_rvs.iter().filter(|((k, name), _)| *k == kind && of.is_none_or(|of| of == name));
        sources.map(|(_, rv)| *rv).fold(whole, ResourceVersion::max)
    }

    /// Returns the deadlines of the jobs that have one, the earliest first.
    pub fn deadlines(&self) -> impl Iterator<Item = (Timestamp, &JobKey)> {
        self.deadlines.iter().map(|(at, key)| (*at, key))
    }

    /// Returns true if this log contains the term of `stamp` through its position.
    pub fn covers(&self, stamp: Stamp) -> bool {
        if stamp.position > self.stamp.position {
            return false;
        }
        let at = self.terms.partition_point(|(_, first)| *first <= stamp.position);
        at.checked_sub(1).and_then(|n| self.terms.get(n)).is_some_and(|(term, _)| *term == stamp.term)
    }

    /// Returns what is known of the nodes, for classifying pods on them.
    pub(crate) fn node_view(&self) -> NodeView<'_> {
        NodeView::new(&self.nodes, &self.list_rvs, &self.config)
    }

    /// Recomputes the job's deadline and forgets a job of which nothing is left. Called at the end of each record.
    pub(crate) fn finish_record(&mut self, key: &JobKey) {
        let node_view = NodeView::new(&self.nodes, &self.list_rvs, &self.config);
        if self.jobs.is_finished(key) {
            return;
        }
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.let_go_of_empty();
        job.allocation.forget_released(job.stamps.acknowledged());
        job.note_whole();
        let owns = self.behaviour.collects_owned() && job.leftovers().next().is_some();
        let forget = !job.object.exists() && job.pods.is_empty() && job.services.is_empty() && !owns;
        let new = if forget { None } else { crate::deadline::of(job, self.at, &node_view, &self.config) };
        let old = std::mem::replace(&mut job.deadline, new);
        if old != new {
            if let Some(at) = old {
                self.deadlines.remove(&(at, key.clone()));
            }
            if let Some(at) = new {
                self.deadlines.insert((at, key.clone()));
            }
        }
        let watched = Kind::ON_DEMAND.map(|kind| self.watches(kind));
        let left = if forget { None } else { self.jobs.live(key) };
        self.queues.note(key, left);
        self.referrers.note(key, left);
        for (kind, was_watched) in Kind::ON_DEMAND.into_iter().zip(watched) {
            if was_watched && !self.watches(kind) {
                self.forget_watched(kind);
            }
        }
        if forget {
            self.jobs.remove(key);
        } else if self.is_finished(key) {
            self.jobs.finish(key);
        }
    }

    /// Returns true if nothing is left to be done for a job on any node and in any term, and before its deadline at no time:
    /// only facts about itself concern it.
    fn is_finished(&self, key: &JobKey) -> bool {
        self.jobs.live(key).is_some_and(|job| job.may_be_finished() && self.wanted(key, job).is_empty())
            && crate::decide::decide(self, key, self.at).is_empty()
    }

    /// Notes that a pod of the job came to or left a node.
    pub(crate) fn moved(&mut self, key: &JobKey, from: Option<&Text>, to: Option<&Text>) {
        if from == to {
            return;
        }
        let Some(key) = self.shared_key(key) else { return };
        if let Some(node) = from
            && let Some(jobs) = self.on_node.get_mut(node)
        {
            let left = jobs.get(&key).map_or(0, |n| n.saturating_sub(1));
            if left == 0 {
                jobs.remove(&key);
            } else {
                jobs.insert(key.clone(), left);
            }
            if jobs.is_empty() {
                self.on_node.remove(node);
            }
        }
        if let Some(node) = to {
            let count = self.on_node.entry(node.clone()).or_default().entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The job's key, held once however many indexes name it.
    fn shared_key(&mut self, key: &JobKey) -> Option<Arc<JobKey>> {
        if let Some(shared) = &self.jobs.live(key)?.key {
            return Some(shared.clone());
        }
        let shared = Arc::new(self.jobs.key(key)?.clone());
        self.jobs.get_mut(key)?.key = Some(shared.clone());
        Some(shared)
    }

    /// Rebuilds what is derived, after a checkpoint was read.
    pub(crate) fn index(&mut self) {
        self.on_node.clear();
        self.deadlines.clear();
        let keys: Vec<Arc<JobKey>> = self.jobs.keys().cloned().map(Arc::new).collect();
        for shared in keys {
            let Some(job) = self.jobs.get_mut(&shared) else { continue };
            job.key = Some(shared.clone());
            job.share_specs();
            if let Some(at) = job.deadline {
                self.deadlines.insert((at, (*shared).clone()));
            }
            for node in job.pods.values().filter_map(|p| p.fact.node.as_ref()) {
                let count = self.on_node.entry(node.clone()).or_default().entry(shared.clone()).or_default();
                *count = count.saturating_add(1);
            }
            self.refresh_classes(&shared);
            self.queues.note(&shared, self.jobs.live(&shared));
            self.referrers.note(&shared, self.jobs.live(&shared));
            if self.is_finished(&shared) {
                self.jobs.finish(&shared);
            }
        }
        self.queues.offer(&self.nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_covers_what_it_holds_of_a_term_and_nothing_else() {
        let mut state = State { terms: vec![(Term(5), Position(1)), (Term(9), Position(4))], ..State::default() };
        state.begin(Stamp { term: Term(9), position: Position(6) }, Timestamp(0));
        let cases = [
            (5, 1, true),
            (5, 3, true),
            (5, 4, false),
            (9, 3, false),
            (9, 4, true),
            (9, 6, true),
            (9, 7, false),
            (7, 4, false),
        ];
        for (term, position, covered) in cases {
            let stamp = Stamp { term: Term(term), position: Position(position) };
            assert_eq!(state.covers(stamp), covered, "{stamp}");
        }
        assert!(!State::default().covers(Stamp { term: Term(1), position: Position(1) }));
    }
}
