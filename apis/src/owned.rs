//! Objects that jobs own besides pods and services of slots: the types there may be, and object -> [`OwnedFact`].
//!
//! Owns when an object of a type is ready. What it holds is up to each API. It must not decide whether it is wanted. Tests: at the
//! end of this file.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use model::{FieldError, GateFact, OwnedFact, OwnedRef, Retain, Text};
use serde_json::{Map, Value, json};

use crate::api::{JobApi, RenderInput};
use crate::call::Resource;
use crate::kruise;
use crate::kueue::{self, WORKLOAD};
use crate::objects::{
    DIGEST, KEEP, OWNED_BY, annotation, at, deleting_at, name, owned_by, owner_reference, resource_version, text_at,
    uid,
};

/// A type of object that jobs of an API own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedType {
    /// API version, for example `v1`.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name, as in URLs.
    pub plural: &'static str,
    /// False for a type whose objects have no namespace.
    pub namespaced: bool,
    /// True for a type that a cluster may lack.
    pub optional: bool,
    /// Access to its objects that the operator needs.
    pub access: Access,
    /// Reason for it, for readers of the role. One sentence.
    pub reason: &'static str,
    /// Reason for which the operator writes the status of its objects; `None` where it does not.
    pub reports: Option<&'static str>,
    /// Owner references between its objects and pods.
    pub pods: Pods,
}

/// Owner references between the objects of a type and pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// There are none.
    Unrelated,
    /// Pods name an object as an owner.
    Dependents,
    /// An object names a pod as an owner.
    Owners,
}

/// Access to the objects of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// List, watch, create, patch and delete.
    Managed,
    /// List, watch, create and delete: what was created never changes.
    Immutable,
    /// Get, and create where no object has the name: all are of [`Retain::Left`].
    Left,
    /// Get.
    Read,
}

impl Access {
    /// Returns true if its objects are watched.
    pub fn is_watched(self) -> bool {
        matches!(self, Self::Managed | Self::Immutable)
    }

    /// Returns the verbs that it needs.
    pub fn verbs(self) -> Vec<&'static str> {
        match self {
            Self::Managed => vec!["get", "list", "watch", "create", "patch", "delete"],
            Self::Immutable => vec!["get", "list", "watch", "create", "delete"],
            Self::Left => vec!["get", "create"],
            Self::Read => vec!["get"],
        }
    }
}

impl OwnedType {
    /// Returns the type as calls name it.
    pub fn resource(&self) -> Resource {
        Resource::new(self.api_version, self.kind)
    }

    /// Returns the object of this type and a name.
    pub fn named(&self, name: &str) -> OwnedRef {
        OwnedRef::new(self.api_version, self.kind, name)
    }
}

/// Claims for storage.
pub const CLAIM: OwnedType = OwnedType {
    api_version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    namespaced: true,
    optional: false,
    access: Access::Managed,
    reason: "Volumes of a job are claimed for it, and kept or deleted with it.",
    reports: None,
    pods: Pods::Unrelated,
};

/// Settings that pods read as files or variables.
pub const CONFIG_MAP: OwnedType = OwnedType {
    api_version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    namespaced: true,
    optional: false,
    access: Access::Managed,
    reason: "A TorchrunQueue makes those of its templates, and patches and deletes them.",
    reports: None,
    pods: Pods::Unrelated,
};

/// Services of a whole job. Their type is that of the services of slots.
pub const SERVICE: OwnedType = OwnedType {
    api_version: "v1",
    kind: "Service",
    plural: "services",
    namespaced: true,
    optional: false,
    access: Access::Managed,
    reason: "Services are created, patched and deleted.",
    reports: None,
    pods: Pods::Unrelated,
};

/// Reads the fact about an object that a job owns.
///
/// # Errors
/// Returns an error if the object has no uid.
pub fn fact(object: &Value) -> Result<OwnedFact, FieldError> {
    let Resource { api_version, kind } = Resource::of(object);
    let contents = kueue::is_of_kueue(&api_version).then(|| kueue::contents(&kind, object));
    let State { ready, failed, gate } = state(&api_version, &kind, object);
    Ok(OwnedFact {
        object: OwnedRef { api_version, kind, name: name(object) },
        uid: uid(object)?,
        rv: resource_version(object),
        deleting: deleting_at(object).is_some(),
        keep: match annotation(object, KEEP) {
            Some("retained") => Retain::Retained,
            Some("finalized") => Retain::Finalized,
            Some(_) | None => Retain::WithJob,
        },
        ready,
        failed,
        digest: annotation(object, DIGEST).map(Text::from),
        gate: gate.map(Box::new),
        contents,
    })
}

/// State of an object that pods may wait for.
struct State {
    ready: bool,
    /// Why it never will be ready.
    failed: Option<Text>,
    gate: Option<GateFact>,
}

/// Returns the state of an object. One of a type that has no state here is ready.
fn state(api_version: &str, kind: &str, object: &Value) -> State {
    let resource = Resource::new(api_version, kind);
    if resource == WORKLOAD.resource() {
        let (ready, gate) = kueue::state(object);
        return State { ready, failed: None, gate: Some(gate) };
    }
    if resource == kruise::REQUEST.resource() {
        let (ready, failed) = kruise::state(object);
        return State { ready, failed, gate: None };
    }
    if resource != CLAIM.resource() {
        return State { ready: true, failed: None, gate: None };
    }
    let phase = text_at(object, &["status", "phase"]);
    let failed = (phase == Some("Lost")).then(|| Text::from("its volume is lost"));
    State { ready: phase == Some("Bound"), failed, gate: None }
}

/// Renders an object that a job owns, without what [`complete`] adds.
///
/// # Errors
/// Returns an error if the manifest holds something no such object can be made of.
pub fn render(
    api: &dyn JobApi,
    source: RenderInput<'_>,
    job: &engine::Job,
    object: &OwnedRef,
) -> Result<Value, FieldError> {
    let is_workload = WORKLOAD.resource() == Resource::new(&object.api_version, &object.kind);
    if is_workload {
        return kueue::workload(api, source);
    }
    let owned = api.owned().ok_or_else(|| {
        FieldError::new("kind", object.kind.to_string(), "jobs of this API own no object of this kind")
    })?;
    owned.render_owned(source, job, object)
}

/// Completes the rendering of an object: its type and name, its namespace, its bond to the job, and the digest of its contents.
pub fn complete(
    source: RenderInput<'_>,
    api_version: &str,
    object: &OwnedRef,
    body: Value,
    digest: Option<&str>,
) -> Value {
    let keep =
        source.spec.owned.iter().find(|owned| owned.object == *object).map(|owned| owned.keep).unwrap_or_default();
    let mut body = body;
    let Some(members) = body.as_object_mut() else { return body };
    members.insert("apiVersion".to_owned(), json!(&*object.api_version));
    members.insert("kind".to_owned(), json!(&*object.kind));
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return body };
    metadata.insert("name".to_owned(), json!(&*object.name));
    let mut annotations: Map<String, Value> =
        metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.extend(digest.map(|digest| (DIGEST.to_owned(), json!(digest))));
    let mut belong = |word: &str| {
        annotations.insert(KEEP.to_owned(), json!(word));
        annotations.insert(OWNED_BY.to_owned(), json!(owned_by(source.job)));
    };
    match keep {
        Retain::Retained => belong("retained"),
        Retain::Finalized => belong("finalized"),
        Retain::Left => {}
        Retain::WithJob | Retain::UntilEnd => {
            let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
            let own = owner_reference(api_version, source.job);
            if let Some(owners) = owners.as_array_mut().filter(|owners| !owners.contains(&own)) {
                owners.push(own);
            }
        }
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    body
}

/// Returns an object as it is created: without the members that are null, which a patch takes away.
pub fn created(mut rendered: Value) -> Value {
    fn strip(value: &mut Value) {
        if let Some(members) = value.as_object_mut() {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(strip);
        }
    }
    strip(&mut rendered);
    rendered
}

/// Returns the merge patch that gives an object its present contents: all that was rendered but what a patch cannot change.
pub fn patch(rendered: &Value) -> Value {
    let mut patch = rendered.clone();
    if let Some(members) = patch.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
            metadata.remove("namespace");
        }
        // What was claimed stays as it was claimed, but for its size.
        if at(rendered, &["kind"]).and_then(Value::as_str) == Some(CLAIM.kind) {
            let resources = at(rendered, &["spec", "resources"]).cloned();
            members.insert("spec".to_owned(), json!({"resources": resources}));
        }
    }
    patch
}

/// Returns the digest of what an object is rendered from: FNV-1a in 64 bits (Fowler, Noll, Vo) of its canonical JSON.
pub fn digest(contents: &Value) -> Text {
    let mut hasher = FnvHasher::default();
    hasher.write(model::json::canonical(contents).as_bytes());
    let hash = hasher.finish();
    Text::from(format!("{hash:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "n", "uid": "u",
            "resourceVersion": "7", "annotations": {DIGEST: "d", KEEP: "retained"}}, "status": status})
    }

    #[test]
    fn a_claim_is_ready_when_it_is_bound() {
        for (status, ready, failed) in [
            (json!({"phase": "Bound"}), true, None),
            (json!({"phase": "Pending"}), false, None),
            (json!({}), false, None),
            (json!({"phase": "Lost"}), false, Some("its volume is lost")),
        ] {
            let found = fact(&claim(&status)).unwrap();
            assert_eq!((found.ready, found.failed.as_deref()), (ready, failed), "{status}");
            assert_eq!((found.keep, found.digest.as_deref(), found.rv.0), (Retain::Retained, Some("d"), 7));
            assert_eq!(found.object, CLAIM.named("c"));
        }
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "uid": "u"}});
        assert_eq!(fact(&service).map(|found| (found.ready, found.keep)), Ok((true, Retain::WithJob)));
        assert_eq!(fact(&json!({"metadata": {"name": "s"}})).unwrap_err().path, "metadata.uid");
    }

    #[test]
    fn a_digest_depends_on_contents_and_not_on_the_order_of_members() {
        assert_eq!(digest(&json!({"a": 1, "b": 2})), digest(&json!({"b": 2, "a": 1})));
        assert_ne!(digest(&json!({"a": 1})), digest(&json!({"a": 2})));
    }

    #[test]
    fn a_patch_of_a_claim_changes_its_size_and_metadata_alone() {
        let rendered = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "labels": {"a": "b"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
        let want = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        assert_eq!(patch(&rendered), want);
    }
}
