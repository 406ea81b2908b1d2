//! Adapts the number of calls in flight to the API server, and decides when the next one may be sent.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion
//! Avoidance in Computer Networks", 1989): every window of answers widens the window by one call; an answer that says "too
//! many" halves it, once per window. `Retry-After` is kept. Pure: time is an argument. Tests: at the end of this file.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum `Retry-After` that is honoured.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Pause after an overloaded server that named none.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Units of the window per call.
const WINDOW_UNITS: u64 = 1 << 16;

/// Health of the server, read from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered.
    Healthy,
    /// It asked for fewer calls, and for a pause if it named one.
    Overloaded(Option<Duration>),
    /// It gave no answer.
    NoAnswer,
}

impl Health {
    /// Reads it from an answer: its code (0: none) and `Retry-After` in seconds.
    pub(super) fn of(code: u16, retry_after: Option<&str>) -> Self {
        let pause = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        match code {
            429 => Self::Overloaded(pause),
            // With a pause the server means itself, not the object.
            500..=599 if pause.is_some() => Self::Overloaded(pause),
            0 | 502..=504 => Self::NoAnswer,
            _ => Self::Healthy,
        }
    }
}

/// The budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// Number of calls that may be in flight, in units.
    window: u64,
    max: u64,
    in_flight: usize,
    /// No call is sent before this.
    resume: Option<Instant>,
    /// Answers to calls that were sent before this do not halve the window again.
    halved_at: Option<Instant>,
}

impl Budget {
    /// Creates a budget of at most `max` calls in flight, at least one.
    pub(super) fn new(max: usize) -> Self {
        let max = u64::try_from(max.max(1)).unwrap_or(1).min(1 << 20) * WINDOW_UNITS;
        Self { window: max, max, in_flight: 0, resume: None, halved_at: None }
    }

    /// Returns the number of calls that may be in flight.
    pub(super) fn window(&self) -> usize {
        usize::try_from(self.window / WINDOW_UNITS).unwrap_or(usize::MAX).max(1)
    }

    /// Returns true if a call may be sent now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        self.in_flight < self.window() && self.resume.is_none_or(|at| at <= now)
    }

    /// Returns the end of the pause, if there is one.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.resume.filter(|at| *at > now)
    }

    /// Counts a call that is sent.
    pub(super) fn sent(&mut self) {
        self.in_flight += 1;
    }

    /// Counts a call, sent at `sent`, that was answered or dropped.
    pub(super) fn done(&mut self, sent: Instant, health: Health, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match health {
            Health::Healthy => {
                // One more call per window of answers.
                let calls = (self.window / WINDOW_UNITS).max(1);
                self.window = (self.window + WINDOW_UNITS / calls).min(self.max);
            }
            Health::Overloaded(pause) => {
                self.halve(sent, now);
                let until = now + pause.unwrap_or(DEFAULT_PAUSE).min(MAX_PAUSE);
                self.resume = Some(self.resume.map_or(until, |at| at.max(until)));
            }
            Health::NoAnswer => self.halve(sent, now),
        }
    }

    fn halve(&mut self, sent: Instant, now: Instant) {
        if self.halved_at.is_none_or(|at| sent >= at) {
            self.window = (self.window / 2).max(WINDOW_UNITS);
            self.halved_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn answers_are_read_as_the_servers_health() {
        let second = Duration::from_secs(1);
        for (code, after, want) in [
            (200, None, Health::Healthy),
            (404, None, Health::Healthy),
            (409, Some("3"), Health::Healthy),
            (422, None, Health::Healthy),
            (500, None, Health::Healthy),
            (500, Some("1"), Health::Overloaded(Some(second))),
            (429, None, Health::Overloaded(None)),
            (429, Some(" 1 "), Health::Overloaded(Some(second))),
            (429, Some("Wed, 21 Oct 2015 07:28:00 GMT"), Health::Overloaded(None)),
            (503, None, Health::NoAnswer),
            (504, None, Health::NoAnswer),
            (0, None, Health::NoAnswer),
        ] {
            assert_eq!(Health::of(code, after), want, "{code} {after:?}");
        }
    }

    #[test]
    fn too_many_halves_the_window_once_per_window_and_pauses() {
        let start = Instant::now();
        let mut budget = Budget::new(32);
        for _ in 0..32 {
            assert!(budget.may_send(start));
            budget.sent();
        }
        assert!(!budget.may_send(start));
        // The whole window is refused: one halving, the longest pause.
        for n in 0..32 {
            budget.done(start, Health::Overloaded(Some(Duration::from_secs(1 + n % 3))), at(start, 10 + n));
        }
        assert_eq!((budget.window(), budget.in_flight), (16, 0));
        assert!(!budget.may_send(at(start, 2_000)));
        assert_eq!(budget.paused_until(at(start, 2_000)), Some(at(start, 3_000 + 10 + 29)));
        assert!(budget.may_send(at(start, 3_100)));
        assert_eq!(budget.paused_until(at(start, 3_100)), None);
        // One that left after that and is refused halves again.
        budget.sent();
        budget.done(at(start, 3_100), Health::Overloaded(None), at(start, 3_200));
        assert_eq!(budget.window(), 8);
        assert!(!budget.may_send(at(start, 4_100)) && budget.may_send(at(start, 4_200)));
    }

    #[test]
    fn the_window_grows_by_one_per_window_of_answers_up_to_its_limit() {
        let start = Instant::now();
        let mut budget = Budget::new(6);
        for n in 0..9 {
            budget.sent();
            budget.done(at(start, n), Health::NoAnswer, at(start, n));
        }
        assert_eq!(budget.window(), 1);
        let mut answers = 0;
        for want in 2..=6 {
            let before = answers;
            while budget.window() < want {
                budget.sent();
                budget.done(at(start, 100), Health::Healthy, at(start, 100));
                answers += 1;
            }
            assert!(answers - before <= want, "{want}: {answers} - {before}");
        }
        for _ in 0..100 {
            budget.sent();
            budget.done(at(start, 100), Health::Healthy, at(start, 100));
        }
        assert_eq!(budget.window(), 6);
    }

    #[test]
    fn no_budget_is_empty() {
        assert_eq!(Budget::new(0).window(), 1);
    }
}
