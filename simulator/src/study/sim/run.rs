//! The loop: the next thing that happens, progress up to then, the ends, the arrivals, the decision.
//!
//! Tests: at the end of this file.

use std::collections::BTreeSet;

use scheduler::learning::Errors;
use scheduler::placement::PlacementError;
use scheduler::{Grant, JobView, Memory, Micros, Policy, Snapshot, Speed, allocate};

use super::clock;
use super::floor::Floor;
use super::learner::{Learner, Lessons};
use super::live::Live;
use super::outcome::{Change, JobRecord, Outcome, Sample};
use super::{Settings, SpeedKnowledge};
use crate::study::input::{Work, Workload, WorkloadJob};

/// Why a study could not be finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The policy's answer cannot be carried out.
    #[error(transparent)]
    Policy(#[from] scheduler::Error),
    /// Workers cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The policy leaves out jobs for good.
    #[error("policy {policy} leaves out {refusal}")]
    Refused {
        /// Name of the policy.
        policy: String,
        /// The first of them.
        refusal: scheduler::Refusal,
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
        /// When.
        at: Micros,
    },
}

/// Plays a workload through a policy to the end of the last job.
///
/// # Errors
/// The policy is faulty, or never starts some job.
pub fn run(workload: &Workload, policy: &dyn Policy, settings: &Settings) -> Result<Outcome, Error> {
    let mut simulation = Simulation::new(workload, policy, settings);
    while simulation.step()? {}
    Ok(simulation.outcome())
}

/// What decisions may know of a job.
struct Known {
    /// The work it is believed to have had at first.
    estimate: Option<Work>,
    /// What was learnt of it, where speeds are learnt.
    lessons: Option<Lessons>,
}

struct Simulation<'a> {
    workload: &'a Workload,
    policy: &'a dyn Policy,
    settings: &'a Settings,
    capacity: Vec<(scheduler::GpuType, u32)>,
    now: Micros,
    /// Jobs of the workload before this one have been submitted.
    submitted: usize,
    /// Submitted jobs that have not ended, in the order of the workload.
    live: Vec<Live>,
    /// What decisions are told of them, entry by entry.
    views: Vec<JobView>,
    /// What decisions may know of them, entry by entry.
    known: Vec<Known>,
    /// What was learnt of all jobs, where speeds are learnt.
    learner: Option<Learner>,
    /// How wrong estimated sizes turned out to be.
    errors: Errors,
    /// The nodes, where placement is simulated.
    floor: Option<Floor>,
    memory: Memory,
    /// When the policy wants to be asked again.
    wake: Micros,
    /// When the next round begins, in a study with rounds.
    round: Micros,
    records: Vec<Option<JobRecord>>,
    samples: Vec<Sample>,
    changes: Vec<Change>,
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
            live: Vec::new(),
            views: Vec::new(),
            known: Vec::new(),
            learner: (settings.knowledge.speeds == SpeedKnowledge::Learnt).then(|| Learner::new(&workload.cluster)),
            errors: Errors::default(),
            floor: settings.spread_loss_milli.map(|loss| Floor::new(&workload.cluster, loss)),
            memory: Memory::default(),
            wake: Micros::MAX,
            round: Micros::MAX,
            records: vec![None; workload.jobs.len()],
            samples: Vec::new(),
            changes: Vec::new(),
            decisions: 0,
        }
    }

    /// Goes to the next thing that happens; false when nothing is left to happen.
    fn step(&mut self) -> Result<bool, Error> {
        let tick = self.settings.tick;
        let arrival = self.next_job().map_or(Micros::MAX, |job| clock::at_or_after(job.submitted, tick));
        let end = self.live.iter().map(|l| l.end(tick)).min().unwrap_or(Micros::MAX);
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
        match self.live.first() {
            None => Ok(false),
            Some(first) => Err(self.stuck(first)),
        }
    }

    fn stuck(&self, first: &Live) -> Error {
        Error::Stuck {
            policy: self.policy.name().to_owned(),
            waiting: self.live.len(),
            job: self.job(first).name.to_string(),
            at: self.now,
        }
    }

    fn job(&self, live: &Live) -> &'a WorkloadJob {
        &self.workload.jobs[live.job]
    }

    fn next_job(&self) -> Option<&'a WorkloadJob> {
        self.workload.jobs.get(self.submitted)
    }

    /// Counts progress, and takes out the jobs that have ended by now.
    fn take_ends(&mut self) -> bool {
        let (now, tick) = (self.now, self.settings.tick);
        let before = self.live.len();
        let mut kept = 0;
        for i in 0..before {
            let ended = self.live[i].end(tick) <= now;
            self.live[i].advance(now);
            if let (Some(learner), Some(lessons)) = (&mut self.learner, &mut self.known[i].lessons) {
                learner.hear(&self.workload.jobs[self.live[i].job], &self.live[i], lessons);
            }
            if ended {
                self.record(i);
                continue;
            }
            self.refresh(i);
            self.live.swap(kept, i);
            self.views.swap(kept, i);
            self.known.swap(kept, i);
            kept += 1;
        }
        self.live.truncate(kept);
        self.views.truncate(kept);
        self.known.truncate(kept);
        if kept < before && !self.memory.queues.is_empty() {
            let views = &self.views;
            self.memory.retain(|id| views.binary_search_by(|v| (*v.id).cmp(id)).is_ok());
        }
        kept < before
    }

    /// Writes down the end of a job.
    fn record(&mut self, i: usize) {
        let live = &self.live[i];
        let job = &self.workload.jobs[live.job];
        if let (true, Some(estimate)) = (self.settings.knowledge.sizes.is_guess(), self.known[i].estimate) {
            self.errors.record(estimate.serial().0, job.work.serial().0);
        }
        self.records[live.job] = Some(JobRecord {
            name: job.name.clone(),
            place: live.job,
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
            self.changes.push(Change { at: self.now, job: live.job, grant: Grant::NONE });
        }
    }

    /// Brings what decisions are told of a job up to date with its progress.
    fn refresh(&mut self, i: usize) {
        let (live, view) = (&self.live[i], &mut self.views[i]);
        if live.held.is_none() {
            return;
        }
        view.attained = live.attained;
        view.ran = live.ran;
        view.spell = live.spell;
        if self.learner.is_none() {
            let work = self.workload.jobs[live.job].work;
            view.remaining = self.settings.knowledge.sizes.left(self.known[i].estimate, work, live.left);
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
            self.live.push(Live::new(place, job.work, self.now));
            self.views.push(self.view(job, remaining));
            let lessons = self.learner.as_ref().map(|learner| learner.meet(job, estimate));
            self.known.push(Known { estimate, lessons });
            self.submitted += 1;
        }
        self.submitted > before
    }

    /// What decisions are told of a job when it is submitted.
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
        if let Some(learner) = &self.learner {
            for ((live, view), known) in self.live.iter().zip(&mut self.views).zip(&self.known) {
                if let Some(lessons) = &known.lessons {
                    learner.tell(&self.workload.jobs[live.job], lessons, self.settings.restart_cost, view);
                }
            }
        }
        if self.settings.knowledge.sizes.is_guess() {
            let doubt = self.errors.doubt();
            self.views.iter_mut().for_each(|view| view.doubt = doubt);
        }
        self.policy.review(self.now, &self.views, &mut self.memory);
        let snapshot = Snapshot { now: self.now, capacity: &self.capacity, jobs: &self.views };
        let allocation = allocate(self.policy, snapshot, &mut self.memory)?;
        self.decisions += 1;
        if let Some(refusal) = allocation.refused.into_iter().next() {
            return Err(Error::Refused { policy: self.policy.name().to_owned(), refusal });
        }
        let moved = match &mut self.floor {
            Some(floor) => {
                floor.place(self.views.iter().map(|view| &view.id).zip(allocation.grants.iter().copied()))?
            }
            None => BTreeSet::new(),
        };
        for (i, grant) in allocation.grants.into_iter().enumerate() {
            if grant != self.live[i].held || moved.contains(&self.views[i].id) {
                self.hold(i, grant);
            }
        }
        let wake = self.policy.wake(self.now, &self.views, &self.memory);
        let tick = self.settings.tick;
        self.wake = match (wake, self.settings.round) {
            (Some(at), None) => clock::at_or_after(at, tick).max(clock::after(self.now, tick)),
            (Some(_) | None, _) => Micros::MAX,
        };
        let idle = self.live.iter().all(|l| l.held.is_none());
        if idle && wake.is_none() && self.next_job().is_none() {
            return self.live.first().map_or(Ok(()), |first| Err(self.stuck(first)));
        }
        Ok(())
    }

    /// Gives a job what was decided for it.
    fn hold(&mut self, i: usize, grant: Grant) {
        let now = self.now;
        let (live, view) = (&mut self.live[i], &mut self.views[i]);
        let packed =
            if grant.is_none() { Speed::ZERO } else { self.workload.jobs[live.job].speed(grant.gpu_type, grant.gpus) };
        let speed = self.floor.as_ref().map_or(packed, |floor| floor.slowed(&view.id, grant, packed));
        if grant.is_none() != live.held.is_none() {
            view.since = now;
        }
        live.hold(grant, speed, now, self.settings.restart_cost);
        view.held = grant;
        view.spell = live.spell;
        view.first_start = live.first_start;
        if self.settings.keep_changes {
            self.changes.push(Change { at: now, job: live.job, grant });
        }
    }

    fn sample(&mut self) {
        let held = self.live.iter().filter(|l| !l.held.is_none());
        let (running, gpus) = held.fold((0, 0), |(n, gpus), l| (n + 1, gpus + l.held.gpus));
        let waiting = u32::try_from(self.live.len()).unwrap_or(u32::MAX) - running;
        let sample = Sample { at: self.now, waiting, running, gpus };
        match self.samples.last_mut() {
            Some(last) if (last.waiting, last.running, last.gpus) == (waiting, running, gpus) => {}
            Some(last) if last.at == self.now => *last = sample,
            Some(_) | None => self.samples.push(sample),
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            jobs: self.records.into_iter().flatten().collect(),
            samples: self.samples,
            changes: self.changes,
            decisions: self.decisions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::input::{Cluster, OnBadRow, Trace};
    use crate::study::lineup::Entrant;
    use scheduler::{GpuType, Round};

    fn workload(rows: &str, cluster: &str) -> Workload {
        let text = format!("job_id,submit_time_s,gpus_requested,duration_s\n{rows}");
        let trace = Trace::read("t.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
        Workload::join(trace, None, Cluster::parse(cluster).unwrap(), OnBadRow::Refuse).unwrap()
    }

    fn play(workload: &Workload, name: &str, settings: &Settings) -> Outcome {
        run(workload, Entrant::find(name).unwrap().policy.as_ref(), settings).unwrap()
    }

    fn starts_and_ends(outcome: &Outcome) -> Vec<(u64, u64)> {
        outcome.jobs.iter().map(|j| (j.first_start.0 / 1_000_000, j.finished.0 / 1_000_000)).collect()
    }

    #[test]
    fn things_happen_at_ticks_and_waits_count_from_submission() {
        let workload = workload("a,0.5,2,10\nb,3,2,4.2\nc,40,1,1\n", "3");
        let outcome = play(&workload, "fifo-strict", &Settings::default());
        assert_eq!(starts_and_ends(&outcome), [(1, 11), (11, 16), (40, 41)]);
        assert_eq!(outcome.jobs[0].completion(), Micros(10_500_000));
        assert_eq!(
            (outcome.jobs[1].first_wait(), outcome.jobs[1].queued()),
            (Micros::from_secs(8), Micros::from_secs(8))
        );
        let fine = Settings { tick: Micros::from_millis(100), ..Settings::default() };
        let outcome = play(&workload, "fifo-strict", &fine);
        assert_eq!(outcome.jobs[1].finished, Micros::from_millis(14_700));
    }

    #[test]
    fn rounds_begin_at_their_multiples_and_starts_cost() {
        let workload = workload("a,5,1,100\nb,60,1,30\nc,1000,1,1\n", "1");
        let settings =
            Settings { round: Some(Micros::from_secs(60)), restart_cost: Micros::from_secs(30), ..Settings::default() };
        let outcome = play(&workload, "fifo-strict", &settings);
        // a waits for 60, ends at 60 + 30 + 100 = 190; b gets the next round; so does c after an empty stretch.
        assert_eq!(starts_and_ends(&outcome), [(60, 190), (240, 300), (1020, 1051)]);
    }

    #[test]
    fn a_preempted_job_goes_on_where_it_was() {
        let workload = workload("long,0,1,100\nshort,10,1,20\n", "1");
        let settings = Settings { restart_cost: Micros::from_secs(5), ..Settings::default() };
        let outcome = play(&workload, "srtf", &settings);
        // 5 s of 100 done by 10; the short one runs 10 to 35; the rest of the long one takes 5 + 95 from there.
        assert_eq!(starts_and_ends(&outcome), [(0, 135), (10, 35)]);
        let long = &outcome.jobs[0];
        assert_eq!((long.halts, long.restarts, long.changes), (1, 1, 2));
        assert_eq!((long.ran, long.progressed), (Micros::from_secs(110), Micros::from_secs(100)));
    }

    /// Starts nobody.
    #[derive(Debug)]
    struct Idle;

    impl Policy for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }

        fn is_elastic(&self) -> bool {
            false
        }

        fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
            vec![Grant::NONE; round.jobs.len()]
        }
    }

    /// Starts nobody before it wanted to be asked again.
    #[derive(Debug)]
    struct Late;

    impl Policy for Late {
        fn name(&self) -> &'static str {
            "late"
        }

        fn is_elastic(&self) -> bool {
            false
        }

        fn wake(&self, now: Micros, _: &[JobView], _: &Memory) -> Option<Micros> {
            Some(Micros(7_300_000)).filter(|&at| at > now)
        }

        fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
            let due = round.now >= Micros(7_300_000);
            round.jobs.iter().map(|job| if due { Grant::of(GpuType(0), job.num) } else { Grant::NONE }).collect()
        }
    }

    #[test]
    fn a_policy_that_starts_nobody_is_an_error_and_not_a_loop() {
        let workload = workload("a,0,1,10\nb,5,1,10\n", "4");
        for round in [None, Some(Micros::from_secs(60))] {
            let settings = Settings { round, ..Settings::default() };
            let error = run(&workload, &Idle, &settings).unwrap_err();
            let Error::Stuck { waiting: 2, ref job, .. } = error else { panic!("{error}") };
            assert_eq!(job, "a");
        }
    }

    #[test]
    fn a_policy_is_asked_again_when_it_wanted() {
        let workload = workload("a,0,1,10\n", "4");
        assert_eq!(starts_and_ends(&run(&workload, &Late, &Settings::default()).unwrap()), [(8, 18)]);
    }
}
