//! The screen of a run: lines for each change, a table that is updated on a terminal, timelines at the end.

mod closing;
mod screen;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use apis::Resource;
use engine::explain;
use model::{JobKey, Phase, Timestamp};
use serde_json::Value;

use crate::out::{self, Failure};
use embedded::Session;

use self::screen::Screen;
use self::table::Row;

/// Maximum number of lines of the table, however high the terminal is.
const MAX_LINES: usize = 22;

/// Waiting reason of a container that cannot be made from what there is.
const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Follows what stands in the way of a job that cannot go on by itself.
const WHAT_TO_DO: &str = "end the run with Ctrl-C, change the manifest, run it again";

/// Attributes of a terminal: bold, and the first of six colours.
const BOLD: u8 = 1;
const FIRST_COLOUR: u8 = 31;

/// Progress on the screen.
pub(crate) struct Progress {
    screen: Screen,
    start: Timestamp,
    phases: BTreeMap<JobKey, (Phase, model::Text)>,
    pods: BTreeMap<String, String>,
    /// Rejections of the API that were printed already.
    refusals: BTreeMap<JobKey, Vec<String>>,
    /// Jobs whose default limit of restarts was printed.
    limited: BTreeSet<JobKey>,
    /// The table as it stands on the screen, line by line.
    shown: Vec<String>,
}

impl Progress {
    /// Progress from `start` on: a table where standard output is a terminal that can replace text, plain lines elsewhere.
    pub(crate) fn new(start: Timestamp) -> Self {
        Self {
            screen: Screen::stdout(),
            start,
            phases: BTreeMap::new(),
            pods: BTreeMap::new(),
            refusals: BTreeMap::new(),
            limited: BTreeSet::new(),
            shown: Vec::new(),
        }
    }

    /// Takes in the jobs' changes since the last call. Returns a line for each that is to be shown.
    pub(crate) fn take_steps(&mut self, session: &mut Session, now: Timestamp) -> String {
        let mut lines = String::new();
        for step in session.take_steps() {
            let key = &step.job;
            // A job that was deleted is New again. How it ended stands.
            if step.phase == Phase::New {
                continue;
            }
            // While a job waits, a change of its reason is printed as well.
            let waits = matches!(step.phase, Phase::Pending | Phase::Creating);
            let shown = (step.phase, if waits { step.message.clone() } else { model::Text::from("") });
            if self.phases.insert(key.clone(), shown.clone()) == Some(shown) {
                continue;
            }
            let sep = if step.message.is_empty() { "" } else { ": " };
            let word = session.phase_word(key, step.phase);
            let _ = writeln!(lines, "{}  {key}  {word}{sep}{}", self.age(now), step.message);
        }
        lines
    }

    /// Prints the changes since the last call.
    pub(crate) fn update(&mut self, session: &mut Session, now: Timestamp) {
        let mut lines = self.take_steps(session, now);
        let mut pods = BTreeMap::new();
        for pod in session.cluster().objects_of(&Resource::new("v1", "Pod")) {
            let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
            pods.insert(
                text("/metadata/uid").to_owned(),
                format!("pod {} {}", text("/metadata/name"), pod_words(&pod)),
            );
        }
        for (uid, words) in &pods {
            if self.pods.get(uid) != Some(words) {
                let _ = writeln!(lines, "{}    {words}", self.age(now));
                if words.contains(CONFIG_ERROR) && !self.pods.get(uid).is_some_and(|old| old.contains(CONFIG_ERROR)) {
                    let _ = writeln!(lines, "{}    the pod cannot start with this spec: {WHAT_TO_DO}", self.age(now));
                }
            }
        }
        self.pods = pods;
        for (key, phase) in session.jobs() {
            let refusals = session.operator.state().job(&key).map(|job| explain::refusals(&job)).unwrap_or_default();
            if !refusals.is_empty() && self.refusals.get(&key) != Some(&refusals) {
                let _ = writeln!(lines, "{}  {key}  {}", self.age(now), refusals.join("; "));
                let _ = writeln!(lines, "{}    only another spec changes that: {WHAT_TO_DO}", self.age(now));
            }
            // A job that ended in an earlier run prints nothing; one that ended since the last update still does.
            let runs_here = !phase.is_terminal() || self.phases.contains_key(&key);
            let limit = if runs_here { default_limit(session, &key) } else { None };
            if let Some(words) = limit.filter(|_| self.limited.insert(key.clone())) {
                let _ = writeln!(lines, "{}  {key}  {words}", self.age(now));
            }
            self.refusals.insert(key, refusals);
        }
        let table = if self.screen.is_live() { self.table(session, now) } else { Vec::new() };
        if !lines.is_empty() || table != self.shown {
            self.replace(&lines, table);
        }
    }

    /// Prints something above the table.
    pub(crate) fn say(&mut self, line: &str) {
        self.replace(&format!("{line}\n"), self.shown.clone());
    }

    /// Prints lines of pods' output, each with its pod, above the table.
    pub(crate) fn pod_lines(&mut self, lines: &[(String, String)]) {
        let mut text = String::new();
        for (pod, line) in lines {
            let colour = FIRST_COLOUR + pod.bytes().fold(0u8, u8::wrapping_add) % 6;
            let _ = writeln!(text, "{} | {}", self.screen.paint(colour, pod), self.screen.line_of_program(line));
        }
        self.replace(&text, self.shown.clone());
    }

    /// Leaves the screen as it is: what comes next is printed below.
    pub(crate) fn finish(&mut self) {
        self.replace("", Vec::new());
    }

    /// Puts lines where the table was, and a table below them.
    fn replace(&mut self, lines: &str, table: Vec<String>) {
        let text = format!("{}{lines}{}", self.wiping(), Self::joined(&table));
        self.shown = table;
        out::print(&text);
    }

    /// Returns the escape sequence that moves the cursor to the beginning of the table and clears all below. Its lines wrap when the screen gets narrower.
    fn wiping(&self) -> String {
        if self.shown.is_empty() {
            return String::new();
        }
        let (rows, columns) = self.screen.size();
        format!("\x1b[{}A\x1b[J", screen::rows_of(&self.shown, columns).min(rows))
    }

    fn joined(table: &[String]) -> String {
        table.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    fn age(&self, now: Timestamp) -> String {
        let ms = now.since_ms(self.start);
        format!("{:>3}:{:02}.{:01}", ms / 60_000, ms / 1000 % 60, ms / 100 % 10)
    }

    fn table(&self, session: &Session, now: Timestamp) -> Vec<String> {
        let jobs = session.jobs();
        // Names alone if all namespaces are the same.
        let mut namespaces = jobs.iter().map(|(key, _)| &key.namespace);
        let first = namespaces.next();
        let one_namespace = namespaces.all(|namespace| Some(namespace) == first);
        let rows: Vec<Row> = jobs
            .iter()
            .filter_map(|(key, phase)| {
                let job = session.operator.state().job(key)?;
                let (mut active, mut ended, mut waiting, mut restarts) = (0u32, 0u32, 0u32, 0u32);
                for group in job.groups.values() {
                    active += group.counters.active;
                    ended += group.counters.succeeded + group.counters.failed;
                    waiting += group.counters.pending + group.counters.scheduled;
                    restarts = restarts.max(group.restarts);
                }
                let since = job.started_at.map_or(0, |start| job.ended_at.unwrap_or(now).since_ms(start));
                Some(Row {
                    ended: phase.is_terminal(),
                    cells: [
                        if one_namespace { key.name.to_string() } else { key.to_string() },
                        session.phase_word(key, *phase).to_owned(),
                        active.to_string(),
                        waiting.to_string(),
                        ended.to_string(),
                        restarts.to_string(),
                        clock_of(since),
                    ],
                })
            })
            .collect();
        let (height, width) = self.screen.size();
        // One row is the cursor's, and one shows that there is something above.
        let mut table = table::render(&rows, width, height.saturating_sub(2).min(MAX_LINES));
        if let Some(header) = table.first_mut() {
            *header = self.screen.paint(BOLD, header);
        }
        table
    }
}

/// The limit of restarts that a job gets because it names none, in words.
fn default_limit(session: &Session, key: &JobKey) -> Option<String> {
    let state = session.operator.state();
    let limit = state.config.restart_limit?;
    let job = state.job(key)?;
    let unlimited =
        |group: &&model::GroupSpec| group.restart_limit.is_none() && group.restart != model::RestartPolicy::Never;
    let spec = job.spec().filter(|spec| spec.budget.is_none())?;
    let names: Vec<&str> = spec.groups.iter().filter(unlimited).map(|group| &**group.display()).collect();
    let words =
        format!("{} without a limit of restarts: at most {limit} here (--restart-limit N|none)", names.join(", "));
    (!names.is_empty()).then_some(words)
}

/// A time span as minutes and seconds, with hours where there are any.
fn clock_of(ms: u64) -> String {
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A pod's state in a few words.
fn pod_words(pod: &Value) -> String {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let mut words = match text("/status/phase") {
        "" => "Pending".to_owned(),
        phase => phase.to_owned(),
    };
    for status in pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten() {
        let name = status["name"].as_str().unwrap_or_default();
        if let Some(code) = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) {
            let text = |path: &str| status.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let reason = text("/state/terminated/reason");
            let end = model::exit::words(i32::try_from(code).unwrap_or(-1), reason);
            let _ = write!(words, ", {name} {end}");
            // The program's own last words follow in the closing lines; of one that never ran there is nothing else.
            if reason == "StartError" {
                let _ = write!(words, ": {}", text("/state/terminated/message"));
            }
        }
        if let Some(reason) = status.pointer("/state/waiting/reason").and_then(Value::as_str)
            && reason != "ContainerCreating"
        {
            let message = status.pointer("/state/waiting/message").and_then(Value::as_str).unwrap_or_default();
            let _ = write!(words, ", {name} waits: {reason} {message}");
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        words.push_str(", being stopped");
    }
    words.trim_end().to_owned()
}

/// Prints each job's timeline and outcome, and of one that did not succeed what failed. `data_dir` holds the pods' output. Of a job
/// that was deleted when its time to live had passed, `progress` knows the end. Returns whether all of them succeeded.
pub(crate) fn outcomes(
    session: &Session,
    progress: &Progress,
    wanted: &dyn Fn(&JobKey) -> bool,
    data_dir: Option<&Path>,
) -> Result<bool, Failure> {
    let mut all_well = true;
    let mut failures = None;
    for (key, job) in session.operator.state().jobs.iter().filter(|(key, job)| job.known && wanted(key)) {
        out::line(&format!("\n{} {key}", key.kind));
        for entry in &job.trail {
            out::line(&format!("  #{:<5} {}  {}", entry.stamp.position.0, out::clock(entry.at), entry.text));
        }
        let restarts: u32 = job.groups.values().map(|g| g.charged).sum();
        let containers = job.past_container_restarts.saturating_add(job.container_restarts);
        let containers =
            if containers > 0 { format!(", {containers} restarts of containers in place") } else { String::new() };
        let took = job.ended_at.zip(job.started_at).map(|(end, start)| end.since_ms(start));
        let took = took.map(|ms| format!(", {}.{:01} s", ms / 1000, ms / 100 % 10)).unwrap_or_default();
        let invalid =
            job.invalid().map(|errors| errors.iter().fold(String::new(), |text, e| format!("{text}\n    {e}")));
        let word = match session.phase_word(key, job.phase) {
            "" => "not started",
            word => word,
        };
        out::line(&format!("  {word}, {restarts} restarts{containers}{took}{}", invalid.unwrap_or_default()));
        all_well &= job.phase == Phase::Succeeded;
        if job.phase == Phase::Succeeded {
            continue;
        }
        let known = match &mut failures {
            Some(known) => known,
            none => none.insert(closing::failures(session.operator.log())?),
        };
        for line in known.get(key).map(|failures| closing::lines(key, failures, data_dir)).unwrap_or_default() {
            out::line(&format!("  {line}"));
        }
    }
    let is_known = |key: &JobKey| session.operator.state().job(key).is_some_and(|job| job.known);
    let ended = progress.phases.iter().filter(|(key, (phase, _))| phase.is_terminal() && wanted(key) && !is_known(key));
    for (key, (phase, _)) in ended {
        let word = session.phase_word(key, *phase);
        out::line(&format!("\n{} {key}\n  {word}; the job was deleted when its time to live had passed", key.kind));
        all_well &= *phase == Phase::Succeeded;
    }
    Ok(all_well)
}
