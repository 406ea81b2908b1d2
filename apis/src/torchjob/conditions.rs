//! Conditions of a job, by the original's rule for lists of them, and the way back to the milestones they are made of.
//!
//! A condition that comes again moves to the end. `Running` and `Restarting` take each other's place; an end makes `Running` False and
//! leaves its time. Owns types, reasons and order. What is read of a list makes the same list again. Tests: at the end of this file.

use model::fact::Milestone;
use model::{Phase, Text, Timestamp};
use serde_json::Value;

use crate::conditions::{condition, time};
use crate::objects::{list_at, text_at, time_at};

/// Name of the time at which a condition was set last.
pub(super) const UPDATED: &str = "lastUpdateTime";
const TRANSITION: &str = "lastTransitionTime";
const CREATED: &str = "Created";
const ENQUEUED: &str = "JobEnqueued";
const DEQUEUED: &str = "JobDequeued";

/// Spells a phase as the type of a condition; empty for a job nothing was decided for.
pub(super) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Pending | Phase::Creating | Phase::Preparing | Phase::Queued | Phase::Suspended => "Queuing",
        Phase::Running => "Running",
        Phase::Restarting | Phase::Terminating => "Restarting",
        Phase::Succeeded => "Succeeded",
        Phase::Failed | Phase::TimedOut | Phase::Preempted | Phase::NodeFailed => "Failed",
    }
}

/// Returns the reason of the condition of a phase.
const fn reason(phase: Phase) -> &'static str {
    match phase {
        Phase::New => "",
        Phase::Pending | Phase::Preparing | Phase::Suspended => ENQUEUED,
        Phase::Queued | Phase::Creating => DEQUEUED,
        Phase::Running => "JobRunning",
        Phase::Restarting | Phase::Terminating => "JobRestarting",
        Phase::Succeeded => "JobSucceeded",
        Phase::Failed | Phase::TimedOut | Phase::Preempted | Phase::NodeFailed => "JobFailed",
    }
}

/// A condition of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    kind: &'static str,
    reason: &'static str,
    current: bool,
    since: Timestamp,
    updated: Timestamp,
    message: Text,
}

/// Returns the conditions that these milestones lead to.
pub(super) fn render<'a>(milestones: impl IntoIterator<Item = &'a Milestone>) -> Vec<Value> {
    let rendered = |shown: &Shown| {
        let mut condition = condition(shown.kind, shown.current, shown.reason, &shown.message);
        condition.insert(UPDATED.to_owned(), time(shown.updated));
        condition.insert(TRANSITION.to_owned(), time(shown.since));
        Value::Object(condition)
    };
    list(milestones).iter().map(rendered).collect()
}

fn list<'a>(milestones: impl IntoIterator<Item = &'a Milestone>) -> Vec<Shown> {
    let mut list: Vec<Shown> = Vec::new();
    for Milestone { phase, at, message } in milestones.into_iter().filter(|each| each.phase != Phase::New) {
        let shown = |kind, reason, message: &Text| Shown {
            kind,
            reason,
            current: true,
            since: *at,
            updated: *at,
            message: message.clone(),
        };
        if list.is_empty() {
            list.push(shown(CREATED, "JobCreated", &Text::from("the job was seen")));
        }
        let new = shown(phase_word(*phase), reason(*phase), message);
        if let Some(last) = list.last_mut().filter(|last| last.kind == new.kind) {
            if last.reason != new.reason {
                (last.reason, last.updated) = (new.reason, new.updated);
            }
            last.message = new.message;
            continue;
        }
        let is_queued_again = new.kind == phase_word(Phase::Pending);
        let ends_running = is_queued_again || phase.is_terminal();
        list.retain_mut(|old| {
            let is_running = old.kind == phase_word(Phase::Running);
            let is_restarting = old.kind == phase_word(Phase::Restarting);
            old.current &= !(is_running && ends_running);
            let replaced = (is_running && new.kind == phase_word(Phase::Restarting))
                || (is_restarting && (new.kind == phase_word(Phase::Running) || is_queued_again));
            old.kind != new.kind && !replaced
        });
        list.push(new);
    }
    list
}

/// Reads milestones back from the conditions of an object: those that make the same list.
pub(super) fn milestones(object: &Value) -> Vec<Milestone> {
    let mut milestones: Vec<Milestone> = Vec::new();
    let mut created = None;
    for condition in list_at(object, &["status", "conditions"]) {
        let since = time_at(condition, &[TRANSITION]).unwrap_or_default();
        let updated = time_at(condition, &[UPDATED]).unwrap_or(since);
        let message = Text::from(text_at(condition, &["message"]).unwrap_or_default());
        let mut add = |phase, at, message| milestones.push(Milestone { phase, at, message });
        match text_at(condition, &["type"]) {
            Some(CREATED) => created = Some(since),
            Some("Queuing") if text_at(condition, &["reason"]) == Some(DEQUEUED) => {
                if since != updated {
                    add(Phase::Pending, since, Text::from(""));
                }
                add(Phase::Queued, updated, message);
            }
            Some("Queuing") => {
                if since != updated {
                    add(Phase::Queued, since, Text::from(""));
                }
                add(Phase::Pending, updated, message);
            }
            Some("Running") => add(Phase::Running, since, message),
            Some("Restarting") => add(Phase::Restarting, since, message),
            Some("Succeeded") => add(Phase::Succeeded, since, message),
            Some("Failed") => add(Phase::Failed, since, message),
            Some(_) | None => {}
        }
    }
    // What the job was in first comes again later in the list.
    if let Some((created, first)) = created.zip(milestones.first())
        && created != first.at
    {
        let (first, at) = (first.phase, first.at);
        if phase_word(first) == phase_word(Phase::Pending) {
            // Between two times in the queue it was restarting, which the second one took off the list.
            milestones.insert(0, Milestone { phase: Phase::Restarting, at, message: Text::from("") });
        }
        milestones.insert(0, Milestone { phase: Phase::Pending, at: created, message: Text::from("") });
    }
    milestones
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn in_object(conditions: &[Value]) -> Value {
        json!({"status": {"conditions": conditions}})
    }

    fn at(n: usize) -> Timestamp {
        Timestamp(u64::try_from(n).unwrap().saturating_mul(1000))
    }

    fn walk(phases: &[Phase]) -> Vec<Milestone> {
        let of = |(n, phase): (usize, &Phase)| Milestone { phase: *phase, at: at(n), message: format!("m{n}").into() };
        phases.iter().enumerate().map(of).collect()
    }

    fn short(phases: &[Phase]) -> Vec<String> {
        let shown = list(&walk(phases));
        shown.iter().map(|c| format!("{}/{}={}@{}", c.kind, c.reason, c.current, c.since.0 / 1000)).collect()
    }

    #[test]
    fn the_newest_condition_is_last_and_running_and_restarting_take_turns() {
        use Phase::{Failed, Pending, Queued, Restarting, Running, Succeeded};
        let start = ["Created/JobCreated=true@0", "Queuing/JobDequeued=true@0"];
        for (phases, want) in [
            (vec![], vec![]),
            (vec![Failed], vec!["Created/JobCreated=true@0", "Failed/JobFailed=true@0"]),
            (vec![Pending], vec!["Created/JobCreated=true@0", "Queuing/JobEnqueued=true@0"]),
            (vec![Pending, Queued], start.to_vec()),
            (vec![Pending, Queued, Running], [&start[..], &["Running/JobRunning=true@2"]].concat()),
            (vec![Pending, Queued, Running, Restarting], [&start[..], &["Restarting/JobRestarting=true@3"]].concat()),
            (
                vec![Pending, Queued, Running, Restarting, Running, Succeeded],
                [&start[..], &["Running/JobRunning=false@4", "Succeeded/JobSucceeded=true@5"]].concat(),
            ),
            (
                vec![Pending, Queued, Restarting, Failed],
                [&start[..], &["Restarting/JobRestarting=true@2", "Failed/JobFailed=true@3"]].concat(),
            ),
            (
                vec![Pending, Queued, Running, Pending, Queued],
                vec!["Created/JobCreated=true@0", "Running/JobRunning=false@2", "Queuing/JobDequeued=true@3"],
            ),
        ] {
            assert_eq!(short(&phases), want, "{phases:?}");
        }
    }

    #[test]
    fn a_list_that_is_read_back_goes_on_as_if_its_milestones_were_known() {
        let phases = [Phase::Pending, Phase::Queued, Phase::Running, Phase::Restarting, Phase::Failed];
        let mut walks = vec![vec![Phase::Pending], vec![Phase::Queued], vec![Phase::Failed]];
        for length in 1..6 {
            let longer: Vec<Vec<Phase>> = walks.iter().filter(|walk| walk.len() == length).cloned().collect();
            for before in longer.iter().filter(|walk| walk.last() != Some(&Phase::Failed)) {
                walks.extend(phases.iter().map(|phase| before.iter().copied().chain([*phase]).collect()));
            }
        }
        for phases in walks {
            let whole = walk(&phases);
            for cut in 0..=whole.len() {
                let mut read = milestones(&in_object(&render(&whole[..cut])));
                assert_eq!(render(&read), render(&whole[..cut]), "{phases:?}, read after {cut}");
                read.extend_from_slice(&whole[cut..]);
                assert_eq!(render(&read), render(&whole), "{phases:?}, read after {cut}");
            }
        }
    }
}
