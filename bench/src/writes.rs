//! Every call to the API server in a job's life, from its creation until it has succeeded and was cleaned up.
//!
//! Calls are counted by the operator; the content of each status write comes from a watch of the job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apis::objects;
use model::Phase;
use serde_json::{Value, json};

use crate::api::Api;
use crate::operator::{Operator, difference};
use crate::table::{AnyError, Row, heading, note};
use crate::test_bed::TestBed;
use crate::watcher::Group;

/// Time limit of one job.
const JOB_TIMEOUT: Duration = Duration::from_secs(300);
const SPACE: &str = "writes";

/// One job after the other, with these numbers of pods. Every pod has a service: only containers that take part in a job can end it.
pub(crate) fn run(test_bed: &TestBed, sizes: &[u32]) -> Result<(), AnyError> {
    test_bed.runtime.block_on(test_bed.admin.namespace(SPACE))?;
    let operator = test_bed.operator(SPACE)?;
    let lease = lease_writes(test_bed, &operator)?;
    for &pods in sizes {
        life(test_bed, &operator, pods)?;
    }
    heading("at rest");
    Row::new("writes of the Lease per minute").operator(format!("{lease:.0}")).print();
    operator.stop()?;
    test_bed.clear(SPACE)
}

/// Attempts to write the Lease in a minute, from a few seconds of them.
fn lease_writes(test_bed: &TestBed, operator: &Operator) -> Result<f64, AnyError> {
    const SECONDS: u64 = 10;
    let attempts = || Ok::<f64, AnyError>(operator.metrics("trainyard_lease_attempts_total")?.values().sum());
    let before = (attempts()?, operator.calls()?);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let other = difference(&operator.calls()?, &before.1);
    if !other.is_empty() {
        return Err(format!("an operator without jobs makes calls: {other:?}").into());
    }
    test_bed.until_rest()?;
    Ok((attempts()? - before.0) * 6.0)
}

fn life(test_bed: &TestBed, operator: &Operator, pods: u32) -> Result<(), AnyError> {
    let name = format!("life-{pods}");
    // All run at the same time for a while, however long creating them takes.
    let runs = json!({"trainyard.dev/kwok-run-for": if pods > 100 { "60s" } else { "5s" }});
    let manifest = test_bed.kind.job(SPACE, &name, pods, false, &runs);
    let group = Group::Namespace(SPACE.to_owned());
    test_bed.watcher.follow(group.clone());
    let statuses = Statuses::default();
    let succeeded = test_bed.kind.api()?.phase_word(Phase::Succeeded);
    let jobs = test_bed.kind.path(SPACE)?;
    let path = format!("{jobs}?watch=true&timeoutSeconds=3600&fieldSelector=metadata.name={name}");
    let watching = test_bed.runtime.spawn(watch(test_bed.admin.clone(), path, statuses.clone()));
    let before = (operator.calls()?, operator.metrics("trainyard_watch_restarts_total")?);
    test_bed.runtime.block_on(test_bed.admin.create_all(&test_bed.kind.path(SPACE)?, &[manifest]))?;
    let started = Instant::now();
    loop {
        let phase = statuses.last();
        let all_gone = test_bed
            .watcher
            .look(&group, |seen| seen.len() >= pods as usize && seen.values().all(|pod| pod.gone.is_some()))?;
        if phase == succeeded && all_gone {
            break;
        }
        if started.elapsed() > JOB_TIMEOUT {
            return Err(format!("{name} is {phase:?} after {JOB_TIMEOUT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    test_bed.until_rest()?;
    watching.abort();
    let calls = difference(&operator.calls()?, &before.0);
    let watches = difference(&operator.metrics("trainyard_watch_restarts_total")?, &before.1);
    test_bed.watcher.leave(&group);
    print(pods, &calls, watches.values().fold(0.0, |sum, count| sum + count), &statuses);
    Ok(())
}

fn print(pods: u32, calls: &BTreeMap<String, f64>, watches: f64, statuses: &Statuses) {
    let pod_word = if pods == 1 { "pod" } else { "pods" };
    heading(&format!("calls in the life of a job of {pods} {pod_word}: created, run, succeeded, cleaned up"));
    let mut all = 0.0;
    for (call, count) in calls {
        let row = Row::new(call).operator(format!("{count:.0}"));
        // A slot's pod and service are made once and deleted once.
        let once = call.ends_with(" pods") || call.ends_with(" services");
        row.aim_where(once, format!("<= {pods}"), *count <= f64::from(pods)).print();
        all += count;
    }
    Row::new("all").operator(format!("{all:.0}")).print();
    Row::new("watches restarted").operator(format!("{watches:.0}")).print();
    note(&format!("the status said: {}", statuses.words()));
}

/// Phases and times of a job's status, in order.
#[derive(Clone, Default)]
struct Statuses(Arc<Mutex<Vec<(String, String)>>>);

impl Statuses {
    fn add(&self, object: &Value) {
        let phase = objects::state_word(&object["status"]).unwrap_or_default().to_owned();
        let said = object["status"].to_string();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.last().is_none_or(|(_, last)| *last != said) && object["status"] != Value::Null {
            all.push((phase, said));
        }
    }

    fn last(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.last().map(|(phase, _)| phase.clone()).unwrap_or_default()
    }

    /// `Pending, Creating 3 times, Running`.
    fn words(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words: Vec<(String, u32)> = Vec::new();
        for (phase, _) in all.iter() {
            match words.last_mut() {
                Some((last, times)) if last == phase => *times += 1,
                _ => words.push((phase.clone(), 1)),
            }
        }
        let shown = words.iter().map(|(phase, times)| match times {
            1 => phase.clone(),
            times => format!("{phase} {times} times"),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Notes every status of a job, from before it is created until the task is ended.
async fn watch(api: Api, path: String, statuses: Statuses) -> Result<(), AnyError> {
    api.watch(&path, |line| {
        statuses.add(&serde_json::from_slice::<Value>(line)?["object"]);
        Ok(())
    })
    .await
}
