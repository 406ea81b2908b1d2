//! Discretised least attained service as the Tiresias authors' simulator plays it (schedules `dlas` and `dlas-gpu`).
//!
//! Three queues, limits 3,250 and 7,200 (GPU-seconds, or seconds held). Queues are lists: a job that arrives or falls goes to the
//! end, and after every decision those that wait go behind those that run. One queue is fallen per look. The next look for
//! a fall is computed as `(limit - seconds held) / GPUs`, which is late for jobs of several GPUs. With a knob, a waiting job
//! returns to the top once it has waited `knob` times as long as it ran since it was last there.
//!
//! Memory, by job: `level` its queue, `attained` its turn in the queue's list, `promoted` and `ran` when it last came to the
//! top, and what it had run by then.

use scheduler::memory::QueueMark;
use scheduler::{GpuMicros, Grant, JobView, Memory, Micros, Policy, Round};

use super::give_in_order;

const SECOND: u64 = 1_000_000;

/// The policy.
#[derive(Debug, Clone)]
pub struct Dlas {
    /// True if the limits count GPU-seconds; else seconds.
    pub by_service: bool,
    /// Limits of all queues but the last.
    pub limits: Vec<u64>,
    /// Waiting over running, from which on a job returns to the top; `None`: never.
    pub knob: Option<u64>,
}

impl Default for Dlas {
    fn default() -> Self {
        Self { by_service: true, limits: vec![3250, 7200], knob: None }
    }
}

impl Dlas {
    fn held_since_top(job: &JobView, mark: &QueueMark) -> u64 {
        job.ran.since(mark.ran).0 / SECOND
    }

    fn waited_since_top(job: &JobView, mark: &QueueMark, now: Micros) -> u64 {
        let top = if mark.promoted > Micros::ZERO { Some(mark.promoted) } else { job.first_start };
        top.map_or(0, |top| now.since(top).since(job.ran.since(mark.ran)).0 / SECOND)
    }

    fn limit(&self, mark: &QueueMark) -> Option<u64> {
        self.limits.get(usize::try_from(mark.level).ok()?).copied()
    }
}

impl Policy for Dlas {
    fn name(&self) -> &'static str {
        match (self.by_service, self.knob) {
            (false, _) => "tiresias-sim:dlas",
            (true, None) => "tiresias-sim:dlas-gpu",
            (true, Some(_)) => "tiresias-sim:dlas-gpu-1",
        }
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        let mut last = memory.queues.values().map(|mark| mark.attained.0).max().unwrap_or(0);
        let mut end = move || {
            last += 1;
            GpuMicros(last)
        };
        let mut changed = false;
        for job in jobs {
            if !memory.queues.contains_key(&job.id) {
                memory.queues.insert(job.id.clone(), QueueMark { attained: end(), ..QueueMark::default() });
            }
        }
        for job in jobs {
            let Some(mark) = memory.queues.get_mut(&job.id) else { continue };
            let held = Self::held_since_top(job, mark);
            if job.is_running() {
                let attained = if self.by_service { held * u64::from(job.num) } else { held };
                if self.limit(mark).is_some_and(|limit| attained >= limit) {
                    (mark.level, mark.attained, changed) = (mark.level + 1, end(), true);
                }
            } else if let Some(knob) = self.knob
                && mark.level > 0
                && held > 0
                && Self::waited_since_top(job, mark, now) >= held * knob
            {
                *mark = QueueMark { level: 0, attained: end(), ran: job.ran, promoted: now };
                changed = true;
            }
        }
        changed
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let look = |job: &JobView| {
            let mark = memory.queues.get(&job.id)?;
            let held = Self::held_since_top(job, mark);
            let seconds = if job.is_running() {
                let rest = self.limit(mark)?.saturating_sub(held);
                if self.by_service { rest / u64::from(job.num) } else { rest }
            } else {
                let due = held * self.knob.filter(|_| mark.level > 0 && held > 0)?;
                due.checked_sub(Self::waited_since_top(job, mark, now)).filter(|&rest| rest > 0)?
            };
            Some(now.plus(Micros::from_secs(seconds)))
        };
        jobs.iter().filter_map(look).min()
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        let mark =
            |memory: &Memory, place: usize| memory.queues.get(&round.jobs[place].id).copied().unwrap_or_default();
        let mut order: Vec<usize> = (0..round.jobs.len()).collect();
        order.sort_by_key(|&place| (mark(memory, place).level, mark(memory, place).attained));
        let mut runs = vec![false; order.len()];
        let grants = give_in_order(round, &order, |place, starts| runs[place] = starts);
        // Those that wait go behind those that run; turns are numbered again.
        order.sort_by_key(|&place| (mark(memory, place).level, !runs[place]));
        for (place, turn) in order.into_iter().zip(1..) {
            memory.queues.entry(round.jobs[place].id.clone()).or_default().attained = GpuMicros(turn);
        }
        grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::GpuType;

    #[test]
    fn a_fall_is_looked_for_late_and_made_at_the_limit() {
        let policy = Dlas::default();
        let mut memory = Memory::default();
        let at = |secs| {
            let held = Grant::of(GpuType(0), 4);
            let ran = Micros::from_secs(secs);
            [JobView { held, ran, first_start: Some(Micros::ZERO), ..JobView::waiting("a", 4, 4, 4, Micros::ZERO) }]
        };
        assert!(!policy.review(Micros::ZERO, &at(0), &mut memory));
        // 3,250 / 4 = 812.5 s would be due; at 800 s the look is put at 800 + (3250 - 800) / 4.
        assert_eq!(policy.wake(Micros::from_secs(800), &at(800), &memory), Some(Micros::from_secs(1412)));
        assert!(!policy.review(Micros::from_secs(812), &at(812), &mut memory));
        assert!(policy.review(Micros::from_secs(813), &at(813), &mut memory));
        assert_eq!(memory.queues["a"].level, 1);
    }

    #[test]
    fn the_knob_brings_a_waiting_job_back() {
        let policy = Dlas { knob: Some(2), ..Dlas::default() };
        let mut memory = Memory::default();
        let job = JobView {
            ran: Micros::from_secs(4000),
            first_start: Some(Micros::ZERO),
            ..JobView::waiting("a", 1, 1, 1, Micros::ZERO)
        };
        memory.queues.insert(job.id.clone(), QueueMark { level: 1, attained: GpuMicros(1), ..QueueMark::default() });
        let jobs = [job];
        assert!(!policy.review(Micros::from_secs(11_999), &jobs, &mut memory));
        assert_eq!(policy.wake(Micros::from_secs(11_000), &jobs, &memory), Some(Micros::from_secs(12_000)));
        assert!(policy.review(Micros::from_secs(12_000), &jobs, &mut memory));
        assert_eq!((memory.queues["a"].level, memory.queues["a"].ran), (0, Micros::from_secs(4000)));
    }
}
