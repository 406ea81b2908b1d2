//! Printing, and the exit codes.
//!
//! Owns standard output and standard error. A command prints directly, and ends when that fails; one that has to go on
//! without its output calls [`start_printer`] first. Tests: `cli/tests/local/output.rs`.

mod printer;

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use model::Timestamp;

use self::printer::Printer;

static PRINTER: OnceLock<Printer> = OnceLock::new();

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
        Self(k8s_driver::api_server::error_chain(&error))
    }
}

/// Prints text. Ends the program when standard output cannot be written, unless a printer was started.
pub(crate) fn print(text: &str) {
    if let Some(printer) = PRINTER.get() {
        return printer.print(text);
    }
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        end(&error);
    }
}

/// Ends a command that cannot write standard output: quietly when its reader went away, as every tool in a pipe does, and as a
/// failure when what was written is not where it should be.
fn end(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(0);
    }
    warn(&format!("standard output: {error}"));
    process::exit(i32::from(USAGE));
}

/// Standard output for what is written in pieces, with the failures of [`print`].
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).or_else(|error| end(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().or_else(|error| end(&error))
    }
}

/// Prints a line on standard error. What becomes of it is not known.
pub(crate) fn warn(text: &str) {
    error_line(&format!("trainyard: {text}"));
}

/// Prints a line on standard error as it stands. What becomes of it is not known.
pub(crate) fn error_line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Makes [`print`] return at once from now on, also while standard output is blocked. `hint` says where else its text is.
pub(crate) fn start_printer(hint: String) -> io::Result<()> {
    let failed =
        move |error: &io::Error| warn(&format!("standard output: {error}; the run continues without it. {hint}"));
    let _ = PRINTER.set(Printer::start(io::stdout(), failed)?);
    Ok(())
}

/// Returns whether text that can wait should be printed now.
pub(crate) fn has_room() -> bool {
    PRINTER.get().is_none_or(Printer::has_room)
}

/// Returns whether standard output takes what is written without delay.
pub(crate) fn keeps_up() -> bool {
    PRINTER.get().is_none_or(Printer::keeps_up)
}

/// Returns whether standard output takes nothing any more.
pub(crate) fn is_gone() -> bool {
    PRINTER.get().is_some_and(Printer::is_gone)
}

/// Waits until everything is printed, or cannot be, at most for `timeout`. Returns whether that is so.
pub(crate) fn wait_written(timeout: Duration) -> bool {
    PRINTER.get().is_none_or(|printer| printer.wait_written(timeout))
}

/// Number of lines that were not printed so far.
pub(crate) fn unwritten() -> u64 {
    PRINTER.get().map_or(0, Printer::unwritten)
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
