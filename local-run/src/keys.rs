//! Keys typed while a run is on a terminal: neither shown nor kept until the end of a line.
//!
//! Owns the terminal's mode. What a key means is `foreground`'s. Tests: `cli/tests/local/detached.rs`.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

/// The mode that a terminal had, set again when this is dropped.
pub(crate) struct Mode(Termios);

impl Mode {
    /// Returns the mode of standard input; `None` where it is no terminal.
    pub(crate) fn now() -> Option<Self> {
        tcgetattr(io::stdin()).ok().map(Self)
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Makes the terminal give single keys, without showing them. Ctrl-C and the like still send signals.
pub(crate) fn begin() {
    let Ok(mut mode) = tcgetattr(io::stdin()) else { return };
    mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    // It fails where the terminal is gone: then there are no keys.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, &mode);
}

/// Drops the keys that were typed before a question.
pub(crate) fn forget() {
    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
}

/// Waits for the next key; `None` at the end of input.
pub(crate) fn next() -> Option<u8> {
    let mut byte = [0];
    // Unbuffered: what follows is not for this question.
    match rustix::io::read(io::stdin(), &mut byte) {
        Ok(1) => Some(byte[0]),
        Ok(_) | Err(_) => None,
    }
}
