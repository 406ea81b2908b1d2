//! Limits, clean-up and scheduling of a job, by the names that the original misspelt and by the usual ones.
//!
//! The original's name wins where both are written. It must not give a field a meaning beyond its value. Tests: `tests/spec.rs`.

use model::CleanPodPolicy;
use serde_json::Value;

use crate::fields::{Findings, Unknown, Word, join};

/// Accepted values of the clean-up policy. Any other text means all.
pub(super) const CLEAN: [Word<CleanPodPolicy>; 3] =
    [("None", CleanPodPolicy::None), ("Running", CleanPodPolicy::Running), ("All", CleanPodPolicy::All)];

/// Fields of `spec` by the original's name and the usual one.
pub(super) const CLEAN_NAMES: [&str; 2] = ["clenPodPolicy", "cleanPodPolicy"];
/// The same for the time after the end.
pub(super) const TTL_NAMES: [&str; 2] = ["TTLSecondsAfterFinished", "ttlSecondsAfterFinished"];
/// The same for the time limit.
pub(super) const LIMIT_NAMES: [&str; 2] = ["activeDurations", "activeDeadlineSeconds"];
/// The same for the processes of a node, in `spec.torchElasticPolicy`.
pub(super) const PROCESSES_NAMES: [&str; 2] = ["numWorkersPerNodePolicy", "nprocPerNode"];

/// The run policy as it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunPolicy<'a> {
    /// Which pods are deleted at the end.
    pub clean: CleanPodPolicy,
    /// Seconds after the end at which the job is deleted.
    pub ttl_s: Option<u64>,
    /// Seconds from the start after which the job fails.
    pub limit_s: Option<u64>,
    /// Retries after which the job fails.
    pub backoff_limit: Option<u32>,
    /// Least number of members of a pod group of the whole job.
    pub min_available: Option<u32>,
    /// Priority in its queue; without it, that of its class.
    pub priority: Option<i32>,
    /// Priority class of its pod groups.
    pub priority_class: Option<&'a str>,
    /// Queue of its pod groups.
    pub queue: Option<&'a str>,
}

/// Reads the run policy of a spec.
pub(super) fn read<'a>(spec: &'a Value, findings: &mut Findings) -> RunPolicy<'a> {
    let second = i64::from(i32::MAX);
    let mut number = |names: [&'static str; 2], max: i64| {
        let key = written(spec, "spec", names, findings);
        findings.integer(spec, "spec", key, 0, max).and_then(|n| u64::try_from(n).ok())
    };
    let ttl_s = number(TTL_NAMES, second);
    let limit_s = number(LIMIT_NAMES, i64::MAX);
    let backoff_limit = number(["backoffLimit", "backoffLimit"], second).and_then(|n| u32::try_from(n).ok());
    let key = written(spec, "spec", CLEAN_NAMES, findings);
    let all = Unknown::ActsAs(("All", CleanPodPolicy::All));
    let clean = findings.word(spec, "spec", key, &CLEAN, CleanPodPolicy::None, all);
    let base = join("spec", "schedulingPolicy");
    let policy = findings.object(spec, "spec", "schedulingPolicy").and_then(|_| spec.get("schedulingPolicy"));
    let policy = policy.unwrap_or(&Value::Null);
    let least = findings.integer(policy, &base, "minAvailable", i64::from(i32::MIN), second);
    let priority = findings.integer(policy, &base, "priority", i64::from(i32::MIN), second);
    let priority = priority.and_then(|n| i32::try_from(n).ok());
    let mut text = |key: &str| findings.text(policy, &base, key).filter(|text| !text.is_empty());
    let (priority_class, queue) = (text("priorityClassName"), text("queue"));
    let min_available = least.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    RunPolicy { clean, ttl_s, limit_s, backoff_limit, min_available, priority, priority_class, queue }
}

/// Returns the name under which a field is written: the original's, or the usual one where that is absent. One that does not count is
/// reported.
pub(super) fn written(parent: &Value, base: &str, names: [&'static str; 2], findings: &mut Findings) -> &'static str {
    let value = |name: &str| parent.get(name).filter(|value| !value.is_null());
    let [original, usual] = names;
    match (value(original), value(usual)) {
        (Some(own), Some(other)) if original != usual && own != other => {
            findings.mistake(join(base, usual), Some(other), format!("does not count beside {original}"));
            original
        }
        (None, Some(_)) => usual,
        (Some(_), _) | (None, None) => original,
    }
}
