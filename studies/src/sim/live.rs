//! Computes the exact progress of a job that has been submitted and has not ended.

use scheduler::{GpuMicros, Grant, Micros, Speed};

use super::clock;
use crate::input::Work;

/// Progress of one job.
#[derive(Debug, Clone)]
pub(super) struct Live {
    /// Work left.
    pub(super) left: Work,
    /// GPUs held.
    pub(super) held: Grant,
    /// Speed with the GPUs held, once started.
    pub(super) speed: Speed,
    /// Time at which it begins to make progress with the GPUs held.
    pub(super) productive: Micros,
    /// Up to when `left` and the totals below have been counted.
    pub(super) counted: Micros,
    /// Service so far.
    pub(super) attained: GpuMicros,
    /// Time it has held GPUs.
    pub(super) ran: Micros,
    /// Time it has held GPUs since its last start.
    pub(super) spell: Micros,
    /// Time it has made progress.
    pub(super) progressed: Micros,
    /// First start.
    pub(super) first_start: Option<Micros>,
    /// Changes of what it holds, the first start not counted.
    pub(super) changes: u32,
    /// Changes to nothing.
    pub(super) halts: u32,
    /// Starts and changes of size, the first start not counted.
    pub(super) restarts: u32,
}

impl Live {
    pub(super) fn new(work: Work, submitted: Micros) -> Self {
        Self {
            left: work,
            held: Grant::NONE,
            speed: Speed::ZERO,
            productive: Micros::MAX,
            counted: submitted,
            attained: GpuMicros::default(),
            ran: Micros::ZERO,
            spell: Micros::ZERO,
            progressed: Micros::ZERO,
            first_start: None,
            changes: 0,
            halts: 0,
            restarts: 0,
        }
    }

    /// Counts progress up to `now`.
    pub(super) fn advance(&mut self, now: Micros) {
        if !self.held.is_none() {
            let held_for = now.since(self.counted);
            self.attained = self.attained.plus(GpuMicros::of(self.held.gpus, held_for));
            self.ran = self.ran.plus(held_for);
            self.spell = self.spell.plus(held_for);
            let moved = now.since(self.counted.max(self.productive));
            self.progressed = self.progressed.plus(moved);
            self.left = self.left.minus(Work::of(self.speed, moved));
        }
        self.counted = now;
    }

    /// Returns the time at which its end is noticed if nothing changes.
    pub(super) fn end(&self, tick: Micros) -> Micros {
        if self.held.is_none() {
            return Micros::MAX;
        }
        let from = self.counted.max(self.productive);
        match self.left.time_at(self.speed) {
            Micros::MAX => Micros::MAX,
            rest => clock::at_or_after(from.plus(rest), tick),
        }
    }

    /// Sets the GPUs that it holds from `now` on.
    pub(super) fn hold(&mut self, grant: Grant, speed: Speed, now: Micros, restart_cost: Micros) {
        if self.first_start.is_some() {
            self.changes += 1;
            self.halts += u32::from(grant.is_none());
            self.restarts += u32::from(!grant.is_none());
        } else if !grant.is_none() {
            self.first_start = Some(now);
        }
        if self.held.is_none() {
            self.spell = Micros::ZERO;
        }
        self.held = grant;
        self.counted = now;
        self.speed = speed;
        self.productive = if grant.is_none() { Micros::MAX } else { now.plus(restart_cost) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::GpuType;

    const TICK: Micros = Micros::from_secs(1);

    fn secs(s: u64) -> Micros {
        Micros::from_secs(s)
    }

    #[test]
    fn the_end_does_not_depend_on_how_often_it_is_looked_at() {
        let speed = Speed(3_000_000_001);
        let mut live = Live::new(Work::of(Speed::ONE, secs(1000)), secs(0));
        live.hold(Grant::of(GpuType(0), 3), speed, secs(0), secs(30));
        let end = live.end(TICK);
        assert_eq!(end, secs(364)); // 30 + 333.3, rounded up
        for t in 1..364 {
            live.advance(secs(t));
            assert_eq!(live.end(TICK), end, "at {t}");
        }
        assert_eq!((live.ran, live.progressed), (secs(363), secs(333)));
        assert_eq!(live.attained, GpuMicros::from_gpu_secs(3 * 363));
    }

    #[test]
    fn a_restart_costs_time_without_progress() {
        let one = |gpus| Grant::of(GpuType(0), gpus);
        let mut live = Live::new(Work::of(Speed::ONE, secs(100)), secs(0));
        live.hold(one(1), Speed::ONE, secs(0), secs(30));
        live.advance(secs(50));
        live.hold(one(2), Speed::from_milli(2000), secs(50), secs(30));
        assert_eq!(live.end(TICK), secs(120)); // 20 done, 80 left at double speed from 80 on
        live.advance(secs(60));
        live.hold(Grant::NONE, Speed::ZERO, secs(60), secs(30));
        assert_eq!(live.end(TICK), Micros::MAX);
        assert_eq!((live.changes, live.halts, live.restarts), (2, 1, 1));
    }
}
