//! The job model: what a user asked for, free of any one API's spelling.

use std::fmt;

use crate::id::Text;
use crate::policy::{CleanPodPolicy, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope};

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Replica groups in key order; a pod's rank is its place in this order.
    pub groups: Vec<GroupSpec>,
    /// When groups complete the job.
    pub complete: JobEndPolicy,
    /// When groups fail the job.
    pub fail: JobEndPolicy,
    /// What happens to pods of a completed or failed job.
    pub clean_pods: CleanPodPolicy,
    /// Exit codes that count as restartable, sorted.
    pub restartable_codes: Vec<i32>,
    /// Wall-clock limit in milliseconds from the first pod running.
    pub time_limit_ms: Option<u64>,
    /// How progress is shown.
    pub phase_rules: PhaseRules,
}

impl JobSpec {
    /// The group of that (lower-case) name.
    pub fn group(&self, name: &str) -> Option<&GroupSpec> {
        self.groups.iter().find(|g| &*g.name == name)
    }
}

/// One replica group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Object-safe (lower-case) name.
    pub name: Text,
    /// The name as the user spelt it, when that differs.
    pub display: Option<Text>,
    /// Number of pods.
    pub replicas: u32,
    /// When its pods complete it.
    pub complete: GroupEndPolicy,
    /// When its pods fail it.
    pub fail: GroupEndPolicy,
    /// Which outcomes are restarted.
    pub restart: RestartPolicy,
    /// What a restart takes along.
    pub scope: RestartScope,
    /// Restarts its failures may cause; `None` is unlimited.
    pub restart_limit: Option<u32>,
    /// Set if each pod gets a Service of its own.
    pub services: bool,
    /// Set if its pods ask for GPUs, so that a node's GPU fault concerns them.
    pub gpus: bool,
}

impl GroupSpec {
    /// The name as the user spelt it.
    pub fn display(&self) -> &Text {
        self.display.as_ref().unwrap_or(&self.name)
    }
}

/// How progress towards running is shown; differs between APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseRules {
    /// Set if scheduled-but-not-started pods are a phase of their own.
    pub creating: bool,
    /// Set if `Restarting` stays until every pod runs.
    pub sticky_restarting: bool,
}

/// A field of a manifest that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Path of the field, for example `spec.replicaSpecs.trainer.replicas`.
    pub path: String,
    /// The value as JSON text (cut when long), or `missing`.
    pub value: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
    /// The nearest right field name or value, if there is one.
    pub suggestion: Option<String>,
}

impl FieldError {
    /// Returns an error without a suggestion.
    pub fn new(path: impl Into<String>, value: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.into(), problem: problem.into(), suggestion: None }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.problem, self.value)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => Ok(()),
        }
    }
}
