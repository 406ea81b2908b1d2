//! Random jobs of `TorchJob`: AIMaster or none, every restart policy, limits, elastic training, a model that is left behind; edits of
//! sizes and of the annotations by which AIMaster and users talk to the operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Resource;
use cluster::Cluster;
use engine::Job;
use model::{Phase, SlotId};
use proptest::test_runner::TestRng;
use serde_json::{Value, json};

use super::{WalkedJob, below, has_ended, pick};

pub(super) struct TorchJob;

impl WalkedJob for TorchJob {
    fn resource(&self) -> Resource {
        Resource::new("train.distributed.io/v1alpha1", "TorchJob")
    }

    fn manifest(&self, rng: &mut TestRng) -> Value {
        let policies = ["ExitCode", "ExitCode", "OnFailure", "Never", "Always"];
        let mut tasks = json!({"Master": task(&pick(rng, &policies), 1)});
        if below(rng, 5) > 0 {
            tasks["Worker"] = task(&pick(rng, &policies), below(rng, 4));
        }
        let mut annotations = json!({});
        if below(rng, 4) == 0 {
            tasks["AIMaster"] = task("Never", 1);
            annotations["aimaster"] = json!(pick(rng, &["ready", "ready", "no"]));
        }
        if below(rng, 3) == 0 {
            annotations["distributed.io/enable-elastic-training"] = json!("true");
        }
        let mut spec = json!({"torchTaskSpecs": tasks});
        for (key, chance, from, range) in
            [("backoffLimit", 3, 0, 4), ("activeDurations", 5, 30, 600), ("TTLSecondsAfterFinished", 5, 0, 300)]
        {
            if below(rng, chance) == 0 {
                spec[key] = json!(from + below(rng, range));
            }
        }
        match pick(rng, &["", "", "None", "Running", "All"]).as_str() {
            "" => {}
            clean => spec["clenPodPolicy"] = json!(clean),
        }
        if below(rng, 3) == 0 {
            let storage = if below(rng, 2) == 0 {
                json!({"nfs": {"server": "s", "path": "/p", "mountPath": "/o"}})
            } else {
                json!({"localStorage": {"path": "/p", "mountPath": "/o"}})
            };
            spec["modelVersion"] = json!({"spec": {"modelName": "m", "imageRepo": "r", "storage": storage}});
        }
        json!({"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob",
            "metadata": {"name": "j", "namespace": "default", "annotations": annotations}, "spec": spec})
    }

    fn edit(&self, rng: &mut TestRng, cluster: &mut Cluster) -> String {
        let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let patch = match below(rng, 6) {
            0 => json!({"spec": {"torchTaskSpecs": {"Worker": task("ExitCode", below(rng, 4))}}}),
            1 => annotations(json!({"aimaster": "ready"})),
            2 => annotations(json!({"distributed.io/ready-to-start-worker": "true"})),
            3 => annotations(json!({"distributed.io/immediately-start-worker": "true"})),
            4 => annotations(json!({"distributed.io/enable-elastic-training": pick(rng, &["true", "false"])})),
            _ => {
                let version = format!("{{\"version\": {}, \"status\": \"Succeeded\"}}", 1 + below(rng, 3));
                annotations(json!({"distributed.io/ckpt-completed-version": version}))
            }
        };
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
        patch.to_string()
    }

    /// A checkpoint is written that was asked for.
    fn mark(&self, cluster: &mut Cluster, _pod: &str) {
        let job = cluster.get(&self.resource(), "default", "j");
        let asked = job.and_then(|job| {
            let annotations = job["metadata"]["annotations"].as_object()?;
            annotations.get("distributed.io/ckpt-requested-version").cloned()
        });
        let patch = json!({"metadata": {"annotations": {"distributed.io/ckpt-completed-version": asked}}});
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
    }

    fn check(&self, job: &Job, pods: &[Arc<Value>]) -> Result<(), String> {
        let api = apis::torchjob::TorchJob::default();
        let mut slots: BTreeMap<SlotId, Vec<&Value>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod["metadata"]["labels"]["group-name"] == "train.distributed.io") {
            let slot = apis::api::PodApi::slot_of(&api, pod).ok_or("a pod without a slot is left")?;
            slots.entry(slot).or_default().push(pod);
        }
        if let Some((slot, _)) = slots.iter().find(|(_, pods)| pods.len() > 1) {
            return Err(format!("several pods of {slot}"));
        }
        let spec = job.spec();
        if job.phase.is_terminal() {
            let (_, clean, _) = job.ending().ok_or("ended without a decision")?;
            let live = slots.values().flatten().any(|pod| !has_ended(pod));
            if clean && live {
                return Err(format!("{:?} with live pods", job.phase));
            }
            let versions =
                spec.into_iter().flat_map(|spec| &spec.owned).filter(|owned| &*owned.object.kind == "ModelVersion");
            let is_left =
                |owned: &model::OwnedSpec| job.owned.get(&owned.object).is_some_and(|known| known.fact.is_some());
            for version in versions {
                if is_left(version) != (job.phase == Phase::Succeeded) {
                    return Err(format!("{:?}, and {} is wrong", job.phase, version.object));
                }
            }
            return Ok(());
        }
        if job.phase == Phase::Terminating {
            return Err("still terminating".into());
        }
        let Some(spec) = spec else { return Ok(()) };
        for group in &spec.groups {
            if let Some((slot, _)) = slots.iter().find(|(s, _)| s.group == group.name && s.index >= group.replicas) {
                return Err(format!("{slot} is beyond {} tasks", group.replicas));
            }
            let state = job.groups.get(&group.name).ok_or("a group is not known")?;
            let has_pod = |index: u32| slots.contains_key(&SlotId { group: group.name.clone(), index });
            let missing = (0..group.replicas).find(|index| !state.done.contains(index) && !has_pod(*index));
            if let Some(index) = missing.filter(|_| job.blocked_by(spec, group).is_none()) {
                return Err(format!("{:?}: {}-{index} has no pod, and nothing holds it", job.phase, group.name));
            }
        }
        match spec.budget {
            Some(budget) if budget.is_spent_by(job.retry_counts.rounds()) => {
                Err(format!("{:?} with {} rounds of {}", job.phase, job.retry_counts.rounds(), budget.limit))
            }
            _ => Ok(()),
        }
    }

    fn may_be_gone(&self, manifest: &Value) -> bool {
        !manifest["spec"]["TTLSecondsAfterFinished"].is_null()
    }
}

fn task(policy: &str, tasks: usize) -> Value {
    json!({"numTasks": tasks, "restartPolicy": policy, "template": {"spec": {"containers": [{"name": "torch", "image": "i"}]}}})
}
