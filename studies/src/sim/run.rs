//! The loop: the next thing that happens, progress up to then, the ends, the arrivals, the decision.
//!
//! Tests: `run/tests.rs`.

use std::collections::{BTreeMap, BTreeSet};

use scheduler::placement::PlacementError;
use scheduler::scheduling::{self, History};
use scheduler::{Grant, JobView, Micros, Policy, PolicyInput, Speed};

use super::clock;
use super::estimator::{Estimator, JobEstimate};
use super::live::Live;
use super::outcome::{JobRecord, Places, Sample, SizeChange, StudyOutcome};
use super::placed_jobs::PlacedJobs;
use super::scheduling::Held;
use super::{ClusterSetup, Settings, SpeedKnowledge};
use crate::input::{Work, Workload, WorkloadJob};

/// Why a study could not be finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The policy's answer cannot be carried out.
    #[error(transparent)]
    Policy(#[from] scheduler::Error),
    /// Workers cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A snapshot cannot be decided on.
    #[error(transparent)]
    Scheduling(#[from] scheduling::Error),
    /// The policy leaves out jobs for good.
    #[error("policy {policy} leaves out {refusal}")]
    Refused {
        /// Name of the policy.
        policy: String,
        /// The first of them.
        refusal: scheduler::RejectedJob,
    },
    /// Jobs wait, and nothing will ever happen.
    #[error("policy {policy} starts none of {waiting} waiting jobs (job {job} first) although nothing runs, at {at}")]
    Stuck {
        /// Name of the policy.
        policy: String,
        /// Jobs waiting.
        waiting: usize,
        /// The first of them.
        job: String,
        /// Time.
        at: Micros,
    },
}

/// Plays a workload through a policy to the end of the last job.
///
/// # Errors
/// The policy is faulty, or never starts some job.
pub fn run(workload: &Workload, policy: &dyn Policy, settings: &Settings) -> Result<StudyOutcome, Error> {
    let mut simulation = Simulation::new(workload, policy, settings);
    while simulation.step()? {}
    Ok(simulation.outcome())
}

/// A submitted job that has not ended, and what decisions may know of it.
struct Entry {
    live: Live,
    /// Time of its end, if it holds GPUs and nothing changes.
    end: Micros,
    /// Its work as estimated at submission.
    estimate: Option<Work>,
    /// Speed samples of the job, where speeds are learnt.
    job_estimate: Option<JobEstimate>,
}

struct Simulation<'a> {
    workload: &'a Workload,
    policy: &'a dyn Policy,
    settings: &'a Settings,
    capacity: Vec<(scheduler::GpuType, u32)>,
    now: Micros,
    /// Jobs of the workload before this one have been submitted.
    submitted: usize,
    /// Submitted jobs that have not ended, by their place in the workload.
    live: BTreeMap<usize, Entry>,
    /// Their views for decisions, in the same order. Only this list is walked as a whole: thousands may wait.
    views: Vec<JobView>,
    /// The place in the workload of each view.
    places: Vec<usize>,
    /// Time of the end of each job that holds GPUs if nothing changes, and its place; the GPUs they hold together.
    ends: BTreeSet<(Micros, usize)>,
    held: u32,
    /// How jobs report, where speeds are learnt.
    estimator: Option<Estimator>,
    /// The nodes, where placement is simulated.
    placed_jobs: Option<PlacedJobs>,
    /// Nodes of jobs, where the scheduler decides on a cluster.
    on: Held,
    /// Knowledge kept between decisions.
    history: History,
    /// Time at which the policy is run again.
    wake: Micros,
    /// Start of the next round, in a study with rounds.
    round: Micros,
    records: Vec<Option<JobRecord>>,
    samples: Vec<Sample>,
    changes: Vec<SizeChange>,
    moves: Vec<Places>,
    decisions: u64,
}

impl<'a> Simulation<'a> {
    fn new(workload: &'a Workload, policy: &'a dyn Policy, settings: &'a Settings) -> Self {
        Self {
            workload,
            policy,
            settings,
            capacity: workload.cluster.capacity(),
            now: Micros::ZERO,
            submitted: 0,
            live: BTreeMap::new(),
            views: Vec::new(),
            places: Vec::new(),
            ends: BTreeSet::new(),
            held: 0,
            estimator: (settings.knowledge.speeds == SpeedKnowledge::Learnt)
                .then(|| Estimator::new(&workload.cluster, settings.restart_cost)),
            placed_jobs: settings.spread_loss_milli.map(|loss| PlacedJobs::new(&workload.cluster, loss)),
            on: Held::default(),
            history: History::default(),
            wake: Micros::MAX,
            round: Micros::MAX,
            records: vec![None; workload.jobs.len()],
            samples: Vec::new(),
            changes: Vec::new(),
            moves: Vec::new(),
            decisions: 0,
        }
    }

    /// Goes to the next thing that happens; false when nothing is left to happen.
    fn step(&mut self) -> Result<bool, Error> {
        let tick = self.settings.tick;
        let arrival = self.next_job().map_or(Micros::MAX, |job| clock::at_or_after(job.submitted, tick));
        let end = self.ends.first().map_or(Micros::MAX, |(end, _)| *end);
        let next = arrival.min(end).min(self.wake).min(self.round);
        if next == Micros::MAX {
            return self.is_done();
        }
        self.now = next;
        let ended = self.take_ends();
        let arrived = self.take_arrivals();
        let due = match self.settings.round {
            None => ended || arrived || self.now >= self.wake,
            Some(round) => {
                let due = self.now >= self.round || (self.round == Micros::MAX && self.now.0.is_multiple_of(round.0));
                if self.round <= self.now || self.round == Micros::MAX {
                    self.round = clock::after(self.now, round);
                }
                due
            }
        };
        if due && !self.live.is_empty() {
            self.decide()?;
        }
        if self.live.is_empty() {
            (self.wake, self.round) = (Micros::MAX, Micros::MAX);
        }
        self.sample();
        Ok(true)
    }

    /// Nothing will happen any more: that is the end if no job is left.
    fn is_done(&self) -> Result<bool, Error> {
        match self.places.first() {
            None => Ok(false),
            Some(&first) => Err(self.stuck(first)),
        }
    }

    fn stuck(&self, first: usize) -> Error {
        Error::Stuck {
            policy: self.policy.name().to_owned(),
            waiting: self.live.len(),
            job: self.workload.jobs[first].name.to_string(),
            at: self.now,
        }
    }

    fn next_job(&self) -> Option<&'a WorkloadJob> {
        self.workload.jobs.get(self.submitted)
    }

    /// Counts progress of the jobs that hold GPUs, and takes out those that have ended by now.
    fn take_ends(&mut self) -> bool {
        let now = self.now;
        let mut running: Vec<(usize, Micros)> = self.ends.iter().map(|&(end, place)| (place, end)).collect();
        running.sort_unstable();
        let mut ended = Vec::new();
        for (place, end) in running {
            let (Some(entry), Ok(i)) = (self.live.get_mut(&place), self.places.binary_search(&place)) else { continue };
            entry.live.advance(now);
            if let (Some(estimator), Some(job_estimate)) = (&self.estimator, &mut entry.job_estimate) {
                estimator.report(&self.workload.jobs[place], &entry.live, job_estimate, &mut self.history);
            }
            if end <= now {
                ended.push(i);
                self.ends.remove(&(end, place));
                self.record(place);
            } else {
                self.refresh(i, place);
            }
        }
        for &i in ended.iter().rev() {
            self.views.remove(i);
            self.places.remove(i);
        }
        !ended.is_empty()
    }

    /// Writes down the end of a job.
    fn record(&mut self, place: usize) {
        let Some(Entry { live, estimate, .. }) = self.live.remove(&place) else { return };
        let job = &self.workload.jobs[place];
        let guess = estimate.filter(|_| self.settings.knowledge.sizes.is_guess());
        self.history.record_end(&job.key, guess.map(|estimate| (estimate.serial().0, job.work.serial().0)));
        self.held -= live.held.gpus;
        self.on.forget(&job.key);
        self.records[place] = Some(JobRecord {
            name: job.name.clone(),
            place,
            submitted: job.submitted,
            first_start: live.first_start.unwrap_or(self.now),
            finished: self.now,
            ran: live.ran,
            progressed: live.progressed,
            attained: live.attained,
            changes: live.changes,
            halts: live.halts,
            restarts: live.restarts,
        });
        if self.settings.keep_changes {
            self.changes.push(SizeChange { at: self.now, job: place, grant: Grant::NONE });
        }
    }

    /// Updates the view of a job for decisions with its progress.
    fn refresh(&mut self, i: usize, place: usize) {
        let (Some(Entry { live, estimate, .. }), view) = (self.live.get(&place), &mut self.views[i]) else { return };
        view.attained = live.attained;
        view.ran = live.ran;
        view.spell = live.spell;
        if self.estimator.is_none() {
            let work = self.workload.jobs[place].work;
            view.remaining = self.settings.knowledge.sizes.left(*estimate, work, live.left);
            view.done = work.minus(live.left).serial();
        }
    }

    fn take_arrivals(&mut self) -> bool {
        let before = self.submitted;
        while let Some(job) = self.next_job()
            && job.submitted <= self.now
        {
            let place = self.submitted;
            let estimate = self.settings.knowledge.sizes.estimate(place, job.work);
            let remaining = self.settings.knowledge.sizes.left(estimate, job.work, job.work);
            let expected = estimate.map(Work::serial);
            self.views.push(JobView { expected, ..self.view(job, remaining) });
            self.places.push(place);
            let job_estimate = self.estimator.as_ref().map(|estimator| estimator.start(job, estimate));
            let live = Live::new(job.work, self.now);
            self.live.insert(place, Entry { live, end: Micros::MAX, estimate, job_estimate });
            self.submitted += 1;
        }
        self.submitted > before
    }

    /// Returns the knowledge of a job when it is submitted.
    fn view(&self, job: &WorkloadJob, remaining: Option<Micros>) -> JobView {
        let (min, num, max) = if self.policy.is_elastic() {
            (job.min, job.requested.clamp(job.min, job.max), job.max)
        } else {
            (job.requested, job.requested, job.requested)
        };
        JobView {
            remaining,
            restart_cost: self.settings.restart_cost,
            speeds: job.speeds.clone(),
            ..JobView::waiting(job.key.clone(), min, num, max, job.submitted)
        }
    }

    fn decide(&mut self) -> Result<(), Error> {
        if self.estimator.is_some() {
            for ((place, entry), view) in self.live.iter().zip(&mut self.views) {
                if let Some(job_estimate) = &entry.job_estimate {
                    job_estimate.update_view(&self.workload.jobs[*place], &self.history, view);
                }
            }
        }
        if self.settings.knowledge.sizes.is_guess() {
            let doubt = self.history.doubt();
            self.views.iter_mut().for_each(|view| view.doubt = doubt);
        }
        let wake = match &self.settings.setup {
            Some(setup) => self.ask_scheduler(setup)?,
            None => self.ask_policy()?,
        };
        self.decisions += 1;
        let tick = self.settings.tick;
        self.wake = match (wake, self.settings.round) {
            (Some(at), None) => clock::at_or_after(at, tick).max(clock::after(self.now, tick)),
            (Some(_) | None, _) => Micros::MAX,
        };
        if self.ends.is_empty() && wake.is_none() && self.next_job().is_none() {
            return self.places.first().map_or(Ok(()), |&first| Err(self.stuck(first)));
        }
        Ok(())
    }

    /// Asks the policy alone. Returns the time of the next decision.
    fn ask_policy(&mut self) -> Result<Option<Micros>, Error> {
        let input = PolicyInput { now: self.now, capacity: &self.capacity, jobs: &self.views };
        let allocation = scheduling::ask(self.policy, input, &mut self.history.memory)?;
        if let Some(refusal) = allocation.refused.into_iter().next() {
            return Err(Error::Refused { policy: self.policy.name().to_owned(), refusal });
        }
        let moved = match &mut self.placed_jobs {
            Some(placed_jobs) => {
                placed_jobs.place(self.views.iter().map(|view| &view.id).zip(allocation.grants.iter().copied()))?
            }
            None => BTreeSet::new(),
        };
        for (i, grant) in allocation.grants.into_iter().enumerate() {
            if grant != self.views[i].held || (!moved.is_empty() && moved.contains(&self.views[i].id)) {
                self.hold(i, grant);
            }
        }
        Ok(self.policy.wake(self.now, &self.views, &self.history.memory))
    }

    /// Takes a decision of the scheduler. Returns the time of the next one.
    fn ask_scheduler(&mut self, setup: &ClusterSetup) -> Result<Option<Micros>, Error> {
        let jobs: Vec<(&WorkloadJob, &JobView)> =
            self.places.iter().map(|&place| &self.workload.jobs[place]).zip(&self.views).collect();
        let decision = self.on.ask(setup, &self.history, self.now, &jobs)?;
        self.history.apply(&decision.memory);
        for (i, target) in decision.targets.into_iter().enumerate() {
            let place = self.places[i];
            let job = &self.workload.jobs[place];
            let (grant, moved) = self.on.take(setup, job, target, self.now);
            if moved {
                let on = self.on.nodes(&job.key).to_vec();
                self.moves.push(Places { at: self.now, job: place, on });
                self.hold(i, grant);
            }
        }
        Ok(decision.wake)
    }

    /// Sets the GPUs of a job as decided.
    fn hold(&mut self, i: usize, grant: Grant) {
        let (now, tick, place) = (self.now, self.settings.tick, self.places[i]);
        let (Some(Entry { live, end, .. }), view) = (self.live.get_mut(&place), &mut self.views[i]) else { return };
        self.ends.remove(&(*end, place));
        self.held = self.held - live.held.gpus + grant.gpus;
        let packed =
            if grant.is_none() { Speed::ZERO } else { self.workload.jobs[place].speed(grant.gpu_type, grant.gpus) };
        let speed = self.placed_jobs.as_ref().map_or(packed, |placed_jobs| placed_jobs.slowed(&view.id, grant, packed));
        if grant.is_none() != live.held.is_none() {
            view.since = now;
        }
        live.hold(grant, speed, now, self.settings.restart_cost);
        *end = live.end(tick);
        if !grant.is_none() {
            self.ends.insert((*end, place));
        }
        view.held = grant;
        view.spell = live.spell;
        view.first_start = live.first_start;
        if self.settings.keep_changes {
            self.changes.push(SizeChange { at: now, job: place, grant });
        }
    }

    fn sample(&mut self) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (running, gpus) = (count(self.ends.len()), self.held);
        let waiting = count(self.live.len()) - running;
        let sample = Sample { at: self.now, waiting, running, gpus };
        match self.samples.last_mut() {
            Some(last) if (last.waiting, last.running, last.gpus) == (waiting, running, gpus) => {}
            Some(last) if last.at == self.now => *last = sample,
            Some(_) | None => self.samples.push(sample),
        }
    }

    fn outcome(self) -> StudyOutcome {
        StudyOutcome {
            jobs: self.records.into_iter().flatten().collect(),
            samples: self.samples,
            changes: self.changes,
            places: self.moves,
            decisions: self.decisions,
        }
    }
}

#[cfg(test)]
mod tests;
