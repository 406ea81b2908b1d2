//! Random jobs of `TorchrunJob` in a TorchrunQueue: fixed sizes and ranges, both restart policies, limits, suspension, and new generations of
//! the workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Resource;
use cluster::Cluster;
use engine::Job;
use model::SlotId;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};

use super::{WalkedJob, below, has_ended, pick};

pub(super) struct TorchrunJob;

impl WalkedJob for TorchrunJob {
    fn resource(&self) -> Resource {
        Resource::new("torchrun.ai/v1alpha1", "TorchrunJob")
    }

    fn others(&self) -> Vec<Value> {
        vec![json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunQueue",
        "metadata": {"name": "dev", "namespace": "default"},
        "spec": {
            "queue": {"name": "dev", "resources": {"cpu": {}, "gpu": {}, "memory": {}}},
            "distributed": {"rdzvBackend": "c10d"},
            "podTemplate": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}},
        }})]
    }

    fn manifest(&self, rng: &mut TestRng) -> Value {
        let nodes = 1 + below(rng, 4);
        let mut spec = json!({"queue": "dev", "jobName": "run", "command": "python train.py", "numNodes": nodes});
        if below(rng, 2) == 0 {
            spec["minNodes"] = json!(1 + below(rng, nodes));
            spec["maxNodes"] = json!(nodes + below(rng, 2));
        }
        let mut reliability = json!({"restartPolicy": pick(rng, &["OnFailure", "Never"])});
        for (key, chance, from, range) in
            [("maxRestarts", 2, 0, 4), ("activeDeadlineSeconds", 4, 30, 600), ("ttlSecondsAfterFinished", 4, 0, 300)]
        {
            if below(rng, chance) == 0 {
                reliability[key] = json!(from + below(rng, range));
            }
        }
        spec["reliability"] = reliability;
        if below(rng, 5) == 0 {
            spec["suspend"] = json!(true);
        }
        json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob",
            "metadata": {"name": "j", "namespace": "default"}, "spec": spec})
    }

    fn edit(&self, rng: &mut TestRng, cluster: &mut Cluster) -> String {
        let patch = match below(rng, 5) {
            0 => json!({"spec": {"numNodes": 1 + below(rng, 4)}}),
            1 | 2 => json!({"spec": {"suspend": below(rng, 2) == 0}}),
            3 => json!({"spec": {"command": format!("python train.py {}", below(rng, 3))}}),
            _ => json!({"spec": {"reliability": {"maxRestarts": below(rng, 4)}}}),
        };
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
        patch.to_string()
    }

    /// The workspace gets another generation.
    fn mark(&self, cluster: &mut Cluster, pod: &str) {
        let patch = json!({"metadata": {"annotations": {"torchrun.ai/workspace-generation": pod}}});
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
    }

    fn check(&self, job: &Job, pods: &[Arc<Value>]) -> Result<(), String> {
        let api = apis::torchrunjob::TorchrunJob;
        let mut slots: BTreeMap<SlotId, Vec<&Value>> = BTreeMap::new();
        for pod in pods {
            let slot = apis::api::PodApi::slot_of(&api, pod).ok_or("a pod without a slot is left")?;
            slots.entry(slot).or_default().push(pod);
        }
        if let Some((slot, _)) = slots.iter().find(|(_, pods)| pods.len() > 1) {
            return Err(format!("several pods of {slot}"));
        }
        if job.phase.is_terminal() {
            let live = slots.values().flatten().any(|pod| !has_ended(pod));
            return if live { Err(format!("{:?} with live pods", job.phase)) } else { Ok(()) };
        }
        let Some(spec) = job.spec() else { return Ok(()) };
        for group in &spec.groups {
            if let Some((slot, _)) = slots.iter().find(|(s, _)| s.group == group.name && s.index >= group.replicas) {
                return Err(format!("{slot} is beyond {} pods", group.replicas));
            }
            let state = job.groups.get(&group.name).ok_or("a group is not known")?;
            let has_pod = |index: u32| slots.contains_key(&SlotId { group: group.name.clone(), index });
            let is_over = |index: u32| state.done.contains(&index) || state.lost.contains(&index);
            let missing = (0..group.replicas).find(|index| !is_over(*index) && !has_pod(*index));
            // A run that was completed leaves no pod.
            if let Some(index) = missing.filter(|_| !group.once && job.blocked_by(spec, group).is_none()) {
                return Err(format!("{:?}: {}-{index} has no pod, and nothing holds it", job.phase, group.name));
            }
        }
        // The results of workers that have ended count when the job continues.
        let lives =
            |(slot, pods): (&SlotId, &Vec<&Value>)| &*slot.group == "worker" && pods.iter().any(|pod| !has_ended(pod));
        if spec.suspended && slots.iter().any(lives) {
            return Err(format!("{:?}: suspended, with live workers", job.phase));
        }
        Ok(())
    }

    fn may_be_gone(&self, _manifest: &Value) -> bool {
        // Without a time to live of its own a job is deleted after an hour.
        true
    }
}
