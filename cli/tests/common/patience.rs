//! Waiting for what is to come. A file of its own for tests that need nothing else of `common`.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks again and again until `look` finds something.
///
/// # Panics
/// After [`PATIENCE`], with what `look` saw last.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(stands) if begun.elapsed() > PATIENCE => panic!("not within {PATIENCE:?}: {what}\n{stands}"),
            // Looking takes a process or two, on a machine that has other things to do.
            Err(_) => sleep(Duration::from_millis(250)),
        }
    }
}
