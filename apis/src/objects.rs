//! Reads metadata, which every Kubernetes object carries, without a schema.
//!
//! Owns the names of our own annotations. It must not know what any kind of object means, nor which APIs are served. Tests: at the end of this file.

use model::fact::EndRequest;
use model::{
    FieldError, Incarnation, JobKey, Mirror, ObjectFact, ResourceVersion, SlotId, Stamp, Text, Timestamp, Uid,
};
use serde_json::{Map, Value, json};

/// Annotation on a pod: which creation decision of its slot it came from.
pub const INCARNATION: &str = "trainyard.dev/incarnation";
/// Annotation: shape of a pod, that is what of the number of replicas is written into it.
pub const SHAPE: &str = "trainyard.dev/shape";
/// Annotation of pods: number of pods that they were started with, where that can change while they run.
pub const SIZE: &str = "trainyard.dev/size";

/// Annotation on an object that a job owns: digest of the contents it was last given.
pub const DIGEST: &str = "trainyard.dev/digest";
/// Annotation on an object that cannot have its job as an owner, or outlives it: kind, name and uid of the job, and its namespace
/// before them, with slashes between.
pub const OWNED_BY: &str = "trainyard.dev/owned-by";
/// Annotation beside [`OWNED_BY`]: time for which the object is kept, `retained` or `finalized`.
pub const KEEP: &str = "trainyard.dev/keep";

/// Annotation on a job beside an end annotation that we wrote: the uid of the job it was meant for, a slash, and the
/// key of that annotation. A copy of the job has another uid, so the copied annotation commands nothing. A bare uid speaks
/// for every key.
pub const MARKED_FOR: &str = "trainyard.dev/marked-for";

/// Member of a job's status that holds the mirror.
pub const MIRROR: &str = "trainyard";
/// Annotation that holds the mirror of a job whose status another controller writes.
pub const STATE: &str = "trainyard.dev/state";

/// Returns the value at a path of member names.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Returns the text at a path of member names.
pub fn text_at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(object, path).and_then(Value::as_str)
}

/// Returns the list at a path of member names; empty when it is absent, null or no list.
pub fn list_at<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the time at a path of member names.
pub fn time_at(object: &Value, path: &[&str]) -> Option<Timestamp> {
    text_at(object, path).and_then(Timestamp::parse_rfc3339)
}

/// Returns the object's name; empty when it has none.
pub fn name(object: &Value) -> Text {
    Text::from(text_at(object, &["metadata", "name"]).unwrap_or_default())
}

/// Returns the object's namespace; empty when it has none.
pub fn namespace(object: &Value) -> Text {
    Text::from(text_at(object, &["metadata", "namespace"]).unwrap_or_default())
}

/// Returns the object's uid.
///
/// # Errors
/// Returns an error if it has none: such an object cannot be distinguished from the next one of its name.
pub fn uid(object: &Value) -> Result<Uid, FieldError> {
    match text_at(object, &["metadata", "uid"]) {
        Some(uid) if !uid.is_empty() => Ok(Uid::from(uid)),
        Some(_) | None => Err(FieldError::new(
            "metadata.uid",
            at(object, &["metadata", "uid"]).map_or_else(|| "missing".to_owned(), Value::to_string),
            "every object of an API server has a uid",
        )),
    }
}

/// Returns the object's resourceVersion; 0, which is before any other, when it has none that is a number.
pub fn resource_version(object: &Value) -> ResourceVersion {
    ResourceVersion(
        text_at(object, &["metadata", "resourceVersion"]).and_then(|rv| rv.parse().ok()).unwrap_or_default(),
    )
}

/// Returns the time at which a deleted object's grace period ends. A time that cannot be read counts as long past.
pub fn deleting_at(object: &Value) -> Option<Timestamp> {
    let value = at(object, &["metadata", "deletionTimestamp"]).filter(|value| !value.is_null())?;
    Some(value.as_str().and_then(Timestamp::parse_rfc3339).unwrap_or_default())
}

/// Returns a label of the object.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    text_at(object, &["metadata", "labels", key])
}

/// Returns the names of a pod's containers, those of sidecars among them.
pub(crate) fn container_names(pod: &Value) -> impl Iterator<Item = &str> {
    list_at(pod, &["spec", "containers"]).iter().filter_map(|container| text_at(container, &["name"]))
}

/// Returns the slot that two labels of an object name: the group, and the index in digits.
pub fn labelled_slot(object: &Value, group: &str, index: &str) -> Option<SlotId> {
    let group = label(object, group).filter(|group| !group.is_empty())?;
    let index = label(object, index).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    Some(SlotId { group: Text::from(group), index: index.parse().ok()? })
}

/// Returns an annotation of the object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    text_at(object, &["metadata", "annotations", key])
}

/// Returns the incarnation written on a pod; 0, which is before any decision of ours, when there is none.
pub fn incarnation(object: &Value) -> Incarnation {
    Incarnation(annotation(object, INCARNATION).and_then(|n| n.parse().ok()).unwrap_or_default())
}

/// Annotation by which a user stops a job of any API, with the reason for its value.
pub const STOP: &str = "trainyard.dev/stop";

/// Reads a job object's metadata, mirror and progress, but for an API's own annotations that end it, and finalizers.
pub fn object_fact(object: &Value) -> ObjectFact {
    ObjectFact {
        rv: resource_version(object),
        deleting: deleting_at(object).is_some(),
        end_requests: annotation(object, STOP).map(|why| (EndRequest::Stopped, Text::from(why))).into_iter().collect(),
        end_annotated: true,
        mirror: mirror_stamp(object),
        finalizers: Vec::new(),
        finalized: false,
        reported_end: None,
        progress: crate::progress::read(object).map(Box::new),
    }
}

/// Reads the same of an object on which its API puts a finalizer.
pub fn finalized_object_fact(object: &Value, finalizer: &str) -> ObjectFact {
    let finalizers: Vec<Text> =
        list_at(object, &["metadata", "finalizers"]).iter().filter_map(Value::as_str).map(Text::from).collect();
    let finalized = finalizers.iter().any(|name| &**name == finalizer);
    ObjectFact { finalizers, finalized, ..object_fact(object) }
}

/// Returns the mirror in an object's status.
pub fn mirror(object: &Value) -> Option<Mirror> {
    engine::wire::mirror_from_value(at(object, &["status", MIRROR])?)
}

/// Returns the stamp of the mirror in the object's status; zero when there is none.
pub fn mirror_stamp(object: &Value) -> Stamp {
    at(object, &["status", MIRROR]).and_then(|mirror| serde_json::from_value(mirror.clone()).ok()).unwrap_or_default()
}

/// Returns the mirror in an annotation of the object, as JSON. Every client with the right to edit the object can write it, so it is
/// read for those types alone whose status another controller writes.
pub fn annotated_mirror(object: &Value) -> Option<Value> {
    serde_json::from_str(annotation(object, STATE)?).ok()
}

/// Returns the word of an object's `status` for where the job stands: its phase, or else the type of the last condition that is
/// True. `None` for a status that names neither.
pub fn state_word(status: &Value) -> Option<&str> {
    let is_true = |condition: &&Value| text_at(condition, &["status"]) == Some("True");
    let condition = || list_at(status, &["conditions"]).iter().rfind(is_true);
    text_at(status, &["phase"]).or_else(|| text_at(condition()?, &["type"])).filter(|word| !word.is_empty())
}

/// Returns the value of [`OWNED_BY`] that makes an object belong to a job.
pub fn owned_by(job: &JobKey) -> String {
    format!("{}/{}/{}/{}", job.namespace, job.kind, job.name, job.uid)
}

/// Returns the job that [`OWNED_BY`] names; `None` when it names none.
pub fn annotated_owner(object: &Value) -> Option<JobKey> {
    let mut parts = annotation(object, OWNED_BY)?.split('/').map(Text::from);
    let (namespace, kind, name, uid) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(JobKey { namespace, name, kind, uid: Uid(uid) })
}

/// Returns the owner reference that makes an object belong to a job.
pub fn owner_reference(api_version: &str, job: &JobKey) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": &*job.kind,
        "name": &*job.name,
        "uid": &*job.uid.0,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns the members of a map of text that are text: labels and annotations.
pub fn text_members(value: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    value
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_its_state_by_a_phase_or_by_its_last_true_condition() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let conditions = |all: &[Value]| json!({"conditions": all});
        for (status, word) in [
            (json!({"phase": "Running", "conditions": [condition("Failed", "True")]}), Some("Running")),
            (conditions(&[condition("Created", "True"), condition("Running", "True")]), Some("Running")),
            (conditions(&[condition("Running", "False"), condition("Failed", "True")]), Some("Failed")),
            (conditions(&[condition("Created", "True"), condition("Running", "False")]), Some("Created")),
            (conditions(&[]), None),
            (json!({"phase": ""}), None),
            (Value::Null, None),
        ] {
            assert_eq!(state_word(&status), word, "{status}");
        }
    }

    #[test]
    fn missing_or_odd_metadata_reads_as_nothing() {
        for object in [json!(null), json!([]), json!({"metadata": 3}), json!({"metadata": {"resourceVersion": "x"}})] {
            assert_eq!(resource_version(&object), ResourceVersion(0), "{object}");
            assert_eq!(deleting_at(&object), None);
            assert_eq!(incarnation(&object), Incarnation(0));
            assert_eq!(mirror_stamp(&object), Stamp::default());
            assert_eq!(&*name(&object), "");
        }
        let object = json!({"metadata": {"resourceVersion": "12", "deletionTimestamp": "2024-02-29T00:00:00Z",
            "annotations": {"trainyard.dev/incarnation": "3"}}, "status": {"trainyard": {"term": 4, "position": 5}}});
        assert_eq!(resource_version(&object), ResourceVersion(12));
        assert_eq!(deleting_at(&object), Some(Timestamp(1_709_164_800_000)));
        assert_eq!(incarnation(&object), Incarnation(3));
        assert_eq!(mirror_stamp(&object).to_string(), "4/5");
        assert_eq!(deleting_at(&json!({"metadata": {"deletionTimestamp": 1}})), Some(Timestamp(0)));
    }
}
