//! Checks before a run that this process may start its threads.
//!
//! The log's library waits without end for threads that cannot be started, so that an error later would not end the process.
//! Must not keep a thread.

use std::sync::RwLock;
use std::thread;

use terminal::out::Failure;

/// Number of threads that are tried: those of a run of one job, and some of its log.
const THREADS: usize = 16;

/// Starts threads, and ends them.
///
/// # Errors
/// Returns an error if fewer threads can be started.
pub(crate) fn check() -> Result<(), Failure> {
    let gate = RwLock::new(());
    let started = thread::scope(|scope| {
        let closed = gate.write();
        let wait = || drop(gate.read());
        let started = (0..THREADS).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, wait).map(drop));
        drop(closed);
        started
    });
    started.map_err(|error| {
        Failure::new(format!("cannot start {THREADS} threads: {error}; raise `ulimit -u`. Nothing was started"))
    })
}
