//! How many calls may be under way, and when the next one may leave.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion
//! Avoidance in Computer Networks", 1989): every window of answers widens the window by one call; an answer that says "too
//! many" halves it, once per window. `Retry-After` is kept. Pure: time is an argument. Tests: at the end of this file.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum `Retry-After` that is honoured.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Pause after an overloaded server that named none.
const USUAL_PAUSE: Duration = Duration::from_secs(1);
/// Parts of a call the window is counted in.
const PARTS: u64 = 1 << 16;

/// What an answer says about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered.
    Well,
    /// It asked for less, and for a pause if it named one.
    Overloaded(Option<Duration>),
    /// It did not answer, or could not.
    Silent,
}

impl Health {
    /// Reads it from an answer: its code (0: none) and `Retry-After` in seconds.
    pub(super) fn of(code: u16, retry_after: Option<&str>) -> Self {
        let pause = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        match code {
            429 => Self::Overloaded(pause),
            // With a pause the server means itself, not the object.
            500..=599 if pause.is_some() => Self::Overloaded(pause),
            0 | 502..=504 => Self::Silent,
            _ => Self::Well,
        }
    }
}

/// The budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// Calls that may be under way, in parts.
    window: u64,
    most: u64,
    under_way: usize,
    /// Nothing leaves before this.
    resume: Option<Instant>,
    /// Answers to calls that left before this do not halve the window again.
    halved_at: Option<Instant>,
}

impl Budget {
    /// A budget of at most `most` calls at once, at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = u64::try_from(most.max(1)).unwrap_or(1).min(1 << 20) * PARTS;
        Self { window: most, most, under_way: 0, resume: None, halved_at: None }
    }

    /// Calls that may be under way at once.
    pub(super) fn window(&self) -> usize {
        usize::try_from(self.window / PARTS).unwrap_or(usize::MAX).max(1)
    }

    /// Whether a call may leave now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        self.under_way < self.window() && self.resume.is_none_or(|at| at <= now)
    }

    /// Until when nothing may leave, if there is a pause.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.resume.filter(|at| *at > now)
    }

    /// A call leaves.
    pub(super) fn sent(&mut self) {
        self.under_way += 1;
    }

    /// A call that left at `sent` was answered, or given up.
    pub(super) fn done(&mut self, sent: Instant, health: Health, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        match health {
            Health::Well => {
                // One more call per window of answers.
                let calls = (self.window / PARTS).max(1);
                self.window = (self.window + PARTS / calls).min(self.most);
            }
            Health::Overloaded(pause) => {
                self.halve(sent, now);
                let until = now + pause.unwrap_or(USUAL_PAUSE).min(MAX_PAUSE);
                self.resume = Some(self.resume.map_or(until, |at| at.max(until)));
            }
            Health::Silent => self.halve(sent, now),
        }
    }

    fn halve(&mut self, sent: Instant, now: Instant) {
        if self.halved_at.is_none_or(|at| sent >= at) {
            self.window = (self.window / 2).max(PARTS);
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
            (200, None, Health::Well),
            (404, None, Health::Well),
            (409, Some("3"), Health::Well),
            (422, None, Health::Well),
            (500, None, Health::Well),
            (500, Some("1"), Health::Overloaded(Some(second))),
            (429, None, Health::Overloaded(None)),
            (429, Some(" 1 "), Health::Overloaded(Some(second))),
            (429, Some("Wed, 21 Oct 2015 07:28:00 GMT"), Health::Overloaded(None)),
            (503, None, Health::Silent),
            (504, None, Health::Silent),
            (0, None, Health::Silent),
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
        assert_eq!((budget.window(), budget.under_way), (16, 0));
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
            budget.done(at(start, n), Health::Silent, at(start, n));
        }
        assert_eq!(budget.window(), 1);
        let mut answers = 0;
        for want in 2..=6 {
            let before = answers;
            while budget.window() < want {
                budget.sent();
                budget.done(at(start, 100), Health::Well, at(start, 100));
                answers += 1;
            }
            assert!(answers - before <= want, "{want}: {answers} - {before}");
        }
        for _ in 0..100 {
            budget.sent();
            budget.done(at(start, 100), Health::Well, at(start, 100));
        }
        assert_eq!(budget.window(), 6);
    }

    #[test]
    fn no_budget_is_empty() {
        assert_eq!(Budget::new(0).window(), 1);
    }
}
