//! Places of pods among their peers: what PyTorch's `RANK` and `WORLD_SIZE` are in a local run.
//!
//! Owns which pods of a job are peers: those of one group; a group `master` counts with the group `worker`, and has rank 0. It must not
//! know processes or environments. Tests: `tests/local/command.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apis::{JobApi, Registry, Resource};
use embedded::Session;
use local::{Peer, Peers};
use model::{JobKey, JobSpec, SlotId, Text, Uid};
use serde_json::Value;

use crate::jobs::MASTER;

/// Group whose ranks follow those of the master.
const WORKER: &str = "worker";

/// Kind, namespace and name of a job.
type Name = (String, String, String);
/// Groups of a job and their numbers of pods.
type Groups = Vec<(Text, u32)>;

/// The groups of every job of a run.
#[derive(Clone)]
pub(super) struct Places {
    registry: Registry,
    jobs: Arc<Mutex<BTreeMap<Name, Groups>>>,
}

impl Places {
    pub(super) fn new(registry: Registry) -> Self {
        Self { registry, jobs: Arc::default() }
    }

    /// Takes in a manifest, before its job has pods.
    pub(super) fn add(&self, manifest: &Value) {
        let Some(api) = self.registry.get(&Resource::of(manifest)) else { return };
        let text = |name: &str| manifest["metadata"][name].as_str().unwrap_or_default().to_owned();
        if let Ok(spec) = &api.spec_fact(manifest).spec {
            self.lock()
                .insert((Resource::of(manifest).kind.to_string(), text("namespace"), text("name")), groups(spec));
        }
    }

    /// Takes in the specs that are in force: those made of several objects are known then only.
    pub(super) fn update(&self, session: &Session) {
        let mut jobs = self.lock();
        for (key, job) in session.operator.state().jobs.live_from(None) {
            if let Some(spec) = job.spec() {
                jobs.insert((key.kind.to_string(), key.namespace.to_string(), key.name.to_string()), groups(spec));
            }
        }
    }

    /// Returns what tells the place of a pod.
    pub(super) fn of_pods(&self) -> Peers {
        let places = self.clone();
        Arc::new(move |pod| places.of(pod))
    }

    fn of(&self, pod: &Value) -> Option<Peer> {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (api, name) = api_of_pod(&self.registry, pod)?;
        let resource = api.resource();
        let kind = &*resource.kind;
        let slot = api.slot_of(pod)?;
        let namespace = text("/metadata/namespace");
        let jobs = self.lock();
        let groups = jobs.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))?;
        let job = JobKey {
            kind: Text::from(kind),
            namespace: Text::from(namespace),
            name: Text::from(name),
            uid: Uid(Text::from("")),
        };
        place(&**api, &job, groups, &slot)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Groups>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the API of the job that owns a pod, and the job's name.
pub(super) fn api_of_pod<'a>(registry: &'a Registry, pod: &'a Value) -> Option<(&'a Arc<dyn JobApi>, &'a str)> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let (version, kind, name) = (owner["apiVersion"].as_str()?, owner["kind"].as_str()?, owner["name"].as_str()?);
    Some((registry.get(&Resource::new(version, kind))?, name))
}

fn groups(spec: &JobSpec) -> Groups {
    spec.groups.iter().filter(|group| !group.once).map(|group| (group.name.clone(), group.replicas)).collect()
}

fn place(api: &dyn JobApi, job: &JobKey, groups: &Groups, slot: &SlotId) -> Option<Peer> {
    let size = |name: &str| groups.iter().find(|(group, _)| **group == *name).map(|(_, replicas)| *replicas);
    let own = size(&slot.group)?;
    let (before, first, world_size) = match (&*slot.group, size(MASTER), size(WORKER)) {
        (MASTER, Some(masters), workers) => (0, MASTER, masters.saturating_add(workers.unwrap_or_default())),
        (WORKER, Some(masters), _) if masters > 0 => (masters, MASTER, masters.saturating_add(own)),
        (group, ..) => (0, group, own),
    };
    let master = SlotId { group: Text::from(first), index: 0 };
    Some(Peer { rank: before.saturating_add(slot.index), world_size, master: api.slot_name(job, &master).to_string() })
}
