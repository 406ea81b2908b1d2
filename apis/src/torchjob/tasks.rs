//! Tasks of a job object: which types there are, how many pods each has, and which of their failures are retried.
//!
//! A type that no pods can be made of is a field error. It must not decide about the job as a whole (that is `spec.rs`). Tests:
//! `tests/spec.rs`.

use model::{
    Dependency, FieldError, GroupEndPolicy, GroupSpec, ObjectAnnotations, Reached, RestartPolicy, RestartScope, Text,
};
use serde_json::{Value, json};
use settings::TorchSettings;

use super::constants::{AIMASTER_READY, CONTAINER, MODEL_VOLUME, PORT_NAME, Task};
use crate::fields::{Finding, Findings, Severity, Unknown, join, shown, type_of};
use crate::nearest::nearest;
use crate::objects::{annotation, at, list_at, text_at};
use crate::pod_rules::{self, MOUNTED, Place};
use crate::replicas::{MAX_PODS, RESTART, Replica, Restart};
use crate::{shell, template};

/// Path of the tasks.
pub(super) const PATH: &str = "spec.torchTaskSpecs";

/// Returns the restart policy of the pods of a type for the engine.
fn engine_policy(task: &TaskSpec<'_>, is_elastic: bool) -> RestartPolicy {
    match task.restart {
        // A failure of AIMaster ends the job. Containers of elastic pods are always restarted by the kubelet.
        Some(Restart::ExitCode) if !is_elastic && task.task != Task::AiMaster => RestartPolicy::Listed,
        // Every pod that failed ends the job. One whose node is lost did not fail.
        Some(Restart::Never) => RestartPolicy::OnNodeLost,
        // The program of a pod that Kubernetes ended did not fail, either.
        Some(Restart::Always | Restart::OnFailure | Restart::ExitCode) | None => RestartPolicy::OnNodeFail,
    }
}

/// Path of the restart policy in the template, below a type.
pub(super) const TEMPLATE_POLICY: &str = "template.spec.restartPolicy";

/// Returns the restart policy of a type that names none; `None` leaves it to the API server.
const fn default_restart(task: Task) -> Option<Restart> {
    match task {
        Task::AiMaster => None,
        Task::Master => Some(Restart::ExitCode),
        Task::Worker => Some(Restart::OnFailure),
    }
}

/// A type of task as it stands in a manifest.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskSpec<'a> {
    /// The type.
    pub task: Task,
    /// Its key as the user spelt it.
    pub key: &'a str,
    /// Its spec.
    pub spec: &'a Value,
    /// Its restart policy; `None` leaves it to the API server.
    pub restart: Option<Restart>,
    /// Number of its pods.
    pub replicas: u32,
    /// Set if its pods request GPUs.
    pub gpus: bool,
}

impl TaskSpec<'_> {
    /// Returns the port that its template declares for the training container.
    pub(super) fn port(&self) -> Option<u16> {
        declared_port(at(self.spec, &["template"])?)
    }
}

/// Returns the port that a template declares for the training container.
pub(super) fn declared_port(template: &Value) -> Option<u16> {
    let containers = template::containers(template).iter();
    let torch = containers.filter(|each| text_at(each, &["name"]) == Some(CONTAINER));
    let mut ports = torch.flat_map(|each| list_at(each, &["ports"]));
    let port = ports.find(|port| text_at(port, &["name"]) == Some(PORT_NAME))?;
    port.get("containerPort").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok())
}

/// Reads the types of tasks in the order in which they start; `None` when there are none.
pub(super) fn read<'a>(spec: &'a Value, job: Option<&str>, findings: &mut Findings) -> Option<Vec<TaskSpec<'a>>> {
    let map = match findings.object(spec, "spec", "torchTaskSpecs") {
        Some(map) if !map.is_empty() => map,
        Some(_) | None => {
            let value = spec.get("torchTaskSpecs").filter(|value| !value.is_null());
            if value.is_none_or(Value::is_object) {
                findings.error(PATH, value, "must name at least the type Master");
            }
            return None;
        }
    };
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_unstable();
    let mut tasks: Vec<TaskSpec<'a>> = Vec::new();
    for key in keys {
        let path = join(PATH, key);
        let Some(task) = Task::of_key(key) else {
            unknown(key, findings);
            continue;
        };
        if let Some(other) = tasks.iter().find(|other| other.task == task) {
            let problem = format!("is the same type as `{}`: types that differ in case alone are the same", other.key);
            findings.error(&path, Some(&Value::from(key.as_str())), problem);
            continue;
        }
        let value = map.get(key).unwrap_or(&Value::Null);
        if !value.is_object() {
            findings.error(&path, Some(value), format!("must be an object with a template, not {}", type_of(value)));
            continue;
        }
        tasks.push(of_type(task, key, value, &path, job, findings));
    }
    tasks.sort_unstable_by_key(|task| task.task);
    let pods = tasks.iter().fold(0u32, |sum, task| sum.saturating_add(task.replicas));
    if pods > MAX_PODS {
        let problem = format!("asks for {pods} pods altogether; at most {MAX_PODS} are possible");
        findings.error(PATH, Some(&Value::from(pods)), problem);
    }
    check_master(&tasks, findings);
    Some(tasks)
}

/// Nothing is created for a type that the job cannot have, and its ranks would be missing.
fn unknown(key: &str, findings: &mut Findings) {
    let names = Task::ALL.map(Task::name);
    let problem = format!("must be one of {}: no pods are made of another type", names.join(", "));
    let mut field = FieldError::new(join(PATH, key), shown(Some(&Value::from(key))), problem);
    field.suggestion = nearest(key, names.into_iter()).map(str::to_owned);
    findings.push(Finding { severity: Severity::Error, in_name: true, field });
}

fn of_type<'a>(
    task: Task,
    key: &'a str,
    spec: &'a Value,
    path: &str,
    job: Option<&str>,
    findings: &mut Findings,
) -> TaskSpec<'a> {
    let replicas = findings.integer(spec, path, "numTasks", 0, i64::from(MAX_PODS)).unwrap_or(1);
    let replicas = u32::try_from(replicas).unwrap_or_default();
    let words = RESTART.map(|(word, restart)| (word, Some(restart)));
    let restart = findings.word(spec, path, "restartPolicy", &words, default_restart(task), Unknown::Refused);
    let template = template::check(spec, path, completes, findings);
    let value = at(spec, &["template", "spec", "restartPolicy"]).filter(|value| !value.is_null());
    let pods = restart.map_or("Always", Restart::of_pods);
    if value.is_some_and(|value| value != pods && value != "") {
        let problem = format!("the restartPolicy of the type decides: pods get {pods}");
        findings.mistake(join(path, TEMPLATE_POLICY), value, problem);
    }
    check_spot(spec, path, findings);
    if let Some(job) = job {
        let replica = Replica { key, lower: task.lower(), spec, path };
        let why = "its master gets a service of its own name, and its pods are named alike";
        replica.check_service_names(job, replicas, why, findings);
    }
    TaskSpec { task, key, spec, restart, replicas, gpus: template.gpus }
}

/// Pods get the volume of the job's model, and on the network of a node the port of the training.
fn completes(rule: &str, place: &Place<'_, '_>) -> bool {
    match rule {
        MOUNTED => place.value == MODEL_VOLUME,
        "host-port-of-host-network" => place.beside("name") == PORT_NAME,
        _ => false,
    }
}

/// Remarks on shells among the containers, which all get the launcher's arguments.
pub(super) fn check_commands(tasks: &[TaskSpec<'_>], findings: &mut Findings) {
    for task in tasks {
        let containers = at(task.spec, &["template"]).map(template::containers).unwrap_or_default();
        shell::check(containers, &format!("{PATH}.{}.template", task.key), |_| true, findings);
    }
}

fn check_spot(spec: &Value, path: &str, findings: &mut Findings) {
    if findings.object(spec, path, "spotTaskSpec").is_none() {
        return;
    }
    let spot = spec.get("spotTaskSpec").unwrap_or(&Value::Null);
    let path = join(path, "spotTaskSpec");
    findings.integer(spot, &path, "numSpotTasks", 0, i64::from(MAX_PODS));
    findings.text(spot, &path, "priorityClassName");
    findings.check_text_map(spot, &path, "labels");
    let parts = json!({
        "metadata": {"labels": spot.get("labels")},
        "spec": {"priorityClassName": spot.get("priorityClassName")},
    });
    let places =
        [(".metadata.labels", join(&path, "labels")), (".spec.priorityClassName", join(&path, "priorityClassName"))];
    let places = places.each_ref().map(|(from, to)| (*from, to.as_str()));
    pod_rules::check_parts(&parts, &places, pod_rules::AS_WRITTEN, findings);
}

/// Rank 0 is one pod, and the others meet it at the port of its training container.
fn check_master(tasks: &[TaskSpec<'_>], findings: &mut Findings) {
    let path = join(PATH, Task::Master.name());
    let Some(master) = tasks.iter().find(|task| task.task == Task::Master) else {
        if !findings.has_errors() {
            findings.error(path, None, "a job needs a Master: it is rank 0, and the others meet there");
        }
        return;
    };
    let path = join(PATH, master.key);
    if master.replicas != 1 {
        let problem = "must be 1: a job has a single master";
        findings.error(join(&path, "numTasks"), master.spec.get("numTasks"), problem);
    }
    let containers = at(master.spec, &["template"]).map(template::containers).unwrap_or_default();
    let is_torch = |each: &Value| text_at(each, &["name"]) == Some(CONTAINER);
    let path = join(&path, "template.spec.containers");
    if !containers.is_empty() && !containers.iter().any(is_torch) {
        let names: Value = containers.iter().filter_map(|each| text_at(each, &["name"])).collect();
        let problem = format!("a Master needs a container {CONTAINER}: the others meet at its port {PORT_NAME}");
        findings.error(path, Some(&names), problem);
    }
}

/// Returns the groups of a job: each type in the order in which they start.
pub(super) fn groups(
    object: &Value,
    tasks: &[TaskSpec<'_>],
    is_torch_elastic: bool,
    notes: &ObjectAnnotations,
    settings: &TorchSettings,
) -> Vec<GroupSpec> {
    let has = |task: Task| tasks.iter().any(|each| each.task == task);
    let (key, ready) = AIMASTER_READY;
    let is_gated = has(Task::AiMaster) && annotation(object, key) != Some(ready);
    let closed = is_gated.then(|| Text::from(format!("waiting for the annotation {key}: {ready} on the job")));
    let is_elastic = notes.elastic.is_some();
    // Pods of an older generation of the object are replaced.
    let shape = notes.elastic.map(|elastic| Text::from(elastic.generation.to_string()));
    let trains = |each: &&TaskSpec<'_>| each.task != Task::AiMaster;
    let sum = tasks.iter().filter(trains).fold(0u32, |sum, each| sum.saturating_add(each.replicas));
    let size = shape.as_ref().map(|_| Text::from(sum.to_string()));
    let group = |each: &TaskSpec<'_>| {
        let upstream = match each.task {
            Task::AiMaster => None,
            Task::Master => Some(Task::AiMaster),
            Task::Worker => Some(Task::Master),
        };
        let after = upstream.filter(|task| settings.ordered && has(*task));
        let after = after.map(|task| Dependency { group: Text::from(task.lower()), reached: Reached::Started });
        GroupSpec {
            name: Text::from(each.task.lower()),
            display: Some(Text::from(each.task.name())),
            replicas: each.replicas,
            complete: GroupEndPolicy::All,
            fail: GroupEndPolicy::Any,
            restart: engine_policy(each, is_elastic),
            scope: RestartScope::Each,
            // The service of the master is an object of the job.
            services: each.task != Task::Master && !is_torch_elastic && each.port().is_some(),
            shape: shape.clone().filter(|_| each.task != Task::AiMaster),
            size: size.clone().filter(|_| each.task != Task::AiMaster),
            gpus: each.gpus,
            after: after.into_iter().collect(),
            // Those of the kubelet.
            counts_restarts: matches!(each.restart, Some(Restart::Always | Restart::OnFailure)),
            closed: closed.clone().filter(|_| each.task != Task::AiMaster),
            ..GroupSpec::default()
        }
    };
    tasks.iter().map(group).collect()
}
