//! What a person sees of a run: lines as things happen, a table that keeps itself up to date on a terminal, timelines at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use apis::Resource;
use model::{JobKey, Phase, Timestamp};
use serde_json::Value;

use crate::out;
use crate::session::Session;

/// Lines that the table at the end of the screen takes at most.
const MOST_ROWS: usize = 20;

/// Progress on the screen.
pub(crate) struct Progress {
    terminal: bool,
    start: Timestamp,
    phases: BTreeMap<JobKey, (Phase, model::Text)>,
    pods: BTreeMap<String, String>,
    shown: String,
    rows: usize,
}

impl Progress {
    /// Progress from `start` on: a table where standard output is a terminal, plain lines elsewhere.
    pub(crate) fn new(start: Timestamp) -> Self {
        Self {
            terminal: std::io::stdout().is_terminal(),
            start,
            phases: BTreeMap::new(),
            pods: BTreeMap::new(),
            shown: String::new(),
            rows: 0,
        }
    }

    /// Tells what happened since the last call.
    pub(crate) fn update(&mut self, session: &mut Session, now: Timestamp) {
        let mut lines = String::new();
        for step in session.take_steps() {
            let key = &step.job;
            // While a job waits, what it waits for is news as well.
            let waits = matches!(step.phase, Phase::Pending | Phase::Creating);
            let shown = (step.phase, if waits { step.message.clone() } else { model::Text::from("") });
            if self.phases.insert(key.clone(), shown.clone()) == Some(shown) || step.phase == Phase::New {
                continue;
            }
            let sep = if step.message.is_empty() { "" } else { ": " };
            let word = session.phase_word(key, step.phase);
            let _ = writeln!(lines, "{}  {key}  {word}{sep}{}", self.age(now), step.message);
        }
        let mut pods = BTreeMap::new();
        for pod in session.cluster.objects_of(&Resource::new("v1", "Pod")) {
            let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
            pods.insert(
                text("/metadata/uid").to_owned(),
                format!("pod {} {}", text("/metadata/name"), pod_words(&pod)),
            );
        }
        for (uid, words) in &pods {
            if self.pods.get(uid) != Some(words) {
                let _ = writeln!(lines, "{}    {words}", self.age(now));
            }
        }
        self.pods = pods;
        let table = if self.terminal { self.table(session, now) } else { String::new() };
        if lines.is_empty() && table == self.shown {
            return;
        }
        let mut text = self.wipe();
        text.push_str(&lines);
        text.push_str(&table);
        self.rows = table.lines().count();
        self.shown = table;
        out::print(&text);
    }

    /// Prints something above the table.
    pub(crate) fn say(&mut self, line: &str) {
        let text = format!("{}{line}\n{}", self.wipe(), self.shown);
        out::print(&text);
    }

    /// Leaves the screen as it is: what comes next is printed below.
    pub(crate) fn finish(&mut self) {
        let wipe = self.wipe();
        self.rows = 0;
        self.shown.clear();
        out::print(&wipe);
    }

    fn wipe(&self) -> String {
        if self.rows == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.rows) }
    }

    fn age(&self, now: Timestamp) -> String {
        let ms = now.since_ms(self.start);
        format!("{:>3}:{:02}.{:01}", ms / 60_000, ms / 1000 % 60, ms / 100 % 10)
    }

    fn table(&self, session: &Session, now: Timestamp) -> String {
        let mut text = String::from(
            "\x1b[1mJOB                       PHASE        PODS                     RESTARTS  AGE\x1b[0m\n",
        );
        let jobs = session.jobs();
        for (key, phase) in jobs.iter().take(MOST_ROWS) {
            let Some(job) = session.operator.state().job(key) else { continue };
            let (mut active, mut ended, mut waiting, mut restarts) = (0u32, 0u32, 0u32, 0u32);
            for group in job.groups.values() {
                active += group.counters.active;
                ended += group.counters.succeeded + group.counters.failed;
                waiting += group.counters.pending + group.counters.scheduled;
                restarts = restarts.max(group.restarts);
            }
            let pods = format!("{active} running, {waiting} waiting, {ended} ended");
            let _ = writeln!(
                text,
                "{:<25} {:<12} {pods:<24} {restarts:>8}  {}",
                key.to_string(),
                session.phase_word(key, *phase),
                self.age(now).trim_start()
            );
        }
        if jobs.len() > MOST_ROWS {
            let _ = writeln!(text, "... and {} more jobs", jobs.len() - MOST_ROWS);
        }
        text
    }
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
            let _ = write!(words, ", {name} exited with code {code}");
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

/// What became of every job: its timeline and its outcome. Returns whether all of them succeeded.
pub(crate) fn outcomes(session: &Session, wanted: &dyn Fn(&JobKey) -> bool) -> bool {
    let mut all_well = true;
    for (key, job) in session.operator.state().jobs.iter().filter(|(key, job)| job.known && wanted(key)) {
        out::line(&format!("\n{} {key}", key.kind));
        for entry in &job.trail {
            out::line(&format!("  #{:<5} {}  {}", entry.stamp.position.0, out::clock(entry.at), entry.text));
        }
        let restarts: u32 = job.groups.values().map(|g| g.charged).sum();
        let took = job.ended_at.zip(job.started_at).map(|(end, start)| end.since_ms(start));
        let took = took.map(|ms| format!(", {}.{:01} s", ms / 1000, ms / 100 % 10)).unwrap_or_default();
        let invalid =
            job.invalid().map(|errors| errors.iter().fold(String::new(), |text, e| format!("{text}\n    {e}")));
        let word = match session.phase_word(key, job.phase) {
            "" => "not started",
            word => word,
        };
        out::line(&format!("  {word}, {restarts} restarts{took}{}", invalid.unwrap_or_default()));
        all_well &= job.phase == Phase::Succeeded;
    }
    all_well
}
