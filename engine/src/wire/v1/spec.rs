//! Forms of what users and operators set: job specs, their errors, policies, and the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Text;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::autoscaler::Autoscaler;
use super::coordination::{Coordination, QueueSelector};
use super::requirements::PodRequirements;
use super::share::{Demand, GpuRequest, QueueSpec, SizeRange};
use super::{forms, is_default};

forms! {
    Kind: model::Kind,
    Config: model::Config,
    JobSpec: model::JobSpec,
    GroupSpec: model::GroupSpec,
    PhaseRules: model::PhaseRules,
    FieldError: model::FieldError,
    GroupEndPolicy: model::GroupEndPolicy,
    JobEndPolicy: model::JobEndPolicy,
    RestartPolicy: model::RestartPolicy,
    RestartScope: model::RestartScope,
    CleanPodPolicy: model::CleanPodPolicy,
    CleanBy: model::CleanBy,
    Retryable: model::Retryable,
    Budget: model::Budget,
    Threshold: model::Threshold,
    ClockStart: model::ClockStart,
    Running: model::Running,
    Edits: model::Edits,
    Dependency: model::Dependency,
    Reached: model::Reached,
    OwnedSpec: model::OwnedSpec,
    OwnedRef: model::OwnedRef,
    CreatePhase: model::CreatePhase,
    ReadinessGate: model::ReadinessGate,
    Retain: model::Retain,
    EndTiming: model::EndTiming,
    Milestones: model::Milestones,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Kind")]
pub(super) enum Kind {
    Job,
    Pod,
    Service,
    Node,
    Owned,
    Foreign,
    Class,
    Quota,
    Namespace,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Config", default = "Default::default")]
pub(super) struct Config {
    creating_restart_ms: u64,
    #[serde(rename = "creating_patience_ms")]
    creating_timeout_ms: u64,
    creating_failed: bool,
    node_grace_ms: u64,
    restart_backoff_ms: u64,
    restart_backoff_max_ms: u64,
    restart_backoff_reset_ms: u64,
    retry_ms: u64,
    retry_max_ms: u64,
    orphan_grace_ms: u64,
    gpu_faults: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_limit: Option<u32>,
    #[serde(skip_serializing_if = "super::is_default")]
    failure_window_ms: u64,
    #[serde(skip_serializing_if = "super::is_default")]
    ignores_capacity: bool,
    #[serde(skip_serializing_if = "super::is_default")]
    quiet_ms: u64,
    #[serde(skip_serializing_if = "is_start_timeout")]
    start_timeout_ms: u64,
    #[serde_as(as = "QueueSelector")]
    #[serde(skip_serializing_if = "is_default")]
    queue_selector: model::QueueSelector,
    #[serde(skip_serializing_if = "is_dequeue_period")]
    dequeue_period_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn is_dequeue_period(value: &u64) -> bool {
    *value == model::Config::default().dequeue_period_ms
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn is_start_timeout(value: &u64) -> bool {
    *value == model::Config::default().start_timeout_ms
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::JobSpec")]
pub(super) struct JobSpec {
    #[serde_as(as = "Vec<GroupSpec>")]
    groups: Vec<model::GroupSpec>,
    #[serde_as(as = "JobEndPolicy")]
    complete: model::JobEndPolicy,
    #[serde_as(as = "JobEndPolicy")]
    fail: model::JobEndPolicy,
    #[serde_as(as = "CleanPodPolicy")]
    clean_pods: model::CleanPodPolicy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    restartable_codes: Vec<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_limit_ms: Option<u64>,
    #[serde_as(as = "PhaseRules")]
    phase_rules: model::PhaseRules,
    #[serde_as(as = "Option<Retryable>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retryable: Option<model::Retryable>,
    #[serde_as(as = "Option<Budget>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<model::Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running_restart_limit: Option<u32>,
    #[serde_as(as = "ClockStart")]
    #[serde(default, skip_serializing_if = "is_default")]
    limit_from: model::ClockStart,
    #[serde_as(as = "Option<CleanBy>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clean_by: Option<model::CleanBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    end_annotation: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    suspended: bool,
    #[serde_as(as = "Vec<OwnedSpec>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    owned: Vec<model::OwnedSpec>,
    #[serde(default, skip_serializing_if = "is_default")]
    finalizer: bool,
    #[serde_as(as = "Edits")]
    #[serde(default, skip_serializing_if = "is_default")]
    edits: model::Edits,
    #[serde_as(as = "Option<Demand>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    demand: Option<model::Demand>,
    #[serde_as(as = "Option<Box<QueueSpec>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Box<model::QueueSpec>>,
    #[serde(default, skip_serializing_if = "is_default")]
    #[serde(rename = "observes_pods")]
    externally_managed: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    #[serde(rename = "counts_users")]
    counts_referrers: bool,
    #[serde_as(as = "Option<Box<Coordination>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    coordination: Option<Box<model::Coordination>>,
    #[serde_as(as = "Option<Box<Autoscaler>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    autoscaler: Option<Box<model::Autoscaler>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restarts_by: Option<(Text, Text)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_group: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint_grace_seconds: Option<u32>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
const fn is_true(value: &bool) -> bool {
    *value
}

const fn yes() -> bool {
    true
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::GroupSpec")]
pub(super) struct GroupSpec {
    name: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    display: Option<Text>,
    replicas: u32,
    #[serde_as(as = "GroupEndPolicy")]
    complete: model::GroupEndPolicy,
    #[serde_as(as = "GroupEndPolicy")]
    fail: model::GroupEndPolicy,
    #[serde_as(as = "RestartPolicy")]
    restart: model::RestartPolicy,
    #[serde_as(as = "RestartScope")]
    scope: model::RestartScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart_limit: Option<u32>,
    services: bool,
    gpus: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Text>,
    #[serde_as(as = "Vec<Dependency>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<model::Dependency>,
    #[serde(default, skip_serializing_if = "is_default")]
    once: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    drops_succeeded: bool,
    #[serde_as(as = "Option<Budget>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<model::Budget>,
    #[serde_as(as = "Option<GpuRequest>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_request: Option<model::GpuRequest>,
    #[serde_as(as = "Option<Arc<PodRequirements>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requirements: Option<Arc<model::PodRequirements>>,
    #[serde(default, skip_serializing_if = "is_default")]
    counts_restarts: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<Text>,
    #[serde_as(as = "Option<SizeRange>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sizes: Option<model::SizeRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Text>,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Dependency")]
pub(super) struct Dependency {
    group: Text,
    #[serde_as(as = "Reached")]
    reached: model::Reached,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Reached")]
pub(super) enum Reached {
    Scheduled,
    Running,
    Succeeded,
    Started,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Edits")]
pub(super) enum Edits {
    All,
    Numbers,
    BeforePods,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::OwnedRef")]
pub(super) struct OwnedRef {
    api_version: Text,
    kind: Text,
    name: Text,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::OwnedSpec")]
pub(super) struct OwnedSpec {
    #[serde_as(as = "OwnedRef")]
    object: model::OwnedRef,
    #[serde_as(as = "CreatePhase")]
    #[serde(default, skip_serializing_if = "is_default")]
    when: model::CreatePhase,
    #[serde_as(as = "ReadinessGate")]
    #[serde(default, skip_serializing_if = "is_default")]
    awaits: model::ReadinessGate,
    #[serde_as(as = "Retain")]
    #[serde(default, skip_serializing_if = "is_default")]
    keep: model::Retain,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    follows: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pods: Option<Text>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::CreatePhase")]
pub(super) enum CreatePhase {
    Accepted,
    Succeeded,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ReadinessGate")]
pub(super) enum ReadinessGate {
    Nothing,
    Exists,
    Ready,
    ExistsIfServed,
    Admitted,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Retain")]
pub(super) enum Retain {
    WithJob,
    UntilEnd,
    Retained,
    Finalized,
    Left,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PhaseRules")]
pub(super) struct PhaseRules {
    creating: bool,
    sticky_restarting: bool,
    #[serde_as(as = "Running")]
    #[serde(default, skip_serializing_if = "is_default")]
    running: model::Running,
    #[serde(default, skip_serializing_if = "is_default")]
    ignores_leaving: bool,
    #[serde_as(as = "EndTiming")]
    #[serde(default, skip_serializing_if = "is_default")]
    ends: model::EndTiming,
    #[serde_as(as = "Milestones")]
    #[serde(default, skip_serializing_if = "is_default")]
    milestones: model::Milestones,
    #[serde(default, skip_serializing_if = "is_default")]
    queued: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Running")]
pub(super) enum Running {
    All,
    Minimum(BTreeSet<Text>),
    Any(BTreeSet<Text>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::EndTiming")]
pub(super) enum EndTiming {
    AfterCleanUp,
    Decided,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Milestones")]
pub(super) enum Milestones {
    Latest,
    EachPhase,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Retryable")]
pub(super) struct Retryable {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    disrupted: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    node: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    gpu: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    main_ended: bool,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Budget")]
pub(super) struct Budget {
    limit: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    containers: bool,
    #[serde_as(as = "Threshold")]
    reach: model::Threshold,
    #[serde(default, skip_serializing_if = "is_default")]
    rounds: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Threshold")]
pub(super) enum Threshold {
    Above,
    AtLeast,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::ClockStart")]
pub(super) enum ClockStart {
    FirstRunning,
    Admitted,
}

#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(remote = "model::CleanBy")]
pub(super) struct CleanBy {
    #[serde_as(as = "CleanPodPolicy")]
    succeeded: model::CleanPodPolicy,
    #[serde_as(as = "CleanPodPolicy")]
    failed: model::CleanPodPolicy,
    #[serde_as(as = "CleanPodPolicy")]
    other: model::CleanPodPolicy,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::FieldError")]
pub(crate) struct FieldError {
    path: String,
    value: String,
    problem: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::GroupEndPolicy")]
pub(super) enum GroupEndPolicy {
    Any,
    Rank0,
    All,
    None,
    Minimum,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::JobEndPolicy")]
pub(super) enum JobEndPolicy {
    Any,
    All,
    None,
    Sets(Vec<BTreeSet<Text>>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::RestartPolicy")]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    OnNodeFail,
    Never,
    ExitCode,
    OnNodeFailWithExitCode,
    Listed,
    OnNodeLost,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::RestartScope")]
pub(super) enum RestartScope {
    Pod,
    Replica,
    All,
    Each,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::CleanPodPolicy")]
pub(super) enum CleanPodPolicy {
    All,
    None,
    Running,
}
