//! Reads the time of decisions: the wall clock, which never goes backwards here.
//!
//! Owns the one place where the wall clock is read for decisions. Tests: at the end of this file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// Maximum sleep: a clock that is set forward is noticed within this time.
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// A wall clock that is behind by more than this was set back; by less it goes a little slowly.
const STEP_MS: u64 = 1_000;

/// A clock. After the wall clock was set back it advances by the elapsed time.
pub struct Clock {
    /// The wall clock: returns the time since 1970.
    wall: Box<dyn Fn() -> Duration + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Milliseconds by which the wall clock was set back and not forward again.
    set_back_ms: u64,
    last: Timestamp,
    last_at: Instant,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Arc<Self> {
        Self::over(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns a clock over a wall clock, which returns the time since 1970.
    pub(crate) fn over(wall: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        let state = State { set_back_ms: 0, last: Timestamp::default(), last_at: Instant::now() };
        Arc::new(Self { wall: Box::new(wall), state: Mutex::new(state) })
    }

    /// Returns the present time.
    pub fn now(&self) -> Timestamp {
        self.state().at(millis((self.wall)()), Instant::now())
    }

    /// Sleeps until `at`, or for at most [`MAX_SLEEP`].
    pub async fn sleep_until(&self, at: Option<Timestamp>) {
        let wait = at.map_or(MAX_SLEEP, |at| Duration::from_millis(at.since_ms(self.now())).min(MAX_SLEEP));
        tokio::time::sleep(wait).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the time for the wall clock's `wall_ms` at `instant`.
    fn at(&mut self, wall_ms: u64, instant: Instant) -> Timestamp {
        let passed = millis(instant.saturating_duration_since(self.last_at));
        let expected = self.last.plus_ms(passed);
        let wall = Timestamp(wall_ms);
        if wall >= expected {
            // Never set back, or forward again.
            self.set_back_ms = 0;
        }
        let mut now = wall.plus_ms(self.set_back_ms);
        if now.plus_ms(STEP_MS) < expected {
            self.set_back_ms = self.set_back_ms.saturating_add(expected.since_ms(now));
            now = expected;
        }
        // A whole millisecond must have passed before it is counted, or frequent looks would lose what is between.
        if now > self.last {
            (self.last, self.last_at) = (now, instant);
        }
        self.last
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_by_the_time_that_passes() {
        let start = Instant::now();
        let mut state = State { set_back_ms: 0, last: Timestamp(0), last_at: start };
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(state.at(10_000, after(0)), Timestamp(10_000));
        assert_eq!(state.at(10_500, after(500)), Timestamp(10_500));
        // Set back by five seconds, looked at often, then seldom.
        for micros in [200, 400, 600, 800] {
            assert_eq!(state.at(5_500, after(500) + Duration::from_micros(micros)), Timestamp(10_500));
        }
        assert_eq!(state.at(5_501, after(501)), Timestamp(10_501));
        assert_eq!(state.at(6_500, after(1_500)), Timestamp(11_500));
        assert_eq!(state.at(12_000, after(7_000)), Timestamp(17_000));
        // Set right again.
        assert_eq!(state.at(18_010, after(8_000)), Timestamp(18_010));
        assert_eq!(state.at(19_010, after(9_000)), Timestamp(19_010));
        // A little slow, and never backwards.
        assert_eq!(state.at(19_900, after(10_000)), Timestamp(19_900));
        assert_eq!(state.at(19_800, after(10_010)), Timestamp(19_900));
        // Set forward.
        assert_eq!(state.at(80_001, after(10_100)), Timestamp(80_001));
    }

    #[tokio::test(start_paused = true)]
    async fn sleepers_notice_when_the_wall_clock_is_set_forward() {
        let wall = Arc::new(AtomicU64::new(1_000));
        let clock = Clock::over({
            let wall = Arc::clone(&wall);
            move || Duration::from_millis(wall.load(Ordering::SeqCst))
        });
        let until = clock.now().plus_ms(3_600_000);
        let sleeper = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move {
                while clock.now() < until {
                    clock.sleep_until(Some(until)).await;
                }
            }
        });
        tokio::task::yield_now().await;
        let start = tokio::time::Instant::now();
        wall.fetch_add(3_600_000, Ordering::SeqCst);
        sleeper.await.unwrap();
        assert!(start.elapsed() <= MAX_SLEEP);
    }
}
