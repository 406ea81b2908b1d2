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

use model::{Decision, Event, Fact, FieldError, Mirror, Phase, PodPhase, Position, Stamp, Term, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_with::SerializeAs;

use crate::job::Job;
use crate::state::{Scope, State};

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

/// One record: the facts of a turn about one scope, and what was decided from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub position: Position,
    /// The term it was written in.
    pub term: Term,
    /// Subject of it.
    pub scope: Scope,
    /// When.
    pub at: Timestamp,
    /// The behaviour it was decided by.
    pub behaviour: u32,
    /// Facts that came in.
    pub facts: Vec<Fact>,
    /// Records that led to this one.
    pub causes: Vec<Position>,
    /// Decisions that followed.
    pub events: Vec<Event>,
}

/// A body that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It was written by a newer build, so folding it here would lead to another state than there.
    #[error("written by a newer build of Trainyard ({0}); use that build or newer")]
    TooNew(Newer),
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
    /// The stamp of this record.
    pub const fn stamp(&self) -> Stamp {
        Stamp { term: self.term, position: self.position }
    }

    /// The body as it stands in the log (position and term stand in the frame).
    ///
    /// # Errors
    /// [`WireError::Malformed`], should a value have no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let job = match &self.scope {
            Scope::Cluster | Scope::Queues => None,
            Scope::Job(key) => Some(key),
        };
        Ok(serde_json::to_vec(&v1::RecordRef {
            v: format::of_record(&self.facts, &self.events),
            at: self.at,
            behaviour: self.behaviour,
            job,
            queues: self.scope == Scope::Queues,
            facts: &self.facts,
            causes: &self.causes,
            events: &self.events,
        })?)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// Returns an error if it is newer than this build, or no record.
    pub fn decode(position: Position, term: Term, body: &[u8]) -> Result<Self, WireError> {
        let body: v1::Record = read(body)?;
        Ok(Self {
            position,
            term,
            scope: match body.job {
                Some(key) => Scope::Job(key),
                None if body.queues => Scope::Queues,
                None => Scope::Cluster,
            },
            at: body.at,
            behaviour: body.behaviour,
            facts: body.facts,
            causes: body.causes,
            events: body.events,
        })
    }
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
    value::<_, v1::Event>(event)
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
