//! Record bodies: what stands in the log, and checkpoints of the state.
//!
//! Version 1. Bodies are compact JSON with members in a fixed order. Members that are absent are not written. Unknown ones
//! are passed over, so a member may be added under the same version if it comes with a new behaviour number. A body with a
//! newer version, a newer behaviour or an unknown word was written by a newer build: it is refused, and the reason says so.
//! Never renumber or reuse a behaviour number.

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
/// of a slot that was scaled away is cancelled; pods a group grows by after a restart are not `Restarting`;
/// only a pod that holds a slot starts the time limit;
/// of several failures the first by time and kind is the cause.
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
    /// It was written by a newer build, so folding it here would lead to another state than there.
    #[error("written by a newer build of Trainyard ({0}); use that build or newer")]
    TooNew(Newer),
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

/// What of a body this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Newer {
    /// Its format.
    #[error("record format {0}, this build reads up to {VERSION}")]
    Format(u16),
    /// The rules it was decided by.
    #[error("behaviour {0}, this build knows up to {BEHAVIOUR}")]
    Behaviour(u32),
    /// A kind of fact, event, phase, or another word.
    #[error("{0}")]
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
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, WireError> {
    // A newer body may lack this build's members: that it is newer says more than which member is missing.
    if let Some(newer) = serde_json::from_slice::<Version>(body).ok().and_then(|version| version.newer()) {
        return Err(WireError::TooNew(newer));
    }
    serde_json::from_slice(body).map_err(|error| match unknown_word(&error) {
        Some(word) => WireError::TooNew(Newer::Word(word)),
        None => WireError::Malformed(error),
    })
}

/// The word that an enum of this build does not have. The digest of the frame vouches for the text, so a newer build wrote it.
fn unknown_word(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let (word, _) = text.strip_prefix("unknown variant `")?.split_once('`')?;
    Some(format!("`{word}` is a word that this build does not know"))
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
        let body: Body = read(body)?;
        Ok(Self {
            position,
            term,
            scope: body.job.map_or(Scope::Cluster, Scope::Job),
            at: body.at,
            behaviour: body.behaviour,
            facts: body.facts,
            causes: body.causes,
            events: body.events,
        })
    }
}

/// A checkpoint; `J` is the jobs with their keys, as pairs.
#[derive(Serialize, Deserialize)]
struct CheckpointBody<J> {
    v: u16,
    /// Behaviour of the build that wrote it. Absent in those of the first build.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    behaviour: u32,
    stamp: Stamp,
    at: Timestamp,
    config: Config,
    jobs: J,
    nodes: BTreeMap<Text, Node>,
    floors: Vec<(Kind, ResourceVersion)>,
    /// Absent while each kind has one source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    source_floors: Vec<(Kind, Text, ResourceVersion)>,
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
            behaviour: BEHAVIOUR,
            stamp: self.stamp,
            at: self.at,
            config: self.config.clone(),
            jobs: &self.jobs,
            nodes: self.nodes.clone(),
            floors: self.floors.iter().map(|(k, v)| (*k, *v)).collect(),
            source_floors: self.source_floors.iter().map(|((k, of), v)| (*k, of.clone(), *v)).collect(),
            terms: self.terms.clone(),
        })?)
    }

    /// Reads a checkpoint body.
    ///
    /// # Errors
    /// When it is newer than this build, or no checkpoint.
    pub fn from_checkpoint(body: &[u8]) -> Result<Self, WireError> {
        let body: CheckpointBody<Vec<(JobKey, Box<Job>)>> = read(body)?;
        let mut state = Self {
            stamp: body.stamp,
            at: body.at,
            config: body.config,
            jobs: body.jobs.into_iter().collect(),
            nodes: body.nodes,
            floors: body.floors.into_iter().collect(),
            source_floors: body.source_floors.into_iter().map(|(k, of, v)| ((k, of), v)).collect(),
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
            behaviour: 1,
            facts: vec![Fact::Due, Fact::PodGone { uid: "p1".into(), rv: None }],
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
        let now = Record { behaviour: BEHAVIOUR, ..record() };
        assert_eq!(Record::decode(Position(7), Term(3), &now.encode().unwrap()).unwrap(), now);
    }

    #[test]
    fn members_added_later_are_passed_over_and_what_a_newer_build_wrote_is_refused_by_name() {
        let added = br#"{"at":5,"colour":"blue","facts":["Due"]}"#;
        assert_eq!(Record::decode(Position(1), Term(1), added).unwrap().facts, vec![Fact::Due]);
        let word = |word: &str| Newer::Word(format!("`{word}` is a word that this build does not know"));
        let job = r#""job":{"namespace":"default","name":"j","kind":"AITrainingJob","uid":"u1"}"#;
        let in_job = |members: &str| format!(r#"{{"at":5,{job},{members}}}"#);
        for (newer, want) in [
            (r#"{"v":2,"at":5}"#.to_owned(), Newer::Format(2)),
            (r#"{"v":2,"what":[{"Unheard":1}]}"#.to_owned(), Newer::Format(2)),
            (format!(r#"{{"at":5,"behaviour":{},"facts":["Due"]}}"#, BEHAVIOUR + 1), Newer::Behaviour(BEHAVIOUR + 1)),
            (r#"{"behaviour":4000000000,"what":1}"#.to_owned(), Newer::Behaviour(4_000_000_000)),
            (in_job(r#""facts":["Unheard"]"#), word("Unheard")),
            (in_job(r#""facts":[{"Unheard":{"a":[1]}}]"#), word("Unheard")),
            (in_job(r#""events":[{"PhaseChanged":{"to":"Suspended"}}]"#), word("Suspended")),
            (in_job(r#""facts":[{"Answered":{"object":"Status","outcome":"Odd"}}]"#), word("Odd")),
        ] {
            match Record::decode(Position(1), Term(1), newer.as_bytes()) {
                Err(error @ WireError::TooNew(_)) => assert_eq!(
                    error.to_string(),
                    format!("written by a newer build of Trainyard ({want}); use that build or newer")
                ),
                other => panic!("{newer}: {other:?}"),
            }
        }
        for bad in [&b""[..], b"{", b"{}", br#"{"at":-1}"#, br#"{"at":5,"facts":[{"Due":1}]}"#] {
            let error = Record::decode(Position(1), Term(1), bad).unwrap_err();
            assert!(matches!(error, WireError::Malformed(_)), "{error}");
        }
    }

    #[test]
    fn a_checkpoint_of_a_newer_build_is_refused() {
        let body = State::default().to_checkpoint().unwrap();
        assert!(State::from_checkpoint(&body).is_ok());
        let body = String::from_utf8(body).unwrap();
        let newer = body.replacen("\"v\":1", "\"v\":9", 1);
        assert!(matches!(State::from_checkpoint(newer.as_bytes()), Err(WireError::TooNew(Newer::Format(9)))));
        let newer = body.replacen(&format!("\"behaviour\":{BEHAVIOUR}"), "\"behaviour\":9", 1);
        assert!(matches!(State::from_checkpoint(newer.as_bytes()), Err(WireError::TooNew(Newer::Behaviour(9)))));
        // The first build wrote none.
        let first = body.replacen(&format!("\"behaviour\":{BEHAVIOUR},"), "", 1);
        assert!(State::from_checkpoint(first.as_bytes()).is_ok());
    }
}
