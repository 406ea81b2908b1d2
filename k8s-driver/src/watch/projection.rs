//! Objects are cut down to what is judged while they are read, so that what is not judged costs a scan and no memory.
//!
//! Values deeper than [`apis::bounds::READ_DEPTH`] levels are read as null: a reader of JSON would refuse the whole answer.
//!
//! Owns the list of paths per kind. What is kept is what `apis::{pod, service, node, objects}` and the `JobApi`s read; a
//! test below runs whole and trimmed objects through both and compares. A path that is missing here reads as absent there,
//! so a reader of more members adds them here.

use std::fmt;

use apis::bounds::READ_DEPTH;
use apis::objects;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Part of a value that is kept.
#[derive(Debug, Clone, Copy)]
pub enum FieldMask {
    /// All of it.
    All,
    /// These members of an object.
    Only(&'static [(&'static str, FieldMask)]),
    /// All members of an object but for these, of which nothing or a part is kept.
    Except(&'static [(&'static str, Option<FieldMask>)]),
    /// A part of each element of a list.
    Each(&'static FieldMask),
}

use FieldMask::{All, Each, Except, Only};

const OWNER: FieldMask = Only(&[("apiVersion", All), ("kind", All), ("name", All), ("uid", All), ("controller", All)]);

/// Metadata kept of every object.
const METADATA: FieldMask = Only(&[
    ("name", All),
    ("namespace", All),
    ("uid", All),
    ("resourceVersion", All),
    ("deletionTimestamp", All),
    ("finalizers", All),
    ("labels", All),
    (
        "annotations",
        Only(&[
            (objects::INCARNATION, All),
            (objects::SHAPE, All),
            (objects::SIZE, All),
            (objects::DIGEST, All),
            (objects::OWNED_BY, All),
            (objects::KEEP, All),
        ]),
    ),
    ("ownerReferences", Each(&OWNER)),
]);

const CONDITION: FieldMask = Only(&[("type", All), ("status", All), ("message", All)]);

const ENDED: FieldMask = Only(&[("exitCode", All), ("reason", All), ("message", All), ("finishedAt", All)]);

const CONTAINER: FieldMask = Only(&[
    ("name", All),
    ("restartCount", All),
    (
        "state",
        Only(&[("running", Only(&[])), ("waiting", Only(&[("reason", All), ("message", All)])), ("terminated", ENDED)]),
    ),
    ("lastState", Only(&[("terminated", ENDED)])),
]);

/// Members kept of a pod.
pub(crate) const POD: FieldMask = Only(&[
    ("metadata", METADATA),
    // Names of containers: which of them count depends on which there are, and whether a kubelet starts them again. What a pod requests
    // counts where its job is gone.
    (
        "spec",
        Only(&[
            ("nodeName", All),
            ("restartPolicy", All),
            ("resources", AMOUNTS),
            ("overhead", All),
            ("containers", Each(&POD_CONTAINER)),
            ("initContainers", Each(&POD_CONTAINER)),
        ]),
    ),
    (
        "status",
        Only(&[
            ("phase", All),
            ("reason", All),
            ("message", All),
            ("startTime", All),
            ("conditions", Each(&CONDITION)),
            ("containerStatuses", Each(&CONTAINER)),
            ("initContainerStatuses", Each(&CONTAINER)),
        ]),
    ),
]);

/// Members kept of a pod of others: its node, and the resources that it requests.
pub(crate) const FOREIGN: FieldMask = Only(&[
    ("metadata", METADATA),
    (
        "spec",
        Only(&[
            ("nodeName", All),
            ("resources", AMOUNTS),
            ("overhead", All),
            ("containers", Each(&POD_CONTAINER)),
            ("initContainers", Each(&POD_CONTAINER)),
        ]),
    ),
    ("status", Only(&[("phase", All)])),
]);

const AMOUNTS: FieldMask = Only(&[("limits", All), ("requests", All)]);

const POD_CONTAINER: FieldMask = Only(&[("name", All), ("restartPolicy", All), ("resources", AMOUNTS)]);

/// Members kept of a service.
pub(crate) const SERVICE: FieldMask = Only(&[("metadata", METADATA)]);

/// Members kept of another object that a job owns. Conditions are whole: a report writes them all.
pub(crate) const OWNED: FieldMask = Only(&[
    ("metadata", METADATA),
    ("spec", Only(&[("active", All), ("nodeLabels", All), ("tolerations", All)])),
    (
        "status",
        Only(&[
            ("phase", All),
            ("message", All),
            ("containerRecreateStates", Each(&Only(&[("name", All), ("phase", All), ("message", All)]))),
            ("conditions", All),
            ("admission", Only(&[("podSetAssignments", Each(&Only(&[("name", All), ("flavors", All)])))])),
            ("admissionChecks", Each(&Only(&[("podSetUpdates", All)]))),
        ]),
    ),
]);

/// Members kept of a node.
pub(crate) const NODE: FieldMask = Only(&[
    ("metadata", Only(&[("name", All), ("uid", All), ("resourceVersion", All), ("labels", All)])),
    ("spec", Only(&[("unschedulable", All), ("taints", All)])),
    ("status", Only(&[("allocatable", All), ("conditions", Each(&Only(&[("type", All), ("status", All)])))])),
]);

/// Members kept of a PriorityClass.
pub(crate) const CLASS: FieldMask = Only(&[
    ("metadata", Only(&[("name", All), ("uid", All), ("resourceVersion", All)])),
    ("value", All),
    ("globalDefault", All),
]);

/// Members kept of a ResourceQuota.
pub(crate) const QUOTA: FieldMask = Only(&[
    ("metadata", Only(&[("name", All), ("namespace", All), ("uid", All), ("resourceVersion", All)])),
    ("spec", Only(&[("hard", All), ("scopes", All), ("scopeSelector", All)])),
    ("status", Only(&[("used", All)])),
]);

/// Members kept of a namespace.
pub(crate) const NAMESPACE: FieldMask =
    Only(&[("metadata", Only(&[("name", All), ("uid", All), ("resourceVersion", All), ("labels", All)]))]);

/// Members kept of a job.
pub(crate) const JOB: FieldMask = WHOLE;

/// A whole object, but for what only other tools read.
pub(crate) const WHOLE: FieldMask = Except(&[(
    "metadata",
    Some(Except(&[
        ("managedFields", None),
        ("annotations", Some(Except(&[("kubectl.kubernetes.io/last-applied-configuration", None)]))),
    ])),
)]);

/// Fields read of the answer to a status write: version and mirror.
pub(crate) const STATUS_ANSWER: FieldMask =
    Only(&[("metadata", Only(&[("resourceVersion", All), ("uid", All)])), ("status", Only(&[(objects::MIRROR, All)]))]);

/// Version alone: what is needed of the answer to a patch.
pub(crate) const VERSION: FieldMask = Only(&[("metadata", Only(&[("resourceVersion", All), ("uid", All)]))]);

impl FieldMask {
    /// Returns the part of a member that is kept; `None` when it is left out.
    fn member(self, name: &str) -> Option<Self> {
        match self {
            All => Some(All),
            Only(members) => members.iter().find(|(key, _)| *key == name).map(|(_, fields)| *fields),
            Except(members) => members.iter().find(|(key, _)| *key == name).map_or(Some(All), |(_, fields)| *fields),
            Each(_) => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldMask {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Part { fields: self, levels: READ_DEPTH }.deserialize(deserializer)
    }
}

/// Reads a part of a value. A value of a type that has no such parts is kept as it is, or as an empty list or object of its
/// type: its readers find nothing, as in the whole.
#[derive(Clone, Copy)]
struct Part {
    fields: FieldMask,
    /// Levels of nesting that may still be read.
    levels: usize,
}

impl Part {
    fn inner(self, fields: FieldMask) -> Self {
        Self { fields, levels: self.levels.saturating_sub(1) }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.levels == 0 {
            // Skipping does not descend, however deep the value is.
            return IgnoredAny::deserialize(deserializer).map(|_| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(member) = access.next_key_seed(Member(self.fields))? {
            match member {
                Some((name, fields)) => {
                    let value = access.next_value_seed(self.inner(fields))?;
                    map.insert(name, value);
                }
                None => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let of_each = match self.fields {
            All => Some(All),
            Each(fields) => Some(*fields),
            Only(_) | Except(_) => None,
        };
        if let Some(fields) = of_each {
            while let Some(value) = access.next_element_seed(self.inner(fields))? {
                list.push(value);
            }
        } else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
}

/// Reads the name of a member, if the member is kept.
struct Member(FieldMask);

impl<'de> DeserializeSeed<'de> for Member {
    type Value = Option<(String, FieldMask)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Member {
    type Value = Option<(String, FieldMask)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.member(name).map(|fields| (name.to_owned(), fields)))
    }
}

#[cfg(test)]
mod tests;
