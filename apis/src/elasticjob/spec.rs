//! ElasticJob object -> [`JobSpec`]: defaults, validation with field paths, and the manifest that pods are rendered from.
//!
//! Values that made the original crash, hang or contradict itself are field errors: a job with such an edit keeps the
//! spec before. It must not render anything (that is `pods.rs`). Tests: `tests/spec.rs` and `tests/refusals.rs`.

use std::collections::BTreeSet;

use model::{
    Budget, CleanBy, CleanPodPolicy, ClockStart, EndTiming, FieldError, GroupEndPolicy, GroupSpec, JobEndPolicy,
    JobSpec, Milestones, PhaseRules, Resize, RestartPolicy, RestartScope, Retryable, Running, SizeRange, Text,
    Threshold,
};
use serde_json::{Value, json};

use super::constants::{BACKEND, CONTAINER, RESTART_SCOPE, SCOPE_ALL, WORKER, WORKER_LOWER};
use super::crd::spec_schema;
use super::launcher::{BACKENDS, Backend, Range, is_endpoint, names_worker_0};
use super::run_policy::{self, RunPolicy};
use crate::fields::{Finding, Findings, Severity, Unknown, Word, join};
use crate::objects::{at, text_at};
use crate::replicas::{self, RESTART, Replica, Restart};
use crate::translation::{Translation, spec_of};
use crate::{pod_rules, shell, template};

/// Exit codes that `ExitCode` restarts: signals, and one for programs to use.
const RETRYABLE_CODES: [i32; 4] = [130, 137, 138, 143];

/// Reasons of pods that failed without their program's doing, and that `ExitCode` restarts.
const RETRYABLE_REASONS: [&str; 11] = [
    "Evicted",
    "NodeAffinity",
    "NodeLost",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "Preempting",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
];

/// Returns the restart policy of a group's pods for the engine.
const fn restart_policy(policy: Restart) -> RestartPolicy {
    match policy {
        // The kubelet restarts containers. A pod that fails all the same was evicted, or its node is lost.
        Restart::Always | Restart::OnFailure => RestartPolicy::Always,
        Restart::Never => RestartPolicy::Never,
        Restart::ExitCode => RestartPolicy::Listed,
    }
}

/// Reads specs of this API.
pub(super) const TRANSLATION: Translation = Translation { read, schema: spec_schema, manifest };

fn read(object: &Value, findings: &mut Findings) -> Option<JobSpec> {
    let spec = spec_of(object, findings)?;
    let job = replicas::job_name(object, findings);
    check_endpoint(object, spec, job.unwrap_or_default(), findings);
    let scope = restart_scope(object, findings);
    let bound = |key: &str, findings: &mut Findings| {
        let number = findings.integer(spec, "spec", key, 1, i64::from(i32::MAX))?;
        u32::try_from(number).ok()
    };
    let (min, max) = (bound("minReplicas", findings), bound("maxReplicas", findings));
    let run = run_policy::read(spec, findings);
    let suspended = findings.boolean(spec, "spec", "suspend").unwrap_or_default();
    let mut policy = Restart::Always;
    let mut groups = replicas::groups(spec, findings, |replica, findings| {
        let (group, of_group) = group(job, replica, max, findings);
        if replica.key == WORKER {
            policy = of_group;
        }
        group
    })?;
    let replicas = worker(&groups, findings)?.replicas;
    check_bounds(spec, replicas, min, max, findings);
    let range = Range { min, max, replicas };
    for group in &mut groups {
        group.shape = range.shape();
        match scope {
            RestartScope::All => restart_together(group, run.backoff_limit),
            // Retries are limited for the whole job; the limit that an operator has for groups without one is for other jobs.
            _ => group.restart_limit = run.backoff_limit.map(|_| u32::MAX),
        }
        if &*group.name == WORKER_LOWER {
            group.min = min;
            // Without both bounds the number of workers is written into each of them.
            group.sizes = min.zip(max).filter(|_| replicas > 0).map(|(min, max)| SizeRange {
                min,
                preferred: replicas,
                max,
                resize: Resize::InPlace,
            });
        }
    }
    if policy == Restart::Always && run.deadline_s.is_none() && run.backoff_limit.is_none() {
        findings.warn(
            join(&join("spec.replicaSpecs", WORKER), "restartPolicy"),
            at(spec, &["replicaSpecs", WORKER, "restartPolicy"]),
            "with Always, which is the default, workers are restarted whatever they end with; the job runs until it is \
             deleted, or given activeDeadlineSeconds or backoffLimit",
        );
    }
    let spec = job_spec(groups, policy, run);
    let budget = spec.budget.filter(|_| scope != RestartScope::All);
    Some(JobSpec { suspended, budget, ..spec })
}

/// Reads which pods a failed worker restarts.
fn restart_scope(object: &Value, findings: &mut Findings) -> RestartScope {
    const SCOPES: [Word<RestartScope>; 2] = [(SCOPE_ALL, RestartScope::All), ("Pod", RestartScope::Each)];
    let annotations = at(object, &["metadata", "annotations"]).unwrap_or(&Value::Null);
    findings.word(annotations, "metadata.annotations", RESTART_SCOPE, &SCOPES, RestartScope::Each, Unknown::Refused)
}

/// Has every failure of a group's pods that its policy restarts take all pods of the job along.
fn restart_together(group: &mut GroupSpec, limit: Option<u32>) {
    if group.restart == RestartPolicy::Always {
        group.restart = RestartPolicy::OnFailure;
    }
    group.scope = RestartScope::All;
    group.restart_limit = limit;
    group.fail = GroupEndPolicy::Any;
    if group.complete == GroupEndPolicy::Minimum {
        group.complete = GroupEndPolicy::All;
    }
}

fn job_spec(groups: Vec<GroupSpec>, policy: Restart, run: RunPolicy) -> JobSpec {
    let workers = BTreeSet::from([Text::from(WORKER_LOWER)]);
    // Ended pods are kept for their logs. Pods that still run after a failure would hold devices for nothing.
    let clean_by = match run.clean {
        Some(clean) => CleanBy { succeeded: clean, failed: clean, other: clean },
        None => {
            CleanBy { succeeded: CleanPodPolicy::None, failed: CleanPodPolicy::Running, other: CleanPodPolicy::Running }
        }
    };
    let ms = |seconds: u64| seconds.saturating_mul(1000);
    JobSpec {
        groups,
        complete: JobEndPolicy::Sets(vec![workers.clone()]),
        fail: JobEndPolicy::Any,
        clean_by: Some(clean_by),
        restartable_codes: RETRYABLE_CODES.to_vec(),
        retryable: Some(Retryable {
            reasons: RETRYABLE_REASONS.map(Text::from).to_vec(),
            disrupted: true,
            node: true,
            gpu: false,
            main_ended: false,
        }),
        budget: run.backoff_limit.map(|limit| Budget {
            limit,
            containers: true,
            rounds: false,
            reach: match policy {
                Restart::ExitCode | Restart::Never => Threshold::Above,
                Restart::OnFailure | Restart::Always => Threshold::AtLeast,
            },
        }),
        time_limit_ms: run.deadline_s.map(ms),
        limit_from: ClockStart::Admitted,
        ttl_ms: run.ttl_s.map(ms),
        end_annotation: false,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: true,
            running: Running::Minimum(workers),
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: false,
        },
        ..JobSpec::default()
    }
}

fn group(job: Option<&str>, replica: Replica<'_>, max: Option<u32>, findings: &mut Findings) -> (GroupSpec, Restart) {
    let Replica { lower, spec, path, .. } = replica;
    let replicas = replica.replicas(findings);
    let policy = findings.word(spec, path, "restartPolicy", &RESTART, Restart::Always, Unknown::Refused);
    let template = template::check(spec, path, pod_rules::AS_WRITTEN, findings);
    check_pod_policy(replica, policy, findings);
    check_commands(template.containers, path, findings);
    let is_worker = replica.key == WORKER;
    if replica.check_name(findings)
        && let Some(job) = job
    {
        let most = max.filter(|_| is_worker).unwrap_or_default().max(replicas);
        replica.check_service_names(job, most, "each pod gets a service of its own name", findings);
    }
    let (complete, fail) = match (is_worker, policy) {
        (true, Restart::ExitCode | Restart::Never) => (GroupEndPolicy::Minimum, GroupEndPolicy::Minimum),
        (true, Restart::OnFailure) => (GroupEndPolicy::Minimum, GroupEndPolicy::None),
        (false, Restart::Never) => (GroupEndPolicy::None, GroupEndPolicy::Any),
        (true, Restart::Always) | (false, Restart::ExitCode | Restart::OnFailure | Restart::Always) => {
            (GroupEndPolicy::None, GroupEndPolicy::None)
        }
    };
    let group = GroupSpec {
        name: Text::from(lower),
        display: replica.display(),
        replicas,
        complete,
        fail,
        restart: restart_policy(policy),
        scope: RestartScope::Each,
        services: true,
        gpus: template.gpus,
        ..GroupSpec::default()
    };
    (group, policy)
}

/// The group's policy decides what becomes of an ended container, whatever the template says.
fn check_pod_policy(replica: Replica<'_>, policy: Restart, findings: &mut Findings) {
    let value = at(replica.spec, &["template", "spec", "restartPolicy"]).filter(|value| !value.is_null());
    if value.is_some_and(|value| value != policy.of_pods() && value != "") {
        let problem = format!("the restartPolicy of the group decides: pods get {}", policy.of_pods());
        findings.mistake(template_policy_path(replica.path), value, problem);
    }
}

/// Remarks on shells among the containers that get the launcher's arguments.
fn check_commands(containers: &[Value], path: &str, findings: &mut Findings) {
    let is_worker = |container: &Value| text_at(container, &["name"]) == Some(CONTAINER);
    let has_workers = containers.iter().any(is_worker);
    shell::check(containers, &join(path, "template"), |container| !has_workers || is_worker(container), findings);
}

/// Returns the path of the restart policy in the template of a group.
fn template_policy_path(group: &str) -> String {
    join(group, TEMPLATE_POLICY)
}

/// Path of the restart policy in the template, below a group.
pub(super) const TEMPLATE_POLICY: &str = "template.spec.restartPolicy";

/// Returns the group that decides about the job.
fn worker<'a>(groups: &'a [GroupSpec], findings: &mut Findings) -> Option<&'a GroupSpec> {
    const PROBLEM: &str = "a job needs a group Worker: its pods decide about the job";
    let path = join("spec.replicaSpecs", WORKER);
    match groups.iter().find(|group| &*group.name == WORKER_LOWER) {
        Some(group) if &**group.display() == WORKER => return Some(group),
        Some(group) => {
            let mut field = FieldError::new(join("spec.replicaSpecs", group.display()), "misspelt", PROBLEM);
            field.suggestion = Some(WORKER.to_owned());
            findings.push(Finding { severity: Severity::Error, in_name: true, field });
        }
        // A group that cannot be read at all has an error of its own.
        None if findings.has_error_at(&path) => {}
        None => findings.error(path, None, PROBLEM),
    }
    None
}

fn check_bounds(spec: &Value, replicas: u32, min: Option<u32>, max: Option<u32>, findings: &mut Findings) {
    if let (Some(least), Some(most)) = (min, max)
        && least > most
    {
        let problem = format!("must be at most maxReplicas, which is {most}");
        findings.error("spec.minReplicas", spec.get("minReplicas"), problem);
        return;
    }
    let path = join(&join("spec.replicaSpecs", WORKER), "replicas");
    let value = at(spec, &["replicaSpecs", WORKER, "replicas"]);
    let absent = if value.is_none_or(Value::is_null) { "; it is 1 when absent" } else { "" };
    if let Some(least) = min.filter(|least| replicas < *least) {
        findings.error(&path, value, format!("must be at least minReplicas, which is {least}{absent}"));
    }
    if let Some(most) = max.filter(|most| replicas > *most) {
        findings.error(path, value, format!("must be at most maxReplicas, which is {most}{absent}"));
    }
}

fn check_endpoint(object: &Value, spec: &Value, job: &str, findings: &mut Findings) {
    const PATH: &str = "spec.rdzvEndpoint";
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let annotations = metadata.get("annotations").unwrap_or(&Value::Null);
    let backend =
        findings.word(annotations, "metadata.annotations", BACKEND, &BACKENDS, Backend::Etcd, Unknown::Refused);
    let endpoint = findings.text(spec, "spec", "rdzvEndpoint");
    let value = spec.get("rdzvEndpoint").filter(|value| !value.is_null());
    match endpoint.filter(|text| !text.is_empty()) {
        Some(text) if backend == Backend::C10d && !names_worker_0(job, text) => {
            let problem = "names another host than worker 0, which serves the rendezvous with c10d; worker 0 is used";
            findings.warn(PATH, value, problem);
        }
        Some(text) if !is_endpoint(text) => {
            findings.warn(PATH, value, "looks like no host:port; the workers get it as it is");
        }
        Some(_) => {}
        None if backend == Backend::C10d || value.is_some_and(|value| !value.is_string()) => {}
        None => findings.error(PATH, value, "must be the host:port of the etcd at which the workers meet"),
    }
}

/// Returns the manifest that pods and services are rendered from. Counts and policies stand in the [`JobSpec`].
fn manifest(object: &Value) -> Value {
    let of_spec = |key: &str| at(object, &["spec", key]);
    // No kubelet restarts the containers of pods that are restarted together.
    let is_together = text_at(object, &["metadata", "annotations", RESTART_SCOPE]) == Some(SCOPE_ALL);
    let never = is_together.then(|| json!("Never"));
    let policies = |key: &str| never.as_ref().or_else(|| at(object, &["spec", "replicaSpecs", key, "restartPolicy"]));
    let mut groups = replicas::templates(object);
    for (name, group) in &mut groups {
        if let (Some(group), Some(policy)) = (group.as_object_mut(), policies(name)) {
            group.insert("restartPolicy".to_owned(), policy.clone());
        }
    }
    json!({
        "backend": text_at(object, &["metadata", "annotations", BACKEND]),
        "spec": {
            "rdzvEndpoint": of_spec("rdzvEndpoint"),
            "minReplicas": of_spec("minReplicas"),
            "maxReplicas": of_spec("maxReplicas"),
            "replicaSpecs": groups,
        },
    })
}
