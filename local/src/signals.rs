//! Signals of pod supervisors and container shims: caught, so that the control pipe is their only order.
//!
//! They are caught rather than ignored: a new program starts with the default for what was caught, and would inherit what was
//! ignored. Tests: `tests/local/signals.rs`.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals by which others end a process or ask it for something, and whose default is the end.
const REQUESTS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM];

/// Signals that no handler can be installed for, or that a fault of the process itself raises.
const NOT_CAUGHT: [i32; 6] = [4, 7, 8, 9, 11, 19];

/// The last signal of Linux.
const LAST: i32 = 64;

/// Signals of the C library, which refuses handlers for them. musl has one more than glibc.
const RESERVED: RangeInclusive<i32> = if cfg!(target_env = "musl") { 32..=34 } else { 32..=33 };

/// Returns whether this process was asked to end by a signal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Catches what would end this process. Returns a flag that is set once SIGTERM, SIGINT or SIGHUP came.
///
/// # Errors
/// When a handler cannot be installed.
pub(crate) fn catch_requests() -> io::Result<Asked> {
    let (asked, unused) = (Asked::default(), Arc::default());
    for signal in REQUESTS {
        let ends = matches!(signal, SIGTERM | SIGINT | SIGHUP);
        signal_hook::flag::register(signal, Arc::clone(if ends { &asked.0 } else { &unused }))?;
    }
    Ok(asked)
}

/// Sees to it that the program this process becomes starts with the default of every signal, also of those that were ignored
/// when the runner was started (`nohup`, a shell's background job).
///
/// # Errors
/// When a handler cannot be installed.
pub(crate) fn reset_at_exec() -> io::Result<()> {
    let unused = Arc::default();
    for signal in (1..=LAST).filter(|signal| !NOT_CAUGHT.contains(signal) && !RESERVED.contains(signal)) {
        signal_hook::flag::register(signal, Arc::clone(&unused))?;
    }
    Ok(())
}
