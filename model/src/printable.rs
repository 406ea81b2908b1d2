//! Makes text of others safe to print: in conditions, Events and terminals.
//!
//! Owns which characters change how the text around them is printed. It cuts nothing, and knows no terminal. Tests: at the end.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true for a character that moves the cursor, gives a terminal an order, or turns the direction of the text around it. A
/// newline and a tab do not count.
///
/// The marks of direction are those of Unicode's bidirectional algorithm (UAX #9, section 2).
#[must_use]
pub fn is_control(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    }
}

/// Returns a text with each such character as JSON writes it: `\u001b`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            // Writing into a String does not fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns a text as it may stand in HTML and XML, in an attribute as well. Control characters are not replaced.
#[must_use]
pub fn in_markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns the output of a program as its reader would have seen it: without colours, of a line that overwrote itself the last text.
/// What is left of control characters is escaped.
#[must_use]
pub fn output(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<String> = text.split('\n').map(line).collect();
    Cow::Owned(lines.join("\n"))
}

/// Returns the text that a terminal shows of a line that overwrote itself: that after the last carriage return.
#[must_use]
pub fn last_text(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit_once('\r').map_or(line, |(_, last)| last)
}

/// Converts one line: a control sequence without an end would take the lines after it along.
fn line(text: &str) -> String {
    let text = last_text(text);
    if !text.contains('\u{1b}') {
        return escaped(text).into_owned();
    }
    // The library takes tabs out with the sequences.
    let plain = text.split('\t').map(strip_ansi_escapes::strip_str).collect::<Vec<_>>().join("\t");
    escaped(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_marks_of_direction_are_escaped() {
        for (text, want) in [
            ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
            ("\u{1b}[2Jgone", "\\u001b[2Jgone"),
            ("a\u{0}b\rc\u{7f}\u{9b}31m", "a\\u0000b\\u000dc\\u007f\\u009b31m"),
            ("user\u{202e}nimda\u{2066}x\u{200f}", "user\\u202enimda\\u2066x\\u200f"),
            // Letters of other scripts, and what joins them.
            ("训练 می\u{200c}خواهم 👩\u{200d}🔬", "训练 می\u{200c}خواهم 👩\u{200d}🔬"),
        ] {
            assert_eq!(escaped(text), want, "{text:?}");
            assert_eq!(escaped(want), want, "escaped once more");
        }
        assert!(matches!(escaped("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_output_reads_as_on_a_terminal() {
        for (text, want) in [
            ("\u{1b}[1;31mValueError\u{1b}[0m: \u{1b}[35mboom\u{1b}[0m", "ValueError: boom"),
            ("10%\r 50%\r100%\r\ndone", "100%\ndone"),
            ("\u{1b}]0;title\u{7}a\tb\u{1b}[K", "a\tb"),
            ("\u{1b}]8;;http://x\nnext line", "\nnext line"),
            ("a\u{8}b\u{202e}c", "a\\u0008b\\u202ec"),
        ] {
            assert_eq!(output(text), want, "{text:?}");
        }
    }
}
