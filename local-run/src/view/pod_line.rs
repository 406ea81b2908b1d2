//! One pod on the screen of a run: its name, and its state in a few words.
//!
//! Owns the words. When a line is printed, is decided by the screen. Tests: `cli/tests/local/terminal.rs`, `cli/tests/local/closing.rs`.

use std::fmt::Write as _;

use model::last_words::{condensed, error_line};
use model::{ContainerState, JobKey, PodFact, PodPhase};
use terminal::columns::counted;

/// Maximum number of characters of a termination message that are searched for the error.
const MAX_LAST_WORDS: usize = 256;

/// A pod as the screen shows it.
pub(super) struct PodLine {
    /// Namespace and name.
    pub(super) name: String,
    /// Its state in a few words.
    pub(super) words: String,
    /// True if it has succeeded or failed.
    pub(super) has_ended: bool,
}

impl PodLine {
    /// Returns the line of a job's pod.
    pub(super) fn of(job: &JobKey, pod: &PodFact) -> Self {
        let has_ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        Self { name: format!("{}/{}", job.namespace, pod.name), words: pod_words(pod), has_ended }
    }
}

/// Returns a pod's phase, and how its containers ended or why they wait.
fn pod_words(pod: &PodFact) -> String {
    let mut words = pod.phase.name().to_owned();
    for container in &pod.containers {
        let name = &container.name;
        match &container.state {
            ContainerState::Terminated(end) => {
                let _ = write!(words, ", {name} {}", model::exit::words(end.code, &end.reason));
                // The program's own last words follow in the closing lines; of one that never ran there is nothing else.
                if &*end.reason == "StartError" {
                    let _ = write!(words, ": {}", end.message.as_deref().unwrap_or_default());
                }
            }
            ContainerState::Waiting { reason, message } if &**reason != "ContainerCreating" && !reason.is_empty() => {
                let _ = write!(words, ", {name} waits: {reason} {}", message.as_deref().unwrap_or_default());
                if let Some(end) = &container.last {
                    let _ = write!(words, ", its last run {}", model::exit::words(end.code, ""));
                    let said = end.message.as_deref().and_then(|said| condensed(said, MAX_LAST_WORDS));
                    let _ = said.as_deref().and_then(error_line).map_or(Ok(()), |line| write!(words, ": {line}"));
                }
            }
            ContainerState::Waiting { .. } | ContainerState::Running => {}
        }
    }
    if pod.restarts > 0 && pod.phase == PodPhase::Running {
        let _ = write!(words, ", {} in place", counted(pod.restarts as usize, "restart"));
    }
    if pod.deleting.is_some() {
        words.push_str(", being stopped");
    }
    words.trim_end().to_owned()
}
