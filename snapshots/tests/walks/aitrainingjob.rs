//! Random jobs of `AITrainingJob`: every policy and scope, edits of their size, and marks of preemption.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::Resource;
use cluster::Cluster;
use engine::Job;
use model::Phase;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};

use super::{WalkedJob, below, pick};

pub(super) struct AiTrainingJob;

impl WalkedJob for AiTrainingJob {
    fn resource(&self) -> Resource {
        Resource::new("elasticdeeplearning.ai/v1", "AITrainingJob")
    }

    fn manifest(&self, rng: &mut TestRng) -> Value {
        manifest(rng)
    }

    fn edit(&self, rng: &mut TestRng, cluster: &mut Cluster) -> String {
        let replicas = below(rng, 5);
        let patch = json!({"spec": {"replicaSpecs": {"trainer": {"replicas": replicas}}}});
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
        format!("trainer has {replicas} replicas")
    }

    fn mark(&self, cluster: &mut Cluster, _pod: &str) {
        let patch = json!({"metadata": {"annotations": {"Preempted": "x"}}});
        drop(cluster.merge_patch(&self.resource(), "default", "j", &patch, false));
    }

    fn check(&self, job: &Job, pods: &[Arc<Value>]) -> Result<(), String> {
        let wanted: BTreeMap<String, u32> =
            job.spec().map(|s| s.groups.iter().map(|g| (g.name.to_string(), g.replicas)).collect()).unwrap_or_default();
        let pods: Vec<&str> = pods.iter().filter_map(|pod| pod.pointer("/metadata/name")?.as_str()).collect();
        let kept = job.ending().is_some_and(|(_, clean, _)| !clean);
        match job.phase {
            phase if phase.is_terminal() && !kept && !pods.is_empty() => {
                return Err(format!("{phase:?} with pods {pods:?}"));
            }
            phase if phase.is_terminal() => {}
            Phase::Terminating => return Err("still terminating".into()),
            phase => {
                let done: usize = job.groups.values().map(|g| g.done.len()).sum();
                let total: u32 = wanted.values().sum();
                if pods.len() > total as usize || pods.len() + done < total as usize {
                    return Err(format!("{phase:?}: {} pods and {done} done of {total}: {pods:?}", pods.len()));
                }
            }
        }
        for (name, group) in &job.groups {
            let limit = job.spec().and_then(|s| s.group(name)?.restart_limit);
            if limit.is_some_and(|limit| group.charged > limit) {
                return Err(format!("{name} was charged {} of {limit:?}", group.charged));
            }
        }
        Ok(())
    }
}

fn manifest(walk: &mut TestRng) -> Value {
    let groups = 1 + below(walk, 2);
    let mut specs = serde_json::Map::new();
    for name in ["ps", "trainer"].iter().rev().take(groups) {
        let mut spec = json!({
            "replicas": below(walk, 4),
            "restartPolicy": pick(walk, &["Always", "OnFailure", "OnNodeFail", "Never", "ExitCode", "OnNodeFailWithExitCode"]),
            "restartScope": pick(walk, &["All", "Replica", "Pod"]),
            "failPolicy": pick(walk, &["Any", "Rank0", "All", "None"]),
            "completePolicy": pick(walk, &["Any", "Rank0", "All", "None"]),
            "template": {"spec": {"containers": [{"name": pick(walk, &["aitj-main", "main"]), "image": "i"}]}},
        });
        if below(walk, 2) == 0 {
            spec["restartLimit"] = json!(below(walk, 4));
        }
        specs.insert((*name).to_owned(), spec);
    }
    let mut spec = json!({
        "replicaSpecs": specs,
        "restartingExitCode": "137",
        "cleanPodPolicy": pick(walk, &["All", "All", "None"]),
        "failPolicy": pick(walk, &["Any", "Any", "All", "None"]),
        "completePolicy": pick(walk, &["All", "All", "Any", "None"]),
    });
    if below(walk, 4) == 0 {
        spec["timeLimit"] = json!(30 + below(walk, 300));
    }
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "namespace": "default"}, "spec": spec})
}
