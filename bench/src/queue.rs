//! Jobs through a TrainingQueue, beside the same jobs without GPUs, which nothing holds back, and beside the bare client; and the time
//! that a preemption takes.
//!
//! Each round has an operator of its own. Before it is measured a first job was admitted: for some seconds after another leader may have
//! had calls under way no queue grants anything.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::shapes::{Round, bare_round, operator_round};
use crate::table::{AnyError, Row, figure, heading, median, note};
use crate::test_bed::TestBed;
use crate::watcher::{Group, Pods, last};
use crate::work::{self, Shape};

const GPU: &str = "nvidia.com/gpu";
const QUEUES: &str = "/apis/trainyard.dev/v1alpha1/trainingqueues";
const PREEMPTION: &str = "preemption";
/// Most pods of the job that is preempted, each with all GPUs of a node.
const VICTIMS: u32 = 32;
/// Time limit of a job to run.
const JOB_TIMEOUT: Duration = Duration::from_secs(180);
/// Admissions a second where the API server allows as many pods.
const ADMISSIONS: f64 = 400.0;

/// Measures both, in `rounds` rounds.
pub(crate) fn run(test_bed: &TestBed, shape: Shape, rounds: u32, nodes: u32) -> Result<(), AnyError> {
    let gpus = nodes * test_bed.gpus;
    if shape.all_pods() > gpus {
        return Err(format!("queue: {shape} with a GPU each need more than the {gpus} GPUs of {nodes} nodes").into());
    }
    let (mut bare, mut free, mut queued) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        bare.push(bare_round(test_bed, shape, &format!("queue-bare-{round}"))?);
        let namespace = format!("queue-none-{round}");
        let jobs = work::jobs(test_bed.kind, &namespace, shape);
        free.push(operator_round(test_bed, shape, &namespace, &jobs, |_| Ok(()))?);
        queued.push(queued_round(test_bed, shape, &format!("queue-{round}"))?);
    }
    print(shape, &bare, &free, &queued);
    preemptions(test_bed, rounds, VICTIMS.min(nodes))
}

/// Makes a job one of a queue, whose pods request GPUs.
fn with_gpus(mut job: Value, queue: &str, gpus: u32, priority: u32) -> Value {
    job["metadata"]["labels"] = json!({"trainyard.dev/queue": queue, "trainyard.dev/priority": priority.to_string()});
    for replica in job["spec"]["replicaSpecs"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        replica["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {GPU: gpus}});
    }
    job
}

fn queue(name: &str, gpus: u32) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
        "spec": {"quota": {GPU: {"nominal": gpus}}, "preemption": {"withinQueue": "LowerPriority", "minRunSeconds": 0}}})
}

fn job(namespace: &str, name: &str, pods: u32) -> Value {
    work::job(namespace, name, pods, true, &json!({}))
}

/// Creates a queue, and has a first job admitted and removed.
fn prepare(test_bed: &TestBed, namespace: &str, gpus: u32) -> Result<(), AnyError> {
    let (admin, jobs) = (&test_bed.admin, test_bed.kind.path(namespace)?);
    let group = Group::Namespace(namespace.to_owned());
    test_bed.watcher.follow(group.clone());
    let first = with_gpus(job(namespace, "first", 1), namespace, 1, 0);
    test_bed.runtime.block_on(async {
        admin.create_all(QUEUES, &[queue(namespace, gpus)]).await?;
        admin.create_all(&jobs, &[first]).await
    })?;
    test_bed.watcher.until_running(&group, 1, JOB_TIMEOUT)?;
    let path = format!("{jobs}/first");
    test_bed.runtime.block_on(admin.request(http::Method::DELETE, &path, None))?;
    test_bed.watcher.until(&group, JOB_TIMEOUT, |pods| {
        let left = pods.values().filter(|pod| pod.gone.is_none()).count();
        (left == 0).then_some(()).ok_or_else(|| "the pod of the first job is not gone".to_owned())
    })?;
    test_bed.watcher.leave(&group);
    test_bed.until_rest()
}

fn queued_round(test_bed: &TestBed, shape: Shape, namespace: &str) -> Result<Round, AnyError> {
    let jobs = work::jobs(test_bed.kind, namespace, shape);
    let jobs: Vec<Value> = jobs.into_iter().map(|job| with_gpus(job, namespace, 1, 0)).collect();
    let round =
        operator_round(test_bed, shape, namespace, &jobs, |test_bed| prepare(test_bed, namespace, shape.all_pods()));
    let path = format!("{QUEUES}/{namespace}");
    test_bed.runtime.block_on(test_bed.admin.request(http::Method::DELETE, &path, None))?;
    round
}

fn print(shape: Shape, bare: &[Round], free: &[Round], queued: &[Round]) {
    heading(&format!("{shape}, a GPU each, through a TrainingQueue; medians of {} of each in turn", bare.len()));
    let of = |rounds: &[Round], figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    let jobs = f64::from(shape.jobs);
    let created = |rounds| of(rounds, |round| round.created);
    Row::new("apply to all Running, seconds")
        .both(of(bare, |round| round.running), of(queued, |round| round.running), 2, None)
        .print();
    let admissions = jobs / created(queued);
    let allowed = (jobs / created(bare)).min(ADMISSIONS);
    let row = Row::new("jobs admitted, with all pods created, per second");
    row.both(jobs / created(bare), admissions, 0, None).aim(format!(">= {allowed:.0}"), admissions >= allowed).print();
    let without = jobs / created(free);
    Row::new("  without a queue").operator(format!("{without:.0}")).print();
    let calls = |rounds: &[Round]| {
        let used = rounds.iter().filter_map(|round| round.operator.as_ref());
        median(used.map(|used| used.calls.values().sum::<f64>() / jobs))
    };
    // In hundredths, as it is printed.
    let more = ((calls(queued) - calls(free)) * 100.0).round() / 100.0;
    let row = Row::new("calls for each job beyond those without a queue").operator(format!("{more:.2}"));
    row.aim("<= 1.1", more <= 1.1).print();
    let cpu = |rounds: &[Round]| {
        median(rounds.iter().filter_map(|round| round.operator.as_ref()).map(|used| used.cpu)) / jobs * 1000.0
    };
    let row = Row::new("operator, CPU milliseconds for each job").operator(format!("{:.2}", cpu(queued)));
    row.print();
    Row::new("  without a queue").operator(format!("{:.2}", cpu(free))).print();
}

/// From the creation of a job of higher priority until the GPUs of the job before are used again.
fn preemptions(test_bed: &TestBed, rounds: u32, pods: u32) -> Result<(), AnyError> {
    let gpus = test_bed.gpus;
    let namespace = PREEMPTION;
    test_bed.runtime.block_on(test_bed.admin.namespace(namespace))?;
    let operator = test_bed.operator(namespace)?;
    prepare(test_bed, namespace, pods * gpus)?;
    let group = Group::Namespace(namespace.to_owned());
    let jobs = test_bed.kind.path(namespace)?;
    test_bed.watcher.follow(group.clone());
    let (mut freed, mut created, mut running) = (Vec::new(), Vec::new(), Vec::new());
    let submit = |priority: u32| {
        let job = with_gpus(job(namespace, &format!("j{priority}"), pods), namespace, gpus, priority);
        test_bed.runtime.block_on(test_bed.admin.create_all(&jobs, &[job]))
    };
    submit(0)?;
    test_bed.watcher.until_running(&group, pods as usize, JOB_TIMEOUT)?;
    for priority in 1..=rounds {
        test_bed.until_rest()?;
        let before: Pods = test_bed.watcher.look(&group, Clone::clone)?;
        let started = Instant::now();
        submit(priority)?;
        test_bed.watcher.until(&group, JOB_TIMEOUT, |all| {
            let new = all.iter().filter(|(uid, pod)| !before.contains_key(*uid) && pod.running.is_some()).count();
            (new >= pods as usize).then_some(()).ok_or_else(|| format!("{new} of {pods} pods of the new job run"))
        })?;
        let now: Pods = test_bed.watcher.look(&group, Clone::clone)?;
        let gone = now.iter().filter(|(uid, _)| before.contains_key(*uid)).filter_map(|(_, pod)| pod.gone).max();
        let new: Pods = now.into_iter().filter(|(uid, _)| !before.contains_key(uid)).collect();
        let (last_created, last_running) = last(&new, started);
        freed.push(gone.map_or(f64::NAN, |gone| gone.saturating_duration_since(started).as_secs_f64()));
        created.push(last_created);
        running.push(last_running);
    }
    operator.stop()?;
    test_bed.watcher.leave(&group);
    test_bed.clear(namespace)?;
    let path = format!("{QUEUES}/{namespace}");
    test_bed.runtime.block_on(test_bed.admin.request(http::Method::DELETE, &path, None))?;
    heading(&format!(
        "{pods} pods of {gpus} GPUs are preempted by as many of a higher priority; the median of {rounds}"
    ));
    for (what, times) in [
        ("applied to the last victim gone, seconds", freed),
        ("applied to the last new pod created, seconds", created),
        ("applied to all new pods Running, seconds", running),
    ] {
        Row::new(what).operator(format!("{:.2}", median(times))).print();
    }
    note(&format!("{} GPUs change hands", figure(u64::from(pods * gpus))));
    Ok(())
}
