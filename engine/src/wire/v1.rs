//! Format 1: bodies of records and checkpoints as JSON, and the form in which each domain type stands in them.
//!
//! A form is a type of its own with the names that are written. `remote` ties it to the domain type member by member, so
//! values are written from and read into domain types without a copy, and a member without a form does not compile. To rename
//! a member of the domain, rename it in its form and keep the written name with `#[serde(rename)]`.
//! Identifiers ([`model::id`]) are written as they are: their own `Serialize` is part of this format.
//!
//! Forms must not change what is written. Tests: `wire::tests`, with stored texts that have every member.

mod autoscaler;
mod coordination;
mod event;
mod fact;
mod job;
mod namespaces;
mod notes;
mod progress;
mod requirements;
mod scoped;
mod share;
mod spec;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use model::{JobKey, Position, ResourceVersion, Stamp, Term, Text, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use serde_with::{SerializeAs, serde_as};

pub(super) use self::event::{Decision, JobEvent, Mirror, Phase, QueueEvent};
pub(super) use self::fact::PodPhase;
use self::fact::{ClusterFact, JobFact, QueueFact};
pub(super) use self::job::Job;
use self::job::Node;
pub(super) use self::namespaces::names_of;
use self::spec::Config;
pub(super) use self::spec::FieldError;
use super::{first, is_first};
use crate::jobs::Jobs;

/// Lets containers of a domain type be written and read in its form.
macro_rules! forms {
    ($($form:ident: $domain:ty),* $(,)?) => {$(
        impl serde_with::SerializeAs<$domain> for $form {
            #[inline]
            fn serialize_as<S: serde::Serializer>(value: &$domain, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(value, serializer)
            }
        }
        impl<'de> serde_with::DeserializeAs<'de, $domain> for $form {
            #[inline]
            fn deserialize_as<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$domain, D::Error> {
                Self::deserialize(deserializer)
            }
        }
    )*};
}
use forms;

/// The body of a record, to be written.
#[derive(Serialize)]
pub(super) struct RecordRef<'a> {
    #[serde(skip_serializing_if = "is_format_1")]
    pub(super) v: u16,
    pub(super) at: Timestamp,
    #[serde(skip_serializing_if = "is_first")]
    pub(super) behaviour: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<&'a JobKey>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) queues: bool,
    #[serde(skip_serializing_if = "FactsRef::is_empty")]
    pub(super) facts: FactsRef<'a>,
    #[serde(skip_serializing_if = "<[Position]>::is_empty")]
    pub(super) causes: &'a [Position],
    #[serde(skip_serializing_if = "EventsRef::is_empty")]
    pub(super) events: EventsRef<'a>,
}

/// Facts of a record, to be written.
#[serde_as]
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum FactsRef<'a> {
    Cluster(#[serde_as(as = "&[ClusterFact]")] &'a [model::ClusterFact]),
    Queues(#[serde_as(as = "&[QueueFact]")] &'a [model::QueueFact]),
    Job(#[serde_as(as = "&[JobFact]")] &'a [model::JobFact]),
}

impl FactsRef<'_> {
    const fn is_empty(&self) -> bool {
        match self {
            Self::Cluster(facts) => facts.is_empty(),
            Self::Queues(facts) => facts.is_empty(),
            Self::Job(facts) => facts.is_empty(),
        }
    }
}

/// Events of a record, to be written.
#[serde_as]
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum EventsRef<'a> {
    Queues(#[serde_as(as = "&[QueueEvent]")] &'a [model::QueueEvent]),
    Job(#[serde_as(as = "&[JobEvent]")] &'a [model::JobEvent]),
}

impl EventsRef<'_> {
    const fn is_empty(&self) -> bool {
        match self {
            Self::Queues(events) => events.is_empty(),
            Self::Job(events) => events.is_empty(),
        }
    }
}

/// The body of a record, as read.
#[serde_as]
#[derive(Deserialize)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    #[serde(default = "first")]
    pub(super) behaviour: u32,
    pub(super) job: Option<JobKey>,
    #[serde(default)]
    pub(super) queues: bool,
    #[serde_as(as = "Vec<scoped::Fact>")]
    #[serde(default)]
    pub(super) facts: Vec<model::Fact>,
    #[serde(default)]
    pub(super) causes: Vec<Position>,
    #[serde_as(as = "Vec<scoped::Event>")]
    #[serde(default)]
    pub(super) events: Vec<model::Event>,
}

/// A checkpoint, to be written.
#[serde_as]
#[derive(Serialize)]
pub(super) struct CheckpointRef<'a> {
    pub(super) v: u16,
    #[serde(skip_serializing_if = "is_first")]
    pub(super) behaviour: u32,
    pub(super) stamp: Stamp,
    pub(super) at: Timestamp,
    #[serde_as(as = "&Config")]
    pub(super) config: &'a model::Config,
    #[serde(serialize_with = "write_jobs")]
    pub(super) jobs: &'a Jobs,
    #[serde_as(as = "&BTreeMap<_, Node>")]
    pub(super) nodes: &'a BTreeMap<Text, crate::nodes::Node>,
    #[serde_as(as = "Vec<(spec::Kind, _)>")]
    #[serde(rename = "floors")]
    pub(super) list_rvs: Vec<(model::Kind, ResourceVersion)>,
    /// Left out while each kind has one source.
    #[serde_as(as = "Vec<(spec::Kind, _, _)>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "source_floors")]
    pub(super) source_list_rvs: Vec<(model::Kind, Text, ResourceVersion)>,
    pub(super) terms: &'a [(Term, Position)],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<QueuesRef<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) foreign: &'a BTreeMap<Text, BTreeMap<Text, u32>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) foreign_requests: &'a BTreeMap<Text, BTreeMap<Text, u64>>,
    #[serde_as(as = "Vec<fact::ClassFact>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) classes: Vec<model::ClassFact>,
    #[serde_as(as = "Vec<coordination::QuotaFact>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) quotas: Vec<model::QuotaFact>,
    #[serde_as(as = "Vec<fact::NamespaceFact>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) namespaces: Vec<model::NamespaceFact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turns: Option<&'a scheduler::queues::Turns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dequeued_at: Option<Timestamp>,
}

/// State of the queues, to be written.
#[serde_as]
#[derive(Serialize)]
pub(super) struct QueuesRef<'a> {
    #[serde(rename = "ledger")]
    pub(super) history: &'a scheduler::scheduling::History,
    #[serde_as(as = "Vec<(_, share::ShareTarget)>")]
    pub(super) targets: Vec<(JobKey, model::ShareTarget)>,
    pub(super) resources: &'a [Text],
}

/// State of the queues, as read.
#[serde_as]
#[derive(Deserialize)]
pub(super) struct Queues {
    #[serde(rename = "ledger")]
    pub(super) history: scheduler::scheduling::History,
    #[serde_as(as = "Vec<(_, share::ShareTarget)>")]
    pub(super) targets: Vec<(JobKey, model::ShareTarget)>,
    pub(super) resources: Vec<Text>,
}

/// A checkpoint, as read.
#[serde_as]
#[derive(Deserialize)]
pub(super) struct Checkpoint {
    #[serde(default = "super::version")]
    pub(super) v: u16,
    pub(super) stamp: Stamp,
    pub(super) at: Timestamp,
    #[serde_as(as = "Config")]
    pub(super) config: model::Config,
    #[serde_as(as = "Vec<(_, Box<Job>)>")]
    pub(super) jobs: Vec<(JobKey, Box<crate::job::Job>)>,
    #[serde_as(as = "BTreeMap<_, Node>")]
    pub(super) nodes: BTreeMap<Text, crate::nodes::Node>,
    #[serde_as(as = "Vec<(spec::Kind, _)>")]
    #[serde(rename = "floors")]
    pub(super) list_rvs: Vec<(model::Kind, ResourceVersion)>,
    #[serde_as(as = "Vec<(spec::Kind, _, _)>")]
    #[serde(default)]
    #[serde(rename = "source_floors")]
    pub(super) source_list_rvs: Vec<(model::Kind, Text, ResourceVersion)>,
    pub(super) terms: Vec<(Term, Position)>,
    #[serde(default)]
    pub(super) queues: Option<Queues>,
    #[serde(default)]
    pub(super) foreign: BTreeMap<Text, BTreeMap<Text, u32>>,
    #[serde(default)]
    pub(super) foreign_requests: BTreeMap<Text, BTreeMap<Text, u64>>,
    #[serde_as(as = "Vec<fact::ClassFact>")]
    #[serde(default)]
    pub(super) classes: Vec<model::ClassFact>,
    #[serde_as(as = "Vec<coordination::QuotaFact>")]
    #[serde(default)]
    pub(super) quotas: Vec<model::QuotaFact>,
    #[serde_as(as = "Vec<fact::NamespaceFact>")]
    #[serde(default)]
    pub(super) namespaces: Vec<model::NamespaceFact>,
    #[serde(default)]
    pub(super) turns: Option<scheduler::queues::Turns>,
    #[serde(default)]
    pub(super) dequeued_at: Option<Timestamp>,
}

/// Writes jobs as pairs of key and job, in the order of their keys.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn write_jobs<S: Serializer>(jobs: &&Jobs, serializer: S) -> Result<S::Ok, S::Error> {
    struct Form<'a>(Cow<'a, crate::job::Job>);
    impl Serialize for Form<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            Job::serialize(&self.0, serializer)
        }
    }
    serializer.collect_seq(jobs.iter().map(|(key, job)| (key, Form(job))))
}

/// Returns whether a record is of the format that an absent `v` stands for.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
const fn is_format_1(v: &u16) -> bool {
    *v == 1
}

/// A value that is written in a form.
pub(super) struct Written<'a, T, F>(&'a T, PhantomData<F>);

impl<'a, T, F: SerializeAs<T>> Written<'a, T, F> {
    pub(super) const fn new(value: &'a T) -> Self {
        Self(value, PhantomData)
    }
}

impl<T, F: SerializeAs<T>> Serialize for Written<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        F::serialize_as(self.0, serializer)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
