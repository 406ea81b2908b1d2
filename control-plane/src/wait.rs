//! Waiting for something that another process does.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::error::Error;

/// Interval between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// For tests: time limit of any one step on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// For tests: polls `look` until it finds something, for up to [`TEST_TIMEOUT`].
///
/// # Panics
/// When that is over, with what `look` saw last.
pub fn until<T, E: Display>(what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    until_within(TEST_TIMEOUT, what, look)
}

/// For tests: as [`until`], with a limit of its own.
///
/// # Panics
/// After `limit`, with what `look` saw last.
pub fn until_within<T, E: Display>(limit: Duration, what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    let found = Deadline::within(limit).until(look);
    found.unwrap_or_else(|stands| panic!("not within {limit:?}: {what}\n{stands}"))
}

/// A time until which things have to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    from: Instant,
    within: Duration,
}

impl Deadline {
    pub(crate) fn within(within: Duration) -> Self {
        Self { from: Instant::now(), within }
    }

    pub(crate) fn left(&self) -> Duration {
        self.within.saturating_sub(self.from.elapsed())
    }

    /// Looks again and again until `look` finds something; gives what it saw last when time is up.
    fn until<T, E>(&self, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        loop {
            let start = Instant::now();
            let seen = look();
            if seen.is_ok() || self.left().is_zero() {
                return seen;
            }
            // Looking must not keep those busy that are waited for.
            std::thread::sleep(POLL_INTERVAL.max(start.elapsed()));
        }
    }

    /// Looks again and again until `look` gives `Ok(None)`; `Ok(Some(seen))` says what is still in the way, and an error ends the
    /// waiting.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<String>, Error>,
    ) -> Result<(), Error> {
        let ended = self.until(|| match look() {
            Ok(Some(seen)) => Err(seen),
            Ok(None) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        });
        ended
            .unwrap_or_else(|seen| Err(Error::TimedOut { what: what.to_owned(), seconds: self.within.as_secs(), seen }))
    }
}
