//! Printing: text that a closed pipe may cut short, and the exit codes.

use std::fmt;
use std::io::{self, Write};

use model::Timestamp;

/// Exit code when a difference or a failure was found.
pub(crate) const FOUND: u8 = 1;
/// Exit code for usage errors and unreadable input.
pub(crate) const USAGE: u8 = 2;

/// An error for the user: what, and where.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(k8s_driver::wire::words(&error))
    }
}

/// Prints text; a reader that went away ends the program quietly, as it does for every tool in a pipe.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints one line.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Time of day in UTC with milliseconds, for lines that belong together.
pub(crate) fn clock(at: Timestamp) -> String {
    let date = at.to_rfc3339();
    let time = date.get(11..19).unwrap_or_default();
    format!("{time}.{:03}", at.0 % 1000)
}
