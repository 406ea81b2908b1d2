//! Tiresias: least attained service in discrete queues, and its elastic form.
//!
//! Sources: Tiresias (NSDI'19), "discretized 2D-LAS": attained service is GPUs times time; a job starts in the top queue
//! and drops when its service since the last promotion passes the queue's limit; within a queue the job that first
//! started earliest goes first; a job that waited `promote_knob` times as long as it last ran goes back to the top.
//! Elastic-Tiresias (EDL, TPDS'22) as Voda has it: *compaction* when many jobs wait, *expansion* by marginal gain.
//! Voda's faults are corrected: never-started jobs sort last, queues beyond the last count as the last, a running job may
//! take a single GPU, ties go to the pending job.
//!
//! Owns the queue rule ([`Queues::step`]) and keeps [`Memory::queues`]. Tests: at the end of this file; vectors
//! `tiresias_priority` and `allocation` in `tests/vectors.rs`.

use std::collections::{BTreeMap, BinaryHeap, btree_map};
use std::iter::Peekable;

use model::Text;

use crate::job::{Grant, JobView};
use crate::memory::{Memory, QueueMark};
use crate::policies::heap::{Entry, Gain};
use crate::policy::Policy;
use crate::round::{Pool, Round};
use crate::units::{GpuMicros, Micros};

/// The queues of a least-attained-service policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queues {
    /// Service a job may attain in each queue but the last; so there is one queue more than limits.
    pub limits: Vec<GpuMicros>,
    /// A waiting job goes to the top when it waited this many times as long as it last ran; `None`: never.
    pub promote_knob: Option<u32>,
}

impl Queues {
    /// Voda's settings: two queues, 3,600 GPU-seconds, knob 8.
    pub fn voda() -> Self {
        Self { limits: vec![GpuMicros::from_gpu_secs(3600)], promote_knob: Some(8) }
    }

    fn last(&self) -> u32 {
        u32::try_from(self.limits.len()).unwrap_or(u32::MAX)
    }

    /// The rule itself: the queue a job should be in, from the queue it is in, the service it attained since its last
    /// promotion, the length of its last spell of running (0: it did not run since its last promotion), and how long it
    /// waited since.
    ///
    /// Only a running job drops (a waiting one attains nothing), only a waiting one that ran since is promoted.
    pub fn step(&self, level: u32, running: bool, attained: GpuMicros, spell: Micros, waited: Micros) -> u32 {
        let level = level.min(self.last());
        if running {
            let passed = |&level: &u32| self.limit(level).is_some_and(|limit| attained > limit);
            return (level..self.last()).find(|level| !passed(level)).unwrap_or_else(|| self.last());
        }
        match self.promote_knob {
            Some(knob) if level > 0 && spell > Micros::ZERO && waited >= spell.times(knob.into()) => 0,
            Some(_) | None => level,
        }
    }

    fn limit(&self, level: u32) -> Option<GpuMicros> {
        usize::try_from(level).ok().and_then(|level| self.limits.get(level)).copied()
    }

    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        let mut moved = Vec::new();
        for (job, mark) in Marks::of(memory).along(jobs) {
            let attained = job.attained.beyond(mark.attained);
            let waited = now.since(job.since.max(mark.promoted));
            let from = mark.level.min(self.last());
            // A job that waits has dropped while it ran: where it has no mark, that was lost.
            let drops = job.is_running() || mark == fresh(job);
            let to = self.step(from, drops, attained, last_spell(job, mark), waited);
            if to != from {
                let mark = if to < from {
                    QueueMark { level: to, attained: job.attained, ran: job.ran, promoted: now }
                } else {
                    QueueMark { level: to, ..mark }
                };
                moved.push((job.id.clone(), mark));
            }
        }
        let changed = !moved.is_empty();
        memory.queues.extend(moved);
        changed
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        let next = |(job, mark): (&JobView, QueueMark)| {
            let level = mark.level.min(self.last());
            if job.is_running() {
                let left = self.limit(level)?.beyond(job.attained.beyond(mark.attained));
                let span = left.0.checked_div(job.held.gpus.into())?;
                return Some(now.plus(Micros(span)).plus(Micros(1))); // strictly more than the limit
            }
            let spell = last_spell(job, mark);
            let due = job.since.max(mark.promoted).plus(spell.times(self.promote_knob?.into()));
            (level > 0 && spell > Micros::ZERO).then_some(due)
        };
        Marks::of(memory).along(jobs).filter_map(next).filter(|&at| at > now).min()
    }

    /// Members by queue, then first start, never-started last, then (submission, id); with the queue of each.
    fn order(&self, pool: &Pool<'_>, memory: &Memory) -> (Vec<usize>, Vec<u32>) {
        let levels: Vec<u32> = Marks::of(memory)
            .along(pool.jobs.iter().map(|m| m.job))
            .map(|(_, mark)| mark.level.min(self.last()))
            .collect();
        let mut order: Vec<usize> = (0..pool.jobs.len()).collect();
        order.sort_by_key(|&i| {
            let first = pool.jobs.get(i).map(|m| m.job.first_start.unwrap_or(Micros::MAX));
            (levels.get(i).copied(), first)
        });
        (order, levels)
    }
}

/// Length of the last spell; zero when that was before the last promotion.
fn last_spell(job: &JobView, mark: QueueMark) -> Micros {
    if job.ran > mark.ran { job.spell } else { Micros::ZERO }
}

/// Mark of a job that never changed its queue.
fn fresh(job: &JobView) -> QueueMark {
    QueueMark { level: job.level, ..QueueMark::default() }
}

/// Looks marks up for one job after the other. Where the jobs come in the order of their ids, as they mostly do, that is one walk
/// over the marks.
struct Marks<'a> {
    all: &'a BTreeMap<Text, QueueMark>,
    ahead: Peekable<btree_map::Iter<'a, Text, QueueMark>>,
    /// Marks of jobs up to this one have been passed.
    passed: Option<&'a Text>,
}

impl<'a> Marks<'a> {
    fn of(memory: &'a Memory) -> Self {
        Self { all: &memory.queues, ahead: memory.queues.iter().peekable(), passed: None }
    }

    /// Each job with its mark.
    fn along<'j>(
        mut self,
        jobs: impl IntoIterator<Item = &'j JobView>,
    ) -> impl Iterator<Item = (&'j JobView, QueueMark)> {
        jobs.into_iter().map(move |job| (job, self.find(&job.id).unwrap_or_else(|| fresh(job))))
    }

    fn find(&mut self, id: &Text) -> Option<QueueMark> {
        if self.passed.is_some_and(|passed| id <= passed) {
            return self.all.get(id).copied();
        }
        while let Some((passed, _)) = self.ahead.next_if(|(other, _)| *other < id) {
            self.passed = Some(passed);
        }
        self.ahead.peek().filter(|(other, _)| *other == id).map(|(_, mark)| **mark)
    }
}

/// Rigid least attained service: every job at the size it asked for, or not at all.
#[derive(Debug, Clone)]
pub struct Tiresias {
    /// The queues.
    pub queues: Queues,
}

impl Policy for Tiresias {
    fn name(&self) -> &'static str {
        "Tiresias"
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        self.queues.review(now, jobs, memory)
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        self.queues.wake(now, jobs, memory)
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let (order, _) = self.queues.order(pool, memory);
            super::ordered::fill(pool, &order, false, |job| job.num)
        })
    }
}

/// Tiresias with compaction and expansion.
#[derive(Debug, Clone)]
pub struct ElasticTiresias {
    /// The queues.
    pub queues: Queues,
    /// More pending jobs than this shrink every job outside the top queue to its minimum.
    pub compaction: usize,
}

impl Policy for ElasticTiresias {
    fn name(&self) -> &'static str {
        "ElasticTiresias"
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn review(&self, now: Micros, jobs: &[JobView], memory: &mut Memory) -> bool {
        self.queues.review(now, jobs, memory)
    }

    fn wake(&self, now: Micros, jobs: &[JobView], memory: &Memory) -> Option<Micros> {
        self.queues.wake(now, jobs, memory)
    }

    fn decide(&self, round: &Round<'_>, memory: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let (order, levels) = self.queues.order(pool, memory);
            let mut given = super::ordered::fill(pool, &order, false, |job| job.num);
            if given.iter().filter(|&&g| g == 0).count() > self.compaction {
                for ((slot, member), &level) in given.iter_mut().zip(&pool.jobs).zip(&levels) {
                    *slot = if level > 0 { member.job.min.min(*slot) } else { *slot };
                }
            }
            expand(pool, &levels, &mut given);
            given
        })
    }
}

/// Hands out what is free by marginal gain; an entry is out of date once its job was given something else.
fn expand(pool: &Pool<'_>, levels: &[u32], given: &mut [u32]) {
    let used = given.iter().fold(0_u32, |sum, &g| sum.saturating_add(g));
    let mut free = pool.gpus.saturating_sub(used);
    let entry = |i: usize, given: u32| {
        let member = pool.jobs.get(i)?;
        let level = levels.get(i).copied().unwrap_or_default();
        (given < member.job.max).then_some(())?;
        let (to, gain) = if given == 0 {
            let min = member.job.min;
            (min, Gain::new(member.curve.at(min).0, min)?)
        } else {
            let to = given.saturating_add(1);
            (to, Gain::new(member.curve.at(to).0.checked_sub(member.curve.at(given).0)?, 1)?)
        };
        // Ties: higher queue, then pending before running, then (submission, id), which is the index.
        Some(Entry::new(gain, (level, given > 0, i), (i, to)))
    };
    let mut heap: BinaryHeap<_> = given.iter().enumerate().filter_map(|(i, &g)| entry(i, g)).collect();
    while free > 0
        && let Some(best) = heap.pop()
    {
        let (i, to) = best.what;
        let Some(slot) = given.get_mut(i) else { continue };
        // A pending job whose minimum no longer fits never will: what is free only shrinks.
        let Some(rest) = free.checked_sub(to.saturating_sub(*slot)) else { continue };
        (*slot, free) = (to, rest);
        heap.extend(entry(i, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::job;
    use crate::units::GpuType;

    fn running(mut job: JobView, since: u64, gpus: u32, secs: u64) -> JobView {
        job.held = Grant::of(GpuType(0), gpus);
        job.since = Micros::from_secs(since);
        job.first_start = Some(Micros::from_secs(since));
        (job.ran, job.spell) = (Micros::from_secs(secs), Micros::from_secs(secs));
        job.attained = GpuMicros::of(gpus, job.ran);
        job
    }

    #[test]
    fn marks_are_found_in_any_order_of_the_jobs() {
        let marked = ["c", "k", "p"];
        let queues =
            marked.iter().zip(1..).map(|(&id, level)| (id.into(), QueueMark { level, ..QueueMark::default() }));
        let memory = Memory { queues: queues.collect(), ..Memory::default() };
        let ids = ["a", "c", "d", "k", "l", "p", "q"];
        let jobs = ids.map(|id| JobView { level: 9, ..JobView::waiting(id, 1, 1, 1, Micros::ZERO) });
        let want = [9, 1, 9, 2, 9, 3, 9];
        let mut places: Vec<usize> = (0..ids.len()).collect();
        for turn in 0..ids.len() {
            for step in [1, 2, 3, 5] {
                places.sort_by_key(|place| (place * step + turn) % ids.len());
                let found: Vec<u32> =
                    Marks::of(&memory).along(places.iter().map(|&p| &jobs[p])).map(|(_, m)| m.level).collect();
                assert_eq!(found, places.iter().map(|&p| want[p]).collect::<Vec<_>>(), "{places:?}");
            }
        }
    }

    #[test]
    fn a_running_job_drops_one_microsecond_after_its_limit() {
        let policy = Tiresias { queues: Queues::voda() };
        let mut memory = Memory::default();
        let at = |secs| [running(job("j", 0, 2), 0, 2, secs)];
        assert!(!policy.review(Micros::from_secs(1800), &at(1800), &mut memory)); // exactly 3,600 GPU-seconds
        let due = policy.wake(Micros::from_secs(1000), &at(1000), &memory);
        assert_eq!(due, Some(Micros(1_800_000_001)));
        assert!(policy.review(Micros::from_secs(1801), &at(1801), &mut memory));
        assert_eq!(memory.queues["j"].level, 1);
        assert_eq!(policy.wake(Micros::from_secs(1801), &at(1801), &memory), None);
    }

    #[test]
    fn a_promotion_zeroes_the_counters() {
        let policy = Tiresias { queues: Queues::voda() };
        let mut memory = Memory::default();
        let mut halted = running(job("j", 0, 2), 0, 2, 2000);
        assert!(policy.review(Micros::from_secs(2000), &[halted.clone()], &mut memory));
        (halted.held, halted.since) = (Grant::NONE, Micros::from_secs(2000));
        let jobs = [halted];
        let due = policy.wake(Micros::from_secs(3000), &jobs, &memory).unwrap();
        assert_eq!(due, Micros::from_secs(2000 + 8 * 2000));
        assert!(!policy.review(Micros(due.0 - 1), &jobs, &mut memory));
        assert!(policy.review(due, &jobs, &mut memory));
        assert_eq!(memory.queues["j"].level, 0);
        assert!(!policy.review(due.plus(Micros(1)), &jobs, &mut memory), "no flapping");
        assert_eq!(policy.wake(due, &jobs, &memory), None);
    }

    #[test]
    fn several_limits_are_passed_at_once_after_a_long_time() {
        let queues =
            Queues { limits: [10, 20, 30].map(GpuMicros::from_gpu_secs).into_iter().collect(), promote_knob: None };
        assert_eq!(queues.step(0, true, GpuMicros::from_gpu_secs(25), Micros(1), Micros::ZERO), 2);
        assert_eq!(queues.step(7, true, GpuMicros::from_gpu_secs(1), Micros(1), Micros::ZERO), 3);
    }
}
