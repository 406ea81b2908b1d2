//! What a scenario expects of its run: the spellings of the `expect` member.
//!
//! Owns types only; comparing is `check`'s. Players of a scenario may ignore all of it. Tests: in `check`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Expectations of a run.
#[derive(Debug, Clone, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expect {
    /// Phases of the only job, or of each job by name. A phase in parentheses may be missing.
    #[serde(default)]
    pub phases: Option<Phases>,
    /// Checks after a step, by its number.
    #[serde(default)]
    pub steps: BTreeMap<usize, Checks>,
    /// Checks at the end; created and deleted objects count over the whole run.
    #[serde(default, rename = "final")]
    pub last: Checks,
    /// The run stops at this step, and says this.
    #[serde(default)]
    pub error: Option<StepError>,
    /// Differences that a crash may cause.
    #[serde(default)]
    pub crash: CrashMay,
}

/// Differences that a crash may cause, each with the reason why it is right.
#[derive(Debug, Clone, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CrashMay {
    /// Anything: the scenario is left out of the crash sweep.
    #[serde(default)]
    pub change_anything: Option<String>,
    /// Times, because what was waiting is tried again at once.
    #[serde(default)]
    pub change_times: Option<String>,
    /// Anything, if the log is lost as well.
    #[serde(default)]
    pub need_the_log: Option<String>,
}

impl Expect {
    /// Returns whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.phases.is_none() && self.steps.is_empty() && self.error.is_none() && self.last.is_empty()
    }
}

/// Expected phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phases {
    /// Of the only job.
    Only(Vec<String>),
    /// By job.
    ByJob(BTreeMap<String, Vec<String>>),
}

impl<'de> Deserialize<'de> for Phases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Phases;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of phases, or a map from jobs to such lists")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Phases, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Phases::Only)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Phases, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Phases::ByJob)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// A step that cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepError {
    /// Its number.
    pub step: usize,
    /// Words the message contains.
    #[serde(default)]
    pub says: Vec<String>,
}

/// Checks of a step or a run. Absent ones are skipped; `job` chooses the job where there are several.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Checks {
    /// The job the job-related members are about.
    #[serde(default)]
    pub job: Option<String>,
    /// `status.phase` as stored; "" when there is none.
    #[serde(default)]
    pub phase: Option<String>,
    /// State of the job in its API's own word: `status.phase`, or the type of the last condition that is True. "" when there is none.
    #[serde(default)]
    pub state: Option<String>,
    /// Pods created, as `name#count`, in any order.
    #[serde(default)]
    pub created: Option<Vec<String>>,
    /// Pods deleted, as `name` (with its own grace period), `name grace 60s` or `name forced`, in any order.
    #[serde(default)]
    pub deleted: Option<Vec<String>>,
    /// Services created.
    #[serde(default)]
    pub created_services: Option<Vec<String>>,
    /// Services deleted.
    #[serde(default)]
    pub deleted_services: Option<Vec<String>>,
    /// Every API call that changed something, as `Verb Kind name`, in order.
    #[serde(default)]
    pub commands: Option<Vec<String>>,
    /// Pods there are, as `name#count`, with ` terminating` behind those on their way out.
    #[serde(default)]
    pub pods: Option<Vec<String>>,
    /// Services there are.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    /// Restarts by group, as the API's status shows them; a group that is not shown counts 0.
    #[serde(default)]
    pub restarts: Option<BTreeMap<String, u64>>,
    /// `status.replicaStatuses`; a counter that is not shown counts 0.
    #[serde(default)]
    pub counters: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    /// Pattern of the job's status, see `check::matches`.
    #[serde(default)]
    pub status: Option<Value>,
    /// Words that the message of the job's condition in force contains.
    #[serde(default)]
    pub message: Vec<String>,
    /// Conditions by type that the job must show as True, with words their messages contain; null for one it must not show.
    #[serde(default)]
    pub conditions: BTreeMap<String, Option<Vec<String>>>,
    /// Patterns of objects by `Kind/name`; null for one that must not exist.
    #[serde(default)]
    pub objects: BTreeMap<String, Value>,
    /// Number of Kubernetes Events of each reason.
    #[serde(default)]
    pub events: BTreeMap<String, usize>,
    /// The most times that time had to stop for the operator during the step.
    #[serde(default)]
    pub most_stops: Option<usize>,
}

impl Checks {
    /// Returns whether nothing is looked at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
