//! Places of pods among their peers: what PyTorch's `RANK`, `WORLD_SIZE` and `MASTER_PORT` are in a local run.
//!
//! Owns which pods of a job are peers: those of one group; a group `master` counts with the group `worker`, and has rank 0. Owns which
//! ports of a job are replaced: those that its manifest does not name, and those that another job has. It must not know processes or environments. Tests: at the end,
//! and `cli/tests/local/command.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apis::{JobApi, Registry, Resource};
use embedded::Session;
use local::{Peer, Peers, PortOf, Ports};
use model::{JobKey, JobSpec, SlotId, Text, Uid};
use serde_json::Value;

use crate::jobs::MASTER;

/// Group whose ranks follow those of the master.
const WORKER: &str = "worker";

/// Kind, namespace and name of a job.
pub(crate) type Name = (String, String, String);
/// Groups of a job and their numbers of pods.
type Groups = Vec<(Text, u32)>;

/// The groups and the ports of every job of a run.
#[derive(Clone)]
pub(crate) struct Places {
    registry: Registry,
    /// Port that the run was started with for its jobs: `MASTER_PORT` of its own environment.
    master_port: Option<u16>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    jobs: BTreeMap<Name, Groups>,
    /// Numbers that the manifest of each job names.
    numbers: BTreeMap<Name, BTreeSet<u16>>,
    /// Numbers that other objects name: queues, `ConfigMap`s.
    shared: BTreeSet<u16>,
    ports: Ports,
}

impl Places {
    pub(crate) fn new(registry: Registry, master_port: Option<u16>) -> Self {
        Self { registry, master_port, known: Arc::default() }
    }

    /// Takes in a manifest, before its job has pods.
    pub(crate) fn add(&self, manifest: &Value) {
        let mut known = self.lock();
        let Some(api) = self.registry.get(&Resource::of(manifest)) else {
            // What a job owns is made from its manifest.
            if manifest.pointer("/metadata/ownerReferences").is_none() {
                let members = manifest.as_object().into_iter().flatten();
                members
                    .filter(|(name, _)| *name != "metadata")
                    .for_each(|(_, value)| collect(value, &mut known.shared));
            }
            return;
        };
        let text = |name: &str| manifest["metadata"][name].as_str().unwrap_or_default().to_owned();
        let name = (Resource::of(manifest).kind.to_string(), text("namespace"), text("name"));
        let mut numbers = BTreeSet::new();
        collect(&manifest["spec"], &mut numbers);
        known.numbers.insert(name.clone(), numbers);
        if let Ok(spec) = &api.spec_fact(manifest).spec {
            known.jobs.insert(name, groups(spec));
        }
    }

    /// Takes in the specs that are in force: those built from several objects are known then only.
    pub(crate) fn update(&self, session: &Session) {
        let known = &mut *self.lock();
        let mut live = BTreeSet::new();
        for (key, job) in session.operator.state().jobs.live_from(None) {
            let name = (key.kind.to_string(), key.namespace.to_string(), key.name.to_string());
            live.insert(written(&name));
            if let Some(spec) = job.spec() {
                known.jobs.insert(name, groups(spec));
            }
        }
        known.ports.retain(|job| live.contains(job));
    }

    /// Returns the function that finds the place of a pod.
    pub(crate) fn of_pods(&self) -> Peers {
        let places = self.clone();
        Arc::new(move |pod| places.of(pod))
    }

    /// Returns what gives each job ports of its own on this machine.
    pub(crate) fn port_of_pods(&self) -> PortOf {
        let places = self.clone();
        Arc::new(move |pod, written| places.port(pod, written))
    }

    fn of(&self, pod: &Value) -> Option<Peer> {
        let (api, name) = job_of(&self.registry, pod)?;
        let slot = api.slot_of(pod)?;
        let known = self.lock();
        let groups = known.jobs.get(&name)?;
        let [kind, namespace, name] = [&name.0, &name.1, &name.2].map(|text| Text::from(text.as_str()));
        let job = JobKey { kind, namespace, name, uid: Uid(Text::from("")) };
        place(&**api, &job, groups, &slot)
    }

    /// Returns the port that stands for one of a pod's job. A port that a manifest names stays while no other job has it: programs may
    /// have it from elsewhere.
    fn port(&self, pod: &Value, written_port: u16) -> u16 {
        let Some((_, name)) = job_of(&self.registry, pod) else { return written_port };
        let known = &mut *self.lock();
        let named = known.numbers.get(&name).is_some_and(|numbers| numbers.contains(&written_port));
        let named = named || known.shared.contains(&written_port);
        match self.master_port.filter(|_| !named) {
            Some(port) => port,
            None => known.ports.of_job(&written(&name), written_port, named).unwrap_or(written_port),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the API and the name of the job that owns a pod.
pub(crate) fn job_of<'a>(registry: &'a Registry, pod: &Value) -> Option<(&'a Arc<dyn JobApi>, Name)> {
    let (api, name) = api_of_pod(registry, pod)?;
    let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    Some((api, (api.resource().kind.to_string(), namespace.to_owned(), name.to_owned())))
}

/// Returns a name as [`Ports`] knows it.
fn written((kind, namespace, name): &Name) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// Collects the numbers that can be ports, in texts too.
fn collect(value: &Value, numbers: &mut BTreeSet<u16>) {
    match value {
        Value::Number(number) => numbers.extend(number.as_u64().and_then(|number| u16::try_from(number).ok())),
        Value::String(text) => {
            numbers.extend(text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u16>().ok()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, numbers)),
        Value::Object(members) => members.values().for_each(|member| collect(member, numbers)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the API of the job that owns a pod, and the job's name.
pub(crate) fn api_of_pod<'a, 'p>(registry: &'a Registry, pod: &'p Value) -> Option<(&'a Arc<dyn JobApi>, &'p str)> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_that_a_manifest_names_are_its_own_while_no_other_has_them() {
        let places = Places::new(Registry::all(), None);
        let worker = |command: &str| {
            let spec =
                json!({"containers": [{"name": "elasticjob-worker", "image": "i", "command": ["sh", "-c", command]}]});
            json!({"Worker": {"replicas": 1, "template": {"spec": spec}}})
        };
        // No process listens there: the system has just chosen it.
        let free = || std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let (own, shared) = (free(), free());
        let torchrun = format!("torchrun --master_port={own} t.py");
        for (name, command) in [("says", &*torchrun), ("silent", "torchrun t129500.py"), ("second", &*torchrun)] {
            places.add(&json!({
                "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
                "metadata": {"name": name, "namespace": "default"}, "spec": {"replicaSpecs": worker(command)},
            }));
        }
        places.add(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"port": format!("at {shared}.")}}));
        let port = |job: &str, port| {
            let owner = json!({"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "name": job, "controller": true});
            places.port(&json!({"metadata": {"namespace": "default", "ownerReferences": [owner]}}), port)
        };
        assert_eq!((port("says", own), port("says", shared)), (own, shared));
        let ports = [port("says", 29_400), port("silent", 29_400), port("silent", 29_500), port("second", own)];
        assert!(ports.iter().all(|port| (29_500..30_500).contains(port)), "{ports:?}");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 4, "{ports:?}");
        assert_eq!(port("silent", 29_500), ports[2], "the same over restarts");
        assert_eq!(port("silent", ports[2]), ports[2], "and for what was replaced already");
    }
}
