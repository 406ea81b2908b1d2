//! The scenario language: what a file may say.
//!
//! Owns the types and their spelling in YAML; [`parse`] reads files. It must not know what a verb does (that is
//! `runner`'s) or what is expected of a run (that is `expect`'s). Tests: in `tests.rs` beside this file.

mod args;
mod names;
mod parse;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cluster::FailRule;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub use args::{DEFAULT_NAMESPACE, Millis, Names, ObjectName, OneOrMany, Pods, Word};
pub use names::{PatchTarget, in_namespace, names_manifest};
pub use parse::{Error, Place, load, parse};
pub use schema::schema;

use crate::controllers::Controller;
use crate::expect::Expect;

/// A scenario as it is run.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// File it was read from, for messages; empty for a generated one.
    pub origin: String,
    /// Purpose of the scenario.
    pub description: String,
    /// Operator flags by name, as written.
    pub flags: BTreeMap<String, Value>,
    /// Nodes of the cluster.
    pub nodes: Vec<NodeSpec>,
    /// Controllers of other projects that act on its objects.
    pub with: Vec<Controller>,
    /// Manifests that steps name.
    pub manifests: Vec<Value>,
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// Expectations of the run; an extension that players of a scenario may ignore.
    pub expect: Expect,
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Line of the file it stands on; 0 for a generated one.
    pub line: u64,
    /// Its action.
    pub action: Action,
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self { line: 0, action }
    }
}

/// A node of the cluster, Ready from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// GPUs it offers.
    pub gpus: u32,
    /// CPUs it offers, as a Kubernetes quantity; not counted where absent.
    pub cpu: Option<String>,
    /// Memory it offers, as a Kubernetes quantity; not counted where absent.
    pub memory: Option<String>,
    /// Labels besides its name's.
    pub labels: BTreeMap<String, String>,
    /// Set if it is cordoned: it takes no new pods.
    pub closed: bool,
}

impl NodeSpec {
    /// A node without GPUs.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), gpus: 0, cpu: None, memory: None, labels: BTreeMap::new(), closed: false }
    }

    /// The nodes of a scenario that names none.
    pub fn defaults() -> Vec<Self> {
        ["n1", "n2", "n3"].map(Self::new).to_vec()
    }
}

impl From<&NodeSpec> for cluster::NodeSpec {
    fn from(node: &NodeSpec) -> Self {
        let (labels, closed) = (node.labels.clone(), node.closed);
        let spec = Self { labels, closed, ..Self::named(&node.name) };
        let gpus = (node.gpus > 0).then(|| node.gpus.to_string());
        let resources = [("nvidia.com/gpu", &gpus), ("cpu", &node.cpu), ("memory", &node.memory)];
        resources.iter().fold(spec, |spec, (resource, quantity)| match quantity {
            Some(quantity) => spec.with(resource, quantity),
            None => spec,
        })
    }
}

/// Action of a step. One verb per step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Applies manifests as a user does, through the schema.
    Apply(Names),
    /// Plants manifests past the schema.
    StoreUnchecked(Names),
    /// The scheduler places pods.
    Schedule(OneOrMany<Schedule>),
    /// Nodes start pods.
    Run(Pods),
    /// A container cannot be started yet.
    Wait(OneOrMany<Wait>),
    /// Containers end.
    Exit(OneOrMany<Exit>),
    /// Nodes evict pods.
    Evict(Pods),
    /// Terminating pods finally vanish.
    Gone(Pods),
    /// A node changes or is removed.
    Node(OneOrMany<NodeChange>),
    /// A user changes annotations.
    Annotate(Annotate),
    /// The program of a job reports its progress.
    Progress(OneOrMany<Report>),
    /// A pod prints lines.
    Log(OneOrMany<LogLines>),
    /// A user patches an object.
    Patch(Patch),
    /// A user sets the replicas of a job, as `kubectl scale` does.
    Scale(OneOrMany<Scale>),
    /// A user deletes an object.
    Delete(OneOrMany<Delete>),
    /// Time passes.
    Advance(Millis),
    /// The next API calls of a kind fail.
    Fail(FailRule),
    /// Watches stand still.
    Hold(OneOrMany<String>),
    /// Held watches catch up.
    Release(OneOrMany<String>),
    /// Watches start over with a complete view.
    Relist(OneOrMany<String>),
    /// The operator's process crashes and starts again: now, or at a point inside the next step.
    Crash(
        #[serde(default)]
        #[schemars(with = "Option<CrashPoint>")]
        CrashPoint,
    ),
    /// The same, and its log is lost.
    LoseLog(
        #[serde(default)]
        #[schemars(with = "Option<CrashPoint>")]
        CrashPoint,
    ),
    /// The same, and its log is an older copy.
    RestoreLog(RestoreLog),
    /// Another replica with a log of its own takes over.
    SwapLeader(
        #[serde(default)]
        #[schemars(with = "Option<CrashPoint>")]
        CrashPoint,
    ),
    /// Things seen in one turn.
    Together(Vec<Action>),
}

impl Action {
    /// The verb as files spell it.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::StoreUnchecked(_) => "storeUnchecked",
            Self::Schedule(_) => "schedule",
            Self::Run(_) => "run",
            Self::Wait(_) => "wait",
            Self::Exit(_) => "exit",
            Self::Evict(_) => "evict",
            Self::Gone(_) => "gone",
            Self::Node(_) => "node",
            Self::Annotate(_) => "annotate",
            Self::Progress(_) => "progress",
            Self::Log(_) => "log",
            Self::Patch(_) => "patch",
            Self::Scale(_) => "scale",
            Self::Delete(_) => "delete",
            Self::Advance(_) => "advance",
            Self::Fail(_) => "fail",
            Self::Hold(_) => "hold",
            Self::Release(_) => "release",
            Self::Relist(_) => "relist",
            Self::Crash(_) => "crash",
            Self::LoseLog(_) => "loseLog",
            Self::RestoreLog(_) => "restoreLog",
            Self::SwapLeader(_) => "swapLeader",
            Self::Together(_) => "together",
        }
    }
}

/// Places a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The pod.
    pub pod: ObjectName,
    /// The node.
    pub node: String,
}

/// A container that waits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Its pod.
    pub pod: ObjectName,
    /// Why it waits, for example `ErrImagePull`.
    pub reason: String,
    /// Time since the node accepted its pod.
    #[serde(default)]
    pub since: Millis,
}

/// Containers that end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// The pod.
    pub pod: ObjectName,
    /// Exit code.
    pub code: i32,
    /// The container; all of them when none is named.
    #[serde(default)]
    pub container: Option<String>,
    /// Its last words.
    #[serde(default)]
    pub message: Option<String>,
}

/// Change of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeChange {
    /// The node; one that is not there comes into being.
    pub name: String,
    /// Its `Ready` condition (`True`, `False`, `Unknown`), or `removed`.
    #[serde(default)]
    pub ready: Option<Word>,
    /// Other conditions by type.
    #[serde(default)]
    pub conditions: BTreeMap<String, Word>,
    /// Set if it takes no new pods from here on; false if it takes them again.
    #[serde(default)]
    pub closed: Option<bool>,
}

/// A change of annotations.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Annotate {
    /// A job by name.
    #[serde(default)]
    pub job: Option<ObjectName>,
    /// A pod by name.
    #[serde(default)]
    pub pod: Option<ObjectName>,
    /// A node by name.
    #[serde(default)]
    pub node: Option<ObjectName>,
    /// Annotations to set.
    #[serde(default)]
    pub set: BTreeMap<String, Scalar>,
    /// Annotations to take away.
    #[serde(default)]
    pub remove: OneOrMany<String>,
}

/// Progress of a job since its report before.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The job.
    pub job: ObjectName,
    /// Units of work that it has done since it was created.
    pub done: u64,
    /// Units of work in all, where the job knows.
    #[serde(default)]
    pub total: Option<u64>,
    /// GPUs that it used since the report before.
    pub gpus: u32,
    /// Time that the units since then took.
    pub took: Millis,
}

/// Lines that a container of a pod prints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLines {
    /// The pod.
    pub pod: ObjectName,
    /// The lines, oldest first.
    pub lines: Vec<String>,
    /// Number of times that it prints them.
    #[serde(default = "once")]
    pub times: u32,
}

const fn once() -> u32 {
    1
}

/// A scalar taken as text, however it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Scalar(pub String);

/// A merge patch (RFC 7386).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// A job by name.
    #[serde(default)]
    pub job: Option<ObjectName>,
    /// A pod by name.
    #[serde(default)]
    pub pod: Option<ObjectName>,
    /// Any object by kind and name.
    #[serde(default)]
    pub kind: Option<String>,
    /// Its name, with `kind`.
    #[serde(default)]
    pub name: Option<ObjectName>,
    /// Its namespace, with `kind`.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Another way to name any object (`Kind/name`, or a map with `kind` and `name`), or, beside a name, the whole patch.
    #[serde(default)]
    pub object: Option<Value>,
    /// New members of `metadata`.
    #[serde(default)]
    pub metadata: Option<Value>,
    /// New members of `spec`.
    #[serde(default)]
    pub spec: Option<Value>,
    /// New members of `status`, written as a node or another controller would.
    #[serde(default)]
    pub status: Option<Value>,
}

/// Sets the replicas of a job by the subresource `scale`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The job.
    pub job: ObjectName,
    /// New number.
    pub replicas: i32,
}

/// Deletes one object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Delete {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: ObjectName,
    /// Its namespace, where the name says none.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Grace period in seconds; the object's own when it is left out.
    #[serde(default)]
    pub grace_period_seconds: Option<u32>,
}

/// Point at which the operator crashes: at once, or before or after the nth append or API call of the next step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrashPoint {
    /// Before this happens.
    #[serde(default)]
    pub before: Option<Boundary>,
    /// After this happened, before its result is known.
    #[serde(default)]
    pub after: Option<Boundary>,
    /// Its number, counted from 1.
    #[serde(default = "first")]
    pub nth: u32,
}

const fn first() -> u32 {
    1
}

/// Operation that a crash happens before or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Boundary {
    /// A durable append to the log.
    Append,
    /// A call to the API server.
    Call,
}

/// A log restored from a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreLog {
    /// The copy ends here.
    pub position: u64,
    /// Before this happens.
    #[serde(default)]
    pub before: Option<Boundary>,
    /// After this happened, before its result is known.
    #[serde(default)]
    pub after: Option<Boundary>,
    /// Its number, counted from 1.
    #[serde(default = "first")]
    pub nth: u32,
}
