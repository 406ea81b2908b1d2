//! Printing, and the exit codes.
//!
//! Owns standard output and standard error. A command prints directly, and ends when that fails; one that continues
//! without its output calls [`start_printer`] first. Tests: `cli/tests/local/output.rs`.

mod printer;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use console::AnsiCodeIterator;
use model::{Timestamp, printable};

use self::printer::Printer;

static PRINTER: OnceLock<Printer> = OnceLock::new();
static ERROR_PRINTER: OnceLock<Printer> = OnceLock::new();

/// One of the two outputs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output: results.
    Out,
    /// Standard error: progress and messages.
    Error,
}

impl Stream {
    /// Returns the stream for progress. On one terminal everything goes through one stream, so that its order is kept.
    pub fn of_progress() -> Self {
        if io::stdout().is_terminal() && io::stderr().is_terminal() { Self::Out } else { Self::Error }
    }

    /// Writes bytes as they are, for a command that passes a program's output on.
    pub fn write(self, bytes: &[u8]) {
        match self {
            Self::Out => {
                let mut out = io::stdout().lock();
                if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
                    end(&error);
                }
            }
            Self::Error => drop(io::stderr().lock().write_all(bytes)),
        }
    }

    /// Prints text. What becomes of it on standard error is not known.
    pub fn print(self, text: &str) {
        match self {
            Self::Out => print(text),
            Self::Error => print_error(text),
        }
    }
}

/// Exit code when a difference or a failure was found.
pub const FOUND: u8 = 1;
/// Exit code for usage errors and unreadable input.
pub const USAGE: u8 = 2;
/// Exit code when a time limit of the command line has passed, as of `timeout`.
pub const TIMEOUT: u8 = 124;
/// Exit code of a command that a signal ended: added to the signal's number, as shells do.
pub const SIGNAL: u8 = 128;

/// An error for the user: what, and where.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
    passing: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    /// Returns one about usage or unreadable input.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: plain(&text.into()), code: USAGE, passing: false }
    }

    /// Returns one about what was looked for and is not there.
    pub fn missing(text: impl Into<String>) -> Self {
        Self { code: FOUND, ..Self::new(text) }
    }

    /// Returns one about a time limit that has passed.
    pub fn timeout(text: impl Into<String>) -> Self {
        Self { code: TIMEOUT, ..Self::new(text) }
    }

    /// Returns the same of a run whose jobs had started.
    #[must_use]
    pub fn of_started(self) -> Self {
        Self { code: FOUND, ..self.with("; the run ended, and its pods with it") }
    }

    /// Returns one about a server that does not answer now and may later.
    pub fn passing(text: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(text) }
    }

    /// Returns whether the same may succeed later.
    pub const fn is_passing(&self) -> bool {
        self.passing
    }

    /// Returns the same with something added.
    #[must_use]
    pub fn with(mut self, more: &str) -> Self {
        self.text += more;
        self
    }

    /// Returns the exit code of a command that ends with it.
    pub const fn code(&self) -> u8 {
        self.code
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(k8s_driver::api_server::error_chain(&error))
    }
}

/// Returns a message without the words of libraries that say nothing to a user: numbers of errors, names of types.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    for layer in ["ServiceError: ", "client error (Connect): ", "tcp connect error: "] {
        out = out.replace(layer, "");
    }
    for word in ["expected struct ", "expected enum ", "expected internally tagged enum "] {
        while let Some(at) = out.find(word) {
            let end = out[at + word.len()..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let end = end.map_or(out.len(), |end| at + word.len() + end);
            out.replace_range(at..end, "expected an object");
        }
    }
    out
}

/// Prints text. Ends the program when standard output cannot be written, unless a printer was started.
pub fn print(text: &str) {
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
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).or_else(|error| end(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().or_else(|error| end(&error))
    }
}

/// Prints a line on standard error. What becomes of it is not known.
pub fn warn(text: &str) {
    error_line(&format!("trainyard: {text}"));
}

/// Prints a line on standard error. What becomes of it is not known.
pub fn error_line(text: &str) {
    print_error(&format!("{}\n", shown(text)));
}

fn print_error(text: &str) {
    match ERROR_PRINTER.get() {
        Some(printer) => printer.print(text),
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Makes printing return at once from now on, also while standard output is blocked. `hint` says where else its text is.
///
/// # Errors
/// Returns an error if a thread cannot be started.
pub fn start_printer(hint: String) -> io::Result<()> {
    let failed =
        move |error: &io::Error| warn(&format!("standard output: {error}; the run continues without it. {hint}"));
    let _ = ERROR_PRINTER.set(Printer::start(io::stderr(), |_| {})?);
    let _ = PRINTER.set(Printer::start(io::stdout(), failed)?);
    Ok(())
}

/// Returns whether text that can wait should be printed now.
pub fn has_room() -> bool {
    [&PRINTER, &ERROR_PRINTER].iter().all(|printer| printer.get().is_none_or(Printer::has_room))
}

/// Returns whether standard output takes what is written without delay.
pub fn keeps_up() -> bool {
    PRINTER.get().is_none_or(Printer::keeps_up)
}

/// Returns whether standard output takes nothing any more.
pub fn is_gone() -> bool {
    PRINTER.get().is_some_and(Printer::is_gone)
}

/// Waits until everything is printed, or cannot be, at most for `timeout`. Returns whether that is so.
pub fn wait_written(timeout: Duration) -> bool {
    [&ERROR_PRINTER, &PRINTER].iter().all(|printer| printer.get().is_none_or(|one| one.wait_written(timeout)))
}

/// Waits until what was said on standard error is printed, so that a result comes after it, at most for `timeout`.
pub fn wait_said(timeout: Duration) {
    if let Some(printer) = ERROR_PRINTER.get() {
        printer.wait_written(timeout);
    }
}

/// Number of lines that were not printed so far.
pub fn unwritten() -> u64 {
    [&PRINTER, &ERROR_PRINTER].iter().filter_map(|printer| printer.get()).map(Printer::unwritten).sum()
}

/// Prints lines for a reader.
pub fn lines(all: &[String]) {
    print(&all.iter().fold(String::new(), |text, line| text + &shown(line) + "\n"));
}

/// Prints one line for a reader.
pub fn line(text: &str) {
    print(&format!("{}\n", shown(text)));
}

/// Returns a text with control characters escaped, except colours: names, messages and logs are written by others.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(printable::is_control) {
        return Cow::Borrowed(text);
    }
    let parts = AnsiCodeIterator::new(text).map(|(part, is_code)| {
        let is_colour = is_code && part.starts_with("\u{1b}[") && part.ends_with('m');
        if is_colour { Cow::Borrowed(part) } else { printable::escaped(part) }
    });
    Cow::Owned(parts.collect())
}

/// A time as RFC 3339 with milliseconds.
pub fn instant(at: Timestamp) -> String {
    let date = at.to_rfc3339();
    format!("{}.{:03}Z", date.trim_end_matches('Z'), at.0 % 1000)
}

/// A time of day with milliseconds and its zone where standard output is a terminal; elsewhere RFC 3339.
pub fn clock(at: Timestamp) -> String {
    local_time(at, "%H:%M:%S").map_or_else(|| instant(at), |(time, zone)| format!("{time}.{:03} {zone}", at.0 % 1000))
}

/// A date and time with its zone where standard output is a terminal; elsewhere RFC 3339.
pub fn moment(at: Timestamp) -> String {
    local_time(at, "%Y-%m-%d %H:%M:%S").map_or_else(|| at.to_rfc3339(), |(time, zone)| format!("{time} {zone}"))
}

/// A time of day with milliseconds in UTC: for virtual time.
pub fn virtual_clock(at: Timestamp) -> String {
    let date = at.to_rfc3339();
    let time = date.get(11..19).unwrap_or_default();
    format!("{time}.{:03}", at.0 % 1000)
}

/// Returns a time as people where this process runs write it, and the name of their zone.
fn local_time(at: Timestamp, form: &str) -> Option<(String, String)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let instant = jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
    let zoned = instant.to_zoned_datetime(jiff::tz::TimeZone::system());
    Some((zoned.strftime(form).to_string(), zoned.strftime("%Z").to_string()))
}

#[cfg(test)]
mod tests {
    use super::{plain, shown};

    #[test]
    fn what_others_wrote_gives_the_terminal_no_orders() {
        for (text, want) in [
            ("a\tplain line", "a\tplain line"),
            ("\u{1b}[1mbold\u{1b}[0m", "\u{1b}[1mbold\u{1b}[0m"),
            ("\u{1b}[2J\u{1b}[31mred", "\\u001b[2J\u{1b}[31mred"),
            ("\u{1b}]0;title\u{7}\u{202e}x", "\\u001b]0;title\\u0007\\u202ex"),
        ] {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }

    #[test]
    fn messages_have_no_words_of_libraries() {
        for (text, want) in [
            ("job.yaml: No such file or directory (os error 2)", "job.yaml: No such file or directory"),
            ("a (os error 13): b (os error 2)", "a: b"),
            (
                "invalid type: string, expected struct Foo at line 1",
                "invalid type: string, expected an object at line 1",
            ),
            (
                "x cannot be reached: ServiceError: client error (Connect): tcp connect error: Connection refused",
                "x cannot be reached: Connection refused",
            ),
            ("nothing", "nothing"),
        ] {
            assert_eq!(plain(text), want);
        }
    }
}
