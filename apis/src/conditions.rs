//! Conditions of a job's status, as every API writes them, and lists of conditions made of milestones.
//!
//! Owns the step from milestones to a list and back: what is read of a list makes the same list again, and continues from there as
//! if the milestones had been known. It must not decide what a job's phase is. Tests: at the end of this file.

use model::fact::Milestone;
use model::{Phase, Text, Timestamp};
use serde_json::{Map, Value, json};

use crate::objects::{list_at, text_at, time_at};
use crate::remarks::Remark;

const TRANSITION: &str = "lastTransitionTime";

/// Effect on an older condition of another one that becomes True.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It stays as it is.
    Stays,
    /// It becomes False.
    False,
    /// It is taken off the list.
    Dropped,
}

/// Rules of an API whose status has one condition for each phase the job was in, the present one last.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Spells a phase as a type of condition. Several phases may share a word.
    pub word: fn(Phase) -> &'static str,
    /// Returns a phase of a type.
    pub phase_of: fn(&str) -> Option<Phase>,
    /// Returns the effect of the first phase's condition on that of the second.
    pub effect: fn(Phase, Phase) -> Effect,
    /// Two phases whose conditions make others False and are dropped by all others.
    pub interrupted: [Phase; 2],
    /// Name of the time beside `lastTransitionTime`.
    pub updated: &'static str,
}

/// A condition of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its phase: of those that share its word, the one that is read of it.
    pub phase: Phase,
    /// Set if it is True.
    pub current: bool,
    /// Time at which it became so.
    pub at: Timestamp,
    /// Message of its milestone.
    pub message: Text,
}

impl Rules {
    /// Returns the list of conditions that these milestones lead to.
    pub fn list<'a>(&self, milestones: impl IntoIterator<Item = &'a Milestone>) -> Vec<Shown> {
        let mut list: Vec<Shown> = Vec::new();
        for Milestone { phase, at, message } in milestones {
            let Some(phase) = (self.phase_of)((self.word)(*phase)) else { continue };
            if let Some(last) = list.last_mut().filter(|last| last.phase == phase) {
                last.message = message.clone();
                continue;
            }
            list.retain_mut(|old| match (self.effect)(phase, old.phase) {
                _ if old.phase == phase => false,
                Effect::Dropped => false,
                Effect::Stays => true,
                Effect::False => {
                    if old.current {
                        (old.current, old.at) = (false, *at);
                    }
                    true
                }
            });
            list.push(Shown { phase, current: true, at: *at, message: message.clone() });
        }
        list
    }

    /// Reads milestones back from the conditions of an object: those that make the same list.
    pub fn milestones(&self, object: &Value) -> Vec<Milestone> {
        let conditions = list_at(object, &["status", "conditions"]).iter().filter_map(|condition| {
            let phase = (self.phase_of)(text_at(condition, &["type"])?)?;
            let at = time_at(condition, &[TRANSITION]).unwrap_or_default();
            let message = Text::from(text_at(condition, &["message"]).unwrap_or_default());
            Some((Milestone { phase, at, message }, text_at(condition, &["status"]) == Some("True")))
        });
        let mut milestones: Vec<Milestone> = Vec::new();
        // Since when the condition before is False, if it is.
        let mut ended = None;
        for (milestone, current) in conditions {
            if let Some(at) = ended.filter(|at| *at != milestone.at) {
                // Two milestones of one phase in a row would be one condition.
                let phase = self.interrupted.into_iter().find(|phase| *phase != milestone.phase);
                milestones.extend(phase.map(|phase| Milestone { phase, at, message: Text::from("") }));
            }
            ended = (!current).then_some(milestone.at);
            milestones.push(milestone);
        }
        milestones
    }

    /// Renders a condition of a list.
    pub fn render(&self, shown: &Shown, reason: &str) -> Value {
        let mut condition = condition((self.word)(shown.phase), shown.current, reason, &shown.message);
        for name in [self.updated, TRANSITION] {
            condition.insert(name.to_owned(), time(shown.at));
        }
        Value::Object(condition)
    }
}

/// Renders a condition without times. A message is left out where there is none.
pub fn condition(kind: &str, current: bool, reason: &str, message: &str) -> Map<String, Value> {
    let mut condition = Map::new();
    condition.insert("type".to_owned(), json!(kind));
    condition.insert("status".to_owned(), json!(if current { "True" } else { "False" }));
    condition.insert("reason".to_owned(), json!(reason));
    if !message.is_empty() {
        condition.insert("message".to_owned(), json!(message));
    }
    condition
}

/// Renders a remark as a condition. Its reason is the type after the API's own prefix.
pub fn of_remark(remark: &Remark, prefix: &str) -> Value {
    Value::Object(condition(remark.kind, true, &format!("{prefix}{}", remark.kind), &remark.message))
}

/// Name of the generation of the spec that a condition is about.
const OBSERVED: &str = "observedGeneration";

/// Adds to each condition of a status the generation of the spec that it is about.
pub fn observe_generation(status: &mut Value, generation: i64) {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.insert(OBSERVED.to_owned(), generation.into());
    }
}

/// Renders a time.
pub fn time(at: Timestamp) -> Value {
    Value::from(at.to_rfc3339())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn word(phase: Phase) -> &'static str {
        match phase {
            Phase::Pending => "Created",
            Phase::Running => "Running",
            Phase::Restarting | Phase::Terminating => "Restarting",
            Phase::Suspended => "Suspended",
            Phase::Failed | Phase::TimedOut => "Failed",
            _ => "",
        }
    }

    fn phase_of(text: &str) -> Option<Phase> {
        let phases = [Phase::Pending, Phase::Running, Phase::Restarting, Phase::Suspended, Phase::Failed];
        phases.into_iter().find(|phase| word(*phase) == text)
    }

    const fn effect(new: Phase, old: Phase) -> Effect {
        match (new, old) {
            (_, Phase::Restarting | Phase::Suspended) => Effect::Dropped,
            (Phase::Running, _) | (_, Phase::Pending) => Effect::Stays,
            _ => Effect::False,
        }
    }

    const RULES: Rules =
        Rules { word, phase_of, effect, interrupted: [Phase::Restarting, Phase::Suspended], updated: "lastUpdateTime" };

    fn milestones(phases: &[Phase]) -> Vec<Milestone> {
        let at = |n: usize| Timestamp(u64::try_from(n).unwrap().saturating_mul(1500));
        let of = |(n, phase): (usize, &Phase)| Milestone { phase: *phase, at: at(n), message: format!("m{n}").into() };
        phases.iter().enumerate().map(of).collect()
    }

    fn object(milestones: &[Milestone]) -> Value {
        let rendered: Vec<Value> = RULES.list(milestones).iter().map(|shown| RULES.render(shown, "R")).collect();
        json!({"status": {"conditions": rendered}})
    }

    fn short(phases: &[Phase]) -> Vec<String> {
        let list = RULES.list(&milestones(phases));
        list.iter().map(|c| format!("{}={}@{}", word(c.phase), c.current, c.at.0)).collect()
    }

    #[test]
    fn the_newest_condition_is_last_and_the_only_true_one_but_for_created() {
        use Phase::{Failed, Pending, Restarting, Running, Suspended, Terminating};
        for (phases, want) in [
            (vec![], vec![]),
            (vec![Pending, Running], vec!["Created=true@0", "Running=true@1500"]),
            (vec![Pending, Running, Restarting], vec!["Created=true@0", "Running=false@3000", "Restarting=true@3000"]),
            (vec![Pending, Running, Terminating, Restarting, Running], vec!["Created=true@0", "Running=true@6000"]),
            (vec![Running, Restarting, Failed], vec!["Running=false@1500", "Failed=true@3000"]),
            (vec![Pending, Running, Suspended], vec!["Created=true@0", "Running=false@3000", "Suspended=true@3000"]),
            (vec![Pending, Running, Suspended, Pending], vec!["Running=false@3000", "Created=true@4500"]),
        ] {
            assert_eq!(short(&phases), want, "{phases:?}");
        }
    }

    #[test]
    fn a_list_that_is_read_back_goes_on_as_if_its_milestones_were_known() {
        let phases =
            [Phase::Pending, Phase::Running, Phase::Restarting, Phase::Terminating, Phase::Suspended, Phase::TimedOut];
        let mut walks = vec![Vec::new()];
        for length in 0..5 {
            let longer: Vec<Vec<Phase>> = walks.iter().filter(|walk| walk.len() == length).cloned().collect();
            for walk in longer {
                walks.extend(phases.iter().map(|phase| walk.iter().copied().chain([*phase]).collect()));
            }
        }
        for walk in walks {
            let whole = milestones(&walk);
            for cut in 0..=whole.len() {
                let mut read = RULES.milestones(&object(&whole[..cut]));
                assert_eq!(object(&read), object(&whole[..cut]), "{walk:?}, read after {cut}");
                read.extend_from_slice(&whole[cut..]);
                assert_eq!(object(&read), object(&whole), "{walk:?}, read after {cut}");
            }
        }
    }

    #[test]
    fn every_condition_has_the_generation_that_it_is_about() {
        let mut status = json!({"conditions": [{"type": "Invalid"}, {"type": "Running"}], "phase": "Running"});
        observe_generation(&mut status, 3);
        let want = json!([{"type": "Invalid", "observedGeneration": 3}, {"type": "Running", "observedGeneration": 3}]);
        assert_eq!(status, json!({"conditions": want, "phase": "Running"}));
        let mut none = json!({"conditions": null});
        observe_generation(&mut none, 3);
        assert_eq!(none, json!({"conditions": null}));
    }

    #[test]
    fn what_is_no_phase_is_no_milestone() {
        let conditions = json!([{"type": "Invalid", "status": "True"}, {"type": "Novel"}, 7, {"type": "Running", "status": "True",
            "lastTransitionTime": "2024-02-29T00:00:00Z", "message": "m"}, {"type": "Failed", "status": "True"}]);
        let read = RULES.milestones(&json!({"status": {"conditions": conditions}}));
        let want = [(Phase::Running, 1_709_164_800_000, "m"), (Phase::Failed, 0, "")];
        assert_eq!(read.iter().map(|m| (m.phase, m.at.0, &*m.message)).collect::<Vec<_>>(), want);
        assert!(RULES.milestones(&json!({"status": null})).is_empty());
    }
}
