//! Encodes and decodes the bodies of records and checkpoints, and refuses those of a newer build.
//!
//! Owns the versions; what is written under each stands in a module of its own ([`v1`]). Domain types have no JSON form of their
//! own: members and words of a body change only there. Must not decide or fold.
//!
//! Bodies are compact JSON with members in a fixed order. Members that are absent are not written. Unknown ones are passed over,
//! so a member may be added under the same version if it comes with a new behaviour number. A body with a newer version, a newer
//! behaviour or an unknown word was written by a newer build: it is refused, and the reason says so. Never renumber or reuse a
//! behaviour number. Tests: `wire/tests.rs`.

pub(crate) mod format;
mod unknown;
mod v1;

#[cfg(test)]
pub(crate) mod tests;

use model::{
    ClusterFact, Decision, Event, Fact, FieldError, JobEvent, JobFact, Mirror, Phase, PodPhase, Position, QueueEvent,
    QueueFact, Term,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_with::SerializeAs;

use crate::job::Job;
use crate::record::{Body, Record};
use crate::state::State;

/// Newest format of bodies that this build reads and writes.
///
/// 1: the first build. 2 to 7: the words and members of [`format`]. A body has the oldest format that can hold it, so that what an
/// older build can read stays readable there.
pub const VERSION: u16 = 7;
/// Behaviour of the engine that this build decides by.
///
/// 1: the first build. 2: a back-off holds back the slots it was decided for, instead of the whole job; the planned pod
/// of a slot that was scaled away is cancelled; pods a group grows by after a restart are not `Restarting`;
/// only a pod that holds a slot starts the time limit;
/// of several failures the first by time and kind is the cause. 3: objects that the garbage collector left behind are collected as pods
/// and services are.
pub const BEHAVIOUR: u32 = 3;

/// A body that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It was written by a newer build, so folding it here would lead to another state than there.
    #[error("written by a newer build of Trainyard ({0}); use that build or newer")]
    TooNew(Newer),
    /// It has a fact of another scope.
    #[error("fact {fact} does not belong in a {scope} record")]
    MisplacedFact {
        /// The kind of fact.
        fact: &'static str,
        /// `cluster`, `queues` or `job`.
        scope: &'static str,
    },
    /// It has an event of another scope.
    #[error("event {event} in a record of another subject")]
    MisplacedEvent {
        /// The kind of event.
        event: &'static str,
    },
    /// It is not a record.
    #[error("not a record: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// The part of a body that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Newer {
    /// Its format.
    #[error("record format {0}, this build reads up to {VERSION}")]
    Format(u16),
    /// The rules it was decided by.
    #[error("behaviour {0}, this build knows up to {BEHAVIOUR}")]
    Behaviour(u32),
    /// A kind of fact, event, phase, or another word.
    #[error("`{0}` is a word that this build does not know")]
    Word(String),
}

/// The members that say which build can read a body. They stand in every format.
#[derive(Deserialize)]
struct Version {
    #[serde(default = "version")]
    v: u16,
    #[serde(default = "first")]
    behaviour: u32,
}

impl Version {
    fn newer(&self) -> Option<Newer> {
        if self.v > VERSION {
            return Some(Newer::Format(self.v));
        }
        (self.behaviour > BEHAVIOUR).then_some(Newer::Behaviour(self.behaviour))
    }
}

/// Reads a body of this build's format or an older one.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    // A newer body may lack this build's members: that it is newer says more than which member is missing.
    if let Some(newer) = serde_json::from_slice::<Version>(body).ok().and_then(|version| version.newer()) {
        return Err(WireError::TooNew(newer));
    }
    // The digest of its frame vouches for the text: an unknown word was written by a newer build.
    serde_json::from_slice(body).map_err(|error| match unknown::word::<T>(body) {
        Some(word) => WireError::TooNew(Newer::Word(word)),
        None => WireError::Malformed(error),
    })
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
const fn is_first(behaviour: &u32) -> bool {
    *behaviour == 1
}
const fn version() -> u16 {
    1
}
const fn first() -> u32 {
    1
}

impl Record {
    /// Returns the body as it stands in the log. Position and term stand in the frame.
    ///
    /// # Errors
    /// [`WireError::Malformed`], should a value have no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let (facts, events) = match &self.body {
            Body::Cluster { facts } => (v1::FactsRef::Cluster(facts), v1::EventsRef::Job(&[])),
            Body::Queues { facts, events } => (v1::FactsRef::Queues(facts), v1::EventsRef::Queues(events)),
            Body::Job { facts, events, .. } => (v1::FactsRef::Job(facts), v1::EventsRef::Job(events)),
        };
        Ok(serde_json::to_vec(&v1::RecordRef {
            v: format::of_record(&self.body),
            at: self.at,
            behaviour: self.behaviour,
            job: self.job(),
            queues: matches!(self.body, Body::Queues { .. }),
            facts,
            causes: &self.causes,
            events,
        })?)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// Returns an error if it is newer than this build, has a fact or an event of another scope, or is no record.
    pub fn decode(position: Position, term: Term, body: &[u8]) -> Result<Self, WireError> {
        let v1::Record { at, behaviour, job, queues, facts, causes, events } = read(body)?;
        let body = match job {
            Some(key) => Body::Job { key, facts: of_job(facts)?, events: decided_of_job(events)? },
            None if queues => Body::Queues { facts: of_queues(facts)?, events: decided_of_queues(events)? },
            None => Body::Cluster { facts: of_cluster(facts, &events)? },
        };
        Ok(Self { position, term, at, behaviour, causes, body })
    }
}

fn of_cluster(facts: Vec<Fact>, events: &[Event]) -> Result<Vec<ClusterFact>, WireError> {
    if let Some(event) = events.first() {
        return Err(WireError::MisplacedEvent { event: event.name() });
    }
    let of_scope = |fact| match fact {
        Fact::Cluster(fact) => Ok(fact),
        Fact::Queue(_) | Fact::Job(_) => Err(WireError::MisplacedFact { fact: fact.name(), scope: "cluster" }),
    };
    facts.into_iter().map(of_scope).collect()
}

fn of_queues(facts: Vec<Fact>) -> Result<Vec<QueueFact>, WireError> {
    let of_scope = |fact| match fact {
        Fact::Queue(fact) => Ok(fact),
        Fact::Cluster(_) | Fact::Job(_) => Err(WireError::MisplacedFact { fact: fact.name(), scope: "queues" }),
    };
    facts.into_iter().map(of_scope).collect()
}

fn of_job(facts: Vec<Fact>) -> Result<Vec<JobFact>, WireError> {
    let of_scope = |fact| match fact {
        Fact::Job(fact) => Ok(fact),
        Fact::Cluster(_) | Fact::Queue(_) => Err(WireError::MisplacedFact { fact: fact.name(), scope: "job" }),
    };
    facts.into_iter().map(of_scope).collect()
}

fn decided_of_queues(events: Vec<Event>) -> Result<Vec<QueueEvent>, WireError> {
    let of_scope = |event| match event {
        Event::Queue(event) => Ok(event),
        Event::Job(_) => Err(WireError::MisplacedEvent { event: event.name() }),
    };
    events.into_iter().map(of_scope).collect()
}

fn decided_of_job(events: Vec<Event>) -> Result<Vec<JobEvent>, WireError> {
    let of_scope = |event| match event {
        Event::Job(event) => Ok(event),
        Event::Queue(_) => Err(WireError::MisplacedEvent { event: event.name() }),
    };
    events.into_iter().map(of_scope).collect()
}

impl State {
    /// The state as a checkpoint body.
    ///
    /// # Errors
    /// [`WireError::Malformed`], should a value have no JSON form.
    pub fn to_checkpoint(&self) -> Result<Vec<u8>, WireError> {
        Ok(serde_json::to_vec(&v1::CheckpointRef {
            v: self.format.max(1),
            behaviour: BEHAVIOUR,
            stamp: self.stamp,
            at: self.at,
            config: &self.config,
            jobs: &self.jobs,
            nodes: &self.nodes,
            list_rvs: self.list_rvs.iter().map(|(k, v)| (*k, *v)).collect(),
            source_list_rvs: self.source_list_rvs.iter().map(|((k, of), v)| (*k, of.clone(), *v)).collect(),
            terms: &self.terms,
            queues: self.queues.is_used().then(|| v1::QueuesRef {
                history: &self.queues.history,
                targets: self.queues.targets.iter().map(|(key, target)| (key.clone(), target.clone())).collect(),
                resources: &self.queues.resources,
            }),
            foreign: &self.foreign,
            foreign_requests: &self.foreign_requests,
            classes: self.queues.classes.by_name.values().cloned().collect(),
            quotas: self.queues.coordinator.quotas().cloned().collect(),
            namespaces: self.queues.namespaces.values().cloned().collect(),
            turns: self.queues.coordinator.turns.as_ref(),
            dequeued_at: self.queues.coordinator.dequeued_at,
        })?)
    }

    /// Reads a checkpoint body.
    ///
    /// # Errors
    /// Returns an error if it is newer than this build, or no checkpoint.
    pub fn from_checkpoint(body: &[u8]) -> Result<Self, WireError> {
        let body: v1::Checkpoint = read(body)?;
        let mut state = Self {
            format: body.v,
            stamp: body.stamp,
            at: body.at,
            config: body.config,
            jobs: body.jobs.into_iter().collect(),
            nodes: body.nodes,
            list_rvs: body.list_rvs.into_iter().collect(),
            source_list_rvs: body.source_list_rvs.into_iter().map(|(k, of, v)| ((k, of), v)).collect(),
            terms: body.terms,
            foreign: body.foreign,
            foreign_requests: body.foreign_requests,
            ..Self::default()
        };
        state.queues.classes.by_name = body.classes.into_iter().map(|class| (class.name.clone(), class)).collect();
        let namespaces = body.namespaces.into_iter().map(|namespace| (namespace.name.clone(), namespace));
        state.queues.namespaces = namespaces.collect();
        let coordinator = &mut state.queues.coordinator;
        body.quotas.into_iter().for_each(|quota| coordinator.set_quota(quota));
        (coordinator.turns, coordinator.dequeued_at) = (body.turns, body.dequeued_at);
        if let Some(queues) = body.queues {
            state.queues.history = queues.history;
            state.queues.targets = queues.targets.into_iter().collect();
            state.queues.resources = queues.resources;
        }
        state.index();
        Ok(state)
    }
}

/// Returns an event as records hold it.
pub fn event_value(event: &Event) -> Value {
    match event {
        Event::Queue(event) => value::<_, v1::QueueEvent>(event),
        Event::Job(event) => value::<_, v1::JobEvent>(event),
    }
}

/// Returns a job as checkpoints hold it.
pub fn job_value(job: &Job) -> Value {
    value::<_, v1::Job>(job)
}

/// Returns a mirror as records and job objects hold it.
pub fn mirror_value(mirror: &Mirror) -> Value {
    value::<_, v1::Mirror>(mirror)
}

/// Reads a mirror from a job object. Returns `None` for what is no mirror, or one with words of a newer build.
pub fn mirror_from_value(value: &Value) -> Option<Mirror> {
    v1::Mirror::deserialize(value).ok()
}

/// Returns a decision as records hold it; null for none.
pub fn decision_value(decision: Option<&Decision>) -> Value {
    decision.map_or(Value::Null, value::<_, v1::Decision>)
}

/// Returns the errors of a spec as records hold them; null for none.
pub fn errors_value(errors: Option<&[FieldError]>) -> Value {
    errors.map_or(Value::Null, |errors| errors.iter().map(value::<_, v1::FieldError>).collect())
}

/// Returns a phase as records hold it.
pub fn phase_value(phase: Phase) -> Value {
    value::<_, v1::Phase>(&phase)
}

/// Returns the phase of a pod as records hold it.
pub fn pod_phase_value(phase: PodPhase) -> Value {
    value::<_, v1::PodPhase>(&phase)
}

/// Returns a value in the form `F`. No form has members that JSON cannot hold.
fn value<T, F: SerializeAs<T>>(value: &T) -> Value {
    serde_json::to_value(v1::Written::<T, F>::new(value)).unwrap_or_default()
}
