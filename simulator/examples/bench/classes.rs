//! A round with nodes of ten classes, among which jobs choose, beside the same round with nodes of one class.
//!
//! A class has a label, its own amount of CPU and memory, and every third a taint. Each job selects the nodes of one class and tolerates
//! its taint, or requires one of two classes by affinity. Both rounds have as many jobs, of the same sizes, on as many nodes.

use engine::State;
use model::{JobKey, QueueEvent};
use serde_json::{Value, json};

use crate::AnyError;
use crate::queues::{ENDING, GPUS_PER_NODE, after, queue, running, session_on, settle, sized_job, time};
use crate::table::{aimed, row, topic};

/// Jobs, and nodes as many.
const COUNT: u32 = 1_000;
const CLASSES: u32 = 10;
const QUEUES: u32 = 10;
/// Aim for the ratio of the rounds.
const RATIO: f64 = 1.2;

/// Measures both without and with named queues.
pub(crate) fn run() -> Result<(), AnyError> {
    topic(&format!("queues: one round of {COUNT} jobs on {COUNT} nodes, milliseconds (medians)"));
    for queues in [0, QUEUES] {
        let states = [state(1, queues)?, state(CLASSES, queues)?];
        let what = if queues == 0 { "the root queue".to_owned() } else { format!("{queues} queues") };
        for (news, ending) in [("no news", 0), ("5 % ended", ENDING)] {
            let mut took = Vec::new();
            for (state, classes) in states.iter().zip([1, CLASSES]) {
                let all = running(state);
                let ended: Vec<&JobKey> = all.iter().step_by(ending.max(1)).filter(|_| ending > 0).collect();
                let (ms, events) = time(&after(state, &ended), true);
                if ending > 0 && !events.iter().any(|event| matches!(event, QueueEvent::Shared { .. })) {
                    return Err(format!("{classes} classes, {what}, {news}: nothing was granted").into());
                }
                row(&format!("{classes} classes, {what}, {} running: {news}", all.len()), &format!("{ms:.2}"));
                took.push(ms);
            }
            let ratio = took.last().copied().unwrap_or_default() / took.first().copied().unwrap_or(1.0);
            let label = format!("ten classes to one, {what}: {news}");
            aimed(&label, &format!("{ratio:.2}"), &format!("<= {RATIO}"), ratio <= RATIO);
        }
    }
    Ok(())
}

/// The state of an operator that has admitted what fits on nodes of so many classes.
fn state(classes: u32, queues: u32) -> Result<State, AnyError> {
    let mut session = session_on((0..COUNT).map(|n| node(n, n % classes)).collect())?;
    if classes > 1 {
        for n in (0..COUNT).filter(|n| is_tainted(n % classes)) {
            let taint = json!({"key": "dedicated", "value": class(n % classes), "effect": "NoSchedule"});
            let patch = json!({"spec": {"taints": [taint]}});
            session.cluster_mut().merge_patch(&apis::Resource::new("v1", "Node"), "", &name(n), &patch, false)?;
        }
    }
    let own = |n| queue(n, COUNT * GPUS_PER_NODE / queues);
    let jobs = (0..COUNT).map(|n| job(n, queues, classes));
    let manifests: Vec<Value> = (0..queues).map(own).chain(jobs).collect();
    settle(&mut session, &manifests, &mut |_| {})?;
    let state = session.operator.state().clone();
    match running(&state).len() {
        0 => Err(format!("none of {COUNT} jobs was admitted").into()),
        _ => Ok(state),
    }
}

fn name(n: u32) -> String {
    format!("gpu-worker-{n:05}")
}

fn class(class: u32) -> String {
    format!("class-{class}")
}

const fn is_tainted(class: u32) -> bool {
    class.is_multiple_of(3)
}

fn node(n: u32, of: u32) -> cluster::NodeSpec {
    let mut node =
        cluster::NodeSpec { labels: [("class".to_owned(), class(of))].into(), ..cluster::NodeSpec::named(&name(n)) };
    let (cpu, memory) = ((64 + 8 * of).to_string(), format!("{}Gi", 512 + 64 * of));
    for (resource, amount) in
        [("nvidia.com/gpu", GPUS_PER_NODE.to_string()), ("cpu", cpu), ("memory", memory), ("pods", "110".to_owned())]
    {
        node = node.with(resource, &amount);
    }
    node
}

/// A job of 1, 2, 4 or 8 pods, each with a whole node's GPUs.
fn job(n: u32, queues: u32, classes: u32) -> Value {
    let mut job = sized_job(n, queues, 1 << (n / 7 % 4), GPUS_PER_NODE);
    let pod = &mut job["spec"]["replicaSpecs"]["trainer"]["template"]["spec"];
    pod["containers"][0]["resources"]["requests"] = json!({"cpu": "32", "memory": "256Gi"});
    if classes > 1 {
        let own = n / 3 % classes;
        pod["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
        if n.is_multiple_of(2) {
            pod["nodeSelector"] = json!({"class": class(own)});
        } else {
            let values = [class(own), class((own + 1) % classes)];
            let expression = json!({"key": "class", "operator": "In", "values": values});
            pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}});
        }
    }
    job
}
