//! The picture of `trainyard top`: jobs above, the chosen one below.
//!
//! Owns what stands where. Pure: it reads nothing and knows no keys. Tests: at the end, as snapshots of 80 x 24.

use explain::Row;
use local_run::jobs;
use model::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row as TableRow, Table, TableState, Wrap};
use terminal::columns::{counted, span};
use terminal::out::Failure;

/// Rows for jobs at most before the lower part gets less than half.
const MIN_LOWER_ROWS: u16 = 8;

/// Part of a job that is shown below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Pods,
    History,
    Output,
}

/// Rows and last output of the job that is shown below the list.
pub(super) struct Details {
    /// Rank, name, phase, restarts, node and containers of each pod.
    pub(super) pods: Vec<[String; 6]>,
    /// Its last decisions.
    pub(super) history: Vec<String>,
    /// The end of a pod's output, where it is on this machine.
    pub(super) output: Vec<String>,
}

/// One job.
pub(super) struct JobView {
    pub(super) row: Row,
    pub(super) details: Details,
}

/// State of a log at one time.
pub(super) struct Snapshot {
    pub(super) now: Timestamp,
    pub(super) jobs: Vec<JobView>,
    /// True while something is added to the log.
    pub(super) is_live: bool,
}

/// The picture and what is chosen in it.
pub(super) struct Screen {
    place: String,
    snapshot: Snapshot,
    /// Why the last look failed, if it did.
    problem: Option<String>,
    /// Name of the job that is chosen: rows may come and go.
    chosen: Option<String>,
    pane: Pane,
}

impl Screen {
    pub(super) fn new(place: String, snapshot: Snapshot) -> Self {
        Self { place, snapshot, problem: None, chosen: None, pane: Pane::Pods }
    }

    /// Takes in what the log says now; after a failure what it said before stays.
    pub(super) fn update(&mut self, update: Result<Snapshot, Failure>) {
        match update {
            Ok(snapshot) => (self.snapshot, self.problem) = (snapshot, None),
            Err(failure) => self.problem = Some(failure.to_string()),
        }
    }

    /// Chooses the job that stands so many rows below.
    pub(super) fn choose(&mut self, rows: isize) {
        let last = self.snapshot.jobs.len().saturating_sub(1);
        let next = self.index().saturating_add_signed(rows).min(last);
        self.chosen = self.snapshot.jobs.get(next).map(|job| job.row.key.to_string());
    }

    /// Shows another part of the job.
    pub(super) fn turn(&mut self) {
        self.pane = self.pane.next();
    }

    /// Index of the chosen job; the first where none is, or it is gone.
    fn index(&self) -> usize {
        let is_chosen = |job: &JobView| Some(job.row.key.to_string()) == self.chosen;
        self.snapshot.jobs.iter().position(is_chosen).unwrap_or_default()
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let jobs = u16::try_from(self.snapshot.jobs.len()).unwrap_or(u16::MAX).saturating_add(1).max(2);
        let most = area.height.saturating_sub(2 + MIN_LOWER_ROWS).max(2);
        let parts =
            [Constraint::Length(1), Constraint::Length(jobs.min(most)), Constraint::Min(0), Constraint::Length(1)];
        let [head, upper, lower, foot] = Layout::vertical(parts).areas(area);
        frame.render_widget(Line::from(self.head()).style(Modifier::BOLD), head);
        self.draw_jobs(frame, upper);
        self.draw_details(frame, lower);
        let keys = "up, down: choose   Tab: pods, history, output   q: end";
        frame.render_widget(Line::from(self.problem.as_deref().unwrap_or(keys)).style(Modifier::DIM), foot);
    }

    fn head(&self) -> String {
        let live = if self.snapshot.is_live { "" } else { ", nothing runs" };
        format!("{}: {}{live}", self.place, counted(self.snapshot.jobs.len(), "job"))
    }

    fn draw_jobs(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.snapshot.jobs.is_empty() {
            frame.render_widget(Paragraph::new("no jobs"), area);
            return;
        }
        let now = self.snapshot.now;
        let cells = |job: &JobView| {
            let row = &job.row;
            [
                jobs::written(&row.key),
                row.phase.clone(),
                format!("{}/{}", row.ready, row.replicas),
                row.restarts_text(),
                row.gpus.to_string(),
                row.age_ms(now).map(span).unwrap_or_default(),
                row.reason.clone(),
            ]
        };
        let rows: Vec<[String; 7]> = self.snapshot.jobs.iter().map(cells).collect();
        let header = ["JOB", "PHASE", "READY", "RESTARTS", "GPUS", "AGE", "REASON"];
        table(frame, area, header, &rows, Some(self.index()));
    }

    fn draw_details(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(job) = self.snapshot.jobs.get(self.index()) else { return };
        let title = match self.pane {
            Pane::Pods => "pods",
            Pane::History => "history",
            Pane::Output => "output",
        };
        let block = Block::new().borders(Borders::TOP).title(format!(" {}: {title} ", jobs::written(&job.row.key)));
        let inside = block.inner(area);
        frame.render_widget(block, area);
        match self.pane {
            Pane::Pods => {
                let header = ["RANK", "POD", "PHASE", "RESTARTS", "NODE", "CONTAINERS"];
                table(frame, inside, header, &job.details.pods, None);
            }
            Pane::History => last_lines(frame, inside, &job.details.history, "nothing was decided yet"),
            Pane::Output => last_lines(frame, inside, &job.details.output, "no output on this machine"),
        }
    }
}

/// Draws a table whose last column takes what is left.
fn table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    header: [&str; N],
    rows: &[[String; N]],
    chosen: Option<usize>,
) {
    let mut widths = header.map(console::measure_text_width);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(console::measure_text_width(cell));
        }
    }
    let last = N - 1;
    let constraints = widths.iter().enumerate().map(|(n, width)| {
        let width = u16::try_from(*width).unwrap_or(u16::MAX);
        if n == last { Constraint::Min(0) } else { Constraint::Length(width) }
    });
    let rows = rows.iter().map(|row| TableRow::new(row.clone()));
    let table = Table::new(rows, constraints)
        .column_spacing(2)
        .header(TableRow::new(header).style(Modifier::BOLD))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Draws the last lines that there is room for; longer ones continue in the next row.
fn last_lines(frame: &mut Frame<'_>, area: Rect, lines: &[String], none: &str) {
    if lines.is_empty() {
        frame.render_widget(Paragraph::new(none), area);
        return;
    }
    let width = usize::from(area.width.max(1));
    let rows = |line: &String| console::measure_text_width(line).div_ceil(width).max(1);
    let (mut first, mut used) = (lines.len(), 0);
    while first > 0 {
        used += rows(&lines[first - 1]);
        if used > usize::from(area.height) {
            break;
        }
        first -= 1;
    }
    let shown: Vec<Line<'_>> =
        lines[first.min(lines.len() - 1)..].iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }), area);
}

#[cfg(test)]
mod tests {
    use model::{JobKey, Text, Uid};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn job(name: &str, phase: &str, reason: &str) -> JobView {
        let key = JobKey {
            kind: Text::from("ElasticJob"),
            namespace: Text::from("default"),
            name: Text::from(name),
            uid: Uid(Text::from(name)),
        };
        let row = Row {
            key,
            phase: phase.to_owned(),
            ready: 2,
            replicas: 4,
            restarts: 1,
            limit: Some(13),
            gpus: 8,
            since: Some(Timestamp(1_000)),
            ended: None,
            queue: String::new(),
            nodes: vec!["local-1".to_owned()],
            reason: reason.to_owned(),
        };
        let pod = |rank: u32| {
            let rank = rank.to_string();
            [
                rank.clone(),
                format!("{name}-worker-{rank}"),
                "Running".into(),
                "0".into(),
                "local-1".into(),
                "main runs".into(),
            ]
        };
        let details = Details {
            pods: (0..4).map(pod).collect(),
            history: vec![
                "10:00:00.000 CET  Created -> Running: the minimum of 2 pods or more are running".to_owned();
                3
            ],
            output: vec![format!("step 1 of {name}"), "loss 0.5".to_owned()],
        };
        JobView { row, details }
    }

    fn screen(jobs: Vec<JobView>) -> Screen {
        Screen::new("./trainyard-data/log".to_owned(), Snapshot { now: Timestamp(126_000), jobs, is_live: true })
    }

    fn drawn(screen: &Screen, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn jobs_stand_above_and_the_chosen_one_below() {
        let jobs = vec![
            job("eval", "Running", ""),
            job("train", "Restarting", "2 pods of worker to start, and some more words"),
        ];
        let mut screen = screen(jobs);
        insta::assert_snapshot!("pods", drawn(&screen, 80, 24));
        screen.choose(1);
        screen.turn();
        insta::assert_snapshot!("history", drawn(&screen, 80, 24));
        screen.turn();
        screen.choose(5);
        insta::assert_snapshot!("output", drawn(&screen, 80, 16));
        screen.update(Err(Failure::new("the log cannot be read")));
        assert!(drawn(&screen, 80, 16).contains("the log cannot be read"), "what was there stays");
        screen.update(Ok(Snapshot { now: Timestamp(0), jobs: Vec::new(), is_live: false }));
        assert!(drawn(&screen, 80, 16).contains("0 jobs, nothing runs"), "{}", drawn(&screen, 80, 16));
    }

    #[test]
    fn any_size_can_be_drawn() {
        let many: Vec<JobView> = (0..50).map(|n| job(&format!("job-{n}"), "Running", "")).collect();
        let mut screen = screen(many);
        screen.choose(49);
        for (columns, rows) in [(1, 1), (10, 3), (80, 24), (200, 60)] {
            let text = drawn(&screen, columns, rows);
            assert_eq!(text.lines().count(), usize::from(rows));
        }
        assert!(drawn(&screen, 80, 24).contains("job-49"), "the chosen one is in sight");
    }
}
