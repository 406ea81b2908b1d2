//! Waiting for something that another process does.

use std::time::{Duration, Instant};

use crate::error::Error;

const EVERY: Duration = Duration::from_millis(50);

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

    /// Looks again and again until `look` gives `Ok(None)`; `Ok(Some(seen))` says what is still in the way, and an error ends the
    /// waiting.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<String>, Error>,
    ) -> Result<(), Error> {
        loop {
            let start = Instant::now();
            let Some(seen) = look()? else { return Ok(()) };
            let cost = start.elapsed();
            if self.left().is_zero() {
                return Err(Error::TimedOut { what: what.to_owned(), seconds: self.within.as_secs(), seen });
            }
            // Looking must not keep those busy that are waited for.
            std::thread::sleep(EVERY.max(cost));
        }
    }
}
