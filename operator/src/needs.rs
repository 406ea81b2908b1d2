//! Needs: objects that the specs of jobs are made of besides the jobs' own.
//!
//! Owns the newest version of each such object, and which jobs are made of which. It must not translate. All of it can be dropped
//! when every source is listed again. Tests: `embedded/tests/structures/`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{JobApi, Needed, objects};
use model::{JobKey, Text};
use serde_json::{Value, json};

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
}

impl Needs {
    /// Notes an object that a job may need.
    pub(crate) fn found(&mut self, key: &JobKey, object: &Arc<Value>) {
        self.objects.insert(name_of(key), (key.clone(), Arc::clone(object)));
    }

    /// Notes that an object is gone.
    pub(crate) fn gone(&mut self, key: &JobKey) {
        if self.objects.get(&name_of(key)).is_some_and(|(known, _)| known == key) {
            self.objects.remove(&name_of(key));
        }
    }

    /// Notes the object of a job and what it needs, and returns what was found of that.
    pub(crate) fn of(&mut self, api: &dyn JobApi, key: &JobKey, object: &Arc<Value>) -> Needed {
        let needs: Vec<Name> =
            api.needs(object).into_iter().map(|(kind, name)| (key.namespace.clone(), kind, name)).collect();
        if self.jobs.get(key).is_some_and(|(_, known)| *known != needs) {
            self.forget(key);
        }
        if needs.is_empty() {
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

    /// Returns the jobs that need the object of a name, with their own objects.
    pub(crate) fn users(&self, key: &JobKey) -> Vec<(JobKey, Arc<Value>)> {
        let users = self.users.get(&name_of(key)).into_iter().flatten();
        users.filter_map(|user| Some((user.clone(), Arc::clone(&self.jobs.get(user)?.0)))).collect()
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

/// Returns the versions of needed objects that a spec is made of: uid and generation of each.
pub(crate) fn versions(needed: &Needed) -> Value {
    let version = |object: &Arc<Value>| {
        let member = |name| objects::at(object, &["metadata", name]).cloned().unwrap_or_default();
        json!([member("uid"), member("generation")])
    };
    needed.values().map(version).collect()
}

fn name_of(key: &JobKey) -> Name {
    (key.namespace.clone(), key.kind.clone(), key.name.clone())
}
