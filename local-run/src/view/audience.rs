//! Where and how progress is printed.
//!
//! Owns the choice alone; `Progress` keeps to it. Tests: `cli/tests/local/events.rs`.

use terminal::out::Stream;

/// Form of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lines for people, and a table.
    Text,
    /// Nothing but messages.
    Quiet,
    /// One JSON object for each event, on standard output.
    Json,
}

/// Stream and form of progress.
#[derive(Debug, Clone, Copy)]
pub struct Audience {
    /// The output for progress.
    pub stream: Stream,
    /// Its form.
    pub form: Form,
}
