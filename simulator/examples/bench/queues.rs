//! A whole round of the queues: snapshot, decision, grants and reports, as a turn decides them.
//!
//! The state is that of an operator with as many jobs as GPUs, of which about a quarter hold places. The pods of these exist and
//! are bound nowhere, so shares count. Half of the rows have ten queues of one cohort, the others the root queue alone.

use std::time::Instant;

use apis::ApiCall;
use cluster::{Cluster, Mode, NodeSpec};
use embedded::{EmbeddedCluster, Session};
use engine::{State, queues};
use event_log::MemoryLog;
use model::{Config, JobFact, JobKey, QueueEvent};
use serde_json::{Value, json};

use crate::AnyError;
use crate::classes;
use crate::replicated_jobs::next;
use crate::table::{aimed, median, topic};

/// Numbers of jobs and of GPUs, each with the aim for one round in milliseconds.
const SIZES: [(u32, f64); 2] = [(1_000, 20.0), (10_000, 500.0)];
const QUEUES: u32 = 10;
pub(crate) const GPUS_PER_NODE: u32 = 8;
const NAMESPACE: &str = "research";
/// Of how many running jobs one ends before a round with news.
pub(crate) const ENDING: usize = 20;
const TIMES: usize = 5;

/// Measures each size without and with named queues.
pub(crate) fn run() -> Result<(), AnyError> {
    topic("queues: one round, milliseconds (medians)");
    for (count, aim) in SIZES {
        for queues in [0, QUEUES] {
            let state = state(count, queues)?;
            let running: Vec<JobKey> = running(&state);
            let what = if queues == 0 { "the root queue".to_owned() } else { format!("{queues} queues") };
            let label = |news: &str| format!("{count} jobs x {count} GPUs, {what}: {news}");
            let many: Vec<&JobKey> = running.iter().step_by(ENDING).collect();
            let one: Vec<&JobKey> = running.iter().take(1).collect();
            let rows = [
                ("no news", after(&state, &[]), true),
                ("5 % ended", after(&state, &many), true),
                ("grants, one ended", after(&state, &one), false),
            ];
            for (news, state, is_round) in rows {
                let (took, events) = time(&state, is_round);
                let is_granting = events.iter().any(|event| matches!(event, QueueEvent::Shared { .. }));
                if news == "5 % ended" && !is_granting {
                    return Err(format!("{}: nothing was granted", label(news)).into());
                }
                aimed(&label(news), &format!("{took:.2}"), &format!("< {aim:.0}"), took < aim);
            }
        }
    }
    classes::run()?;
    calls()
}

/// Jobs whose calls are counted, and the pods of each.
const COUNTED: (u32, u32) = (1_000, 8);
const MORE_CALLS: f64 = 1.1;

/// Counts the calls of an admission: all jobs find room at once.
fn calls() -> Result<(), AnyError> {
    let (jobs, pods) = COUNTED;
    topic(&format!(
        "queues: calls to the API server for each of {jobs} jobs of {pods} pods until its pods are created"
    ));
    let mut each = Vec::new();
    for (what, gpus, queues) in [("without GPUs", 0, 0), ("the root queue", 1, 0), ("a queue with a quota", 1, 1)] {
        let (mut session, mut made) = (session(jobs * pods)?, 0_u32);
        let mut manifests: Vec<Value> = (0..queues).map(|n| queue(n, jobs * pods)).collect();
        manifests.extend((0..jobs).map(|n| sized_job(n, queues, pods, gpus)));
        settle(&mut session, &manifests, &mut |_| made += 1)?;
        let created = session.operator.state().jobs.iter().map(|(_, job)| job.pods.len()).sum::<usize>();
        if created != usize::try_from(jobs * pods)? {
            return Err(format!("{what}: {created} of {} pods were created", jobs * pods).into());
        }
        each.push(f64::from(made) / f64::from(jobs));
        let more = each.last().copied().unwrap_or_default() - each.first().copied().unwrap_or_default();
        let measured = format!("{:.3}", each.last().copied().unwrap_or_default());
        aimed(what, &measured, &format!("<= {MORE_CALLS} more"), more <= MORE_CALLS);
    }
    Ok(())
}

pub(crate) fn running(state: &State) -> Vec<JobKey> {
    state.jobs.iter().filter(|(_, job)| !job.allocation.share.is_empty()).map(|(key, _)| key.clone()).collect()
}

/// The state after some jobs and their pods are gone.
pub(crate) fn after(state: &State, ended: &[&JobKey]) -> State {
    let mut state = state.clone();
    for key in ended {
        let pods: Vec<_> = state.job(key).map(|job| job.pods.keys().cloned().collect()).unwrap_or_default();
        let gone = pods.into_iter().map(|uid| JobFact::PodGone { uid, rv: None });
        state.begin(next(&state), state.at.plus_ms(1));
        for fact in std::iter::once(JobFact::Gone).chain(gone) {
            state.apply_job_fact(key, &fact);
        }
        engine::step(&mut state, key);
    }
    state
}

/// The median time of one decision in milliseconds, and its events.
pub(crate) fn time(state: &State, is_round: bool) -> (f64, Vec<QueueEvent>) {
    let mut times = Vec::new();
    let mut events = Vec::new();
    for _ in 0..TIMES {
        let mut state = state.clone();
        state.begin(next(&state), state.at.plus_ms(1));
        let start = Instant::now();
        events = queues::step(&mut state, is_round);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    (median(&mut times), events)
}

/// The state of an operator that has admitted what fits.
fn state(count: u32, queues: u32) -> Result<State, AnyError> {
    let mut session = session(count)?;
    let own = |n| queue(n, count / queues);
    let manifests: Vec<Value> = (0..queues).map(own).chain((0..count).map(|n| job(n, queues))).collect();
    settle(&mut session, &manifests, &mut |_| {})?;
    let state = session.operator.state().clone();
    match running(&state).len() {
        0 => Err(format!("none of {count} jobs was admitted").into()),
        _ => Ok(state),
    }
}

/// A cluster with so many GPUs whose pods stay where they are created.
fn session(gpus: u32) -> Result<Session, AnyError> {
    let node = |n: u32| {
        let resources = [("nvidia.com/gpu".to_owned(), GPUS_PER_NODE.to_string())].into();
        NodeSpec { resources, ..NodeSpec::named(&format!("gpu-worker-{n:05}")) }
    };
    session_on((0..gpus / GPUS_PER_NODE).map(node).collect())
}

/// A cluster of these nodes whose pods stay where they are created.
pub(crate) fn session_on(nodes: Vec<NodeSpec>) -> Result<Session, AnyError> {
    let cluster = Cluster::new(&cluster::Options { mode: Mode::Manual, nodes, ..cluster::Options::default() });
    let registry = apis::Registry::all();
    let backend = EmbeddedCluster::serving(cluster, &registry)?;
    Ok(Session::open(backend, registry, Box::new(MemoryLog::new()), Config::default())?)
}

/// Applies manifests, and lets rounds pass: with many jobs a round waits for its interval.
pub(crate) fn settle(
    session: &mut Session,
    manifests: &[Value],
    on_call: &mut dyn FnMut(&ApiCall),
) -> Result<(), AnyError> {
    for manifest in manifests {
        session.cluster_mut().apply(manifest)?;
    }
    for _ in 0..4 {
        let now = session.cluster().now().plus_ms(11_000);
        session.cluster_mut().set_now(now);
        session.settle(&mut || now, &mut |call, _| on_call(call))?;
        session.take_steps();
    }
    Ok(())
}

pub(crate) fn queue(n: u32, nominal: u32) -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingQueue",
        "metadata": {"name": format!("queue-{n}")},
        "spec": {
            "cohort": "all",
            "quota": {"nvidia.com/gpu": {"nominal": nominal, "borrowing": nominal}},
            "preemption": {"withinQueue": "LowerPriority"},
        },
    })
}

/// A job of 1, 2, 4 or 8 pods with one GPU each.
fn job(n: u32, queues: u32) -> Value {
    sized_job(n, queues, 1 << (n / 7 % 4), 1)
}

pub(crate) fn sized_job(n: u32, queues: u32, pods: u32, gpus: u32) -> Value {
    let mut labels = json!({"trainyard.dev/priority": (n % 3).to_string()});
    if let Some(queue) = n.checked_rem(queues) {
        labels["trainyard.dev/queue"] = json!(format!("queue-{queue}"));
    }
    let limits = if gpus == 0 { json!({}) } else { json!({"nvidia.com/gpu": gpus.to_string()}) };
    json!({
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": format!("llama-finetune-{n:05}"), "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicaSpecs": {"trainer": {
            "replicas": pods,
            "template": {"spec": {"containers": [{
                "name": "aitj-main",
                "image": "llama:24.10",
                "resources": {"limits": limits},
            }]}},
        }}},
    })
}
