//! The last lines about a job: how it ended, what failed first, its last output, the path of its log, what to do next.
//!
//! Owns the words only: what failed is read from the log's records by [`explain::failures`]. Tests: `cli/tests/local/closing.rs` with real
//! pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use apis::Registry;
use engine::{Job, Record, State};
use event_log::EventLog;
use explain::failures::{FailedPod, Failure, Failures};
use model::{CauseKind, JobKey, Phase, printable};
use serde_json::{Value, json};
use terminal::columns::counted;
use terminal::out::{self, Failure as Problem};
use terminal::shell::quoted;

use super::{Form, Progress};

/// Maximum number of errors of a spec in the last lines.
const MAX_ERRORS: usize = 3;

/// Maximum number of lines of a container's output that are shown.
const MAX_OUTPUT_LINES: usize = 5;

/// Maximum width of such a line.
const MAX_OUTPUT_WIDTH: usize = 160;

/// Returns what failed of every job that the log knows.
pub(crate) fn failures(log: &dyn EventLog) -> Result<BTreeMap<JobKey, Failures>, Problem> {
    let mut all: BTreeMap<JobKey, Failures> = BTreeMap::new();
    for frame in log.read(log.first())? {
        let frame = frame?;
        let record = Record::decode(frame.position, frame.term, &frame.body)?;
        if let Some(key) = record.job() {
            all.entry(key.clone()).or_default().take(&record);
        }
    }
    Ok(all)
}

/// Prints what became of each wanted job: at most five lines each, and before them the last output of what failed. `read` reads what
/// failed of every job. Returns whether all of them succeeded.
pub(crate) fn blocks(
    state: &State,
    read: &dyn Fn() -> Result<BTreeMap<JobKey, Failures>, Problem>,
    progress: &Progress,
    wanted: &dyn Fn(&JobKey) -> bool,
    dir: &DirOption<'_>,
) -> Result<bool, Problem> {
    let (registry, form) = (Registry::all(), progress.form());
    let mut all_well = true;
    let mut known = None;
    for (key, job) in state.jobs.iter().filter(|(key, job)| job.object.is_known() && wanted(key)) {
        let succeeded = job.phase == Phase::Succeeded;
        all_well &= succeeded;
        let word = explain::end_word(&registry, key, job.phase);
        let failures = if succeeded {
            None
        } else {
            let known = match &mut known {
                Some(known) => known,
                none => none.insert(read()?),
            };
            known.get(key)
        };
        let end = End { key, job: &job, word, failures };
        match form {
            Form::Json => out::line(&end.to_json(dir).to_string()),
            Form::Text | Form::Quiet => out::lines(&end.lines(dir)),
        }
    }
    for (key, phase) in progress.deleted(state).filter(|(key, _)| wanted(key)) {
        let word = explain::phase_word(&registry, key, phase);
        all_well &= phase == Phase::Succeeded;
        let text = format!("{} {key} {word}; it was deleted when its time to live had passed", key.kind);
        match form {
            Form::Json => out::line(&json!({"event": "end", "job": key.to_string(), "phase": word}).to_string()),
            Form::Text | Form::Quiet => out::line(&text),
        }
    }
    Ok(all_well)
}

/// Prints the jobs that were deleted before their end, and what is left of them.
pub(crate) fn deleted(jobs: &[String], dir: &DirOption<'_>, form: Form) {
    let all = jobs.iter().map(|job| match form {
        Form::Json => json!({"event": "end", "job": job.split(' ').nth(1), "phase": "Deleted"}).to_string(),
        Form::Text | Form::Quiet => format!("{job} deleted before its end"),
    });
    let mut lines: Vec<String> = all.collect();
    if form != Form::Json {
        lines.push(format!("  logs: {}; it starts over when it is run again", dir.data_dir.join("logs").display()));
    }
    out::lines(&lines);
}

/// The option that names the data directory of a run in commands.
pub struct DirOption<'a> {
    /// Its path.
    pub data_dir: &'a Path,
}

impl DirOption<'_> {
    /// Returns the option that names the directory, with a space before it; nothing where it is the default.
    pub fn text(&self) -> String {
        let is_default = self.data_dir == Path::new("./trainyard-data") || self.data_dir == Path::new("trainyard-data");
        if is_default { String::new() } else { format!(" --data-dir {}", quoted([self.data_dir.to_string_lossy()])) }
    }
}

/// A job at the end of a run.
struct End<'a> {
    key: &'a JobKey,
    job: &'a Job,
    word: &'static str,
    failures: Option<&'a Failures>,
}

impl End<'_> {
    fn lines(&self, dir: &DirOption<'_>) -> Vec<String> {
        let Self { key, job, word, .. } = self;
        let head = format!("{} {key} {word}{}", key.kind, course(job));
        let name = if &*key.namespace == "default" { key.name.to_string() } else { key.to_string() };
        let option = dir.text();
        if job.phase == Phase::Succeeded {
            return vec![head, format!("  logs: trainyard logs {name}{option}")];
        }
        let mut lines = Vec::new();
        let mut block = vec![head];
        if let Some(errors) = job.invalid() {
            block.extend(errors.iter().take(MAX_ERRORS).map(|error| format!("  {error}")));
            if let Some(more) = errors.len().checked_sub(MAX_ERRORS).filter(|more| *more > 0) {
                block.push(format!("  and {more} more"));
            }
        }
        let failure = self.failures.and_then(|failures| Some((failures, failures.last()?)));
        if let Some((failures, failure)) = failure {
            let pod = failure.pod.as_ref();
            let log = pod.and_then(|pod| log_of(dir.data_dir, key, pod));
            if let Some(pod) = pod {
                let output = last_output(pod, log.as_deref());
                if !output.is_empty() {
                    lines.push(format!("last output of {}:", pod.name));
                    lines.extend(output.into_iter().map(|line| format!("  | {line}")));
                }
            }
            block.push(format!("  because {}{}", cause(failure), tries(failures)));
            block.extend(log.map(|log| format!("  log: {}", log.display())));
            block.push(format!("  why: trainyard explain {name}{option}"));
            block.push(format!("  again: trainyard rerun {name}{option}"));
        }
        lines.extend(block);
        lines
    }

    fn to_json(&self, dir: &DirOption<'_>) -> Value {
        let Self { key, job, word, failures } = self;
        let failure = failures.and_then(Failures::last);
        let log = failure.and_then(|failure| log_of(dir.data_dir, key, failure.pod.as_ref()?));
        json!({
            "event": "end", "job": key.to_string(), "kind": &*key.kind, "phase": word, "restarts": job.replaced_pods(),
            "containerRestarts": job.restarted_containers(),
            "milliseconds": job.ended_at.zip(job.started_at).map(|(end, start)| end.since_ms(start)),
            "because": failure.map(cause), "log": log,
            "errors": job.invalid().map(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>()),
        })
    }
}

/// Returns restarts and duration of a job in words, each after a comma.
pub(super) fn course(job: &Job) -> String {
    let containers = job.restarted_containers();
    let containers = if containers > 0 {
        format!(", {} of containers in place", counted(containers as usize, "restart"))
    } else {
        String::new()
    };
    let took = job.ended_at.zip(job.started_at).map(|(end, start)| end.since_ms(start));
    let took = took.map(|ms| format!(", {}.{:01} s", ms / 1000, ms / 100 % 10)).unwrap_or_default();
    format!(", {}{containers}{took}", counted(job.replaced_pods() as usize, "restart"))
}

/// Returns what failed, without output of pods.
pub(super) fn cause_lines(failures: &Failures) -> Vec<String> {
    let Some(failure) = failures.last() else { return Vec::new() };
    let mut lines = vec![format!("because {}", cause(failure))];
    let tries = tries(failures);
    lines.extend(tries.strip_prefix("; ").map(str::to_owned));
    lines
}

/// Returns how several tries ended, after a semicolon.
fn tries(failures: &Failures) -> String {
    match failures.count() {
        0 | 1 => String::new(),
        count if failures.all_alike() => format!("; all {count} tries ended with the same error"),
        count => format!("; {count} tries failed, not all with this error"),
    }
}

/// The first failure in words: the container and its end, or else what was decided. A limit is named beside what it limits.
fn cause(failure: &Failure) -> String {
    let of_container = failure.pod.as_ref().and_then(|pod| {
        let container = pod.container.as_ref()?;
        let end = model::exit::words(container.end.code, &container.end.reason);
        Some(format!("pod {}, container {} {end} at {}", pod.name, container.name, out::clock(failure.at)))
    });
    let is_limit = matches!(failure.kind, CauseKind::BudgetSpent | CauseKind::TimeLimit);
    match (of_container, is_limit) {
        (Some(end), false) => end,
        (Some(_), true) | (None, _) => failure.words.to_string(),
    }
}

/// The log of the container that failed: of its last run in the pod that is over.
fn log_of(data_dir: &Path, key: &JobKey, pod: &FailedPod) -> Option<PathBuf> {
    let container = pod.container.as_ref()?;
    let path =
        |restart| local::log_file(data_dir, &key.namespace, &pod.name, &container.name, pod.incarnation.0, restart);
    let mut logs: Vec<PathBuf> = (0..=u32::MAX).map(path).take_while(|path| path.exists()).collect();
    let later = logs.len().saturating_sub(1).min(container.runs_since as usize);
    logs.truncate(logs.len() - later);
    logs.pop()
}

/// The last lines of a container's output. An error that does not stand among them comes first.
fn last_output(pod: &FailedPod, log: Option<&Path>) -> Vec<String> {
    let written = log.map(local::last_output).unwrap_or_default();
    let message = pod.container.as_ref().and_then(|container| container.end.message.clone());
    let kept = |text: &str| -> Vec<String> {
        let text = printable::output(text);
        let lines = model::last_words::lines(&text).into_iter();
        lines.map(|line| console::truncate_str(line, MAX_OUTPUT_WIDTH, "…").into_owned()).collect()
    };
    let mut written = kept(&written);
    let mut lines = written.split_off(written.len().saturating_sub(MAX_OUTPUT_LINES));
    let error = message.as_deref().and_then(model::last_words::error_line).map(kept).and_then(|mut lines| lines.pop());
    if error.is_some_and(|error| !lines.iter().any(|line| line.contains(&error))) {
        lines.splice(0..0, message.as_deref().map(kept).unwrap_or_default());
    }
    lines
}
