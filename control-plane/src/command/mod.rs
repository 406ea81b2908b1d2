//! The commands of the program `control-plane`, one file each.

pub(crate) mod arguments;
pub(crate) mod down;
pub(crate) mod hold;
pub(crate) mod kubectl;
pub(crate) mod process_nodes;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod up;

use std::io::Write as _;

use control_plane::Error;

/// Why a command was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// The control plane's own error.
    Error(Error),
    /// Anything else, in words.
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Adds the failed operation to an error of a file or program.
pub(crate) fn failed(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    let what = what.to_string();
    move |error| Failure::Other(format!("{what}: {error}"))
}

/// Prints a text and a line end; a reader that has gone away does not want the rest.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
