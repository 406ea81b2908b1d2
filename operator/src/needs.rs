//! Needs: objects that the specs of jobs are made of besides the jobs' own.
//!
//! Owns the newest version of each such object, and which jobs are made of which. It must not translate. All of it can be dropped
//! when every source is listed again. Tests: `embedded/tests/structures/`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{JobApi, Needed, objects};
use model::{JobKey, Text};
use serde_json::Value;

/// Namespace, kind and name of an object that is needed.
type Name = (Text, Text, Text);

/// Objects that are needed, and the jobs that need them.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Objects of kinds that some job may need.
    objects: BTreeMap<Name, (JobKey, Arc<Value>)>,
    /// Jobs that need each object, which may not exist.
    users: BTreeMap<Name, BTreeSet<JobKey>>,
    /// Objects of the jobs that need others, and what they need.
    jobs: BTreeMap<JobKey, (Arc<Value>, Vec<Name>)>,
    /// Object that each part is a part of.
    wholes: BTreeMap<Name, Name>,
    /// Parts of each object.
    parts: BTreeMap<Name, BTreeSet<Name>>,
}

impl Needs {
    /// Notes an object that a job may need.
    pub(crate) fn found(&mut self, api: &dyn JobApi, key: &JobKey, object: &Arc<Value>) {
        let whole = api.part_of(object).map(|(kind, name)| (key.namespace.clone(), kind, name));
        self.set_whole(name_of(key), whole);
        self.objects.insert(name_of(key), (key.clone(), Arc::clone(object)));
    }

    fn set_whole(&mut self, part: Name, whole: Option<Name>) {
        if let Some(before) = self.wholes.remove(&part)
            && let Some(parts) = self.parts.get_mut(&before)
        {
            parts.remove(&part);
            if parts.is_empty() {
                self.parts.remove(&before);
            }
        }
        if let Some(whole) = whole {
            self.parts.entry(whole.clone()).or_default().insert(part.clone());
            self.wholes.insert(part, whole);
        }
    }

    /// Notes that an object is gone.
    pub(crate) fn gone(&mut self, key: &JobKey) {
        if self.objects.get(&name_of(key)).is_some_and(|(known, _)| known == key) {
            self.objects.remove(&name_of(key));
            self.set_whole(name_of(key), None);
        }
    }

    /// Notes the object of a job and what it needs, and returns what was found of that.
    pub(crate) fn of(&mut self, api: &dyn JobApi, key: &JobKey, object: &Arc<Value>) -> Needed {
        let named = api.needs(object).into_iter().map(|(kind, name)| (key.namespace.clone(), kind, name));
        let parts = self.parts.get(&name_of(key)).into_iter().flatten().cloned();
        let needs: Vec<Name> = named.chain(parts).collect();
        if self.jobs.get(key).is_some_and(|(_, known)| *known != needs) {
            self.forget(key);
        }
        if api.needed_kinds().is_empty() {
            return Needed::new();
        }
        for name in &needs {
            self.users.entry(name.clone()).or_default().insert(key.clone());
        }
        let found = needs.iter().filter_map(|name| {
            let (_, object) = self.objects.get(name)?;
            Some(((name.1.clone(), name.2.clone()), Arc::clone(object)))
        });
        let found = found.collect();
        self.jobs.insert(key.clone(), (Arc::clone(object), needs));
        found
    }

    /// Returns the jobs that need the object of a name, or that it is a part of, with their own objects.
    pub(crate) fn users(&self, key: &JobKey) -> Vec<(JobKey, Arc<Value>)> {
        let name = name_of(key);
        let whole = self.wholes.get(&name).and_then(|whole| self.objects.get(whole)).map(|(whole, _)| whole);
        let users: BTreeSet<&JobKey> = self.users.get(&name).into_iter().flatten().chain(whole).collect();
        users.into_iter().filter_map(|user| Some((user.clone(), Arc::clone(&self.jobs.get(user)?.0)))).collect()
    }

    /// Returns the objects that a job needs and that are being deleted. They wait until no job needs them.
    pub(crate) fn deleting(&self, key: &JobKey) -> Vec<JobKey> {
        let needs = self.jobs.get(key).map_or(&[][..], |(_, needs)| needs);
        let found = needs.iter().filter_map(|name| self.objects.get(name));
        found.filter(|(_, object)| objects::deleting_at(object).is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Forgets a job that needs others.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        let Some((_, needs)) = self.jobs.remove(key) else { return };
        for name in needs {
            let is_left = self.users.get_mut(&name).is_some_and(|users| {
                users.remove(key);
                !users.is_empty()
            });
            if !is_left {
                self.users.remove(&name);
            }
        }
    }
}

/// Returns the versions of needed objects that a spec is made of.
pub(crate) fn versions(api: &dyn JobApi, needed: &Needed) -> Value {
    needed.values().map(|object| api.version_of_needed(object)).collect()
}

fn name_of(key: &JobKey) -> Name {
    (key.namespace.clone(), key.kind.clone(), key.name.clone())
}
