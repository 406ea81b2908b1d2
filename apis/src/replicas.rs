//! Replica groups of a job object: how they are read, named and found again, alike for every API.
//!
//! Owns the limits on names and numbers that follow from pods and labels. What a group asks for is up to each API. Tests:
//! `aitrainingjob/tests/refusals.rs`.

use std::collections::BTreeMap;

use model::{FieldError, GroupSpec, Text};
use serde_json::{Map, Value, json};

use crate::fields::{Findings, Word, join, type_of};
use crate::names::{LABEL_MAX, is_dns_subdomain, is_label_value, is_service_name};
use crate::objects::{at, text_at};

/// Most pods one job may ask for: more than the largest supported cluster runs.
pub const MAX_PODS: u32 = 100_000;

/// Restart policy of a group, as users spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The kubelet restarts every container that ends.
    Always,
    /// The kubelet restarts containers that fail.
    OnFailure,
    /// No failure is answered by a restart.
    Never,
    /// The exit code says which failures are.
    ExitCode,
}

/// Accepted values of `restartPolicy`.
pub const RESTART: [Word<Restart>; 4] = [
    ("Always", Restart::Always),
    ("OnFailure", Restart::OnFailure),
    ("Never", Restart::Never),
    ("ExitCode", Restart::ExitCode),
];

impl Restart {
    /// Returns the restart policy of the pods.
    pub const fn of_pods(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never | Self::ExitCode => "Never",
        }
    }
}

/// A replica group as it stands in a manifest.
#[derive(Debug, Clone, Copy)]
pub struct Replica<'a> {
    /// Its name as the user spelt it.
    pub key: &'a str,
    /// Its name in lower case, as in names of pods.
    pub lower: &'a str,
    /// Its spec.
    pub spec: &'a Value,
    /// Path of its spec.
    pub path: &'a str,
}

impl Replica<'_> {
    /// Reads the number of its pods; 1 when absent.
    pub fn replicas(&self, findings: &mut Findings) -> u32 {
        let replicas = findings.integer(self.spec, self.path, "replicas", 0, i64::from(MAX_PODS)).unwrap_or(1);
        u32::try_from(replicas).unwrap_or_default()
    }

    /// Returns its name as the user spelt it, where that differs from the name in lower case.
    pub fn display(&self) -> Option<Text> {
        (self.lower != self.key).then(|| Text::from(self.key))
    }

    /// Checks that its name can be part of names and a label.
    pub fn check_name(&self, findings: &mut Findings) -> bool {
        let problem = if self.lower.is_empty() {
            "a group of replicas needs a name"
        } else if is_label_value(self.lower) && is_dns_subdomain(self.lower) {
            return true;
        } else {
            "must be letters, digits and inner hyphens, at most 63: it is part of the names of its pods"
        };
        findings.error(self.path, Some(&Value::from(self.key)), problem);
        false
    }

    /// Checks that the longest name of a service of the group is a service name; `why` says which pods get services.
    pub fn check_service_names(&self, job: &str, replicas: u32, why: &str, findings: &mut Findings) {
        let name = slot_name(job, self.lower, replicas.saturating_sub(1));
        if is_service_name(&name) {
            return;
        }
        let about_job = if job.contains('.') {
            Some(format!("must have no dots: {why}"))
        } else if job.starts_with(|c: char| c.is_ascii_digit()) {
            Some(format!("must start with a letter: {why}"))
        } else {
            None
        };
        let value = Some(&Value::from(self.key));
        match about_job {
            // Once is enough, however many groups there are.
            Some(_) if findings.has_error_at("metadata.name") => {}
            Some(problem) => findings.error("metadata.name", Some(&Value::from(job)), problem),
            None if self.lower.contains('.') => {
                findings.error(self.path, value, format!("must have no dots: {why}"));
            }
            None => {
                let problem = format!("`{name}` is {} characters long, {LABEL_MAX} at most: {why}", name.len());
                findings.error(self.path, value, problem);
            }
        }
    }
}

/// Returns the name of a slot's pod and service: the same after every restart.
pub fn slot_name(job: &str, group: &str, index: u32) -> String {
    format!("{job}-{group}-{index}").replace('/', "-")
}

/// Returns the job's name; `None` when no names can be made of it.
pub fn job_name<'a>(object: &'a Value, findings: &mut Findings) -> Option<&'a str> {
    const PATH: &str = "metadata.name";
    let Some(name) = text_at(object, &["metadata", "name"]).filter(|name| !name.is_empty()) else {
        findings.error(PATH, None, "a job needs a name");
        return None;
    };
    let value = Value::from(name);
    if name.len() > LABEL_MAX {
        let problem = format!("must be at most {LABEL_MAX} characters, not {}: it is a label of every pod", name.len());
        findings.error(PATH, Some(&value), problem);
        None
    } else if is_dns_subdomain(name) {
        Some(name)
    } else {
        let problem = "must be lower-case letters, digits and inner hyphens: it is part of the names of all pods";
        findings.error(PATH, Some(&value), problem);
        None
    }
}

/// Reads the replica groups of a spec in key order, each with `read`; `None` when there are none.
pub fn groups(
    spec: &Value,
    findings: &mut Findings,
    mut read: impl FnMut(Replica<'_>, &mut Findings) -> GroupSpec,
) -> Option<Vec<GroupSpec>> {
    const PATH: &str = "spec.replicaSpecs";
    let replica_specs = match findings.object(spec, "spec", "replicaSpecs") {
        Some(map) if !map.is_empty() => map,
        Some(_) | None => {
            // A wrong type was noted by the reader above.
            let value = spec.get("replicaSpecs").filter(|value| !value.is_null());
            if value.is_none_or(Value::is_object) {
                findings.error(PATH, value, "must name at least one group of replicas");
            }
            return None;
        }
    };
    let mut groups = Vec::with_capacity(replica_specs.len());
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut pods: u32 = 0;
    for (key, spec) in sorted(replica_specs) {
        let path = join(PATH, key);
        let lower = key.to_lowercase();
        if let Some(other) = seen.insert(lower.clone(), key) {
            findings.error(
                &path,
                Some(&Value::from(key)),
                format!("names the same pods as `{other}`: groups that differ in case alone are the same"),
            );
            continue;
        }
        if !spec.is_object() {
            findings.error(&path, Some(spec), format!("must be an object with a template, not {}", type_of(spec)));
            continue;
        }
        let group = read(Replica { key, lower: &lower, spec, path: &path }, findings);
        pods = pods.saturating_add(group.replicas);
        groups.push(group);
    }
    if pods > MAX_PODS {
        let total = Value::from(pods);
        findings.error(PATH, Some(&total), format!("asks for {pods} pods altogether; at most {MAX_PODS} are possible"));
    }
    Some(groups)
}

fn sorted(map: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let mut members: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    members
}

/// Returns the pod templates of a job object by group, for its manifest. Counts and policies stand in the spec.
pub fn templates(object: &Value) -> Map<String, Value> {
    at(object, &["spec", "replicaSpecs"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, replica)| (key.clone(), json!({"template": replica.get("template")})))
        .collect()
}

/// Returns the pod template of a group in a manifest.
///
/// # Errors
/// Returns an error if the manifest has none.
pub fn template_of<'a>(manifest: &'a Value, group: &GroupSpec) -> Result<&'a Value, FieldError> {
    at(manifest, &["spec", "replicaSpecs", group.display(), "template"])
        .filter(|template| template.is_object())
        .ok_or_else(|| lost_template(group))
}

/// Returns a copy of the pod spec in a template of a group.
///
/// # Errors
/// Returns an error if the template has none.
pub fn pod_spec(template: &Value, group: &GroupSpec) -> Result<Map<String, Value>, FieldError> {
    template.get("spec").and_then(Value::as_object).cloned().ok_or_else(|| lost_template(group))
}

/// Returns the error about a template that was accepted once and cannot be found again.
fn lost_template(group: &GroupSpec) -> FieldError {
    FieldError::new(
        format!("spec.replicaSpecs.{}.template", group.display()),
        "missing",
        "the manifest in force has no template for this group",
    )
}

/// Reads what each group of an ended job came to, from its status: succeeded and failed pods by name in lower case.
pub fn finals(object: &Value) -> BTreeMap<Text, (u32, u32)> {
    at(object, &["status", "replicaStatuses"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, counters)| {
            let count = |of: &str| counters.get(of).and_then(count_of).unwrap_or_default();
            (Text::from(name.to_lowercase()), (count("succeeded"), count("failed")))
        })
        .collect()
}

/// Reads a count; `None` when it is none.
pub fn count_of(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}
