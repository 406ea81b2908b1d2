//! `trainyard top`: the jobs of a log on the whole terminal, as they change.
//!
//! Owns reading the log again and again, and the keys; `screen` draws. It changes nothing. Tests: `screen.rs`, and
//! `tests/local/top.rs` on a terminal.

mod screen;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use clap::Args;
use engine::State;
use explain::Row;
use local_run::jobs;
use local_run::records;
use model::JobKey;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};
use terminal::out::{self, Failure};

use self::screen::{Details, JobView, Pane, Screen, Snapshot};
use super::ps;
use super::story::LogLocation;

/// Polling interval for a log of this machine.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polling interval for the log of a live operator.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum time for which a key waits.
const KEY_INTERVAL: Duration = Duration::from_millis(100);

/// Lines of a job's history and of its output that are kept for the screen.
const MAX_LINES: usize = 200;

/// Arguments of `trainyard top`.
#[derive(Debug, Args)]
#[command(after_help = "Keys: up and down choose a job, Tab shows its pods, history or output,
q ends. Elsewhere than on a terminal: trainyard ps.

Examples:
  trainyard top
  trainyard top --server auto")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    location: LogLocation,
}

/// Shows the jobs until a key ends it.
pub(crate) fn run(args: TopArgs) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("top needs a terminal; `trainyard ps` prints the jobs once"));
    }
    let location = args.location;
    let place = format!("{}", location.source());
    // A log that is not there is said before the screen is taken.
    let first = read(&location)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let (news, updates) = mpsc::channel();
    thread::spawn(move || {
        let interval = if location.is_remote() { REMOTE_POLL_INTERVAL } else { POLL_INTERVAL };
        loop {
            thread::sleep(interval);
            if news.send(read(&location)).is_err() {
                return;
            }
        }
    });
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, Screen::new(place, first), &updates, &ended);
    ratatui::restore();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    updates: &Receiver<Result<Snapshot, Failure>>,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    let mut changed = true;
    while !ended.load(Ordering::SeqCst) {
        if changed {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        changed = false;
        for update in updates.try_iter() {
            screen.update(update);
            changed = true;
        }
        if !event::poll(KEY_INTERVAL)? {
            continue;
        }
        changed = true;
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Up | KeyCode::Char('k') => screen.choose(-1),
                KeyCode::Down | KeyCode::Char('j') => screen.choose(1),
                KeyCode::Tab => screen.turn(),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads the log once.
fn read(location: &LogLocation) -> Result<Snapshot, Failure> {
    let state = records::latest(&location.source())?;
    let now = location.now(&state);
    let jobs = jobs::all(&state, false);
    let view = |key: &JobKey| {
        let row = Row::of(&state, key)?;
        let job = state.job(key)?;
        let history = job.trail.iter().map(|entry| format!("{}  {}", out::clock(entry.at), entry.text)).collect();
        let output = location.data_dir().map(|dir| output(&state, dir, key)).unwrap_or_default();
        Some(JobView { row, details: Details { pods: ps::pods(&state, key), history, output } })
    };
    Ok(Snapshot { now, jobs: jobs.iter().filter_map(view).collect(), is_live: !location.is_over() })
}

/// Returns the last lines that a job's first pod wrote.
fn output(state: &State, data_dir: &Path, key: &JobKey) -> Vec<String> {
    let Some(job) = state.job(key) else { return Vec::new() };
    let places = jobs::ranks(key, &job);
    let failed = |place: &&jobs::PodRank| {
        let pod = job.pods.values().find(|pod| pod.fact.slot.as_ref() == Some(&place.slot));
        pod.is_some_and(|pod| pod.fact.phase == model::PodPhase::Failed)
    };
    let place = places.iter().find(failed).or_else(|| places.first());
    let path = place.and_then(|place| local_run::output_files::newest(data_dir, key, &place.name));
    let text = path.map(|path| local::last_output(&path)).unwrap_or_default();
    let lines: Vec<String> = text.lines().map(|line| local_run::view::tame(line, false)).collect();
    lines[lines.len().saturating_sub(MAX_LINES)..].to_vec()
}

impl Pane {
    /// Returns the pane that Tab shows next.
    const fn next(self) -> Self {
        match self {
            Self::Pods => Self::History,
            Self::History => Self::Output,
            Self::Output => Self::Pods,
        }
    }
}
