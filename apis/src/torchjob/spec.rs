//! TorchJob object -> [`JobSpec`]: defaults, names in any case, validation with field paths, and the manifest that pods are
//! rendered from.
//!
//! A job whose first spec cannot be accepted fails; one with such an edit keeps the previous one. It must not render anything
//! (that is `pods.rs`). Tests: `tests/spec.rs`.

use std::collections::BTreeSet;

use model::{
    Budget, CleanBy, ClockStart, EndTiming, GroupSpec, JobEndPolicy, JobKey, JobSpec, Milestones, PhaseRules,
    Retryable, Running, SpecFact, Text, Threshold, Uid,
};
use serde_json::{Map, Value, json};
use settings::TorchSettings;

use super::constants::{CONTAINER, KIND, NETWORK_MODE, PORT, PORT_NAME, Task};
use super::crd::spec_schema;
use super::run_policy::{self, RunPolicy};
use super::tasks::{self, TaskSpec};
use super::{autoscaler, coordination, elastic, elastic_args, model_output, pod_groups, services};
use crate::api::RenderInput;
use crate::fields::{Finding, Findings};
use crate::kruise;
use crate::objects::{annotation, at, list_at, name, namespace, text_at, uid};
use crate::replicas;
use crate::schema;
use crate::template::{append_list, containers_mut};

/// Exit codes that `ExitCode` retries: signals, and one for programs to use.
const RETRYABLE_CODES: [i32; 4] = [130, 137, 138, 143];

/// Reasons of failed pods that `ExitCode` retries.
const RETRYABLE_REASONS: [&str; 4] = ["Evicted", "Killed", "OOMKilled", "UnexpectedAdmissionError"];

/// Reads the spec of a job object.
pub(super) fn fact(object: &Value, settings: &TorchSettings) -> SpecFact {
    let (found, findings) = examine(object, settings);
    let has_errors = findings.has_errors();
    let (errors, warnings) = findings.into_errors_and_warnings();
    let (spec, manifest) = match found {
        Some((spec, manifest)) if !has_errors => (Ok(spec), Text::from(model::json::canonical(&manifest))),
        Some(_) | None => (Err(errors), Text::from("{}")),
    };
    let fatal = spec.is_err();
    let notes = Some(Box::new(elastic::read(object, &mut Findings::default())));
    SpecFact { warnings, fatal, notes, ..SpecFact::of(spec, manifest) }
}

/// Returns everything that is to be said of the spec of a job object.
pub(super) fn findings(object: &Value, settings: &TorchSettings) -> Vec<Finding> {
    examine(object, settings).1.into_list()
}

fn examine(object: &Value, settings: &TorchSettings) -> (Option<(JobSpec, Value)>, Findings) {
    let mut findings = Findings::default();
    let found = read(object, settings, &mut findings);
    findings.merge(schema::check(spec_schema(), object.get("spec").unwrap_or(&Value::Null), "spec"));
    (found, findings)
}

fn read(object: &Value, settings: &TorchSettings, findings: &mut Findings) -> Option<(JobSpec, Value)> {
    let spec = object.get("spec");
    let Some(spec) = spec.filter(|spec| spec.is_object()) else {
        findings.error("spec", spec, "must be an object with torchTaskSpecs");
        return None;
    };
    let job = replicas::job_name(object, findings);
    let run = run_policy::read(spec, findings);
    let tasks = tasks::read(spec, job, findings)?;
    check_minimums(spec, &tasks, findings);
    let workers = tasks.iter().find(|task| task.task == Task::Worker).map_or(0, |task| task.replicas);
    let launcher = elastic_args::read(spec, job.unwrap_or_default(), workers, findings);
    let autoscaler = launcher.as_ref().and_then(|launcher| autoscaler::settings(&tasks, launcher.bounds));
    let args = launcher.map(|launcher| launcher.args);
    if args.is_some() {
        tasks::check_commands(&tasks, findings);
    }
    let (model, seeks_node) = model_output::read(spec, &settings.models.storage, findings);
    let notes = elastic::read(object, findings);
    let groups = tasks::groups(object, &tasks, args.is_some(), &notes, settings);
    let is_elastic = notes.elastic.is_some();
    let mut manifest = manifest(object, &tasks, (args, model, is_elastic), &run, settings);
    let workers = tasks.iter().find(|task| task.task == Task::Worker && autoscaler.is_some());
    if let (Some(workers), Some(manifest)) = (workers, manifest.as_object_mut()) {
        manifest.insert("workerKey".to_owned(), json!(workers.key));
    }
    let request = kruise::REQUEST;
    let restarts_by = is_elastic.then(|| (Text::from(request.api_version), Text::from(request.kind)));
    let storage_group = seeks_node.then(|| Task::Master.lower().into());
    let mut spec = JobSpec { autoscaler, restarts_by, storage_group, ..job_spec(groups, &run) };
    spec.coordination = settings.coordinator.then(|| Box::new(coordination::of(object, &tasks, &run)));
    spec.owned = pod_groups::objects(&manifest, &spec.groups);
    let key = JobKey {
        namespace: namespace(object),
        name: name(object),
        kind: KIND.into(),
        uid: uid(object).unwrap_or_else(|_| Uid::from("")),
    };
    let service = services::of_master(RenderInput { job: &key, spec: &spec, manifest: &manifest }).ok();
    spec.owned.extend(model_output::owned(&manifest));
    spec.owned.extend(service.map(|body| services::owned(&key.name, &body, run.clean)));
    Some((spec, manifest))
}

/// Least numbers of members of pod groups.
fn check_minimums(spec: &Value, tasks: &[TaskSpec<'_>], findings: &mut Findings) {
    const PATH: &str = "spec.minMembers";
    let Some(map) = findings.object(spec, "spec", "minMembers") else { return };
    let parent = spec.get("minMembers").unwrap_or(&Value::Null);
    for key in map.keys() {
        let least = findings.integer(parent, PATH, key, 0, i64::from(replicas::MAX_PODS));
        let task = tasks.iter().find(|task| Some(task.task) == Task::of_key(key));
        let Some(task) = task else {
            findings.mistake(format!("{PATH}.{key}"), parent.get(key), "names no type of task of this job");
            continue;
        };
        if least.is_some_and(|least| least > i64::from(task.replicas)) {
            let problem = format!("must be at most numTasks of {}, which is {}", task.task.name(), task.replicas);
            findings.error(format!("{PATH}.{key}"), parent.get(key), problem);
        }
    }
}

fn job_spec(groups: Vec<GroupSpec>, run: &RunPolicy<'_>) -> JobSpec {
    let set = |tasks: &[Task]| -> BTreeSet<Text> {
        let has_pods = |task: &&Task| groups.iter().any(|group| &*group.name == task.lower() && group.replicas > 0);
        tasks.iter().filter(has_pods).map(|task| Text::from(task.lower())).collect()
    };
    let sets = [set(&[Task::AiMaster]), set(&[Task::Master, Task::Worker])];
    let complete = JobEndPolicy::Sets(sets.into_iter().filter(|set| !set.is_empty()).collect());
    let running = Running::Any(set(&[Task::AiMaster, Task::Master]));
    let ms = |seconds: u64| seconds.saturating_mul(1000);
    // Retries are limited for the whole job; the limit that an operator has for groups without one is for other jobs.
    let restart_limit = run.backoff_limit.map(|_| u32::MAX);
    let groups = groups.into_iter().map(|group| GroupSpec { restart_limit, ..group }).collect();
    JobSpec {
        groups,
        complete,
        fail: JobEndPolicy::Any,
        clean_by: Some(CleanBy { succeeded: run.clean, failed: run.clean, other: run.clean }),
        restartable_codes: RETRYABLE_CODES.to_vec(),
        retryable: Some(Retryable {
            reasons: RETRYABLE_REASONS.map(Text::from).to_vec(),
            disrupted: false,
            node: true,
            gpu: false,
            main_ended: true,
        }),
        budget: run.backoff_limit.map(|limit| Budget {
            limit,
            containers: false,
            reach: Threshold::Above,
            rounds: true,
        }),
        running_restart_limit: run.backoff_limit,
        time_limit_ms: run.limit_s.map(ms),
        limit_from: ClockStart::Admitted,
        ttl_ms: run.ttl_s.map(ms),
        end_annotation: false,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: false,
            running,
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: true,
        },
        ..JobSpec::default()
    }
}

/// Returns the manifest that pods and services are rendered from. Counts and policies of the engine stand in the [`JobSpec`].
fn manifest(
    object: &Value,
    tasks: &[TaskSpec<'_>],
    (args, model, is_elastic): (Option<Vec<Value>>, Option<Value>, bool),
    run: &RunPolicy<'_>,
    settings: &TorchSettings,
) -> Value {
    let master = tasks.iter().find(|task| task.task == Task::Master);
    let (key, host) = NETWORK_MODE;
    let (first, count) = settings.host_ports;
    let is_host = annotation(object, key) == Some(host);
    let group = |task: &TaskSpec<'_>| {
        let group = json!({
            "template": template(task),
            "restartPolicy": task.restart.map(replicas::Restart::of_pods),
            "spot": task.spec.get("spotTaskSpec").filter(|spot| spot.is_object()),
        });
        (task.task.name().to_owned(), group)
    };
    let groups: Map<String, Value> = tasks.iter().map(group).collect();
    let least = at(object, &["spec", "minMembers"]).and_then(Value::as_object);
    let least =
        least.into_iter().flatten().filter_map(|(key, n)| Some((Task::of_key(key)?.lower().to_owned(), n.clone())));
    let gang = settings.gang.then(|| {
        json!({
            "perType": settings.ordered,
            "minMembers": least.collect::<Map<String, Value>>(),
            "minAvailable": run.min_available,
            "priorityClass": run.priority_class,
            "queue": run.queue,
        })
    });
    json!({
        "name": text_at(object, &["metadata", "name"]),
        "gang": gang,
        // Where `replicas` looks for templates.
        "spec": {"replicaSpecs": groups},
        "args": args,
        "port": master.and_then(TaskSpec::port).unwrap_or(PORT),
        "localMaster": settings.local_master,
        "hostNetwork": is_host
            .then(|| json!({"first": first, "count": count, "headless": settings.headless_host_network})),
        "model": model,
        "version": model_output::version(object),
        "elastic": is_elastic.then(|| elastic::generation(object)),
        "masterKey": master.map(|master| master.key),
    })
}

/// Returns the template of a type with what the original adds to it.
fn template(task: &TaskSpec<'_>) -> Value {
    let mut template = task.spec.get("template").cloned().unwrap_or_default();
    let port = task.port();
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    for container in spec.into_iter().flat_map(|spec| containers_mut(spec, "containers")) {
        let is_master = task.task == Task::Master && text_at(container, &["name"]) == Some(CONTAINER);
        if is_master && port.is_none() {
            append_list(container, "ports", &[json!({"name": PORT_NAME, "containerPort": PORT})]);
        }
    }
    template
}

/// Returns true if a container has a variable of this name.
pub(super) fn has_variable(container: &Value, name: &str) -> bool {
    list_at(container, &["env"]).iter().any(|variable| text_at(variable, &["name"]) == Some(name))
}
