//! References: objects that the specs of jobs consist of besides the jobs' own.
//!
//! Owns the newest version of each such object, and which jobs reference it. It must not translate. All of it can be dropped when every
//! source is listed again. Tests: `embedded/tests/structures/`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{JobApi, Referenced, objects};
use model::{JobKey, Text};
use serde_json::Value;

/// Namespace, kind and name of a referenced object.
type Name = (Text, Text, Text);

/// Referenced objects, and the jobs that reference them.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// Objects of kinds that some job may reference.
    objects: BTreeMap<Name, (JobKey, Arc<Value>)>,
    /// Jobs that reference each object, which may not exist.
    referrers: BTreeMap<Name, BTreeSet<JobKey>>,
    /// Objects of the jobs that reference others, and what they reference.
    jobs: BTreeMap<JobKey, (Arc<Value>, Vec<Name>)>,
    /// Object that each part is a part of: its owner.
    owners: BTreeMap<Name, Name>,
    /// Parts of each object.
    parts: BTreeMap<Name, BTreeSet<Name>>,
}

impl References {
    /// Records an object that a job may reference.
    pub(crate) fn found(&mut self, api: &dyn JobApi, key: &JobKey, object: &Arc<Value>) {
        let owner = api
            .references()
            .and_then(|references| references.owner(object))
            .map(|(kind, name)| (key.namespace.clone(), kind, name));
        self.set_owner(name_of(key), owner);
        self.objects.insert(name_of(key), (key.clone(), Arc::clone(object)));
    }

    fn set_owner(&mut self, part: Name, owner: Option<Name>) {
        if let Some(before) = self.owners.remove(&part)
            && let Some(parts) = self.parts.get_mut(&before)
        {
            parts.remove(&part);
            if parts.is_empty() {
                self.parts.remove(&before);
            }
        }
        if let Some(owner) = owner {
            self.parts.entry(owner.clone()).or_default().insert(part.clone());
            self.owners.insert(part, owner);
        }
    }

    /// Records that an object is gone.
    pub(crate) fn gone(&mut self, key: &JobKey) {
        if self.objects.get(&name_of(key)).is_some_and(|(known, _)| known == key) {
            self.objects.remove(&name_of(key));
            self.set_owner(name_of(key), None);
        }
    }

    /// Records the object of a job and what it references, and returns what was found of that.
    pub(crate) fn of(&mut self, api: &dyn JobApi, key: &JobKey, object: &Arc<Value>) -> Referenced {
        let Some(references) = api.references() else {
            return Referenced::new();
        };
        let named = references.referenced(object).into_iter().map(|(kind, name)| (key.namespace.clone(), kind, name));
        let parts = self.parts.get(&name_of(key)).into_iter().flatten().cloned();
        let names: Vec<Name> = named.chain(parts).collect();
        if self.jobs.get(key).is_some_and(|(_, known)| *known != names) {
            self.forget(key);
        }
        for name in &names {
            self.referrers.entry(name.clone()).or_default().insert(key.clone());
        }
        let found = names.iter().filter_map(|name| {
            let (_, object) = self.objects.get(name)?;
            Some(((name.1.clone(), name.2.clone()), Arc::clone(object)))
        });
        let found = found.collect();
        self.jobs.insert(key.clone(), (Arc::clone(object), names));
        found
    }

    /// Returns the jobs that reference the object of a name, and its owner, with their own objects.
    pub(crate) fn referrers(&self, key: &JobKey) -> Vec<(JobKey, Arc<Value>)> {
        let name = name_of(key);
        let owner = self.owners.get(&name).and_then(|owner| self.objects.get(owner)).map(|(owner, _)| owner);
        let referrers: BTreeSet<&JobKey> = self.referrers.get(&name).into_iter().flatten().chain(owner).collect();
        referrers
            .into_iter()
            .filter_map(|referrer| Some((referrer.clone(), Arc::clone(&self.jobs.get(referrer)?.0))))
            .collect()
    }

    /// Returns the objects that a job references and that are being deleted. They wait until no job references them.
    pub(crate) fn deleting(&self, key: &JobKey) -> Vec<JobKey> {
        let names = self.jobs.get(key).map_or(&[][..], |(_, names)| names);
        let found = names.iter().filter_map(|name| self.objects.get(name));
        found.filter(|(_, object)| objects::deleting_at(object).is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Forgets a job that references others.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        let Some((_, names)) = self.jobs.remove(key) else { return };
        for name in names {
            let is_left = self.referrers.get_mut(&name).is_some_and(|referrers| {
                referrers.remove(key);
                !referrers.is_empty()
            });
            if !is_left {
                self.referrers.remove(&name);
            }
        }
    }
}

/// Returns the versions of the objects that a spec references.
pub(crate) fn versions(api: &dyn JobApi, referenced: &Referenced) -> Value {
    let Some(references) = api.references() else { return Value::Null };
    referenced.values().map(|object| references.version_of(object)).collect()
}

fn name_of(key: &JobKey) -> Name {
    (key.namespace.clone(), key.kind.clone(), key.name.clone())
}
