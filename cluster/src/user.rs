//! Executes what users do with kubectl: apply, patch, scale, delete; and planting objects past every check.
//!
//! These are not calls of the operator, so they are not answered by the rules of [`Cluster::fail`].
//! Tests: `tests/cluster/user.rs`.

use std::sync::Arc;

use apis::{ApiAnswer, Resource};
use model::Text;
use serde_json::{Value, json};

use crate::cluster::{Cluster, address};
use crate::deletion::DeleteOptions;
use crate::error::refusal;
use crate::execute::{Part, Preconditions, Unknown};
use crate::kinds::{KindId, Served};
use crate::merge::{apply_patch, map_mut, object_mut, text};
use crate::store::Key;

impl Cluster {
    /// `kubectl apply`: creates the object, or brings the existing one to what the manifest says; members that an earlier
    /// manifest had and this one has not are removed. Unknown fields are refused, as kubectl's strict validation does. A
    /// `CustomResourceDefinition` is registered.
    ///
    /// # Errors
    /// The error that the API server would answer with.
    pub fn apply(&mut self, manifest: &Value) -> ApiAnswer {
        if text(manifest, &["kind"]) == "CustomResourceDefinition" {
            self.register(manifest).map_err(|e| refusal::bad_request(e.to_string()))?;
            return Ok(Arc::new(manifest.clone()));
        }
        let (served, key) = self.address_of(manifest)?;
        let applied = if self.store.get(&key).is_some() {
            let before = self.applied.get(&key).cloned().unwrap_or_default();
            let mut patch = apply_patch(&before, manifest);
            if served.status && served.kind.id != KindId::NODE {
                map_mut(&mut patch).remove("status");
            }
            self.patch(&served, &key, &patch, Preconditions::default(), Part::Main, Unknown::Refuse)?
        } else {
            self.create(&served, key.clone(), manifest.clone(), Unknown::Refuse)?
        };
        if self.store.get(&key).is_some() {
            self.store.touch(&key);
            self.applied.insert(key, Arc::new(manifest.clone()));
        }
        Ok(applied)
    }

    /// The manifest applied last to an object, as it was written.
    pub fn last_applied(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let served = self.kinds.served(resource)?;
        self.applied.get(&address(&served.kind, namespace, name)).cloned()
    }

    /// Plants an object as it is written, status included: no schema, no checks, no garbage collection for missing owners.
    /// What the server has to set is set where the manifest leaves it out. An existing object is replaced.
    ///
    /// # Errors
    /// When the kind is not served or the manifest names no object.
    pub fn store_unchecked(&mut self, manifest: &Value) -> ApiAnswer {
        let (served, key) = self.address_of(manifest)?;
        let mut object = manifest.clone();
        let old = self.store.get(&key).cloned();
        let kind = Arc::clone(&served.kind);
        if old.is_none() {
            self.enter_namespace(&kind, &key)?;
        }
        let metadata = object_mut(&mut object, "metadata");
        metadata.insert("name".into(), (*key.name).into());
        if kind.namespaced {
            metadata.insert("namespace".into(), (*key.namespace).into());
        }
        if let Some(old) = old {
            for own in ["uid", "creationTimestamp", "generation", "resourceVersion"] {
                match old.get("metadata").and_then(|m| m.get(own)) {
                    Some(value) => metadata.insert(own.to_owned(), value.clone()),
                    None => metadata.remove(own),
                };
            }
            return self.replace(&served, &key, &old, object);
        }
        let uid = text(manifest, &["metadata", "uid"]);
        if self.store.key_of_uid(uid).is_some() {
            return Err(refusal::bad_request(format!("uid {uid} belongs to another object")));
        }
        if uid.is_empty() {
            metadata.insert("uid".into(), self.store.next_uid(&kind.name).into());
        }
        if text(manifest, &["metadata", "creationTimestamp"]).is_empty() {
            metadata.insert("creationTimestamp".into(), self.now.to_rfc3339().into());
        }
        if kind.generation {
            metadata.entry("generation").or_insert_with(|| 1.into());
        }
        if text(manifest, &["status", "phase"]).is_empty()
            && let Some(Value::Object(status)) = self.first_status(kind.id, &object)
        {
            object_mut(&mut object, "status").extend(status);
        }
        Ok(self.commit_new(&kind, &key, object))
    }

    /// `kubectl patch --type merge`, of the object or (with `status`) of its status subresource.
    ///
    /// # Errors
    /// The error that the API server would answer with.
    pub fn merge_patch(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> ApiAnswer {
        let served = self.serve(resource)?;
        let key = address(&served.kind, namespace, name);
        let part = if status { Part::Status } else { Part::Main };
        self.patch(&served, &key, patch, Preconditions::default(), part, Unknown::Drop)
    }

    /// Returns the path of the member that `kubectl scale` sets; `None` for a type without the subresource.
    pub fn scaled_member(&self, resource: &Resource) -> Option<Arc<[Text]>> {
        self.kinds.served(resource)?.replicas.clone()
    }

    /// `kubectl scale`: sets the member that the definition's `specReplicasPath` names.
    ///
    /// # Errors
    /// The error that the API server would answer with.
    pub fn scale(&mut self, resource: &Resource, namespace: &str, name: &str, replicas: i32) -> ApiAnswer {
        let served = self.serve(resource)?;
        let key = address(&served.kind, namespace, name);
        let Some(path) = served.replicas.clone() else {
            return Err(refusal::not_served(&resource.api_version, &format!("{}/scale", served.kind.name)));
        };
        if replicas < 0 {
            let problem = format!("spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0");
            return Err(refusal::invalid(&served.kind, &key.name, &[problem]));
        }
        let patch = path.iter().rev().fold(Value::from(replicas), |inner, member| json!({ &**member: inner }));
        self.patch(&served, &key, &patch, Preconditions::default(), Part::Main, Unknown::Drop)
    }

    /// `kubectl delete`, with its own grace period unless one is given.
    ///
    /// # Errors
    /// The error that the API server would answer with.
    pub fn delete_as_user(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        grace_seconds: Option<u32>,
    ) -> ApiAnswer {
        let served = self.serve(resource)?;
        let key = address(&served.kind, namespace, name);
        self.delete(&served.kind, &key, DeleteOptions { grace_seconds, ..DeleteOptions::default() })
    }

    /// Returns the key of a manifest's object; a namespaced object without a namespace is in `default`.
    fn address_of(&self, manifest: &Value) -> Result<(Served, Key), apis::ApiError> {
        let served = self.serve(&Resource::of(manifest))?;
        let namespace = match text(manifest, &["metadata", "namespace"]) {
            "" => "default",
            named => named,
        };
        let mut key = address(&served.kind, namespace, text(manifest, &["metadata", "name"]));
        if key.name.is_empty() {
            let generate = text(manifest, &["metadata", "generateName"]);
            if generate.is_empty() {
                return Err(refusal::bad_request("resource name may not be empty"));
            }
            key.name = Text::from(format!("{generate}{:05}", self.store.revision.saturating_add(1)));
        }
        Ok((served, key))
    }
}
