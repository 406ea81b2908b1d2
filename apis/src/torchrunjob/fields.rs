//! TorchrunJob object -> its fields, in all shapes that manifests in use have.
//!
//! Owns aliases, defaults and limits of what the job alone says. It must not know the queue. Tests: `tests/spec.rs`.

use serde_json::{Value, json};

use super::constants::{FIRST_GENERATION, GENERATION};
use super::size::Asked;
use crate::fields::{Findings, Unknown, Word};
use crate::names::{is_dns_label, is_label_value};
use crate::objects::{annotation, at, text_at};
use crate::pod_rules::{self, MOUNTED};
use crate::replicas::{self, MAX_PODS};
use crate::torchrunqueue::settings::{Distributed, alias};
use crate::torchrunqueue::storage::WorkspaceSettings;
use crate::translation::spec_of;

/// Longest name of a run: `-workspace` and `-checkpoints` are added to it.
const NAME_MAX: usize = 51;
/// Restarts where none are written.
const MAX_RESTARTS: u32 = 3;
/// Seconds after its end at which a job is deleted, where none are written.
const TTL_S: u64 = 3600;

/// Restart policy of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// The kubelet restarts containers that fail.
    OnFailure,
    /// Failed pods are replaced.
    Never,
}

/// Accepted values of `restartPolicy`.
pub(super) const RESTART: [Word<Policy>; 2] = [("OnFailure", Policy::OnFailure), ("Never", Policy::Never)];

/// What a job says of its failures and its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reliability {
    /// Retries after which it fails.
    pub(super) max_restarts: u32,
    /// Restart policy of its workers.
    pub(super) policy: Policy,
    /// Seconds after its end at which it is deleted.
    pub(super) ttl_s: Option<u64>,
    /// Seconds from its start after which it ends.
    pub(super) deadline_s: Option<u64>,
}

/// Fields of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    /// Its `spec`.
    pub(super) spec: &'a Value,
    /// Name of its object.
    pub(super) name: &'a str,
    /// Name of the run.
    pub(super) job_name: &'a str,
    /// Id of the run.
    pub(super) job_id: &'a str,
    /// Name of its queue.
    pub(super) queue: &'a str,
    /// Program, with arguments.
    pub(super) command: &'a str,
    /// Commands before it.
    pub(super) setup: Option<&'a str>,
    /// Working directory.
    pub(super) working_dir: Option<&'a str>,
    /// Numbers it asks for.
    pub(super) asked: Asked,
    /// Settings of its workspace.
    pub(super) workspace: WorkspaceSettings<'a>,
    /// Set unless it is switched off.
    pub(super) has_workspace: bool,
    /// Its `distributed`.
    pub(super) distributed: Distributed<'a>,
    /// Its `reliability`.
    pub(super) reliability: Reliability,
    /// Set if it waits.
    pub(super) suspended: bool,
    /// Generation of its workspace.
    pub(super) generation: &'a str,
}

impl<'a> Fields<'a> {
    /// Reads a job object; `None` where it cannot be acted on.
    pub(super) fn read(object: &'a Value, findings: &mut Findings) -> Option<Self> {
        let spec = spec_of(object, findings)?;
        let name = replicas::job_name(object, findings);
        let queue = alias((spec, "spec", "queue"), (spec, "spec", "jobQueue"), findings);
        if queue.is_none() && !findings.has_error_at("spec.queue") {
            findings.error("spec.queue", None, "a job needs the name of a TorchrunQueue in its namespace");
        }
        let text =
            |key: &str, findings: &mut Findings| findings.text(spec, "spec", key).filter(|text| !text.is_empty());
        let command = text("command", findings);
        if command.is_none_or(|command| command.trim().is_empty()) && !findings.has_error_at("spec.command") {
            findings.error("spec.command", spec.get("command"), "a job needs a command");
        }
        let job_name = text("jobName", findings).or(name).unwrap_or_default();
        if !(job_name.is_empty() || is_dns_label(job_name) && job_name.len() <= NAME_MAX) {
            let problem = format!(
                "must be lower-case letters, digits and inner hyphens, at most {NAME_MAX}: claims are named after it"
            );
            findings.error("spec.jobName", Some(&Value::from(job_name)), problem);
        }
        let job_id = text("jobID", findings).or_else(|| text_at(object, &["metadata", "uid"])).unwrap_or_default();
        for (path, value) in [("spec.jobID", job_id), ("spec.queue", queue.unwrap_or_default())] {
            if !is_label_value(value) {
                findings.error(
                    path,
                    Some(&Value::from(value)),
                    "must be a label value: letters, digits and inner -_., at most 63",
                );
            }
        }
        let count = |key: &str, least: i64, findings: &mut Findings| {
            let number = findings.integer(spec, "spec", key, least, i64::from(MAX_PODS))?;
            u32::try_from(number).ok()
        };
        let asked = Asked {
            nodes: count("numNodes", 1, findings),
            gpus: count("numGPUs", 0, findings),
            min: count("minNodes", 1, findings),
            max: count("maxNodes", 1, findings),
        };
        check_lists(spec, findings);
        let (workspace, has_workspace) = WorkspaceSettings::of_job(spec, findings);
        let generation = annotation(object, GENERATION).filter(|text| !text.is_empty()).unwrap_or(FIRST_GENERATION);
        Some(Self {
            spec,
            name: name?,
            job_name,
            job_id,
            queue: queue?,
            command: command?,
            setup: text("setupCommand", findings),
            working_dir: text("workingDir", findings),
            asked,
            workspace,
            has_workspace,
            distributed: Distributed::read(spec, findings),
            reliability: reliability(spec, findings),
            suspended: findings.boolean(spec, "spec", "suspend").unwrap_or_default(),
            generation,
        })
    }
}

/// Checks what is copied into the pods.
fn check_lists(spec: &Value, findings: &mut Findings) {
    findings.check_text_map(spec, "spec", "labels");
    findings.check_text_map(spec, "spec", "annotations");
    let check_names = |parent: &Value, base: &str, key: &str, needs: &[&str], findings: &mut Findings| {
        for (n, item) in findings.list(parent, base, key).iter().enumerate() {
            for name in needs {
                if text_at(item, &[name]).is_none_or(str::is_empty) {
                    findings.error(format!("{base}.{key}[{n}].{name}"), item.get(name), "must be text");
                }
            }
        }
    };
    check_names(spec, "spec", "env", &["name"], findings);
    if findings.object(spec, "spec", "volumes").is_some() {
        let volumes = spec.get("volumes").unwrap_or(&Value::Null);
        check_names(volumes, "spec.volumes", "additionalVolumes", &["name"], findings);
        check_names(volumes, "spec.volumes", "additionalMounts", &["name", "mountPath"], findings);
    }
    check_parts(spec, findings);
}

/// Checks the same parts as an API server checks them in pods. The queue has volumes as well, so that any can be mounted.
fn check_parts(spec: &Value, findings: &mut Findings) {
    const PLACES: [(&str, &str); 5] = [
        (".metadata.labels", "spec.labels"),
        (".metadata.annotations", "spec.annotations"),
        (".spec.containers[0].env", "spec.env"),
        (".spec.containers[0].volumeMounts", "spec.volumes.additionalMounts"),
        (".spec.volumes", "spec.volumes.additionalVolumes"),
    ];
    let container = json!({"env": spec.get("env"), "volumeMounts": at(spec, &["volumes", "additionalMounts"])});
    let template = json!({
        "metadata": {"labels": spec.get("labels"), "annotations": spec.get("annotations")},
        "spec": {"containers": [container], "volumes": at(spec, &["volumes", "additionalVolumes"])},
    });
    pod_rules::check_parts(&template, &PLACES, |rule, _| rule == MOUNTED, findings);
}

fn reliability(spec: &Value, findings: &mut Findings) -> Reliability {
    const BASE: &str = "spec.reliability";
    const TTL: &str = "ttlSecondsAfterFinished";
    findings.object(spec, "spec", "reliability");
    let parent = spec.get("reliability").filter(|value| value.is_object()).unwrap_or(&Value::Null);
    let mut number = |key: &str, least: i64, most: i64| {
        findings.integer(parent, BASE, key, least, most).and_then(|n| u64::try_from(n).ok())
    };
    let max_restarts = number("maxRestarts", 0, i64::from(i32::MAX)).and_then(|n| u32::try_from(n).ok());
    let ttl_s = number(TTL, 0, i64::from(i32::MAX));
    let deadline_s = number("activeDeadlineSeconds", 1, i64::MAX);
    // What is explicitly null was meant to be kept.
    let is_kept = parent.get(TTL).is_some_and(Value::is_null);
    Reliability {
        max_restarts: max_restarts.unwrap_or(MAX_RESTARTS),
        policy: findings.word(parent, BASE, "restartPolicy", &RESTART, Policy::OnFailure, Unknown::Refused),
        ttl_s: ttl_s.or_else(|| (!is_kept).then_some(TTL_S)),
        deadline_s,
    }
}
