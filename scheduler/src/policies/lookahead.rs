//! Selects the jobs that run now, where each has one size and known work left, by playing all of them to their end.
//!
//! The least remaining service first is the best order as long as the next job fits. Where it does not, GPUs stay idle or
//! go to a job far behind, and every halt costs a start later. So a few other decisions are tried (the first job that waits goes
//! to the front; one that would be started goes to the back), all jobs there are are played to their end from each of them,
//! with the least remaining service first from the next end on, and the best sum of completion times is kept, as often as that
//! helps. That is a rollout (Bertsekas, Tsitsiklis and Wu, "Rollout algorithms for combinatorial optimization", 1997): with
//! no further submissions never worse than the order it starts from, but for starts, which count several times here: the next
//! submission may turn the decision over.
//!
//! Wrong sizes would be searched for, not averaged out, so none may be in doubt. The work is bounded ([`JOBS`], [`WAITING`]);
//! where more jobs run at once, one that does not fit leaves little idle. Integer arithmetic. Tests: below, and in `gain`.

use std::cmp::Reverse;
use std::iter::repeat;

use crate::policies::ordered::take;
use crate::round::{Member, Pool};

/// Jobs that wait and are played, the first in the order.
const WAITING: usize = 32;
/// Jobs that are played in all; with more there is no looking ahead.
const JOBS: usize = 128;
/// Jobs about to be started that are tried at the back.
const BACK: usize = 2;
/// Changes of the order at most.
const CHANGES: usize = 4;

/// A job that runs on one number of GPUs only.
#[derive(Debug, Clone, Copy)]
struct Rigid {
    /// Its place in the pool.
    place: usize,
    priority: i32,
    gpus: u32,
    /// Microseconds it has left on them, at least 1.
    left: u64,
    /// Microseconds until it gets on: what is left of its start.
    starting: u64,
    /// What a start counts as, in microseconds.
    start: u64,
    runs: bool,
}

/// Gives GPUs to other jobs where that is better; a start counts as so many thousandths of what it costs. `given` has the
/// jobs of the pool.
pub(super) fn improve(pool: &Pool<'_>, start_milli: u32, given: &mut [u32]) {
    let is_judged = |m: &Member<'_>| m.job.min == m.job.max && m.job.remaining.is_some() && m.job.doubt == 0;
    let running = given.iter().filter(|&&gpus| gpus > 0).count();
    if running > JOBS || !pool.jobs.iter().all(is_judged) {
        return;
    }
    // Jobs of a higher priority than every waiting one have what they need.
    let waits = |(member, &gpus): (&Member<'_>, &u32)| (gpus == 0).then_some(member.job.priority);
    let Some(class) = pool.jobs.iter().zip(given.iter()).filter_map(waits).max() else { return };
    let above = pool.jobs.iter().zip(given.iter()).filter(|(member, _)| member.job.priority > class);
    let mut free = above.fold(pool.gpus, |free, (_, &gpus)| free.saturating_sub(gpus));
    let jobs = pool.jobs.iter().enumerate().filter(|(_, member)| member.job.priority <= class);
    let mut jobs: Vec<Rigid> = jobs.map(|(place, member)| Rigid::new(place, member, start_milli)).collect();
    jobs.sort_by_key(|job| (Reverse(job.priority), job.service()));
    let equals = jobs.iter().copied().take_while(|job| job.priority == class);
    let Some(runs) = chosen(equals, free) else { return };
    for (job, may) in jobs.iter().zip(runs.into_iter().chain(repeat(true))) {
        let gets = may && take(&mut free, job.gpus);
        if let Some(slot) = given.get_mut(job.place) {
            *slot = if gets { job.gpus } else { 0 };
        }
    }
}

/// Which of the first jobs should run, of these in their order; `None`: nothing better than that order was found.
fn chosen(jobs: impl Iterator<Item = Rigid>, gpus: u32) -> Option<Vec<bool>> {
    let (mut free, mut waiting) = (gpus, 0_usize);
    let is_near = |job: &Rigid| {
        if !take(&mut free, job.gpus) {
            waiting = waiting.saturating_add(1);
        }
        waiting <= WAITING
    };
    let jobs: Vec<Rigid> = jobs.take_while(is_near).take(JOBS.saturating_add(1)).collect();
    if jobs.len() > JOBS {
        return None;
    }
    let mut best = Plan::new((0..jobs.len()).collect(), &jobs, gpus);
    let mut is_better = false;
    for _ in 0..CHANGES {
        let Some(plan) = best.neighbours(&jobs, gpus).min_by_key(|plan| plan.sum).filter(|plan| plan.sum < best.sum)
        else {
            break;
        };
        (best, is_better) = (plan, true);
    }
    is_better.then_some(best.runs)
}

/// Returns a decision: each job that fits, in some order.
struct Plan {
    /// Places of the jobs.
    order: Vec<usize>,
    /// Whether each job runs.
    runs: Vec<bool>,
    /// Sum of the times until they end.
    sum: u64,
}

impl Plan {
    fn new(order: Vec<usize>, jobs: &[Rigid], gpus: u32) -> Self {
        let mut runs = vec![false; jobs.len()];
        let mut free = gpus;
        for &i in &order {
            if let (Some(job), Some(slot)) = (jobs.get(i), runs.get_mut(i)) {
                *slot = take(&mut free, job.gpus);
            }
        }
        let sum = play(jobs, &runs, gpus);
        Self { order, runs, sum }
    }

    /// The decisions with one job at the front or at the back.
    fn neighbours(&self, jobs: &[Rigid], gpus: u32) -> impl Iterator<Item = Self> {
        let runs = |i: usize| self.runs.get(i).is_some_and(|&runs| runs);
        let starts = move |&i: &usize| runs(i) && jobs.get(i).is_some_and(|job| !job.runs);
        let order = || self.order.iter().copied();
        let front = order().find(|&i| !runs(i)).map(|i| (i, true));
        let back = order().rev().filter(starts).take(BACK).map(|i| (i, false));
        front.into_iter().chain(back).map(move |(moved, is_front)| {
            let mut order = self.order.clone();
            order.sort_by_key(|&i| (i == moved) != is_front);
            Self::new(order, jobs, gpus)
        })
    }
}

/// Returns the sum of the times until all end, if `runs` run until the first end, and from then on those with the least service left.
fn play(jobs: &[Rigid], runs: &[bool], gpus: u32) -> u64 {
    let mut jobs: Vec<Rigid> = jobs.iter().zip(runs).map(|(job, &runs)| job.when(runs)).collect();
    let (mut now, mut sum) = (0_u64, 0_u64);
    while let Some(step) = jobs.iter().filter(|job| job.runs).map(|job| job.starting.saturating_add(job.left)).min() {
        now = now.saturating_add(step);
        jobs.retain_mut(|job| {
            job.pass(step);
            if job.left == 0 {
                sum = sum.saturating_add(now);
            }
            job.left > 0
        });
        // Nearly in order already.
        jobs.sort_by_key(Rigid::service);
        let mut free = gpus;
        for job in &mut jobs {
            *job = job.when(take(&mut free, job.gpus));
        }
    }
    sum
}

impl Rigid {
    fn new(place: usize, member: &Member<'_>, start_milli: u32) -> Self {
        let (job, curve) = (member.job, member.curve);
        let start = job.restart_cost.times(start_milli.into()).0 / 1000;
        let starting = if job.is_running() { job.restart_cost.since(job.spell).0 } else { 0 };
        let left = curve.at(job.min).time_for(job.remaining.unwrap_or_default()).0.max(1);
        Self { place, priority: job.priority, gpus: job.min, left, starting, start, runs: job.is_running() }
    }

    /// Service left.
    fn service(&self) -> u64 {
        self.left.saturating_mul(self.gpus.into())
    }

    /// The job when it runs, or waits, from now on.
    fn when(self, runs: bool) -> Self {
        let starting = if self.runs { self.starting } else { self.start };
        Self { runs, starting: if runs { starting } else { 0 }, ..self }
    }

    /// Lets time pass.
    fn pass(&mut self, time: u64) {
        if self.runs {
            let started = time.min(self.starting);
            self.starting = self.starting.saturating_sub(started);
            self.left = self.left.saturating_sub(time.saturating_sub(started));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use super::*;

    fn rigid(gpus: u32, left: u64) -> Rigid {
        Rigid { place: 0, priority: 0, gpus, left, starting: 0, start: 0, runs: false }
    }

    #[test]
    fn the_rest_is_played_by_service_and_what_is_halted_starts_again() {
        // Both on 4 GPUs; the longer one has begun, and has 5 of its start left.
        let begun = Rigid { starting: 5, start: 20, runs: true, ..rigid(4, 100) };
        let jobs = [Rigid { start: 20, ..rigid(4, 90) }, begun];
        assert_eq!(play(&jobs, &[false, true], 4), 105 + (105 + 20 + 90));
        assert_eq!(play(&jobs, &[true, false], 4), 110 + (110 + 20 + 100));
        assert_eq!(play(&jobs, &[true, true], 8), 110 + 105);
    }

    #[test]
    fn idle_gpus_are_a_reason_to_leave_the_order() {
        // Three small ones would leave 5 of 8 GPUs idle; of eight the order is best.
        let wide = rigid(8, 200);
        let small = |count: usize| repeat_n(rigid(1, 1000), count).chain([wide]);
        assert_eq!(chosen(small(3), 8), Some(vec![false, false, false, true]));
        assert_eq!(chosen([rigid(1, 100); 8].into_iter().chain([wide]), 8), None);
    }

    #[test]
    fn it_does_not_start_what_is_halted_again_at_once() {
        let begun = Rigid { start: 20, runs: true, ..rigid(4, 100) };
        let new = |left| [Rigid { start: 20, ..rigid(4, left) }, begun];
        assert_eq!(chosen(new(80).into_iter(), 4), Some(vec![false, true]));
        assert_eq!(chosen(new(50).into_iter(), 4), None);
    }

    #[test]
    fn with_many_jobs_it_does_not_look() {
        let many = |count: usize| repeat_n(rigid(1, 2000), count).chain([rigid(256, 10)]);
        assert!(chosen(many(JOBS - 1), 256).is_some());
        assert!(chosen(many(JOBS), 256).is_none());
    }
}
