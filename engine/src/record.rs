//! Holds the type of a record, which a log stores one after another. It must not know how a record is written ([`crate::wire`]).

use model::{ClusterFact, Event, JobEvent, JobFact, JobKey, Position, QueueEvent, QueueFact, Stamp, Term, Timestamp};

/// One record: the facts of a turn about one scope, and what was decided from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub position: Position,
    /// The term it was written in.
    pub term: Term,
    /// Time of the turn that wrote it.
    pub at: Timestamp,
    /// The behaviour it was decided by.
    pub behaviour: u32,
    /// Records that led to this one.
    pub causes: Vec<Position>,
    /// Its subject, with the facts that came in and the decisions that followed.
    pub body: Body,
}

/// Facts and events of a record, by its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The cluster: nodes, configuration, terms, views of a kind. Nothing is decided of it.
    Cluster {
        /// Facts that came in.
        facts: Vec<ClusterFact>,
    },
    /// The queues: shares of all jobs.
    Queues {
        /// Facts that came in.
        facts: Vec<QueueFact>,
        /// Decisions that followed.
        events: Vec<QueueEvent>,
    },
    /// One job.
    Job {
        /// The job.
        key: JobKey,
        /// Facts that came in.
        facts: Vec<JobFact>,
        /// Decisions that followed.
        events: Vec<JobEvent>,
    },
}

impl Record {
    /// Returns the stamp of this record.
    pub const fn stamp(&self) -> Stamp {
        Stamp { term: self.term, position: self.position }
    }

    /// Returns the job that the record is about; `None` for one about the cluster or the queues.
    pub const fn job(&self) -> Option<&JobKey> {
        match &self.body {
            Body::Job { key, .. } => Some(key),
            Body::Cluster { .. } | Body::Queues { .. } => None,
        }
    }

    /// Returns the facts about a job; none for a record about the cluster or the queues.
    pub fn job_facts(&self) -> &[JobFact] {
        match &self.body {
            Body::Job { facts, .. } => facts,
            Body::Cluster { .. } | Body::Queues { .. } => &[],
        }
    }

    /// Returns the decisions on a job; none for a record about the cluster or the queues.
    pub fn job_events(&self) -> &[JobEvent] {
        match &self.body {
            Body::Job { events, .. } => events,
            Body::Cluster { .. } | Body::Queues { .. } => &[],
        }
    }

    /// Returns a copy of the decisions.
    pub fn events(&self) -> Vec<Event> {
        match &self.body {
            Body::Cluster { .. } => Vec::new(),
            Body::Queues { events, .. } => events.iter().cloned().map(Event::Queue).collect(),
            Body::Job { events, .. } => events.iter().cloned().map(Event::Job).collect(),
        }
    }

    /// Returns the names of the kinds of its facts, in their order.
    pub fn fact_names(&self) -> Vec<&'static str> {
        match &self.body {
            Body::Cluster { facts } => facts.iter().map(ClusterFact::name).collect(),
            Body::Queues { facts, .. } => facts.iter().map(QueueFact::name).collect(),
            Body::Job { facts, .. } => facts.iter().map(JobFact::name).collect(),
        }
    }

    /// Returns the names of the kinds of its events, in their order.
    pub fn event_names(&self) -> Vec<&'static str> {
        match &self.body {
            Body::Cluster { .. } => Vec::new(),
            Body::Queues { events, .. } => events.iter().map(QueueEvent::name).collect(),
            Body::Job { events, .. } => events.iter().map(JobEvent::name).collect(),
        }
    }
}
