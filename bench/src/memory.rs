//! What the operator holds in memory: with many live jobs, after they finished, and beside objects that are not its own.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::api::{self, MAX_IN_FLIGHT};
use crate::operator::Operator;
use crate::table::{AnyError, Row, figure, heading, mb, mib};
use crate::test_bed::TestBed;
use crate::watcher::Group;
use crate::work;

const LIVE: &str = "live";
const FOREIGN: &str = "foreign";
/// Pods of each live job.
const PODS: u32 = 8;
/// Time without any watch event after which pods count as stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(180);
/// Wait before memory is read: the allocator releases freed pages after a second.
const SETTLE_TIME: Duration = Duration::from_secs(6);
/// Of a `ConfigMap`: as much as one may hold, nearly.
const CONFIG_MAP_BYTES: u64 = 1_000_000;

/// Sizes of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    /// Live jobs of 8 pods.
    pub(crate) jobs: u32,
    /// True if their pods have services.
    pub(crate) services: bool,
    /// Pods that are not the operator's.
    pub(crate) foreign_pods: u32,
    /// Bytes of `ConfigMaps`.
    pub(crate) config_map_bytes: u64,
}

/// Memory aim with 10,000 live jobs, in bytes.
const LIVE_AIM: f64 = 256.0 * 1024.0 * 1024.0;
const FULL_JOBS: u32 = 10_000;

/// Measures all of it.
pub(crate) fn run(test_bed: &TestBed, amounts: Amounts) -> Result<(), AnyError> {
    foreign(test_bed, amounts)?;
    live(test_bed, amounts)
}

/// Resident memory once the API server is at rest, and a little later.
fn resident(test_bed: &TestBed, operator: &Operator) -> Result<f64, AnyError> {
    test_bed.until_rest()?;
    std::thread::sleep(SETTLE_TIME);
    Ok(figure(operator.usage()?.rss_bytes))
}

fn foreign(test_bed: &TestBed, amounts: Amounts) -> Result<(), AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(FOREIGN))?;
    let operator = test_bed.operator(FOREIGN)?;
    let idle = resident(test_bed, &operator)?;
    // They are not scheduled: only their existence counts.
    let pods: Vec<Value> = (0..amounts.foreign_pods).map(foreign_pod).collect();
    test_bed.runtime.block_on(test_bed.admin.create_all(&api::pods(FOREIGN), &pods))?;
    drop(pods);
    let with_pods = resident(test_bed, &operator)?;
    let config_maps = format!("/api/v1/namespaces/{FOREIGN}/configmaps");
    let maps = amounts.config_map_bytes.div_ceil(CONFIG_MAP_BYTES);
    test_bed.runtime.block_on(create_config_maps(test_bed, &config_maps, maps))?;
    let with_maps = resident(test_bed, &operator)?;
    heading("memory beside objects of others");
    Row::new("resident when idle, MB").operator(mb(idle)).print();
    let grown = with_pods - idle;
    let row = Row::new(format!("growth for {} foreign pods, MiB", amounts.foreign_pods)).operator(mib(grown));
    row.aim("< 1", grown < f64::from(1 << 20)).print();
    let grown = with_maps - with_pods;
    let what = format!("growth for {} MB of foreign ConfigMaps, MiB", maps * CONFIG_MAP_BYTES / 1_000_000);
    Row::new(what).operator(mib(grown)).aim("< 2", grown < f64::from(2 << 20)).print();
    operator.stop()?;
    test_bed.runtime.block_on(test_bed.admin.clear(&config_maps))?;
    test_bed.clear(FOREIGN)
}

fn foreign_pod(index: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p{index}"), "labels": {"app": "another"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}})
}

async fn create_config_maps(test_bed: &TestBed, path: &str, count: u64) -> Result<(), AnyError> {
    let text = "x".repeat(usize::try_from(CONFIG_MAP_BYTES)?);
    // Few at once, each made when it is sent: the bench must not hold a gigabyte either.
    let made = (0..count).map(|n| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"text": text}});
        async move { test_bed.admin.request(Method::POST, path, Some(&object)).await }
    });
    api::all(4, made).await
}

fn live(test_bed: &TestBed, amounts: Amounts) -> Result<(), AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(LIVE))?;
    let operator = test_bed.operator(LIVE)?;
    let idle = resident(test_bed, &operator)?;
    let group = Group::Namespace(LIVE.to_owned());
    test_bed.watcher.follow(group.clone());
    let started = Instant::now();
    let jobs: Vec<Value> = (0..amounts.jobs).map(|n| live_job(n, amounts.services)).collect();
    test_bed.runtime.block_on(test_bed.admin.create_all(&api::jobs(LIVE), &jobs))?;
    drop(jobs);
    let wanted = amounts.jobs * PODS;
    let reached = test_bed.watcher.until_running(&group, wanted as usize, STALL_TIMEOUT);
    let seconds = started.elapsed().as_secs_f64();
    let running = test_bed.watcher.look(&group, |pods| pods.values().filter(|pod| pod.running.is_some()).count())?;
    let held = resident(test_bed, &operator)?;
    let peak = figure(operator.usage()?.peak_rss_bytes);
    heading(&format!("memory with {} live jobs of {PODS} pods", amounts.jobs));
    if let Err(limit) = &reached {
        Row::new(format!("LIMIT of this control plane: {limit}")).print();
    }
    Row::new("resident when idle, MB").operator(mb(idle)).print();
    Row::new(format!("{running} pods Running after, seconds")).operator(format!("{seconds:.0}")).print();
    let row = Row::new("resident with all of them at rest, MiB").operator(mib(held));
    row.aim_where(amounts.jobs == FULL_JOBS, "< 256", held < LIVE_AIM).print();
    let each = (held - idle) / figure(u64::from(amounts.jobs.max(1)));
    Row::new("  per live job, kB").operator(format!("{:.2}", each / 1000.0)).print();
    Row::new("most resident memory, MiB").operator(mib(peak)).print();
    finish(test_bed, amounts, reached.is_ok(), &operator, &group, idle)?;
    operator.stop()?;
    test_bed.watcher.leave(&group);
    test_bed.clear(LIVE)
}

/// A job that ends when its first pod does, and leaves no pods then.
fn live_job(index: u32, services: bool) -> Value {
    let mut job = work::job(LIVE, &format!("j{index}"), PODS, false, &json!({}));
    job["spec"]["completePolicy"] = json!("Any");
    let group = &mut job["spec"]["replicaSpecs"]["w"];
    group["completePolicy"] = json!("Rank0");
    if !services {
        // A container that takes part is needed for an end; without one the job lives on.
        group["template"]["spec"]["containers"][0]["name"] = json!("worker");
    }
    job
}

/// Ends every job, waits until its pods are gone, and looks again; then deletes the jobs, and looks once more. Where not all
/// pods ever ran, only the latter. Jobs whose containers take no part in them do not end when their pods do, and are preempted.
fn finish(
    test_bed: &TestBed,
    amounts: Amounts,
    complete: bool,
    operator: &Operator,
    group: &Group,
    idle: f64,
) -> Result<(), AnyError> {
    let started = Instant::now();
    if complete {
        test_bed.runtime.block_on(end(test_bed, amounts))?;
        until_gone(test_bed, group)?;
        let after = resident(test_bed, operator)?;
        Row::new("all jobs ended and cleaned up after, seconds")
            .operator(format!("{:.0}", started.elapsed().as_secs_f64()))
            .print();
        let row = Row::new("resident after all of them finished, MB").operator(mb(after));
        row.aim(format!("<= {}", mb(idle * 1.2)), after <= idle * 1.2).print();
    }
    test_bed.runtime.block_on(test_bed.admin.clear(&api::jobs(LIVE)))?;
    until_gone(test_bed, group)?;
    let after = resident(test_bed, operator)?;
    let row = Row::new("resident after they were deleted, MB").operator(mb(after));
    row.aim(format!("<= {}", mb(idle * 1.2)), after <= idle * 1.2).print();
    Ok(())
}

fn until_gone(test_bed: &TestBed, group: &Group) -> Result<(), AnyError> {
    test_bed.watcher.until(group, STALL_TIMEOUT, |pods| match pods.values().filter(|pod| pod.gone.is_none()).count() {
        0 => Ok(()),
        left => Err(format!("{left} pods of jobs that are over are still there")),
    })
}

/// A job with services, and so with a container that takes part, ends with its first pod.
async fn end(test_bed: &TestBed, amounts: Amounts) -> Result<(), AnyError> {
    let (annotation, value, of, suffix) = if amounts.services {
        ("trainyard.dev/kwok-run-for", "1s", api::pods(LIVE), "-w-0")
    } else {
        ("Preempted", "by the bench", api::jobs(LIVE), "")
    };
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let path = |n| format!("{of}/j{n}{suffix}");
    let paths: Vec<String> = (0..amounts.jobs).map(path).collect();
    api::all(MAX_IN_FLIGHT, paths.iter().map(|path| test_bed.admin.request(Method::PATCH, path, Some(&patch)))).await
}
