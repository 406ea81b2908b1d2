//! `trainyard wait`: until a job is somewhere.
//!
//! Owns what can be waited for, and when that cannot come any more. It reads a log again and again and changes nothing. Tests:
//! `tests/local/verbs.rs`.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use apis::Registry;
use clap::Args;
use local_run::jobs;
use local_run::records;
use local_run::session::duration;
use model::{JobKey, Phase};
use terminal::out::{self, Failure};

use super::story::LogLocation;

/// Polling interval for a log of this machine.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Polling interval for the log of a live operator.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// State that a job is waited for in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Goal {
    Ended,
    Running,
    Succeeded,
    Failed,
    Deleted,
    /// A phase, in the words of the job's API.
    Phase(String),
}

/// Words for states; a phase is one more.
const GOALS: [&str; 5] = ["ended", "running", "succeeded", "failed", "deleted"];

/// A word that is no state.
#[derive(Debug, thiserror::Error)]
#[error("wait for {}, phase=WORD{near}", GOALS.join(", "))]
pub(crate) struct UnknownGoal {
    /// The word that may be meant, as the end of a message.
    near: String,
}

impl FromStr for Goal {
    type Err = UnknownGoal;

    fn from_str(text: &str) -> Result<Self, UnknownGoal> {
        match text.strip_prefix("phase=").or_else(|| text.strip_prefix("condition=")) {
            Some(word) if !word.is_empty() => return Ok(Self::Phase(word.to_owned())),
            _ => {}
        }
        Ok(match text {
            "ended" => Self::Ended,
            "running" => Self::Running,
            "succeeded" | "success" => Self::Succeeded,
            "failed" | "failure" => Self::Failed,
            "deleted" | "delete" => Self::Deleted,
            _ => {
                return Err(UnknownGoal { near: terminal::near::did_you_mean(text, GOALS.into_iter()) });
            }
        })
    }
}

/// Arguments of `trainyard wait`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 the job is there, 1 it cannot come there any more, 124 time is up.

Examples:
  trainyard wait train                            until it has ended
  trainyard wait train --for=running --timeout=2m
  trainyard wait train --for=phase=Restarting")]
pub(crate) struct WaitArgs {
    /// The job: NAMESPACE/NAME, or NAME in namespace default. May be left out where there is one job.
    job: Option<String>,
    /// ended, running, succeeded, failed, deleted, or phase=WORD in the words of the job's API.
    #[arg(long = "for", value_name = "STATE", default_value = "ended")]
    goal: Goal,
    /// Give up after this time, for example 90s or 2h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<u64>,
    #[command(flatten)]
    location: LogLocation,
}

/// Waits.
pub(crate) fn run(args: &WaitArgs) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let limit = args.timeout.map(Duration::from_millis);
    let mut known: Option<JobKey> = None;
    loop {
        // Asked before the log is read: what the run wrote last is in it then.
        let is_over = args.location.is_over();
        let state = records::latest(&args.location.source())?;
        let wanted = known.as_ref().map(jobs::written).or_else(|| args.job.clone());
        match jobs::find(&state, wanted.as_deref()) {
            Ok(key) => {
                let (name, job) = (jobs::written(&key), state.job(&key));
                let Some(job) = job else { return Ok(ExitCode::from(out::FOUND)) };
                let word = explain::phase_word(&Registry::all(), &key, job.phase);
                if reached(&args.goal, job.phase, word, job.object.is_gone()) {
                    out::line(&format!("{name} {}", if job.object.is_gone() { "deleted" } else { word }));
                    return Ok(ExitCode::SUCCESS);
                }
                let why = if job.object.is_gone() {
                    Some("was deleted".to_owned())
                } else if job.phase.is_terminal() && args.goal != Goal::Deleted {
                    Some(format!("has ended: {word}"))
                } else if is_over {
                    Some(format!("is {word}, and no run is active"))
                } else {
                    None
                };
                if let Some(why) = why {
                    out::warn(&format!("{name} {why}; why: trainyard explain {name}{}", args.location.option()));
                    return Ok(ExitCode::from(out::FOUND));
                }
                known = Some(key);
            }
            // A job that was seen and is not there any more has been forgotten since.
            Err(_) if known.is_some() && args.goal == Goal::Deleted => return Ok(ExitCode::SUCCESS),
            Err(error) if is_over => return Err(error),
            // A job may be submitted later; a name that is needed may not be guessed.
            Err(error) if args.job.is_none() && !jobs::all(&state, true).is_empty() => return Err(error),
            Err(_) => {}
        }
        let interval = if args.location.is_remote() { REMOTE_POLL_INTERVAL } else { POLL_INTERVAL };
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            let name = args.job.as_deref().unwrap_or("the job");
            out::warn(&format!(
                "{name} did not get there in time; where it is: trainyard ps{}",
                args.location.option()
            ));
            return Ok(ExitCode::from(out::TIMEOUT));
        }
        std::thread::sleep(left.map_or(interval, |left| left.min(interval)));
    }
}

fn reached(goal: &Goal, phase: Phase, word: &str, gone: bool) -> bool {
    match goal {
        Goal::Deleted => gone,
        Goal::Ended => phase.is_terminal(),
        Goal::Running => phase == Phase::Running && !gone,
        Goal::Succeeded => phase == Phase::Succeeded,
        Goal::Failed => phase.is_terminal() && phase != Phase::Succeeded,
        Goal::Phase(wanted) => word.eq_ignore_ascii_case(wanted) && !gone,
    }
}
