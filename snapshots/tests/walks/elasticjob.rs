//! Random jobs of `ElasticJob`: every restart policy, bounds and limits; edits of size, bounds and suspension; disrupted pods.
//!
//! Each call is checked as well: no pod beyond the replicas is created, and no pod that is well is deleted because others failed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use apis::api::Descriptor;
use apis::{Registry, Resource, Verb};
use cluster::{Cluster, ServedKinds};
use engine::Job;
use model::{Config, Phase, SlotId};
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use simulator::scenario::NodeSpec;
use simulator::simulation::{Error, ExecutedCall, Simulation};

use super::{WalkedJob, below, core, has_ended, pick};

/// The API, or a copy of it under other names.
pub(super) struct ElasticJob {
    descriptor: &'static Descriptor,
    registry: fn() -> Registry,
}

pub(super) static ORIGINAL: ElasticJob =
    ElasticJob { descriptor: &apis::elasticjob::DESCRIPTOR, registry: Registry::all };
pub(super) static COPY: ElasticJob =
    ElasticJob { descriptor: &fixtures::copied::COPIED, registry: fixtures::copied::with_copy };

impl WalkedJob for ElasticJob {
    fn resource(&self) -> Resource {
        self.descriptor.resource()
    }

    fn registry(&self) -> Registry {
        (self.registry)()
    }

    fn simulation(&self, nodes: &[NodeSpec], config: Config) -> Result<Simulation, Error> {
        static KINDS: OnceLock<ServedKinds> = OnceLock::new();
        let kinds = KINDS.get_or_init(|| Simulation::kinds_of(&COPY.registry()).expect("the definitions register"));
        Simulation::serving(nodes, config, self.registry(), kinds)
    }

    fn manifest(&self, rng: &mut TestRng) -> Value {
        let policy = pick(rng, &["ExitCode", "ExitCode", "Never", "OnFailure", "Always"]);
        let mut spec = json!({"rdzvEndpoint": "e:1", "replicaSpecs": {"Worker": group(&policy, below(rng, 5))}});
        let bounds = below(rng, 4);
        if bounds & 1 == 1 {
            spec["minReplicas"] = json!(1 + below(rng, 2));
            spec["replicaSpecs"]["Worker"]["replicas"] = json!(2 + below(rng, 2));
        }
        if bounds & 2 == 2 {
            spec["maxReplicas"] = json!(4 + below(rng, 2));
        }
        if below(rng, 4) == 0 {
            spec["replicaSpecs"]["Helper"] = group(&pick(rng, &["ExitCode", "Never", "OnFailure"]), below(rng, 2));
        }
        for (key, chance, from, range) in
            [("backoffLimit", 3, 0, 5), ("activeDeadlineSeconds", 5, 30, 600), ("ttlSecondsAfterFinished", 5, 0, 300)]
        {
            if below(rng, chance) == 0 {
                spec[key] = json!(from + below(rng, range));
            }
        }
        match pick(rng, &["", "", "None", "Running", "All"]).as_str() {
            "" => {}
            clean => spec["cleanPodPolicy"] = json!(clean),
        }
        json!({"apiVersion": self.descriptor.api_version, "kind": self.descriptor.kind,
            "metadata": {"name": "j", "namespace": "default"}, "spec": spec})
    }

    fn edit(&self, rng: &mut TestRng, cluster: &mut Cluster) -> String {
        let patch = match below(rng, 6) {
            0 => json!({"minReplicas": null, "replicaSpecs": {"Worker": {"replicas": 0}}}),
            1 => json!({"minReplicas": 1 + below(rng, 3)}),
            2 => json!({"maxReplicas": null}),
            3 => json!({"suspend": below(rng, 2) == 0}),
            _ => {
                let replicas = i32::try_from(below(rng, 6)).unwrap();
                drop(cluster.scale(&self.resource(), "default", "j", replicas));
                return format!("scaled to {replicas}");
            }
        };
        drop(cluster.merge_patch(&self.resource(), "default", "j", &json!({"spec": patch}), false));
        format!("spec {patch}")
    }

    fn mark(&self, cluster: &mut Cluster, pod: &str) {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
        let patch = json!({"status": {"conditions": [condition]}});
        drop(cluster.merge_patch(&core("Pod"), "default", pod, &patch, true));
    }

    fn check_calls(&self, before: &[Arc<Value>], after: Option<&Job>, calls: &[ExecutedCall]) -> Result<(), String> {
        let api = apis::elasticjob::ElasticJob;
        let Some(job) = after else { return Ok(()) };
        // What was ill when its deletion was decided may be well again when the call succeeds.
        let object = before.iter().find(|object| object["kind"] == self.descriptor.kind);
        let decided = object.and_then(|object| object.pointer("/status/trainyard/waitUids")?.as_array());
        let decided: Vec<&str> = decided.into_iter().flatten().filter_map(Value::as_str).collect();
        for call in calls.iter().filter(|call| &*call.call.resource.kind == "Pod") {
            let name = &call.call.name;
            match (call.call.verb, &call.call.body) {
                (Verb::Create, Some(pod)) => {
                    let slot = apis::api::PodApi::slot_of(&api, pod).ok_or("a pod without a slot was created")?;
                    let replicas =
                        job.spec().and_then(|spec| spec.group(&slot.group)).map_or(0, |group| group.replicas);
                    if slot.index >= replicas && !is_halted(job) {
                        return Err(format!("{name} was created, with {replicas} replicas"));
                    }
                }
                (Verb::Delete, _) => {
                    let pod = before.iter().find(|object| object["metadata"]["uid"] == *call.uid);
                    if let Some(pod) = pod.filter(|pod| is_well(pod, before) && !decided.contains(&&*call.uid)) {
                        let slot = apis::api::PodApi::slot_of(&api, pod).ok_or("a pod without a slot")?;
                        may_go(job, &slot, pod).map_err(|why| format!("{name} is well, and was deleted: {why}"))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&self, job: &Job, pods: &[Arc<Value>]) -> Result<(), String> {
        let phase = job.phase;
        let mut slots: BTreeMap<SlotId, Vec<&Value>> = BTreeMap::new();
        for pod in pods {
            let slot =
                apis::api::PodApi::slot_of(&apis::elasticjob::ElasticJob, pod).ok_or("a pod without a slot is left")?;
            slots.entry(slot).or_default().push(pod);
        }
        if let Some((slot, _)) = slots.iter().find(|(_, pods)| pods.len() > 1) {
            return Err(format!("several pods of {slot}"));
        }
        if phase.is_terminal() {
            let (_, clean, _) = job.ending().ok_or("ended without a decision")?;
            let live = pods.iter().any(|pod| !has_ended(pod));
            return if clean && live { Err(format!("{phase:?} with live pods")) } else { Ok(()) };
        }
        if phase == Phase::Terminating {
            return Err("still terminating".into());
        }
        let Some(spec) = job.spec() else { return Ok(()) };
        for group in &spec.groups {
            let state = job.groups.get(&group.name).ok_or("a group is not known")?;
            for index in 0..group.replicas {
                let slot = SlotId { group: group.name.clone(), index };
                let ended = state.done.contains(&index) || state.lost.contains(&index);
                let paused = spec.suspended;
                if !ended && slots.contains_key(&slot) == paused {
                    return Err(format!("{phase:?}: {slot} {}", if paused { "has a pod" } else { "has no pod" }));
                }
            }
            if let Some((slot, _)) = slots.iter().find(|(s, _)| s.group == group.name && s.index >= group.replicas) {
                return Err(format!("{slot} is beyond {} replicas", group.replicas));
            }
        }
        match spec.budget {
            Some(budget) if budget.is_spent_by(job.retries()) => {
                Err(format!("{phase:?} with {} retries of {}", job.retries(), budget.limit))
            }
            _ => Ok(()),
        }
    }

    fn may_be_gone(&self, manifest: &Value) -> bool {
        !manifest["spec"]["ttlSecondsAfterFinished"].is_null()
    }
}

fn group(policy: &str, replicas: usize) -> Value {
    json!({"replicas": replicas, "restartPolicy": policy,
        "template": {"spec": {"containers": [{"name": "elasticjob-worker", "image": "i"}]}}})
}

/// Returns true for a pod that continues: not ended, not being deleted, not disrupted, and its node is there.
fn is_well(pod: &Value, objects: &[Arc<Value>]) -> bool {
    let disrupted = |pod: &Value| {
        pod["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "DisruptionTarget")
    };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let ready = |node: &Value| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let mut nodes = objects.iter().filter(|object| object["kind"] == "Node" && object["metadata"]["name"] == node);
    let reachable = node.is_empty() || nodes.any(|node| ready(node));
    let waits = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["state"]["waiting"]["reason"] == "ErrImagePull");
    !has_ended(pod) && pod["metadata"]["deletionTimestamp"].is_null() && !disrupted(pod) && reachable && !waits
}

fn is_halted(job: &Job) -> bool {
    job.phase == Phase::Suspended || job.spec().is_some_and(|spec| spec.suspended)
}

/// A pod that is well goes when the job ends or waits, when its index is beyond the replicas, or when its size is another.
fn may_go(job: &Job, slot: &SlotId, pod: &Value) -> Result<(), String> {
    let Some(spec) = job.spec() else { return Ok(()) };
    let group = spec.group(&slot.group);
    let replicas = group.map_or(0, |group| group.replicas);
    let shape = pod["metadata"]["annotations"]["trainyard.dev/shape"].as_str();
    let other_shape = group.and_then(|group| group.shape.as_deref()).is_some_and(|wanted| Some(wanted) != shape);
    let ending = job.ending().is_some() || job.phase.is_terminal() || is_halted(job);
    if ending || slot.index >= replicas || other_shape || job.object.is_deleting() {
        return Ok(());
    }
    Err(format!("{:?}, {replicas} replicas", job.phase))
}
