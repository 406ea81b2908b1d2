//! The workload of a recorded log: which job asked for which GPUs when, how long it held them, and what it was granted.
//!
//! Owns what is taken from records. It must not read a log, and decides nothing: `sim` plays it. Tests:
//! `cli/tests/local/recorded.rs`.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Body, Job, Record, State, queues};
use model::{GpuRequest, GroupSpec, JobKey, NodeFact, PodPhase, QueueSpec, SizeRange, Text, Timestamp};
use scheduler::placement::Node;
use scheduler::{GpuType, Micros};

use crate::input::{self, Cluster, OnBadRow, Trace, TraceJob, Workload};
use crate::sim::{ClusterSetup, Workers};

/// Name by which the queue of jobs that name none is chosen.
const ROOT: &str = "root";

/// Why a log is no workload.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No job went through a queue.
    #[error("{log}: no job of this log went through a queue")]
    NoQueue {
        /// The log.
        log: String,
    },
    /// The chosen queue has no jobs.
    #[error("--queue {queue}: {log} has jobs of these queues: {names}")]
    OtherQueues {
        /// The chosen queue.
        queue: String,
        /// The log.
        log: String,
        /// Queues with jobs.
        names: String,
    },
    /// No job started.
    #[error("{log}: no job of the queues started")]
    NeverStarted {
        /// The log.
        log: String,
    },
    /// What was read does not fit together.
    #[error(transparent)]
    Input(#[from] input::Error),
}

/// A job as a log records it.
#[derive(Debug, Clone, Default)]
struct Seen {
    submitted: Timestamp,
    /// Its queue; empty for the root queue.
    queue: Text,
    resource: Text,
    gpus: u32,
    /// Least and greatest number of GPUs that its queue may choose.
    min: u32,
    max: u32,
    workers: Option<Workers>,
    /// First grant: the time, and the node of each pod.
    started: Option<(Timestamp, Vec<Text>)>,
    held_since: Option<Timestamp>,
    held_ms: u64,
    /// Times that it was granted places.
    starts: u32,
    /// Time at which it had ended and its places were free.
    ended: Option<Timestamp>,
}

/// A job of the workload as it was recorded.
#[derive(Debug, Clone)]
pub struct RecordedRun {
    /// Time of its first grant, after the origin.
    pub started: Micros,
    /// The node of each pod of that grant.
    pub on: Vec<Text>,
    /// Time at which it had ended and its places were free; absent where the log ends before.
    pub ended: Option<Micros>,
}

/// A recorded workload.
#[derive(Debug)]
pub struct Recorded {
    /// To be played.
    pub workload: Workload,
    /// The queues, the nodes and the workers, for the scheduler.
    pub setup: ClusterSetup,
    /// Policies of the queues that have jobs, each once.
    pub policies: Vec<String>,
    /// What became of each job, by its name in the workload.
    pub runs: BTreeMap<Text, RecordedRun>,
    /// What the workload leaves out or takes otherwise than it was.
    pub remarks: Vec<String>,
}

/// Reader of a log, record by record.
#[derive(Debug, Default)]
pub struct Reader {
    jobs: BTreeMap<JobKey, Seen>,
    queues: BTreeMap<Text, QueueSpec>,
    /// Each node as last seen, with the most GPUs that it had.
    nodes: BTreeMap<Text, NodeFact>,
    end: Timestamp,
}

impl Reader {
    /// Takes in what a record changed; `state` is that after it.
    pub fn take(&mut self, state: &State, record: &Record) {
        self.end = state.at;
        match &record.body {
            Body::Cluster { .. } => {
                for (name, node) in state.nodes.iter().filter(|(_, node)| !node.fact.gpus.is_empty()) {
                    let known = self.nodes.entry(name.clone()).or_insert_with(|| node.fact.clone());
                    let before = std::mem::replace(known, node.fact.clone());
                    for (resource, gpus) in &mut known.gpus {
                        *gpus = (*gpus).max(before.gpus.get(resource).copied().unwrap_or_default());
                    }
                }
            }
            Body::Queues { .. } => {}
            Body::Job { key, .. } => match state.job(key) {
                Some(job) => self.take_job(key, state, &job),
                None => self.release(key, state.at, true),
            },
        }
    }

    /// Returns the workload of what was read. `chosen` is the name of the queue whose jobs are played; `None`: those of all.
    ///
    /// # Errors
    /// Returns an error if there is nothing to play.
    pub fn finish(mut self, log: &str, chosen: Option<&str>) -> Result<Recorded, Error> {
        choose(&mut self, log, chosen)?;
        workload(&self, log)
    }

    fn take_job(&mut self, key: &JobKey, state: &State, job: &Job) {
        let at = state.at;
        if let Some(spec) = job.spec().and_then(|spec| spec.queue.as_ref()) {
            self.queues.insert(key.name.clone(), (**spec).clone());
        }
        if job.allocation.gated && !self.jobs.contains_key(key) {
            self.jobs.extend(asked(state, job).map(|seen| (key.clone(), seen)));
        }
        let Some(seen) = self.jobs.get_mut(key) else { return };
        let holding = &job.allocation;
        if !holding.share.is_empty() && seen.held_since.is_none() {
            let on = holding.share.cells().map(|(_, node)| node.clone()).collect();
            seen.started.get_or_insert((at, on));
            (seen.held_since, seen.starts) = (Some(at), seen.starts.saturating_add(1));
        }
        let is_live = |phase: PodPhase| !phase.is_terminal();
        let holds = !holding.share.is_empty()
            || !holding.released.is_empty()
            || job.pods.values().any(|pod| is_live(pod.fact.phase));
        if !holds {
            self.release(key, at, job.phase.is_terminal());
        }
    }

    /// Notes that a job holds nothing.
    fn release(&mut self, key: &JobKey, at: Timestamp, is_over: bool) {
        let Some(seen) = self.jobs.get_mut(key) else { return };
        if let Some(since) = seen.held_since.take() {
            seen.held_ms = seen.held_ms.saturating_add(at.0.saturating_sub(since.0));
        }
        if is_over && seen.ended.is_none() {
            seen.ended = Some(at);
        }
    }
}

/// Returns what a job asks its queue for.
fn asked(state: &State, job: &Job) -> Option<Seen> {
    let spec = job.spec()?;
    let demand = spec.demand.as_ref()?;
    let gpus = |pods: fn(SizeRange) -> u32| {
        let of = |(group, request): (&GroupSpec, &GpuRequest)| pods(group.size_range()).saturating_mul(request.count);
        spec.gpu_groups().map(of).fold(0, u32::saturating_add)
    };
    let width = spec.gpu_groups().map(|(_, request)| request.count).max()?;
    Some(Seen {
        submitted: demand.submitted,
        queue: job.queue().cloned().unwrap_or_default(),
        resource: spec.gpu_groups().next()?.1.resource.clone(),
        gpus: gpus(|sizes| sizes.preferred),
        min: gpus(|sizes| sizes.min),
        max: gpus(|sizes| sizes.max),
        workers: Some(Workers { width, priority: state.queues.classes.priority(demand), queue: None }),
        ..Seen::default()
    })
}

fn words(queue: &str) -> &str {
    if queue.is_empty() { ROOT } else { queue }
}

/// Leaves the jobs of the chosen queue.
fn choose(reader: &mut Reader, log: &str, chosen: Option<&str>) -> Result<(), Error> {
    let there_are: BTreeSet<Text> = reader.jobs.values().map(|seen| seen.queue.clone()).collect();
    if there_are.is_empty() {
        return Err(Error::NoQueue { log: log.to_owned() });
    }
    let Some(name) = chosen else { return Ok(()) };
    let Some(queue) = there_are.iter().find(|queue| words(queue) == name) else {
        let names = there_are.iter().map(|name| words(name)).collect::<Vec<_>>().join(", ");
        return Err(Error::OtherQueues { queue: name.to_owned(), log: log.to_owned(), names });
    };
    reader.jobs.retain(|_, seen| seen.queue == *queue);
    Ok(())
}

/// Returns the jobs that are played, in order, and remarks on the others and on what is not known.
fn played<'a>(reader: &'a Reader, resource: &Text) -> (Vec<(&'a JobKey, &'a Seen)>, Vec<String>) {
    let mut remarks = Vec::new();
    let mut remark = |count: usize, text: &str| {
        if count > 0 {
            remarks.push(format!("{count} {text}"));
        }
    };
    let all = reader.jobs.len();
    let mut jobs: Vec<(&JobKey, &Seen)> = reader.jobs.iter().filter(|(_, seen)| seen.resource == *resource).collect();
    remark(all - jobs.len(), "jobs need another GPU resource and are left out");
    let all = jobs.len();
    jobs.retain(|(_, seen)| seen.started.is_some());
    remark(all - jobs.len(), "jobs never started and are left out");
    remark(jobs.iter().filter(|(_, seen)| seen.starts > 1).count(), "jobs were halted; their run times count together");
    remark(
        jobs.iter().filter(|(_, seen)| seen.ended.is_none()).count(),
        "jobs had not ended; they count as if they ended with the log",
    );
    remark(
        jobs.iter().filter(|(_, seen)| seen.min < seen.max).count(),
        "jobs may be resized; their run times count as if they had the size that they asked for",
    );
    jobs.sort_by_key(|(key, seen)| (seen.submitted, key.to_string()));
    (jobs, remarks)
}

fn workload(reader: &Reader, log: &str) -> Result<Recorded, Error> {
    let name = log.to_owned();
    let resource = reader.jobs.values().map(|seen| seen.resource.clone()).next().unwrap_or_default();
    let nodes =
        || reader.nodes.values().filter(|node| node.gpus.first_key_value().is_some_and(|(of, _)| *of == resource));
    // All jobs that are played need one resource; quotas of others do not count.
    let gpu_type = |of: &Text| GpuType(u16::from(*of != resource));
    let snapshots = queues::QueueSnapshots::of(reader.queues.iter(), nodes, gpu_type);
    let (jobs, remarks) = played(reader, &resource);
    let origin = jobs.first().map_or(Timestamp(0), |(_, seen)| seen.submitted);
    let since = |at: Timestamp| Micros::from_millis(at.0.saturating_sub(origin.0));
    let id = |key: &JobKey| format!("{}/{}/{}", key.kind, key.namespace, key.name);
    let (mut rows, mut runs, mut workers) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (line, (key, seen)) in (1..).zip(&jobs) {
        let (Some((started, on)), Some(of_job)) = (&seen.started, seen.workers) else { continue };
        let held = seen.held_since.map_or(0, |at| reader.end.0.saturating_sub(at.0)).saturating_add(seen.held_ms);
        // A job that was deleted and created again has the same name and another uid.
        let id = if runs.contains_key(&Text::from(id(key))) { format!("{} {}", id(key), key.uid) } else { id(key) };
        let name = Text::from(id.as_str());
        let of_log = RecordedRun { started: since(*started), on: on.clone(), ended: seen.ended.map(since) };
        runs.insert(name.clone(), of_log);
        workers.insert(name, Workers { queue: snapshots.place_of(&seen.queue), ..of_job });
        rows.push(TraceJob {
            line,
            id,
            submitted: since(seen.submitted),
            requested: seen.gpus,
            duration: Micros::from_millis(held.max(1)),
            min: seen.min,
            max: seen.max,
            model: String::new(),
            batch: String::new(),
            user: String::new(),
            tenant: words(&seen.queue).to_owned(),
        });
    }
    if rows.is_empty() {
        return Err(Error::NeverStarted { log: name });
    }
    let nodes: Vec<Node> = nodes()
        .map(|node| Node::new(node.name.clone(), node.gpus.get(&resource).copied().unwrap_or_default()))
        .collect();
    let gpus = nodes.iter().map(|node| node.slots).fold(0, u32::saturating_add);
    let policy = |queue: &Text| reader.queues.get(queue).map_or(queues::ROOT_POLICY, |spec| &*spec.policy).to_owned();
    let policies: BTreeSet<String> = jobs.iter().map(|(_, seen)| policy(&seen.queue)).collect();
    let trace = Trace { name, jobs: rows, skipped: Vec::new() };
    let workload = Workload::join(trace, None, Cluster::parse(&gpus.to_string())?, OnBadRow::Refuse)?;
    let packing = snapshots.packing();
    let setup = ClusterSetup { queues: snapshots.all, nodes, packing, workers };
    Ok(Recorded { workload, setup, policies: policies.into_iter().collect(), runs, remarks })
}
