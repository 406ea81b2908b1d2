//! Programs of `MPIJob`s in virtual time: they make progress by a curve while their launcher and workers run, report it, and end.
//!
//! Owns how much is done, exactly; what the program of a job is, is `program`'s. It creates and deletes no pods, and must not know what
//! was decided: it sees running pods alone. Tests: at the end of this file, the scenarios `trainer-*`, `studies/tests/operator`, and the
//! walks of `MPIJob`s in `snapshots`.

mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::Resource;
use apis::objects::{at, name, namespace, text_at};
use cluster::Cluster;
use model::{Measurement, Progress, Timestamp};
use serde_json::Value;

use crate::backend::ClusterBackend;
use crate::controllers::mpi_operator::{self, JOB, ROLE};
use crate::runner::Reason;

/// Work of a job, and its speed by the number of workers.
#[derive(Debug, Clone)]
pub struct Program {
    /// Work in all: milliseconds times a speed of the curve.
    pub work: u128,
    /// Work of one unit of the reports, at least 1.
    pub unit: u128,
    /// Speed on 0, 1, 2 and more workers. More workers than the last are as fast as the last.
    pub speeds: Vec<u64>,
    /// GPUs of each worker.
    pub width: u32,
    /// Time without progress after each change of the workers that run.
    pub restart_ms: u64,
}

impl Program {
    fn speed(&self, workers: usize) -> u128 {
        self.speeds.get(workers).or_else(|| self.speeds.last()).copied().unwrap_or_default().into()
    }
}

/// Namespace and name of a job.
type Address = (String, String);

/// A program that has not ended.
#[derive(Debug, Clone)]
struct Run {
    program: Program,
    left: u128,
    /// Workers that run, by uid; none while the launcher does not.
    workers: BTreeSet<String>,
    /// Time from which the workers make progress.
    productive: Timestamp,
    /// Time up to which progress was counted.
    counted: Timestamp,
    progress: Progress,
    /// Set if the progress changed since it was written.
    is_news: bool,
}

/// The programs of all jobs.
#[derive(Debug, Clone, Default)]
pub struct Trainer {
    runs: BTreeMap<Address, Run>,
}

impl Trainer {
    /// Takes over the program of a job.
    pub fn add(&mut self, namespace: &str, name: &str, program: Program) {
        let (left, total) = (program.work, program.work.checked_div(program.unit));
        let progress = Progress { total: total.and_then(|n| u64::try_from(n).ok()), ..Progress::default() };
        let workers = BTreeSet::new();
        let (productive, counted) = (Timestamp::default(), Timestamp::default());
        let run = Run { program, left, workers, productive, counted, progress, is_news: false };
        self.runs.insert((namespace.to_owned(), name.to_owned()), run);
    }

    /// Has the programs of all jobs act that name their epochs: a job that was not seen before begins, and what is done by now is
    /// reported. Returns true if it changed something.
    ///
    /// # Errors
    /// Returns an error if the API server refuses a write, or the durations of a job cannot be read.
    pub fn reconcile<B: ClusterBackend>(&mut self, backend: &mut B) -> Result<bool, Reason> {
        let now = backend.now();
        self.advance(now);
        for job in backend.cluster().objects_of(&mpi_operator::resource()) {
            let address = (namespace(&job).to_string(), name(&job).to_string());
            if !self.runs.contains_key(&address)
                && !mpi_operator::has_ended(&job)
                && let Some(program) = program::of(&job).map_err(Reason::Meaning)?
            {
                self.add(&address.0, &address.1, program);
            }
        }
        let reports = self.runs.values().any(|run| run.is_news);
        let ended = self.act(backend)?;
        self.look(backend.cluster(), now);
        Ok(reports || !ended.is_empty())
    }

    /// Returns the time at which the next unit of a program is done if its workers stay as they are.
    pub fn next_report(&self) -> Option<Timestamp> {
        self.runs.values().filter_map(|run| run.time_of(run.left_of_unit())).min()
    }

    /// Returns the time at which the next program ends if its workers stay as they are.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.runs.values().filter_map(Run::end).min()
    }

    /// Counts the progress up to `now`.
    pub fn advance(&mut self, now: Timestamp) {
        self.runs.values_mut().for_each(|run| run.advance(now));
    }

    /// Writes the reports of programs, and ends the launchers of those that are done. Returns the names of their jobs.
    ///
    /// # Errors
    /// When the API server refuses a write.
    pub fn act<B: ClusterBackend>(&mut self, backend: &mut B) -> Result<Vec<String>, Reason> {
        let resource = mpi_operator::resource();
        let is_there = |address: &Address| backend.cluster().get(&resource, &address.0, &address.1).is_some();
        let gone: Vec<Address> = self.runs.keys().filter(|address| !is_there(address)).cloned().collect();
        self.runs.retain(|address, _| !gone.contains(address));
        for ((namespace, name), run) in &mut self.runs {
            if !std::mem::take(&mut run.is_news) {
                continue;
            }
            let patch = apis::progress::patch(&run.progress);
            backend.merge_patch(&resource, namespace, name, &patch, false)?;
        }
        let is_done = |run: &Run| run.left == 0 && !run.workers.is_empty();
        let done: Vec<Address> =
            self.runs.iter().filter(|(_, run)| is_done(run)).map(|(address, _)| address.clone()).collect();
        let mut ended = Vec::new();
        for address in done {
            let launchers = pods_of(backend.cluster(), &address);
            let Some(pod) = launchers.iter().find(|pod| is_running(pod, "launcher")) else { continue };
            let pod = name(pod);
            backend.manual(&mut |cluster| cluster.exit(&address.0, &pod, 0, None))?;
            self.runs.remove(&address);
            ended.push(address.1);
        }
        Ok(ended)
    }

    /// Takes the pods that run from `now` on.
    pub fn look(&mut self, cluster: &Cluster, now: Timestamp) {
        let mut pods: BTreeMap<Address, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in cluster.objects_of(&Resource::new("v1", "Pod")) {
            if let Some(job) = text_at(&pod, &["metadata", "labels", JOB]) {
                pods.entry((namespace(&pod).to_string(), job.to_owned())).or_default().push(pod);
            }
        }
        for (address, run) in &mut self.runs {
            let own = pods.get(address).map_or(&[][..], Vec::as_slice);
            let uid = |pod: &Arc<Value>| text_at(pod, &["metadata", "uid"]).unwrap_or_default().to_owned();
            let workers = own.iter().filter(|pod| is_running(pod, "worker")).map(uid);
            let launched = own.iter().any(|pod| is_running(pod, "launcher"));
            run.take(if launched { workers.collect() } else { BTreeSet::new() }, now);
        }
    }
}

impl Run {
    fn speed(&self) -> u128 {
        self.program.speed(self.workers.len())
    }

    fn advance(&mut self, now: Timestamp) {
        let from = self.counted.max(self.productive);
        let worked = u128::from(now.0.saturating_sub(from.0));
        self.counted = now;
        let speed = self.speed();
        if self.workers.is_empty() || worked == 0 || speed == 0 {
            return;
        }
        self.left = self.left.saturating_sub(speed.saturating_mul(worked));
        let done = self.program.work.saturating_sub(self.left).checked_div(self.program.unit).unwrap_or_default();
        let units = u64::try_from(done).unwrap_or(u64::MAX).saturating_sub(self.progress.done);
        if units == 0 {
            return;
        }
        let took = u128::from(units).saturating_mul(self.program.unit).div_ceil(speed);
        let took_ms = u64::try_from(took).unwrap_or(u64::MAX);
        let gpus = u32::try_from(self.workers.len()).unwrap_or(u32::MAX).saturating_mul(self.program.width);
        self.progress.sizes.entry(gpus).or_default().add(Measurement { units, took_ms });
        self.progress.done = self.progress.done.saturating_add(units);
        self.is_news = true;
    }

    fn end(&self) -> Option<Timestamp> {
        self.time_of(self.left)
    }

    /// Returns the work that is left of the present unit.
    fn left_of_unit(&self) -> u128 {
        let rest = self.left.checked_rem(self.program.unit).unwrap_or_default();
        if rest == 0 { self.program.unit.min(self.left) } else { rest }
    }

    /// Returns the time at which so much more work is done.
    fn time_of(&self, work: u128) -> Option<Timestamp> {
        let speed = self.speed();
        if speed == 0 || self.workers.is_empty() {
            return None;
        }
        let rest = u64::try_from(work.div_ceil(speed)).unwrap_or(u64::MAX);
        Some(self.counted.max(self.productive).plus_ms(rest))
    }

    fn take(&mut self, workers: BTreeSet<String>, now: Timestamp) {
        if self.workers == workers {
            return;
        }
        self.advance(now);
        self.productive = now.plus_ms(self.program.restart_ms);
        self.workers = workers;
    }
}

fn pods_of(cluster: &Cluster, (namespace, job): &Address) -> Vec<Arc<Value>> {
    let is_own = |pod: &Arc<Value>| {
        text_at(pod, &["metadata", "namespace"]) == Some(namespace)
            && text_at(pod, &["metadata", "labels", JOB]) == Some(job)
    };
    cluster.objects_of(&Resource::new("v1", "Pod")).into_iter().filter(is_own).collect()
}

fn is_running(pod: &Value, role: &str) -> bool {
    text_at(pod, &["metadata", "labels", ROLE]) == Some(role)
        && text_at(pod, &["status", "phase"]) == Some("Running")
        && at(pod, &["metadata", "deletionTimestamp"]).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let mut trainer = Trainer::default();
        let program = Program { work: 100_000, unit: 1000, speeds: vec![0, 1, 2], width: 4, restart_ms: 500 };
        trainer.add("ns", "j", program);
        trainer.runs.remove(&("ns".to_owned(), "j".to_owned())).unwrap()
    }

    fn workers(n: usize) -> BTreeSet<String> {
        (0..n).map(|n| n.to_string()).collect()
    }

    #[test]
    fn progress_follows_the_curve_and_a_change_of_workers_costs_a_restart() {
        let mut run = run();
        assert_eq!(run.end(), None, "nothing runs");
        run.take(workers(1), Timestamp(1000));
        assert_eq!(run.end(), Some(Timestamp(101_500)));
        run.advance(Timestamp(11_500));
        assert_eq!((run.left, run.progress.done), (90_000, 10));
        run.take(workers(3), Timestamp(11_500));
        assert_eq!(run.end(), Some(Timestamp(57_000)), "three workers are as fast as two");
        run.take(BTreeSet::new(), Timestamp(12_000));
        assert_eq!(run.end(), None);
        let measured = |units, took_ms| Measurement { units, took_ms };
        assert_eq!(run.progress.sizes, BTreeMap::from([(4, measured(10, 10_000))]));
        run.take(workers(2), Timestamp(20_000));
        run.advance(Timestamp(24_000));
        assert_eq!(run.progress.sizes.get(&8), Some(&measured(7, 3500)));
        assert_eq!((run.progress.done, run.progress.total), (17, Some(100)));
    }
}
