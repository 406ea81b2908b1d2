//! Text in columns, for lists.
//!
//! Owns widths: on a terminal no line is wider than it, elsewhere nothing is cut. Tests: at the end.

use std::io::IsTerminal as _;

use console::{Alignment, Term, measure_text_width, pad_str, truncate_str};

/// Columns between two columns.
const GAP: &str = "   ";

/// Width of a terminal that does not report its own.
const DEFAULT_WIDTH: usize = 80;

/// Returns a header and rows in columns. The last column takes what is left.
pub fn lines<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    fitted(header, rows, width())
}

/// Width of standard output where it is a terminal.
fn width() -> Option<usize> {
    let size = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns)).filter(|columns| *columns > 0);
    std::io::stdout().is_terminal().then(|| size.unwrap_or(DEFAULT_WIDTH))
}

fn fitted<const N: usize>(header: [&str; N], rows: &[[String; N]], columns: Option<usize>) -> Vec<String> {
    let mut widths = header.map(measure_text_width);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(measure_text_width(cell));
        }
    }
    let before_last: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
    let line = |cells: &[String]| {
        let mut cells = cells.to_vec();
        if let (Some(columns), Some(last)) = (columns, cells.last_mut()) {
            *last = gist(last, columns.saturating_sub(before_last));
        }
        let padded = cells.iter().zip(widths).map(|(cell, width)| pad_str(cell, width, Alignment::Left, None));
        let line = padded.collect::<Vec<_>>().join(GAP);
        let line = line.trim_end();
        columns.map_or_else(|| line.to_owned(), |columns| truncate_str(line, columns, "…").into_owned())
    };
    let header = header.map(str::to_owned);
    std::iter::once(&header).chain(rows).map(|cells| line(cells)).collect()
}

/// Returns the most specific part of a reason that fits in `columns` columns. It drops the text after the first failure, then the frames of
/// an exception, then clauses before colons from the left.
fn gist(reason: &str, columns: usize) -> String {
    let fits = |text: &str| measure_text_width(text) <= columns;
    if fits(reason) {
        return reason.to_owned();
    }
    let first = reason.split("; ").next().unwrap_or_default();
    let mut left = first.split(" | ").next().unwrap_or_default();
    while !fits(&format!("…{left}"))
        && let Some((_, rest)) = left.split_once(": ")
    {
        left = rest;
    }
    if reason.starts_with(left) { left.to_owned() } else { format!("…{left}") }
}

/// Returns a number of things, in the singular for one.
pub fn counted(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// A time span in the largest two units that matter: `45s`, `12m`, `3h5m`, `2d`.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0..=1) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) if minutes % 60 > 0 && hours < 10 => format!("{hours}h{}m", minutes % 60),
        (0, _, _) => format!("{hours}h"),
        _ if hours % 24 > 0 && days < 10 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_cut_on_a_terminal_only() {
        let rows = [["a", "Running", "every pod runs"], ["longer", "Failed", ""]].map(|row| row.map(str::to_owned));
        let header = ["JOB", "PHASE", "REASON"];
        let want = ["JOB      PHASE     REASON", "a        Running   every pod runs", "longer   Failed"];
        assert_eq!(fitted(header, &rows, None), want);
        assert_eq!(fitted(header, &rows, Some(24))[1], "a        Running   ever…");
        let reason = "the limit of 2 retries is used up: pod j-worker-1 exited with code 3: ValueError: boom | File \"t.py\"; also j-worker-0";
        let rows = [["a", "Failed", reason]].map(|row| row.map(str::to_owned));
        for (columns, want) in [
            (34, "a     Failed   …ValueError: boom"),
            (72, "a     Failed   …pod j-worker-1 exited with code 3: ValueError: boom"),
            (24, "a     Failed   …boom"),
        ] {
            assert_eq!(fitted(header, &rows, Some(columns))[1], want, "{columns}");
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (3600, "1h"),
            (3_700, "1h1m"),
            (40_000, "11h"),
            (90_000, "1d1h"),
            (172_800, "2d"),
            (2_000_000, "23d"),
        ] {
            assert_eq!(span(seconds * 1000), want);
        }
    }
}
