//! Forms of what users and operators set: job specs, their errors, policies, and the configuration.

use model::Text;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::forms;

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
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Kind")]
pub(super) enum Kind {
    Job,
    Pod,
    Service,
    Node,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::Config", default = "Default::default")]
pub(super) struct Config {
    creating_restart_ms: u64,
    creating_patience_ms: u64,
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
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::PhaseRules")]
pub(super) struct PhaseRules {
    creating: bool,
    sticky_restarting: bool,
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
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::JobEndPolicy")]
pub(super) enum JobEndPolicy {
    Any,
    All,
    None,
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
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::RestartScope")]
pub(super) enum RestartScope {
    Pod,
    Replica,
    All,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "model::CleanPodPolicy")]
pub(super) enum CleanPodPolicy {
    All,
    None,
}
