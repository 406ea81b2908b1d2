//! The terminal behind an output: its abilities, its size, and text made safe for it.
//!
//! Owns no content. Tests: at the end, and `cli/tests/local/terminal.rs`.

use console::{AnsiCodeIterator, Term, measure_text_width};
use model::printable;
use terminal::out::{Stream, shown};

/// Size of a terminal that does not report its own.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

/// An output as a screen.
pub(crate) struct Screen {
    term: Term,
    live: bool,
    colours: bool,
}

impl Screen {
    /// Returns the screen of an output. `NO_COLOR` takes its colours away, `TERM=dumb` its cursor movement as well.
    pub(crate) fn of(stream: Stream) -> Self {
        let term = match stream {
            Stream::Out => Term::stdout(),
            Stream::Error => Term::stderr(),
        };
        let (live, colours) = (term.is_term() && !console::is_dumb(), term.features().colors_supported());
        Self { term, live, colours }
    }

    /// Returns whether the cursor can be moved up, so that text can be replaced.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Returns the present number of rows and columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        match self.term.size_checked() {
            Some((rows, columns)) if rows > 0 && columns > 0 => (rows.into(), columns.into()),
            Some(_) | None => DEFAULT_SIZE,
        }
    }

    /// Wraps text in an SGR attribute where colours are shown.
    pub(crate) fn paint(&self, attribute: u8, text: &str) -> String {
        if self.colours { format!("\x1b[{attribute}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns text whose lines fit the width of a live screen: longer ones are broken between words, and continue below `indent`.
    pub(crate) fn fitted(&self, text: &str, indent: usize) -> String {
        let text = shown(text);
        if self.live {
            text.lines().map(|line| wrapped(line, self.size().1, indent)).collect()
        } else {
            text.into_owned()
        }
    }

    /// Returns a line of a program as it can be shown: on a live screen without cursor movement, which would garble the table.
    pub(crate) fn line_of_program(&self, text: &str) -> String {
        if self.live { tame(text, self.colours) } else { text.to_owned() }
    }
}

/// Returns the text a terminal shows at the end of a line that overwrote itself, without control sequences; colours on demand.
pub fn tame(text: &str, colours: bool) -> String {
    let text = printable::last_text(text);
    let mut out = String::with_capacity(text.len());
    let mut coloured = false;
    for (part, is_code) in AnsiCodeIterator::new(text) {
        if !is_code {
            out.extend(part.chars().filter(|c| !printable::is_control(*c)));
        } else if colours && part.starts_with("\x1b[") && part.ends_with('m') {
            coloured = true;
            out.push_str(part);
        }
    }
    if coloured {
        out.push_str("\x1b[0m");
    }
    out
}

/// Breaks a line between words, so that no part is wider than `columns` where words allow it.
pub(crate) fn wrapped(line: &str, columns: usize, indent: usize) -> String {
    if measure_text_width(line) <= columns || columns <= indent * 2 {
        return format!("{line}\n");
    }
    let start: String = line.chars().take_while(|c| *c == ' ').collect();
    let (mut out, mut row) = (String::new(), start.clone());
    let mut is_empty = true;
    for word in line[start.len()..].split(' ') {
        if !is_empty && measure_text_width(&row) + 1 + measure_text_width(word) > columns {
            out.push_str(row.trim_end());
            out.push('\n');
            row = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            row.push(' ');
        }
        row.push_str(word);
        is_empty = false;
    }
    out + row.trim_end() + "\n"
}

/// Returns the number of screen rows that lines of these widths take at `columns`: a screen that became narrower has wrapped them.
pub(crate) fn rows_of(lines: &[String], columns: usize) -> usize {
    lines.iter().map(|line| measure_text_width(line).div_ceil(columns.max(1)).max(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_move_the_cursor_are_tamed() {
        for (line, plain, coloured) in [
            ("plain", "plain", "plain"),
            ("\r 10%|#   |\r 20%|##  |", " 20%|##  |", " 20%|##  |"),
            ("100%\r", "100%", "100%"),
            ("\x1b[2J\x1b[31mred\x1b[A", "red", "\x1b[31mred\x1b[0m"),
            ("bell\x07\tand tab", "bell\tand tab", "bell\tand tab"),
            ("user\u{202e}nimda", "usernimda", "usernimda"),
            ("", "", ""),
        ] {
            assert_eq!((tame(line, false).as_str(), tame(line, true).as_str()), (plain, coloured), "{line:?}");
        }
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("  0:01  a short line", 40, 4), "  0:01  a short line\n");
        assert_eq!(wrapped("  0:01  words that run on and on", 20, 4), "  0:01  words that\n    run on and on\n");
        assert_eq!(wrapped("averylongwordindeed here", 10, 2), "averylongwordindeed\n  here\n");
        assert_eq!(wrapped("any words", 4, 4), "any words\n");
    }

    #[test]
    fn wide_characters_and_wrapped_lines_count_by_columns() {
        let lines = ["训练任务".to_owned(), "\x1b[1mabc\x1b[0m".to_owned(), String::new()];
        assert_eq!(rows_of(&lines, 80), 3);
        assert_eq!(rows_of(&lines, 4), 2 + 1 + 1);
        assert_eq!(rows_of(&lines, 0), 8 + 3 + 1);
    }
}
