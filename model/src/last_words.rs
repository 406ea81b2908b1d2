//! The last words of a program: the part of its output that says why it failed.
//!
//! Owns what is noise in them, how an exception of Python reads, and which part of torchrun's output the failing rank wrote. Pure text;
//! how much of an output there is, is decided by who reads it. Tests: at the end.

mod torchrun;

pub use self::torchrun::of_failing_rank;
use crate::printable;

/// Line that begins the frames of an exception.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// Start of a line that names a frame.
const FRAME: &str = "File \"";

/// Lines that stand between two exceptions of a chain.
const CHAINED: [&str; 2] = ["During handling of the above exception", "The above exception was the direct cause"];

/// Start of the line before an exception that Python reports and passes over.
const IGNORED: &str = "Exception ignored in";

/// Texts by which programs, and the libraries they reach each other with, report a lost peer. In lower case.
const LOST_PEER_WORDS: [&str; 14] = [
    "broken pipe",
    "closed the connection",
    "connection aborted",
    "connection closed by",
    "connection refused",
    "connection reset",
    "connectionreseterror",
    "distbackenderror",
    "gloo",
    "lost rank",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "remote process exited",
    "socket timeout",
];

/// Maximum number of lines of the message of an exception.
const MAX_MESSAGE_LINES: usize = 3;

/// Condenses the end of an output to at most `max` characters: of an exception its own line first and then the place where it was
/// raised; of anything else the end, each line once. Returns `None` where nothing is left.
#[must_use]
pub fn condensed(text: &str, max: usize) -> Option<String> {
    let error = error_file(text);
    let text = printable::output(error.as_deref().unwrap_or(text));
    let words = of_failing_rank(&text).unwrap_or_else(|| {
        let lines = plain_lines(&text);
        exceptions(&lines).pop().map_or_else(|| once(&lines).join("\n"), |exception| exception.lines().join("\n"))
    });
    cut(words.trim(), max)
}

/// Returns the line of condensed words that names the error: the first of an exception, the last of anything else.
#[must_use]
pub fn error_line(words: &str) -> Option<&str> {
    let mut lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    if names_frame(words) { lines.next() } else { lines.next_back() }
}

/// Returns true if a termination message blames the connection to another pod: the failure then followed that pod's. Of several ranks in
/// one pod the one that failed first counts.
#[must_use]
pub fn blames_peer(message: &str) -> bool {
    let of_rank = of_failing_rank(message);
    names_lost_peer(of_rank.as_deref().unwrap_or(message))
}

fn names_lost_peer(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    LOST_PEER_WORDS.iter().any(|words| lower.contains(words))
}

/// Returns the lines of an output without noise, each once.
#[must_use]
pub fn lines(text: &str) -> Vec<&str> {
    once(&plain_lines(text))
}

/// Returns true if a text names a frame of an exception.
fn names_frame(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(FRAME))
}

/// Returns the exception in a file of torch's error handlers: its frames where they are written down, or else its message. `None` for
/// another text.
///
/// The file is `{"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}}`, or `{"message": TEXT}` from older handlers.
#[must_use]
pub fn error_file(text: &str) -> Option<String> {
    let text = text.trim();
    let written: serde_json::Value = text.starts_with('{').then(|| serde_json::from_str(text).ok())??;
    let frames = written.pointer("/message/extraInfo/py_callstack");
    let message = || written.pointer("/message/message").or_else(|| written.get("message"));
    let found = frames.or_else(message)?.as_str()?.trim();
    (!found.is_empty()).then(|| found.to_owned())
}

/// Cuts a text that is too long: an exception stands first in its lines, any other error last.
fn cut(text: &str, max: usize) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let over = text.chars().count().saturating_sub(max);
    if over == 0 {
        return Some(text.to_owned());
    }
    if names_frame(text) {
        let kept: String = text.chars().take(max).collect();
        // A frame that was cut is left out where a whole line stands before it.
        let kept = kept.rsplit_once('\n').map_or(&*kept, |(before, _)| before);
        return Some(format!("{} ...", kept.trim_end()));
    }
    let (start, _) = text.char_indices().nth(over)?;
    let part = text.get(start..)?;
    // A line that was cut is left out where whole ones follow.
    let part = part.split_once('\n').map_or(part, |(_, rest)| rest).trim();
    Some(format!("... {part}"))
}

/// The lines of an output without noise: without the name of the rank before them, without rulers, and without marks below an
/// expression.
fn plain_lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| without_rank(line).trim_end());
    lines.filter(|line| !is_noise(line)).collect()
}

/// Returns true for a line that says nothing: blank, a ruler, marks below an expression, or a frame of a library's own code.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    line.chars().all(|c| matches!(c, '^' | '~' | '=' | '-' | '*' | '_' | '#' | ' ')) || line.starts_with("frame #")
}

/// Returns a line without the name of a rank that torch puts before it: `[rank3]: `, `[default0]:`.
fn without_rank(line: &str) -> &str {
    prefixed(line).map_or(line, |(_, rest)| rest)
}

/// Returns the name of a rank before a line, and the line after it.
#[must_use]
pub fn prefixed(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix('[')?.split_once("]:")?;
    let is_name = name.ends_with(|c: char| c.is_ascii_digit())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name, rest.strip_prefix(' ').unwrap_or(rest)))
}

/// Returns each line once, the first of equal ones.
fn once<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut kept: Vec<&str> = Vec::new();
    for line in lines {
        if !kept.iter().any(|known| known.trim() == line.trim()) {
            kept.push(line);
        }
    }
    kept
}

/// An exception in an output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Exception<'a> {
    /// Its own lines.
    message: Vec<&'a str>,
    /// The innermost frame, and the code that stands there.
    frame: Vec<&'a str>,
}

impl Exception<'_> {
    /// Its lines, those of the exception first.
    fn lines(&self) -> Vec<&str> {
        self.message.iter().chain(&self.frame).copied().collect()
    }
}

/// Returns the exceptions of an output, in order. Their frames may be cut off at the start.
fn exceptions<'a>(lines: &[&'a str]) -> Vec<Exception<'a>> {
    let is_indented = |line: &str| line.starts_with([' ', '\t']);
    let is_between = |line: &str| {
        line.ends_with(TRACEBACK) || line.starts_with(IGNORED) || CHAINED.iter().any(|words| line.starts_with(words))
    };
    let mut found = Vec::new();
    let mut frames: Vec<&str> = Vec::new();
    let mut is_ignored = false;
    let mut rest = lines.iter().copied().peekable();
    while let Some(line) = rest.next() {
        if is_between(line) {
            frames.clear();
            is_ignored |= line.starts_with(IGNORED);
        } else if is_indented(line) {
            frames.push(line.trim());
        } else if let Some(last) = frames.iter().rposition(|frame| frame.starts_with(FRAME)) {
            let mut message = vec![line.trim()];
            while message.len() < MAX_MESSAGE_LINES
                && let Some(next) = rest.next_if(|next| !is_between(next) && !next.trim_start().starts_with(FRAME))
            {
                message.push(next.trim());
            }
            let frame = frames.get(last..).unwrap_or_default().iter().take(2).copied().collect();
            if !std::mem::take(&mut is_ignored) {
                found.push(Exception { message, frame });
            }
            frames.clear();
        } else {
            frames.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> String {
        condensed(text, 256).unwrap_or_default()
    }

    #[test]
    fn an_exception_leads_and_marks_do_not_appear() {
        let frames = "Traceback (most recent call last):\n  File \"/w/t.py\", line 9, in <module>\n    main()\n    ~~~~^^\n  \
                      File \"/w/t.py\", line 5, in main\n    raise ValueError(\"boom\")\n";
        let want = "ValueError: boom\nFile \"/w/t.py\", line 5, in main\nraise ValueError(\"boom\")";
        for text in [
            format!("epoch 1\n{frames}ValueError: boom\n"),
            // torch writes it again, with the rank before each line.
            format!("{frames}ValueError: boom\n{}", prefix(&format!("{frames}ValueError: boom"), "[rank1]: ")),
            // The kubelet cuts the start off.
            format!("{}ValueError: boom\n", &frames[60..]),
            // Python passes over what fails while it ends.
            format!("{frames}ValueError: boom\nException ignored in: <x>\n{frames}OSError: late\n"),
        ] {
            assert_eq!(words_of(&text), want, "{text}");
        }
        let chained = format!(
            "{frames}KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n{frames}ValueError: boom"
        );
        assert_eq!(words_of(&chained), want);
        let syntax = "  File \"t.py\", line 1\n    foo(\n       ^\nSyntaxError: '(' was never closed";
        assert_eq!(words_of(syntax), "SyntaxError: '(' was never closed\nFile \"t.py\", line 1\nfoo(");
        let long = format!("{frames}RuntimeError: {}\nsecond line\n", "x".repeat(300));
        assert_eq!(words_of(&long), format!("RuntimeError: {} ...", "x".repeat(242)));
        let lines = format!("{frames}ValidationError: 2 errors\n  a\n  b\n  c\n");
        assert!(words_of(&lines).starts_with("ValidationError: 2 errors\na\nb\nFile "), "{}", words_of(&lines));
    }

    fn prefix(text: &str, prefix: &str) -> String {
        text.lines().fold(String::new(), |text, line| text + prefix + line + "\n")
    }

    #[test]
    fn of_other_outputs_the_end_is_kept_each_line_once() {
        assert_eq!(error_line("a\nerror: no space\n"), Some("error: no space"));
        assert_eq!(error_line("ValueError: x\nFile \"t.py\", line 1"), Some("ValueError: x"));
        assert_eq!(words_of("a\n\n=====\nb\nb\nerror: no space\nb\n"), "a\nb\nerror: no space");
        assert_eq!(words_of("  a\nSegmentation fault"), "a\nSegmentation fault");
        assert_eq!(condensed(" \n---\n", 256), None);
        assert_eq!(condensed("", 256), None);
        let nested = format!("{}exec: \"pyhton3\": not found", "failed to create task: ".repeat(20));
        assert_eq!(words_of(&nested), format!("... {}", &nested[nested.len() - 256..]));
        assert_eq!(words_of(&format!("{}\nlast line", "x".repeat(400))), "... last line");
    }

    #[test]
    fn the_file_of_torchs_error_handlers() {
        for (text, want) in [
            (r#"{"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "1"}}}"#, Some("ValueError: x")),
            (
                r#"{"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback\nE: x\n"}}}"#,
                Some("Traceback\nE: x"),
            ),
            (r#"{"message": "old"}"#, Some("old")),
            (r#"{"message": {"message": ""}}"#, None),
            (r#"{"message": 3}"#, None),
            ("no json", None),
        ] {
            assert_eq!(error_file(text).as_deref(), want, "{text}");
        }
        assert_eq!(words_of(r#"{"message": {"message": "ValueError: x"}}"#), "ValueError: x");
    }
}
