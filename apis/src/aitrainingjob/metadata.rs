//! AITrainingJob object -> [`ObjectFact`]: deletion, end requests, the end annotation and the mirror.
//!
//! Owns the rule that decides which job an annotation was meant for. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::fact::EndRequest;
use model::{ObjectFact, Phase, Text};
use serde_json::{Value, json};

use super::constants::phase_word;
use crate::objects::{self, MARKED_FOR, annotation, text_at};

/// Annotations that command an ending, the one that acts first. The second spelling is what the original's manual says.
const MARKS: [(EndRequest, [&str; 2]); 3] = [
    (EndRequest::Preempted, ["Preempted", "preempted"]),
    (EndRequest::Failed, ["Failed", "failed"]),
    (EndRequest::NodeFailed, ["NodeFail", "nodefailed"]),
];

/// Reads a job object's metadata and the stamp of its mirror.
pub(super) fn object_fact(object: &Value) -> ObjectFact {
    let companion = Companion::of(object);
    let fact = objects::object_fact(object);
    let marks = MARKS
        .iter()
        .filter_map(|(request, keys)| {
            let key = keys.iter().find(|key| is_present(object, key) && !companion.covers(key))?;
            Some((*request, Text::from(annotation(object, key).unwrap_or_default())))
        })
        .chain(fact.end_requests)
        .collect::<BTreeMap<_, _>>();
    ObjectFact {
        end_requests: marks,
        end_annotated: companion.uid.is_some_and(|uid| text_at(object, &["metadata", "uid"]) == Some(uid)),
        ..fact
    }
}

/// Renders the patch that writes a job's end annotation, with the companion that ties it to this very job.
pub(super) fn end_annotation_patch(uid: &str, phase: Phase, message: &str) -> Value {
    let key = phase_word(phase);
    json!({"metadata": {"annotations": {key: message, MARKED_FOR: format!("{uid}/{key}")}}})
}

/// Renders the patch that asks for a job's preemption, as a scheduler does.
pub(super) fn preemption(reason: &str) -> Value {
    json!({"metadata": {"annotations": {"Preempted": reason}}})
}

/// Returns the end annotations on a job that are meant for it or for no job in particular, each with its message. The order
/// is that of the original operator.
pub(super) fn endings(object: &Value) -> Vec<(Phase, &str)> {
    let companion = Companion::of(object);
    let own = companion.uid.is_none_or(|uid| text_at(object, &["metadata", "uid"]) == Some(uid));
    [Phase::Succeeded, Phase::Failed, Phase::TimedOut, Phase::Preempted, Phase::NodeFailed]
        .into_iter()
        .filter(|phase| is_present(object, phase_word(*phase)) && (own || !companion.covers(phase_word(*phase))))
        .map(|phase| (phase, annotation(object, phase_word(phase)).unwrap_or_default()))
        .collect()
}

fn is_present(object: &Value, key: &str) -> bool {
    annotation(object, key).is_some()
}

/// The companion annotation: the key of the end annotation that no user wrote, and the job it was written for.
struct Companion<'a> {
    uid: Option<&'a str>,
    key: Option<&'a str>,
}

impl<'a> Companion<'a> {
    fn of(object: &'a Value) -> Self {
        match annotation(object, MARKED_FOR).filter(|text| !text.is_empty()) {
            None => Self { uid: None, key: None },
            Some(text) => match text.split_once('/') {
                Some((uid, key)) => Self { uid: Some(uid), key: Some(key) },
                None => Self { uid: Some(text), key: None },
            },
        }
    }

    /// Returns true if Trainyard wrote the annotation: for this job, or for one that this job is a copy of.
    fn covers(&self, key: &str) -> bool {
        self.uid.is_some() && self.key.is_none_or(|of| of == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(annotations: &Value) -> Value {
        json!({"metadata": {"name": "j", "uid": "u1", "resourceVersion": "8", "annotations": annotations},
            "status": {"phase": "Running", "trainyard": {"term": 3, "position": 14, "phase": "Running"}}})
    }

    #[test]
    fn marks_are_read_in_both_spellings_and_only_when_meant_for_this_job() {
        use EndRequest::{Failed, NodeFailed, Preempted};
        type Row = (&'static str, Value, Vec<(EndRequest, &'static str)>, bool);
        let rows: Vec<Row> = vec![
            ("none", json!({}), vec![], false),
            ("null", json!(null), vec![], false),
            ("empty value", json!({"Preempted": ""}), vec![(Preempted, "")], false),
            (
                "manual's spelling",
                json!({"nodefailed": "x", "failed": "y"}),
                vec![(Failed, "y"), (NodeFailed, "x")],
                false,
            ),
            ("both spellings", json!({"preempted": "low", "Preempted": "high"}), vec![(Preempted, "high")], false),
            (
                "all",
                json!({"Preempted": "p", "Failed": "f", "NodeFail": "n"}),
                vec![(Preempted, "p"), (Failed, "f"), (NodeFailed, "n")],
                false,
            ),
            ("results are no commands", json!({"Succeed": "s", "Timeout": "t"}), vec![], false),
            ("ours", json!({"Failed": "f", "trainyard.dev/marked-for": "u1"}), vec![], true),
            ("ours, by key", json!({"Failed": "f", "trainyard.dev/marked-for": "u1/Failed"}), vec![], true),
            ("copied", json!({"Failed": "f", "trainyard.dev/marked-for": "u0"}), vec![], false),
            (
                "copied, by key, and a new one",
                json!({"Failed": "f", "Preempted": "p", "trainyard.dev/marked-for": "u0/Failed"}),
                vec![(Preempted, "p")],
                false,
            ),
            (
                "companion alone",
                json!({"trainyard.dev/marked-for": "u0/Succeed", "Failed": "f"}),
                vec![(Failed, "f")],
                false,
            ),
        ];
        for (name, annotations, requests, end_annotation) in rows {
            let fact = object_fact(&job(&annotations));
            let want =
                requests.into_iter().map(|(request, text)| (request, Text::from(text))).collect::<BTreeMap<_, _>>();
            assert_eq!((fact.end_requests, fact.end_annotated), (want, end_annotation), "{name}");
        }
    }

    #[test]
    fn deletion_version_and_mirror_are_read() {
        let mut object = job(&json!({}));
        let fact = object_fact(&object);
        assert_eq!((fact.rv.0, fact.deleting, fact.mirror.to_string().as_str()), (8, false, "3/14"));
        object["metadata"]["deletionTimestamp"] = json!("2024-02-29T00:00:00Z");
        object["status"]["trainyard"] = json!("planted");
        let fact = object_fact(&object);
        assert_eq!((fact.deleting, fact.mirror.to_string().as_str()), (true, "0/0"));
    }

    #[test]
    fn the_marker_is_read_back_as_ours_and_commands_no_copy() {
        let patch = end_annotation_patch("u1", Phase::TimedOut, "over");
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({"Timeout": "over", "trainyard.dev/marked-for": "u1/Timeout"})
        );
        let mut object = job(&patch["metadata"]["annotations"]);
        assert!(object_fact(&object).end_annotated);
        assert_eq!(endings(&object), [(Phase::TimedOut, "over")]);
        object["metadata"]["uid"] = json!("u2");
        assert!(!object_fact(&object).end_annotated);
        assert_eq!(endings(&object), []);
    }

    #[test]
    fn endings_of_the_original_come_in_its_order() {
        let object = job(&json!({"NodeFail": "n", "Succeed": "s", "Preempted": "p", "unrelated": "u"}));
        assert_eq!(endings(&object), [(Phase::Succeeded, "s"), (Phase::Preempted, "p"), (Phase::NodeFailed, "n")]);
    }
}
