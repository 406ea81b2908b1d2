//! The table of jobs, made to fit a width and a height. Pure. Tests: at the end, as snapshots.

use console::{Alignment, pad_str, truncate_str};

/// Columns between two columns.
const GAP: usize = 2;

/// Minimum width left to a job's name before other columns are dropped.
const MIN_NAME: usize = 12;

/// Minimum width of a phase, so that columns stand still when a phase changes.
const PHASE_WIDTH: usize = "Terminating".len();

/// Title and alignment of each column, and its place in the order in which columns are dropped: the greatest goes first.
const COLUMNS: [(&str, Alignment, u8); 7] = [
    ("JOB", Alignment::Left, 0),
    ("PHASE", Alignment::Left, 1),
    ("RUNNING", Alignment::Right, 2),
    ("WAITING", Alignment::Right, 5),
    ("ENDED", Alignment::Right, 6),
    ("RESTARTS", Alignment::Right, 4),
    ("AGE", Alignment::Right, 3),
];

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// True if the job has ended. Such rows are dropped first where rows are short.
    pub(crate) ended: bool,
    /// The text of each column.
    pub(crate) cells: [String; COLUMNS.len()],
}

/// Returns the lines of the table, the header first; none is wider than `columns`, and there are at most `lines` of them.
pub(crate) fn render(rows: &[Row], columns: usize, lines: usize) -> Vec<String> {
    // A header and a row, or nothing.
    if lines < 2 || rows.is_empty() {
        return Vec::new();
    }
    let shown = fitting(rows, lines);
    let widths = widths(&shown, columns);
    let header = COLUMNS.map(|(title, ..)| title.to_owned());
    let cells = std::iter::once(&header).chain(shown.iter().map(|row| &row.cells));
    let mut out: Vec<String> = cells.map(|cells| line(cells, &widths, columns)).collect();
    let hidden = rows.len() - shown.len();
    if hidden > 0 {
        let more = format!("... and {hidden} more {}", if hidden == 1 { "job" } else { "jobs" });
        out.push(truncate_str(&more, columns, "…").into_owned());
    }
    out
}

/// The rows there is space for, in their order; those of jobs that have not ended are preferred.
fn fitting(rows: &[Row], lines: usize) -> Vec<&Row> {
    let space = if rows.len() < lines { rows.len() } else { lines - 2 };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|n| (rows[*n].ended, *n));
    order.truncate(space);
    order.sort_unstable();
    order.into_iter().map(|n| &rows[n]).collect()
}

/// The width of each column; `None` where it is dropped.
fn widths(rows: &[&Row], columns: usize) -> [Option<usize>; COLUMNS.len()] {
    let width = |n: usize, title: &str| {
        rows.iter().map(|row| console::measure_text_width(&row.cells[n])).fold(title.len(), usize::max)
    };
    let mut widths: [Option<usize>; COLUMNS.len()] = std::array::from_fn(|n| Some(width(n, COLUMNS[n].0)));
    widths[1] = widths[1].map(|width| width.max(PHASE_WIDTH));
    let name = widths[0].unwrap_or_default();
    loop {
        let others: usize = widths.iter().skip(1).flatten().map(|width| width + GAP).sum();
        if others + name.min(MIN_NAME) <= columns {
            widths[0] = Some(name.min(columns - others));
            return widths;
        }
        let last = (1..COLUMNS.len()).filter(|n| widths[*n].is_some()).max_by_key(|n| COLUMNS[*n].2);
        let Some(last) = last else {
            widths[0] = Some(name.min(columns));
            return widths;
        };
        widths[last] = None;
    }
}

fn line(cells: &[String; COLUMNS.len()], widths: &[Option<usize>; COLUMNS.len()], columns: usize) -> String {
    let mut out = String::new();
    for (n, cell) in cells.iter().enumerate() {
        let Some(width) = widths[n] else { continue };
        if n > 0 {
            out.push_str(&" ".repeat(GAP));
        }
        // Cut first, then padded: a cut before a wide character leaves one column free.
        out.push_str(&pad_str(&truncate_str(cell, width, "…"), width, COLUMNS[n].1, None));
    }
    truncate_str(out.trim_end(), columns, "").into_owned()
}

/// Returns a time span as minutes and seconds, with hours where there are any.
pub(super) fn clock_of(ms: u64) -> String {
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ended: bool, cells: [&str; COLUMNS.len()]) -> Row {
        Row { ended, cells: cells.map(str::to_owned) }
    }

    fn jobs() -> Vec<Row> {
        vec![
            row(false, ["quickstart", "Restarting", "3", "1", "0", "1", "0:07"]),
            row(true, ["done", "Succeed", "0", "0", "4", "0", "0:03"]),
            row(
                false,
                ["a-job-with-a-very-long-name-that-no-terminal-shows", "Running", "12", "0", "0", "0", "1:02:03"],
            ),
            row(false, ["训练任务-大规模-语言模型-预训练-第二阶段", "Creating", "0", "8", "0", "0", "0:00"]),
        ]
    }

    /// Every line with a bar at the width, which it must not cross.
    fn framed(rows: &[Row], columns: usize, lines: usize) -> String {
        let table = render(rows, columns, lines);
        assert!(table.len() <= lines, "{table:?}");
        assert!(table.iter().all(|line| console::measure_text_width(line) <= columns), "{columns}: {table:?}");
        let lines = table.iter().map(|line| pad_str(line, columns, Alignment::Left, None));
        lines.fold(String::new(), |text, line| text + &line + "|\n")
    }

    #[test]
    fn columns_fit_the_width() {
        for columns in [20, 40, 60, 80, 120] {
            insta::assert_snapshot!(format!("width-{columns}"), framed(&jobs(), columns, 24));
        }
        for columns in 0..130 {
            framed(&jobs(), columns, 24);
        }
    }

    #[test]
    fn rows_fit_the_height_and_jobs_that_go_on_come_first() {
        insta::assert_snapshot!("height-5", framed(&jobs(), 80, 5));
        insta::assert_snapshot!("height-4", framed(&jobs(), 80, 4));
        for lines in 0..8 {
            framed(&jobs(), 80, lines);
        }
        assert_eq!(framed(&[], 80, 24), "");
    }
}
