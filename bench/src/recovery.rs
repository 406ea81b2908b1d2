//! Measures how soon work continues: after the leader is killed, after most pods of a job are deleted.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::Timestamp;
use serde_json::{Value, json};

use crate::api::{self, MAX_IN_FLIGHT};
use crate::operator::{HOME, Operator, Start};
use crate::table::{AnyError, Row, figure, heading, median};
use crate::test_bed::TestBed;
use crate::watcher::{Group, Pods, last};
use crate::work;

/// Time limit of pods to run.
const POD_TIMEOUT: Duration = Duration::from_secs(60);
const FAILOVER: &str = "failover";
const DELETED: &str = "deleted";

/// Measures both, `rounds` times each. A short lease makes the waiting short and changes nothing about what follows it.
pub(crate) fn run(test_bed: &TestBed, rounds: u32, short_lease: bool) -> Result<(), AnyError> {
    let failovers = failovers(test_bed, rounds, short_lease)?;
    let (created, running) = deletions(test_bed, rounds)?;
    heading(&format!("going on; the median of {rounds}"));
    let each = failovers.iter().map(|seconds| format!("{seconds:.2}")).collect::<Vec<_>>().join(", ");
    let middle = median(failovers);
    let row = Row::new("leader killed: lease expiry to first pod created, seconds").operator(format!("{middle:.2}"));
    row.aim("< 2", middle < 2.0).print();
    if rounds > 1 {
        Row::new(format!("  each: {each}")).print();
    }
    let row = Row::new("30 of 32 pods deleted: all created again, seconds").operator(format!("{created:.2}"));
    row.aim("< 3", created < 3.0).print();
    Row::new("  and all Running, seconds").operator(format!("{running:.2}")).print();
    Ok(())
}

/// A job whose pods run, watched.
fn job(test_bed: &TestBed, namespace: &str, pods: u32) -> Result<Group, AnyError> {
    let group = Group::Namespace(namespace.to_owned());
    test_bed.watcher.follow(group.clone());
    let manifest = work::job(namespace, "j", pods, false, &json!({}));
    test_bed.runtime.block_on(test_bed.admin.create_all(&api::jobs(namespace), &[manifest]))?;
    test_bed.watcher.until_running(&group, pods as usize, POD_TIMEOUT)?;
    Ok(group)
}

/// The leader is killed, then a pod is deleted: the next leader must create it. The time is that from the moment at which the dead
/// leader's lease ran out until the new pod was seen; claiming the term and fencing the job come before.
fn failovers(test_bed: &TestBed, rounds: u32, short_lease: bool) -> Result<Vec<f64>, AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(FAILOVER))?;
    let lease = ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"];
    let arguments = if short_lease { lease.map(str::to_owned).to_vec() } else { Vec::new() };
    let start = |name: &str| {
        let start = Start { arguments: arguments.clone(), ..Start::default() };
        Operator::start(test_bed, name, &start)
    };
    let mut leader = start("failover-leader")?;
    leader.until_says("leading")?;
    let group = job(test_bed, FAILOVER, 2)?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let mut standby = start(&format!("failover-standby-{round}"))?;
        standby.until_says("following")?;
        // So that a renewal is neither just over nor about to come in each round.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 700));
        leader.kill()?;
        let known = test_bed.watcher.look(&group, Pods::len)?;
        test_bed.runtime.block_on(delete(test_bed, FAILOVER, &["j-w-1".to_owned()]))?;
        let lease = test_bed.runtime.block_on(
            test_bed.admin.get(&format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/trainyard")),
        )?;
        let seen = until_more(test_bed, &group, known + 1)?;
        times.push(seconds_since_epoch(seen)? - expiry(&lease)?);
        test_bed.watcher.until_running(&group, 2, POD_TIMEOUT)?;
        leader = standby;
    }
    leader.stop()?;
    test_bed.watcher.leave(&group);
    test_bed.clear(FAILOVER)?;
    Ok(times)
}

/// Returns the time at which the first new pod was seen.
fn until_more(test_bed: &TestBed, group: &Group, count: usize) -> Result<Instant, AnyError> {
    test_bed.watcher.until(group, POD_TIMEOUT, |pods| {
        let newest = pods.values().map(|pod| pod.first).max();
        newest.filter(|_| pods.len() >= count).ok_or_else(|| format!("{} of {count} pods were created", pods.len()))
    })
}

/// Returns the time at which a Lease expires unless it is renewed, in seconds since 1970. All clocks are this machine's.
fn expiry(lease: &Value) -> Result<f64, AnyError> {
    let spec = &lease["spec"];
    let renewed = spec["renewTime"].as_str().and_then(Timestamp::parse_rfc3339);
    let (Some(renewed), Some(lasts)) = (renewed, spec["leaseDurationSeconds"].as_u64()) else {
        return Err(format!("the lease is not held: {spec}").into());
    };
    Ok(figure(renewed.0) / 1000.0 + figure(lasts))
}

fn seconds_since_epoch(at: Instant) -> Result<f64, AnyError> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() - at.elapsed().as_secs_f64())
}

/// From the first deletion until all were created again, and until all ran.
fn deletions(test_bed: &TestBed, rounds: u32) -> Result<(f64, f64), AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(DELETED))?;
    let operator = test_bed.operator(DELETED)?;
    let group = job(test_bed, DELETED, 32)?;
    let names: Vec<String> = (1..31).map(|n| format!("j-w-{n}")).collect();
    let (mut created, mut running) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // The back-off of pods that fail again and again is not in the way of the next round: these did not fail.
        test_bed.until_rest()?;
        let before: Pods = test_bed.watcher.look(&group, Clone::clone)?;
        let started = Instant::now();
        test_bed.runtime.block_on(delete(test_bed, DELETED, &names))?;
        until_more(test_bed, &group, before.len() + names.len())?;
        test_bed.watcher.until_running(&group, 32, POD_TIMEOUT)?;
        let mut new: Pods = test_bed.watcher.look(&group, Clone::clone)?;
        new.retain(|uid, _| !before.contains_key(uid));
        let times = last(&new, started);
        created.push(times.0);
        running.push(times.1);
    }
    operator.stop()?;
    test_bed.watcher.leave(&group);
    test_bed.clear(DELETED)?;
    Ok((median(created), median(running)))
}

/// As a user deletes pods: with their own grace period.
async fn delete(test_bed: &TestBed, namespace: &str, names: &[String]) -> Result<(), AnyError> {
    let paths: Vec<String> = names.iter().map(|name| format!("{}/{name}", api::pods(namespace))).collect();
    api::all(MAX_IN_FLIGHT, paths.iter().map(|path| test_bed.admin.request(http::Method::DELETE, path, None))).await
}
