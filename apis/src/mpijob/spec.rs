//! MPIJob object -> [`JobSpec`]: which jobs are scheduled here, their workers, and the manifest that their size and nodes are written
//! from.
//!
//! Sizes, epochs and priority come from the launcher's environment, in Voda's spellings. The fields that are steered are left out of the manifest, so
//! that a write of them is no edit. It must not render anything (that is `patch.rs`). Tests: `tests.rs`.

use model::{
    CleanPodPolicy, EndTiming, GroupSpec, JobEndPolicy, JobSpec, Milestones, PhaseRules, Resize, RestartPolicy,
    Running, SizeRange, SpecFact, Text,
};
use serde_json::{Map, Value, json};

use super::constants::{
    ACCELERATOR, LAUNCHER, LAUNCHER_LOWER, LAUNCHER_TEMPLATE, MANAGER, MAX_VARIABLES, MIN_VARIABLES, SUSPEND, WORKER,
    WORKER_LOWER,
};
use super::crd::spec_schema;
use super::{patch, tolerations};
use crate::demand::{self, QUEUE};
use crate::fields::{Findings, join};
use crate::kueue::QUEUE_NAME;
use crate::names::{LABEL_MAX, is_service_name};
use crate::objects::{annotation, at, label, list_at, text_at};
use crate::pod_rules::{MOUNTED, Place};
use crate::replicas::slot_name;
use crate::template;
use crate::translation::{Translation, spec_of};

/// Reads specs of this API.
pub(super) const TRANSLATION: Translation = Translation { read, schema: spec_schema, manifest };

/// Reads the spec of an object. Of a job that is left alone nothing is read, so nothing is wrong with it.
pub(super) fn fact(object: &Value) -> SpecFact {
    if is_scheduled(object) {
        return TRANSLATION.fact(object);
    }
    SpecFact::of(Ok(job_spec()), Text::from("{}"))
}

const REPLICAS: &str = "spec.mpiReplicaSpecs";

/// Limit of a number of workers.
const MAX_WORKERS: i64 = 100_000;

fn read(object: &Value, findings: &mut Findings) -> Option<JobSpec> {
    let spec = spec_of(object, findings)?;
    let worker = at(spec, &["mpiReplicaSpecs", WORKER]).filter(|worker| worker.is_object());
    if worker.is_none() {
        findings.error(join(REPLICAS, WORKER), at(spec, &["mpiReplicaSpecs", WORKER]), "an MPIJob needs workers");
    }
    let worker = worker?;
    let base = join(REPLICAS, WORKER);
    let template = template::check(worker, &base, completes, findings);
    let launcher = at(spec, &["mpiReplicaSpecs", LAUNCHER]).filter(|launcher| launcher.is_object());
    if let Some(launcher) = launcher {
        template::check(launcher, &join(REPLICAS, LAUNCHER), completes, findings);
    }
    let sizes = Sizes::read(spec, findings);
    epochs(spec, findings);
    priority(spec, findings);
    let written = findings.integer(worker, &base, "replicas", 0, MAX_WORKERS).and_then(|n| u32::try_from(n).ok());
    let range = sizes.and_then(Sizes::range);
    let replicas = range.map(|sizes| sizes.max).or(written);
    if replicas.is_none() {
        findings.error(join(&base, "replicas"), None, "give the number of workers");
    }
    check_name(object, replicas.or(written).unwrap_or_default(), findings);
    let group = GroupSpec {
        name: Text::from(WORKER_LOWER),
        display: Some(Text::from(WORKER)),
        replicas: replicas?,
        sizes: range,
        gpus: template.gpus,
        restart: RestartPolicy::Never,
        ..GroupSpec::default()
    };
    let suspended = annotation(object, SUSPEND) == Some("true");
    let launcher = launcher_with_gpus(object).map(|_| GroupSpec {
        name: Text::from(LAUNCHER_LOWER),
        display: Some(Text::from(LAUNCHER)),
        replicas: 1,
        gpus: true,
        restart: RestartPolicy::Never,
        ..GroupSpec::default()
    });
    Some(JobSpec { groups: [group].into_iter().chain(launcher).collect(), suspended, ..job_spec() })
}

/// Checks that the name of a job makes names for the services and host names of its pods, as the MPI operator checks it.
fn check_name(object: &Value, workers: u32, findings: &mut Findings) {
    const PATH: &str = "metadata.name";
    let Some(name) = text_at(object, &["metadata", "name"]).filter(|_| !findings.has_error_at(PATH)) else { return };
    let worker = slot_name(name, WORKER_LOWER, workers.saturating_sub(1));
    let launcher = format!("{name}-{LAUNCHER_LOWER}");
    let value = Value::from(name);
    if let Some(host) = [worker, launcher].into_iter().find(|host| host.len() > LABEL_MAX) {
        let length = host.len();
        let problem =
            format!("`{host}` is {length} characters long, {LABEL_MAX} at most: it is the host name of a pod");
        findings.error(PATH, Some(&value), problem);
    } else if !is_service_name(name) {
        findings.error(
            PATH,
            Some(&value),
            "must be letters, digits and inner hyphens, a letter first: it names a service",
        );
    }
}

/// Volumes that the MPI operator adds to the pods of a job.
const VOLUMES: [&str; 3] = ["mpi-job-config", "ssh-auth", "ssh-home"];

/// Workers get the volumes of the MPI operator.
fn completes(rule: &str, place: &Place<'_, '_>) -> bool {
    rule == MOUNTED && VOLUMES.iter().any(|name| place.value == name)
}

/// Returns the template of a launcher that requests GPUs, which then count as those of workers do, whether or not it trains as well.
fn launcher_with_gpus(object: &Value) -> Option<&Value> {
    let template = at(object, &["spec", "mpiReplicaSpecs", LAUNCHER, "template"])?;
    at(template, &["spec"]).filter(|spec| !demand::requests(spec).is_empty()).map(|_| template)
}

/// Policies of every job: the MPI operator ends it and cleans up.
fn job_spec() -> JobSpec {
    JobSpec {
        complete: JobEndPolicy::None,
        fail: JobEndPolicy::None,
        clean_pods: CleanPodPolicy::None,
        end_annotation: false,
        externally_managed: true,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: false,
            running: Running::All,
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: false,
        },
        ..JobSpec::default()
    }
}

/// Returns true for a job that is scheduled here: it names a queue, or a type of GPU as Voda's jobs do, and no other admits it.
fn is_scheduled(object: &Value) -> bool {
    let asks = label(object, QUEUE).is_some() || names_accelerator(object);
    let manager = text_at(object, &["spec", "runPolicy", "managedBy"]);
    asks && label(object, QUEUE_NAME).is_none() && manager.is_none_or(|manager| manager == MANAGER)
}

/// Returns what is done with a job.
pub(super) fn service(object: &Value) -> String {
    const PODS: &str = "the MPI operator creates its pods";
    let manager = text_at(object, &["spec", "runPolicy", "managedBy"]).filter(|manager| *manager != MANAGER);
    if is_scheduled(object) {
        return format!("{PODS}; Trainyard decides when it has them, how many workers it has, and on which nodes");
    }
    let why = match (label(object, QUEUE_NAME), manager) {
        (Some(_), _) => format!("Kueue admits it, as the label {QUEUE_NAME} says"),
        (None, Some(manager)) => format!("runPolicy.managedBy names {manager}"),
        (None, None) => {
            format!("it names neither a queue (label {QUEUE}) nor a type of GPU (nodeSelector {ACCELERATOR})")
        }
    };
    format!("{PODS}, and Trainyard leaves it alone: {why}")
}

/// Returns true for a job that names a type of GPU, as Voda's jobs do.
pub(super) fn names_accelerator(object: &Value) -> bool {
    let selector = ["spec", "mpiReplicaSpecs", WORKER, "template", "spec", "nodeSelector", ACCELERATOR];
    label(object, ACCELERATOR).is_some() || at(object, &selector).is_some()
}

/// Returns true if the environment of the launcher names the number of workers, so that it is written into the object.
pub(super) fn is_sized(object: &Value) -> bool {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    Sizes::read(spec, &mut Findings::default()).and_then(Sizes::range).is_some()
}

/// Numbers of workers that the environment of the launcher names; each absent where it names none.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    min: Option<u32>,
    num: Option<u32>,
    max: Option<u32>,
}

impl Sizes {
    /// Returns the numbers of workers that the queues may choose; `None` where none is named.
    fn range(self) -> Option<SizeRange> {
        let preferred = self.num.or(self.max)?;
        let (min, max) = (self.min.unwrap_or(preferred), self.max.unwrap_or(preferred));
        Some(SizeRange { min, preferred, max, resize: Resize::InPlace })
    }

    /// Reads the sizes. `None` when they contradict each other.
    fn read(spec: &Value, findings: &mut Findings) -> Option<Self> {
        let mut read =
            |names: [&str; 2]| variable(spec, &names, 1, "must be a whole number of workers, at least 1", findings);
        let (min, num, max) = (read(MIN_VARIABLES), read(["NUM_PROC", "NP"]), read(MAX_VARIABLES));
        let sizes = Self { min, num: num.or(min), max };
        let path = |name: &str| format!("{REPLICAS}.{LAUNCHER}.template.spec.containers[0].env[{name}]");
        let at_most = |smaller: Option<u32>, larger: Option<u32>| smaller.zip(larger).is_none_or(|(a, b)| a <= b);
        let shown = |number: Option<u32>| number.map(|n| json!(n));
        if !at_most(sizes.min, sizes.num) {
            findings.error(path("NUM_PROC"), shown(num).as_ref(), "must be at least MIN_NUM_PROC");
            return None;
        }
        if !at_most(sizes.num, sizes.max) {
            findings.error(path("MAX_NUM_PROC"), shown(max).as_ref(), "must be at least NUM_PROC and MIN_NUM_PROC");
            return None;
        }
        Some(sizes)
    }
}

/// Reads the variable of the launcher's first container that has one of these names: the last one counts, as for the program. `meant`:
/// what a number below `min`, or another text, is not.
fn variable(spec: &Value, names: &[&str], min: u32, meant: &str, findings: &mut Findings) -> Option<u32> {
    let template = at(spec, &["mpiReplicaSpecs", LAUNCHER, "template"])?;
    let container = template::containers(template).first()?;
    let is_named = |each: &&Value| text_at(each, &["name"]).is_some_and(|name| names.contains(&name));
    let (n, found) = list_at(container, &["env"]).iter().enumerate().rfind(|(_, each)| is_named(each))?;
    let value = found.get("value");
    let number = value.and_then(Value::as_str).and_then(|text| text.trim().parse().ok()).filter(|n| *n >= min);
    if number.is_none() {
        let base = format!("{REPLICAS}.{LAUNCHER}.template.spec.containers[0].env[{n}]");
        findings.error(join(&base, "value"), value, meant);
    }
    number
}

fn epochs(spec: &Value, findings: &mut Findings) -> Option<u32> {
    variable(spec, &["EPOCHS"], 0, "must be a whole number of epochs", findings).filter(|epochs| *epochs > 0)
}

fn priority(spec: &Value, findings: &mut Findings) -> Option<u32> {
    variable(spec, &["JOB_PRIORITY"], 0, "must be a whole number, 0 or more; 0 is served first", findings)
}

/// Returns the epochs that the environment of the launcher names.
pub(super) fn units(object: &Value) -> Option<u64> {
    epochs(object.get("spec")?, &mut Findings::default()).map(u64::from)
}

/// Returns the queue of policies by attained service that the environment of the launcher names.
pub(super) fn level(object: &Value) -> u32 {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    priority(spec, &mut Findings::default()).unwrap_or_default()
}

/// Returns what the steered fields are rendered from: the template of the workers as its user wrote it, and whether they tolerate Voda's
/// taints.
fn manifest(object: &Value) -> Value {
    let template = at(object, &["spec", "mpiReplicaSpecs", WORKER, "template"]).cloned().unwrap_or_default();
    let mut template = patch::own(template);
    let is_of_voda = names_accelerator(object);
    if is_of_voda {
        tolerations::remove(&mut template);
    }
    let mut manifest = Map::from_iter([("template".to_owned(), template)]);
    manifest.extend(is_of_voda.then(|| ("toleratesVoda".to_owned(), json!(true))));
    manifest.extend(launcher_with_gpus(object).map(|launcher| (LAUNCHER_TEMPLATE.to_owned(), launcher.clone())));
    Value::Object(manifest)
}
