//! The end of a simulation: each job's timeline, and what became of it.
//!
//! Owns the words only. It must not decide what succeeded. Tests: `cli/tests/local/simulate.rs`.

use apis::Registry;
use embedded::Session;
use model::Phase;
use terminal::out::{self, Failure};

use super::{Progress, closing};

/// Prints each job's timeline and outcome, and of one that did not succeed what failed. Of a job that was deleted when its time to
/// live had passed, `progress` knows the end. Returns whether all of them succeeded.
///
/// # Errors
/// Returns an error if the log cannot be read.
pub fn outcomes(session: &Session, progress: &Progress) -> Result<bool, Failure> {
    let mut all_well = true;
    let mut failures = None;
    let registry = Registry::all();
    let jobs =
        session.operator.state().jobs.iter().filter(|(key, job)| job.object.is_known() && registry.is_job(&key.kind));
    for (key, job) in jobs {
        out::line(&format!("\n{} {key}", key.kind));
        for entry in &job.trail {
            out::line(&format!("  #{:<5} {}  {}", entry.stamp.position.0, out::virtual_clock(entry.at), entry.text));
        }
        let invalid =
            job.invalid().map(|errors| errors.iter().fold(String::new(), |text, e| format!("{text}\n    {e}")));
        let word = explain::end_word(&registry, key, job.phase);
        out::line(&format!("  {word}{}{}", closing::course(&job), invalid.unwrap_or_default()));
        all_well &= job.phase == Phase::Succeeded;
        if job.phase == Phase::Succeeded {
            continue;
        }
        let known = match &mut failures {
            Some(known) => known,
            none => none.insert(closing::failures(session.operator.log())?),
        };
        for line in known.get(key).map(closing::cause_lines).unwrap_or_default() {
            out::line(&format!("  {line}"));
        }
    }
    for (key, phase) in progress.deleted(session.operator.state()) {
        let word = explain::phase_word(&registry, key, phase);
        out::line(&format!("\n{} {key}\n  {word}; the job was deleted when its time to live had passed", key.kind));
        all_well &= phase == Phase::Succeeded;
    }
    Ok(all_well)
}
