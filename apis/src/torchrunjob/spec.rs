//! TorchrunJob and TorchrunQueue objects -> [`JobSpec`].
//!
//! A job whose queue is not there, or cannot be used, waits: the fact says so instead of a spec. It must not render anything.
//! Tests: `tests/spec.rs`.

use std::collections::BTreeSet;

use model::{
    Budget, CleanBy, CleanPodPolicy, ClockStart, CreatePhase, Dependency, Edits, EndTiming, GroupEndPolicy, GroupSpec,
    JobEndPolicy, JobSpec, Milestones, Missing, OwnedSpec, PhaseRules, Reached, ReadinessGate, Resize, RestartPolicy,
    RestartScope, Retain, Running, SizeRange, SpecFact, Text, Threshold,
};
use serde_json::Value;

use super::constants::{SYNC, WORKER};
use super::crd::spec_schema;
use super::fields::Fields;
use super::owned::{checkpoints, service, workspace};
use super::pods::worker_name;
use super::recipe::{gpus_per_node, recipe};
use super::size::Size;
use crate::api::Referenced;
use crate::fields::{Finding, Findings};
use crate::jobqueue;
use crate::names::{LABEL_MAX, is_dns_label, is_service_name};
use crate::objects::{at, text_at};
use crate::owned::{self, CLAIM, SERVICE};
use crate::schema;
use crate::torchrunqueue::settings::{Queue, Rendezvous};
use crate::torchrunqueue::{KIND as QUEUE_KIND, usable};

/// Attempts of the pod that fills the workspace, after the first one.
const SYNC_RETRIES: u32 = 3;

/// Kinds of objects that are queues of jobs. Of two of one name the first counts.
pub(super) const QUEUE_KINDS: [&str; 2] = [QUEUE_KIND, jobqueue::KIND];

/// Returns the queue that a job names.
pub(super) fn queue_of(object: &Value) -> Option<&str> {
    let text = |key: &str| text_at(object, &["spec", key]).filter(|text| !text.is_empty());
    text("queue").or_else(|| text("jobQueue"))
}

/// Returns what is to be said of a job without regard to its queue.
pub(super) fn findings(object: &Value) -> Vec<Finding> {
    let mut findings = Findings::default();
    if let Some(fields) = Fields::read(object, &mut findings) {
        // What a number of GPUs comes to is known with the queue.
        let written = [fields.asked.nodes, fields.asked.max].into_iter().flatten().max();
        check_name(fields.name, written.unwrap_or_default(), &mut findings);
    }
    check_schema(object, &mut findings);
    findings.into_list()
}

/// Checks the name of a job by its service and the host names of its workers, of which there are `most`. A single worker has neither.
fn check_name(name: &str, most: u32, findings: &mut Findings) {
    const PATH: &str = "metadata.name";
    if most < 2 || findings.has_error_at(PATH) {
        return;
    }
    let value = Value::from(name);
    let last = worker_name(name, most.saturating_sub(1));
    if !is_service_name(name) {
        let problem =
            "must be a name for a service: workers find each other by it. Letters, digits and hyphens, a letter first";
        findings.error(PATH, Some(&value), problem);
    } else if !is_dns_label(&last) {
        let problem =
            format!("`{last}` is {} characters long, {LABEL_MAX} at most: it is the host name of a worker", last.len());
        findings.error(PATH, Some(&value), problem);
    }
}

fn check_schema(object: &Value, findings: &mut Findings) {
    findings.merge(schema::check(spec_schema(), object.get("spec").unwrap_or(&Value::Null), "spec"));
}

/// Reads a job, given its queue.
pub(super) fn fact(object: &Value, needed: &Referenced) -> SpecFact {
    let mut findings = Findings::default();
    let fields = Fields::read(object, &mut findings);
    check_schema(object, &mut findings);
    let found = queue_of(object).and_then(|name| {
        QUEUE_KINDS
            .iter()
            .find_map(|kind| needed.get(&(Text::from(*kind), Text::from(name))).map(|queue| (*kind, queue)))
    });
    let kind = found.map_or(QUEUE_KIND, |(kind, _)| kind);
    let needs: Vec<(Text, Text)> =
        queue_of(object).map(|queue| (Text::from(kind), Text::from(queue))).into_iter().collect();
    let refused = |findings: Findings, missing: Vec<Missing>| {
        let (errors, warnings) = findings.into_errors_and_warnings();
        SpecFact { warnings, missing, needs: needs.clone(), ..SpecFact::refused(errors) }
    };
    let Some(fields) = fields.filter(|_| !findings.has_errors()) else { return refused(findings, Vec::new()) };
    let missing = |problem: Option<String>| {
        vec![Missing { kind: Text::from(kind), name: Text::from(fields.queue), problem: problem.map(Text::from) }]
    };
    let Some((_, queue)) = found else {
        return refused(findings, missing(None));
    };
    let queue = match usable(queue) {
        Ok(queue) => queue,
        Err(problem) => return refused(findings, missing(Some(problem))),
    };
    match job_spec(&fields, &queue, &mut findings) {
        Some((spec, manifest)) if !findings.has_errors() => {
            let (_, warnings) = findings.into_errors_and_warnings();
            let manifest = Text::from(model::json::canonical(&manifest));
            SpecFact { warnings, needs, ..SpecFact::of(Ok(spec), manifest) }
        }
        Some(_) | None => refused(findings, Vec::new()),
    }
}

fn job_spec(job: &Fields<'_>, queue: &Queue<'_>, findings: &mut Findings) -> Option<(JobSpec, Value)> {
    let (per_node, _) = gpus_per_node(queue);
    let size = match Size::of(job.asked, per_node) {
        Ok(size) => size,
        Err((field, problem)) => {
            findings.error(format!("spec.{field}"), job.spec.get(field), problem);
            return None;
        }
    };
    let manifest = recipe(job, queue, &size);
    let rendezvous = text_at(&manifest, &["rendezvous"]);
    if size.range.is_some() && rendezvous == Some(Rendezvous::Static.word()) {
        findings.error(
            "spec.distributed.rdzvBackend",
            None,
            "static knows no elastic jobs: leave minNodes and maxNodes out",
        );
    }
    let is_distributed = size.most() > 1;
    check_name(job.name, size.most(), findings);
    let has_workspace = at(&manifest, &["workspace"]).is_some_and(Value::is_object);
    let mut groups = Vec::new();
    groups.extend(has_workspace.then(|| sync(job.generation)));
    groups.push(worker(&size, per_node > 0, has_workspace));
    let ms = |seconds: u64| seconds.saturating_mul(1000);
    let workers = BTreeSet::from([Text::from(WORKER)]);
    let clean = CleanPodPolicy::Running;
    let spec = JobSpec {
        groups,
        complete: JobEndPolicy::Sets(vec![workers.clone()]),
        fail: JobEndPolicy::Any,
        clean_by: Some(CleanBy { succeeded: clean, failed: clean, other: clean }),
        time_limit_ms: job.reliability.deadline_s.map(ms),
        limit_from: ClockStart::Admitted,
        ttl_ms: job.reliability.ttl_s.map(ms),
        budget: Some(Budget {
            limit: job.reliability.max_restarts,
            containers: true,
            reach: Threshold::Above,
            // One node that is lost is one failure, whatever number of workers it takes along.
            rounds: true,
        }),
        end_annotation: false,
        suspended: job.suspended,
        owned: objects(&manifest, is_distributed, has_workspace),
        edits: Edits::Numbers,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: false,
            running: Running::Minimum(workers),
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: true,
        },
        ..JobSpec::default()
    };
    Some((spec, manifest))
}

/// Returns the group of the pod that fills the workspace: once for each generation.
fn sync(generation: &str) -> GroupSpec {
    GroupSpec {
        name: Text::from(SYNC),
        replicas: 1,
        complete: GroupEndPolicy::None,
        fail: GroupEndPolicy::Any,
        restart: RestartPolicy::Always,
        scope: RestartScope::Each,
        restart_limit: Some(u32::MAX),
        shape: Some(Text::from(generation)),
        once: true,
        drops_succeeded: true,
        budget: Some(Budget { limit: SYNC_RETRIES, containers: true, reach: Threshold::Above, rounds: false }),
        ..GroupSpec::default()
    }
}

fn worker(size: &Size, gpus: bool, has_workspace: bool) -> GroupSpec {
    let after = Dependency { group: Text::from(SYNC), reached: Reached::Succeeded };
    GroupSpec {
        name: Text::from(WORKER),
        replicas: size.nodes,
        complete: if size.range.is_some() { GroupEndPolicy::Minimum } else { GroupEndPolicy::All },
        fail: GroupEndPolicy::None,
        restart: RestartPolicy::Always,
        scope: RestartScope::Each,
        restart_limit: Some(u32::MAX),
        gpus,
        // Where the GPUs of all workers are written, their number follows from that.
        sizes: size.range.filter(|_| size.gpus.is_none() && size.nodes > 0).map(|(min, max)| SizeRange {
            min,
            preferred: size.nodes,
            max,
            resize: Resize::InPlace,
        }),
        // One worker that runs makes a job of a fixed size run.
        min: Some(size.range.map_or(1, |(least, _)| least)),
        shape: Some(size.shape()),
        after: has_workspace.then_some(after).into_iter().collect(),
        ..GroupSpec::default()
    }
}

/// Returns the objects of a job besides its pods.
fn objects(manifest: &Value, is_distributed: bool, has_workspace: bool) -> Vec<OwnedSpec> {
    let is_owned = |volume: &str| at(manifest, &[volume, "owned"]).and_then(Value::as_bool).unwrap_or_default();
    let claim = |volume: &str| text_at(manifest, &[volume, "claim"]).unwrap_or_default();
    let mut owned = Vec::new();
    if has_workspace && is_owned("workspace") {
        let retains = at(manifest, &["workspace", "retain"]).and_then(Value::as_bool).unwrap_or_default();
        owned.push(OwnedSpec {
            object: CLAIM.named(claim("workspace")),
            when: CreatePhase::Accepted,
            // Many classes bind a claim once a pod uses it.
            awaits: ReadinessGate::Exists,
            keep: if retains { Retain::Retained } else { Retain::WithJob },
            digest: Some(owned::digest(&workspace(manifest, false))),
            follows: Some(Text::from(SYNC)),
            pods: None,
        });
    }
    if is_owned("checkpoints") {
        let kept = at(manifest, &["checkpoints", "retain"]).and_then(Value::as_bool) != Some(false);
        owned.push(OwnedSpec {
            object: CLAIM.named(claim("checkpoints")),
            when: CreatePhase::Accepted,
            awaits: ReadinessGate::Exists,
            keep: if kept { Retain::Retained } else { Retain::WithJob },
            digest: Some(owned::digest(&checkpoints(manifest))),
            follows: None,
            pods: None,
        });
    }
    if is_distributed {
        owned.push(OwnedSpec {
            object: SERVICE.named(text_at(manifest, &["name"]).unwrap_or_default()),
            when: CreatePhase::Accepted,
            awaits: ReadinessGate::Exists,
            keep: Retain::WithJob,
            digest: Some(owned::digest(&service(manifest))),
            follows: None,
            pods: None,
        });
    }
    owned
}
