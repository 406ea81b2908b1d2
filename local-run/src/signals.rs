//! The signals that stop a run.
//!
//! Owns which signals are stops and which one ends the run at once. Must not stop anything itself. Tests:
//! `cli/tests/local/run_processes.rs`.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` with the first SIGINT, SIGTERM or SIGHUP, and with every SIGINT after it, until `stop` returns false.
///
/// A repeated SIGTERM or SIGHUP says nothing new: a closing terminal and its shell both send SIGHUP, systemd sends SIGHUP
/// after SIGTERM, and Slurm sends SIGTERM twice. Only a second Ctrl-C asks for an end without a grace period.
///
/// # Errors
/// Returns an error if the handlers cannot be installed, or the thread cannot be started.
pub(crate) fn on_stop(mut stop: impl FnMut(i32) -> bool + Send + 'static) -> io::Result<()> {
    let mut stops = vec![SIGINT, SIGTERM];
    // `nohup` starts programs with this signal ignored: the run is to survive its terminal.
    if !is_ignored(SIGHUP) {
        stops.push(SIGHUP);
    }
    let mut signals = Signals::new(stops)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if (!stopping || signal == SIGINT) && !stop(signal) {
                return;
            }
            stopping = true;
        }
    })?;
    Ok(())
}

/// Returns whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
