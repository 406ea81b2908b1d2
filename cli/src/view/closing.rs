//! The last lines about a job that did not succeed: what failed first, its last output, the path of its log, what to do next.
//!
//! Owns the words only: what failed is read from the log's records by [`engine::failures`]. Tests: at the end, and
//! `tests/local/closing.rs` with real pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::failures::{FailedPod, Failure, Failures};
use engine::{Record, Scope};
use event_log::EventLog;
use model::{ContainerState, JobKey};

use super::screen;
use crate::out::{self, Failure as Problem};

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
        if let Scope::Job(key) = &record.scope {
            all.entry(key.clone()).or_default().take(&record);
        }
    }
    Ok(all)
}

/// Returns the closing lines about a job, without indentation. `data_dir` holds the pods' output, where they have any.
pub(crate) fn lines(key: &JobKey, failures: &Failures, data_dir: Option<&Path>) -> Vec<String> {
    let Some(failure) = failures.last() else { return Vec::new() };
    let mut lines = vec![format!("because {}", cause(failure))];
    if let (Some(pod), Some(data_dir)) = (&failure.pod, data_dir) {
        let log = log_of(data_dir, key, pod);
        lines.extend(last_output(pod, log.as_deref()).into_iter().map(|line| format!("  | {line}")));
        lines.extend(log.map(|log| format!("log: {}", log.display())));
    }
    if failures.count() > 1 {
        let alike = if failures.all_alike() {
            format!("all {} tries ended with the same error", failures.count())
        } else {
            format!("{} tries failed, not all with this error", failures.count())
        };
        lines.push(alike);
    }
    if let Some(data_dir) = data_dir {
        let name = if &*key.namespace == "default" { key.name.to_string() } else { key.to_string() };
        let place = if data_dir == Path::new("./trainyard-data") {
            String::new()
        } else {
            format!(" --data-dir {}", data_dir.display())
        };
        lines.push(format!("more: trainyard explain {name}{place}; to run it again: change the manifest, or --rerun"));
    }
    lines
}

/// The first failure in words: the container and its end, or else what was decided.
fn cause(failure: &Failure) -> String {
    let of_container = failure.pod.as_ref().and_then(|pod| {
        let container = pod.container.as_ref()?;
        let ContainerState::Terminated { code, reason, .. } = &container.state else { return None };
        let end = model::exit::words(*code, reason);
        Some(format!("pod {}, container {} {end} at {}", pod.name, container.name, out::clock(failure.at)))
    });
    of_container.unwrap_or_else(|| failure.words.to_string())
}

/// The log of the container that failed: of its last run in the pod.
fn log_of(data_dir: &Path, key: &JobKey, pod: &FailedPod) -> Option<PathBuf> {
    let container = pod.container.as_ref()?;
    let path =
        |restart| local::log_file(data_dir, &key.namespace, &pod.name, &container.name, pod.incarnation.0, restart);
    (0..=u32::MAX).map(path).take_while(|path| path.exists()).last()
}

/// The last lines of a container's output. A message that does not stand among them comes first.
fn last_output(pod: &FailedPod, log: Option<&Path>) -> Vec<String> {
    let written = log.map(local::last_output).unwrap_or_default();
    let message = pod.container.as_ref().and_then(|container| match &container.state {
        ContainerState::Terminated { message, .. } => message.clone(),
        ContainerState::Waiting { .. } | ContainerState::Running => None,
    });
    let kept = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| screen::tame(line, false)).filter(|line| !line.trim().is_empty());
        lines.map(|line| console::truncate_str(&line, MAX_OUTPUT_WIDTH, "…").into_owned()).collect()
    };
    let written = kept(&written);
    let message = message.as_deref().map(kept).unwrap_or_default();
    let known = message.last().is_none_or(|last| written.iter().any(|line| line.contains(last.as_str())));
    let mut lines = if known { Vec::new() } else { message };
    lines.extend(written);
    let first = lines.len().saturating_sub(MAX_OUTPUT_LINES);
    lines.split_off(first)
}
