//! Signals that ask a command to stop: SIGTERM, as from a kubelet, and SIGINT, as from Ctrl-C.
//!
//! Must not decide how a command stops.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals. One that comes while no caller waits is kept.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Catches the signals from now on. Needs a runtime of tokio.
    ///
    /// # Errors
    /// Returns an error if the signals cannot be caught.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
