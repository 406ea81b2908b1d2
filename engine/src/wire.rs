//! Record bodies: what stands in the log, and checkpoints of the state.
//!
//! Version 1. Bodies are compact JSON with members in a fixed order; members that are absent are not written, and unknown
//! ones are refused by nobody, so a member may be added. A body that says a newer version is refused with a readable
//! reason. Never renumber or reuse a behaviour number.

use std::collections::BTreeMap;

use model::{Config, Event, Fact, JobKey, Kind, Position, ResourceVersion, Stamp, Term, Text, Timestamp};
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::state::{Node, Scope, State};

/// Format version of record bodies that this build writes.
pub const VERSION: u16 = 1;
/// Behaviour of the engine that this build decides by.
///
/// 1: the first build. 2: a back-off holds back the slots it was decided for, instead of the whole job; the planned pod
/// of a slot that was scaled away is cancelled; pods a group grows by after a restart are not `Restarting`.
pub const BEHAVIOUR: u32 = 2;

/// One record: the facts of a turn about one scope, and what was decided from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub position: Position,
    /// The term it was written in.
    pub term: Term,
    /// What it is about.
    pub scope: Scope,
    /// When.
    pub at: Timestamp,
    /// The behaviour it was decided by.
    pub behaviour: u32,
    /// What came in.
    pub facts: Vec<Fact>,
    /// Records that led to this one.
    pub causes: Vec<Position>,
    /// What was decided.
    pub events: Vec<Event>,
}

/// A body that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It was written by a newer build.
    #[error("record format {have} is newer than format {VERSION}, the newest this build reads")]
    TooNew {
        /// The version it says.
        have: u16,
    },
    /// It is not a record.
    #[error("not a record: {0}")]
    Malformed(#[from] serde_json::Error),
}

#[derive(Serialize)]
struct BodyRef<'a> {
    #[serde(skip_serializing_if = "is_current")]
    v: u16,
    at: Timestamp,
    #[serde(skip_serializing_if = "is_first")]
    behaviour: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a JobKey>,
    #[serde(skip_serializing_if = "<[Fact]>::is_empty")]
    facts: &'a [Fact],
    #[serde(skip_serializing_if = "<[Position]>::is_empty")]
    causes: &'a [Position],
    #[serde(skip_serializing_if = "<[Event]>::is_empty")]
    events: &'a [Event],
}

#[derive(Deserialize)]
struct Body {
    #[serde(default = "version")]
    v: u16,
    at: Timestamp,
    #[serde(default = "first")]
    behaviour: u32,
    job: Option<JobKey>,
    #[serde(default)]
    facts: Vec<Fact>,
    #[serde(default)]
    causes: Vec<Position>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default = "version")]
    v: u16,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
const fn is_current(v: &u16) -> bool {
    *v == 1
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
            Scope::Cluster => None,
            Scope::Job(key) => Some(key),
        };
        Ok(serde_json::to_vec(&BodyRef {
            v: VERSION,
            at: self.at,
            behaviour: self.behaviour,
            job,
            facts: &self.facts,
            causes: &self.causes,
            events: &self.events,
        })?)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When it is newer than this build, or no record.
    pub fn decode(position: Position, term: Term, body: &[u8]) -> Result<Self, WireError> {
        match serde_json::from_slice::<Body>(body) {
            Ok(b) if b.v <= VERSION => Ok(Self {
                position,
                term,
                scope: b.job.map_or(Scope::Cluster, Scope::Job),
                at: b.at,
                behaviour: b.behaviour,
                facts: b.facts,
                causes: b.causes,
                events: b.events,
            }),
            Ok(b) => Err(WireError::TooNew { have: b.v }),
            // A newer format may not even have this build's members: say so rather than name a missing member.
            Err(error) => match serde_json::from_slice::<Version>(body) {
                Ok(v) if v.v > VERSION => Err(WireError::TooNew { have: v.v }),
                Ok(_) | Err(_) => Err(WireError::Malformed(error)),
            },
        }
    }
}

/// A checkpoint; `J` is the jobs with their keys, as pairs.
#[derive(Serialize, Deserialize)]
struct CheckpointBody<J> {
    v: u16,
    stamp: Stamp,
    at: Timestamp,
    config: Config,
    jobs: J,
    nodes: BTreeMap<Text, Node>,
    floors: Vec<(Kind, ResourceVersion)>,
    terms: Vec<(Term, Position)>,
}

impl State {
    /// The state as a checkpoint body.
    ///
    /// # Errors
    /// [`WireError::Malformed`], should a value have no JSON form.
    pub fn to_checkpoint(&self) -> Result<Vec<u8>, WireError> {
        Ok(serde_json::to_vec(&CheckpointBody {
            v: VERSION,
            stamp: self.stamp,
            at: self.at,
            config: self.config.clone(),
            jobs: &self.jobs,
            nodes: self.nodes.clone(),
            floors: self.floors.iter().map(|(k, v)| (*k, *v)).collect(),
            terms: self.terms.clone(),
        })?)
    }

    /// Reads a checkpoint body.
    ///
    /// # Errors
    /// When it is newer than this build, or no checkpoint.
    pub fn from_checkpoint(body: &[u8]) -> Result<Self, WireError> {
        let have = serde_json::from_slice::<Version>(body)?.v;
        if have > VERSION {
            return Err(WireError::TooNew { have });
        }
        let body: CheckpointBody<Vec<(JobKey, Box<Job>)>> = serde_json::from_slice(body)?;
        let mut state = Self {
            stamp: body.stamp,
            at: body.at,
            config: body.config,
            jobs: body.jobs.into_iter().collect(),
            nodes: body.nodes,
            floors: body.floors.into_iter().collect(),
            terms: body.terms,
            ..Self::default()
        };
        state.index();
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            position: Position(7),
            term: Term(3),
            scope: Scope::Job(JobKey {
                namespace: "default".into(),
                name: "j".into(),
                kind: "AITrainingJob".into(),
                uid: "u1".into(),
            }),
            at: Timestamp(1000),
            behaviour: BEHAVIOUR,
            facts: vec![Fact::Due, Fact::PodGone { uid: "p1".into() }],
            causes: vec![Position(6)],
            events: vec![Event::RestartCleared],
        }
    }

    #[test]
    fn a_record_survives_its_body() {
        let body = record().encode().unwrap();
        assert_eq!(Record::decode(Position(7), Term(3), &body).unwrap(), record());
        // What stands in old logs must not change: a change of this text is a new format.
        let text = r#"{"at":1000,"job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"},"facts":["Due",{"PodGone":{"uid":"p1"}}],"causes":[6],"events":["RestartCleared"]}"#;
        assert_eq!(String::from_utf8(body).unwrap(), text);
    }

    #[test]
    fn members_added_later_are_passed_over_and_newer_formats_are_refused_by_name() {
        let added = br#"{"at":5,"colour":"blue","facts":["Due"]}"#;
        assert_eq!(Record::decode(Position(1), Term(1), added).unwrap().facts, vec![Fact::Due]);
        for newer in [&br#"{"v":2,"at":5}"#[..], br#"{"v":2,"what":[{"Unheard":1}]}"#] {
            let error = Record::decode(Position(1), Term(1), newer).unwrap_err();
            assert!(matches!(error, WireError::TooNew { have: 2 }), "{error}");
        }
        for bad in [&b""[..], b"{", b"{}", br#"{"at":-1}"#, br#"{"at":5,"facts":["Nonsense"]}"#] {
            let error = Record::decode(Position(1), Term(1), bad).unwrap_err();
            assert!(matches!(error, WireError::Malformed(_)), "{error}");
        }
    }

    #[test]
    fn a_checkpoint_of_a_newer_build_is_refused() {
        let body = State::default().to_checkpoint().unwrap();
        assert!(State::from_checkpoint(&body).is_ok());
        let newer = String::from_utf8(body).unwrap().replacen("\"v\":1", "\"v\":9", 1);
        assert!(matches!(State::from_checkpoint(newer.as_bytes()), Err(WireError::TooNew { have: 9 })));
    }
}
