//! The run policy of a job: limits and clean-up, in three spellings.
//!
//! Its fields are documented directly under `spec`. The original read them under `spec.RunPolicy` only, so manifests in use have
//! that; `spec.runPolicy` is the usual spelling of such a field. All three count; different values of one field are an error. It
//! must not give a field a meaning beyond its value. Tests: `tests/spec.rs` and `tests/refusals.rs`.

use model::CleanPodPolicy;
use serde_json::Value;

use crate::fields::{Findings, Unknown, Word, join, shown};

/// Accepted values of `cleanPodPolicy`.
pub(super) const CLEAN: [Word<Option<CleanPodPolicy>>; 3] = [
    ("All", Some(CleanPodPolicy::All)),
    ("Running", Some(CleanPodPolicy::Running)),
    ("None", Some(CleanPodPolicy::None)),
];

/// Objects below `spec` that hold the fields as well.
pub(super) const OBJECTS: [&str; 2] = ["RunPolicy", "runPolicy"];

/// The run policy as it was written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunPolicy {
    /// Which pods are deleted at the end.
    pub clean: Option<CleanPodPolicy>,
    /// Seconds after the end at which the job is deleted.
    pub ttl_s: Option<u64>,
    /// Seconds from the start after which the job fails.
    pub deadline_s: Option<u64>,
    /// Retries after which the job fails.
    pub backoff_limit: Option<u32>,
}

/// Reads the run policy of a spec.
pub(super) fn read(spec: &Value, findings: &mut Findings) -> RunPolicy {
    let mut places = vec![(spec, "spec".to_owned())];
    for name in OBJECTS {
        if findings.object(spec, "spec", name).is_some() {
            places.push((spec.get(name).unwrap_or(&Value::Null), join("spec", name)));
        }
    }
    let mut number = |key: &str, max: i64| {
        let (parent, base) = place_of(&places, key, findings)?;
        findings.integer(parent, base, key, 0, max).and_then(|n| u64::try_from(n).ok())
    };
    let ttl_s = number("ttlSecondsAfterFinished", i64::from(i32::MAX));
    let deadline_s = number("activeDeadlineSeconds", i64::MAX);
    let backoff_limit = number("backoffLimit", i64::from(i32::MAX)).and_then(|n| u32::try_from(n).ok());
    let clean = place_of(&places, "cleanPodPolicy", findings)
        .and_then(|(parent, base)| findings.word(parent, base, "cleanPodPolicy", &CLEAN, None, Unknown::Refused));
    if let Some((parent, base)) = place_of(&places, "schedulingPolicy", findings)
        && findings.object(parent, base, "schedulingPolicy").is_some()
    {
        let policy = parent.get("schedulingPolicy").unwrap_or(&Value::Null);
        findings.integer(policy, &join(base, "schedulingPolicy"), "minAvailable", 0, i64::from(i32::MAX));
    }
    RunPolicy { clean, ttl_s, deadline_s, backoff_limit }
}

/// Returns the object that holds a field, with its path. Another one that holds another value is an error.
fn place_of<'a>(places: &'a [(&'a Value, String)], key: &str, findings: &mut Findings) -> Option<(&'a Value, &'a str)> {
    let written = |parent: &'a Value| parent.get(key).filter(|value| !value.is_null());
    let mut holders = places.iter().filter_map(|(parent, base)| Some((*parent, base.as_str(), written(parent)?)));
    let (parent, base, value) = holders.next()?;
    for (_, other, differing) in holders.filter(|(.., other)| *other != value) {
        let problem = format!("is {} in {}: write the field once", shown(Some(value)), join(base, key));
        findings.error(join(other, key), Some(differing), problem);
    }
    Some((parent, base))
}
