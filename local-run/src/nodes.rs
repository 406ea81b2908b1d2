//! The nodes of the embedded cluster, as the command line names them.
//!
//! Owns the cluster's start: a new one, or the one an earlier run left, with the nodes and GPUs that this run asks for.
//! Must not know jobs. Tests: at the end.

use std::path::Path;

use apis::Resource;
use cluster::runtime::PodRuntime;
use cluster::{Cluster, FileError, Mode, NodeSpec, NodeState};
use model::Timestamp;
use serde_json::Value;
use terminal::out::Failure;

/// Resource of a node's GPUs.
const GPU: &str = "nvidia.com/gpu";
/// Maximum number of nodes that one machine stands for.
const MAX_NODES: u32 = 10_000;

/// Nodes and GPUs that the command line asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) nodes: u32,
    /// GPUs, shared out over the nodes.
    pub(crate) gpus: u32,
}

impl Machine {
    /// Returns the nodes and GPUs of a cluster.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let nodes = cluster.objects_of(&Resource::new("v1", "Node"));
        Self {
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1),
            gpus: nodes.iter().map(|node| gpus_of(node)).fold(0, u32::saturating_add),
        }
    }

    /// Returns the nodes by name. The first ones take the GPUs that do not divide.
    fn specs(self) -> Result<Vec<NodeSpec>, Failure> {
        if !(1..=MAX_NODES).contains(&self.nodes) {
            return Err(Failure::new(format!("--nodes {}: a run has 1 to {MAX_NODES} nodes", self.nodes)));
        }
        let node = |n: u32| {
            let share = self.gpus / self.nodes + u32::from(n <= self.gpus % self.nodes);
            NodeSpec::named(&format!("local-{n}")).with(GPU, &share.to_string())
        };
        Ok((1..=self.nodes).map(node).collect())
    }
}

/// Returns the cluster stored at `path`, or a new one, with the nodes of `machine`.
///
/// Pods of an earlier run that had not ended are deleted: their processes ended with that run.
pub(crate) fn cluster(
    path: &Path,
    machine: Machine,
    now: Timestamp,
    runtime: Box<dyn PodRuntime>,
) -> Result<Cluster, Failure> {
    let nodes = machine.specs()?;
    if !path.exists() {
        return Ok(Cluster::with_runtime(&cluster::Options { mode: Mode::Automatic, now, nodes }, runtime));
    }
    let mut cluster = Cluster::load(path, Mode::Automatic, runtime).map_err(|error| match error {
        FileError::Corrupt { .. } => Failure::new(format!("{error}; `--again` removes it and starts over")),
        other => Failure::from(other),
    })?;
    cluster.set_now(now);
    let pods = Resource::new("v1", "Pod");
    for pod in cluster.objects_of(&pods) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("/status/phase"), "Succeeded" | "Failed") && !text("/spec/nodeName").is_empty() {
            // Its processes ended with the runner: it is lost, as on a deleted node, and no restart is charged.
            cluster.delete_as_user(&pods, text("/metadata/namespace"), text("/metadata/name"), Some(0))?;
        }
    }
    // After the pods: a node that is removed leaves none behind.
    for node in cluster.objects_of(&Resource::new("v1", "Node")) {
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if !nodes.iter().any(|spec| spec.name == name) {
            cluster.node(name, NodeState::Removed)?;
        }
    }
    for spec in &nodes {
        cluster.add_node(spec);
    }
    Ok(cluster)
}

/// Gives the first node GPUs until all nodes together have as many.
pub(crate) fn grow(cluster: &mut Cluster, gpus: u32) {
    let missing = gpus.saturating_sub(Machine::of(cluster).gpus);
    let nodes = cluster.objects_of(&Resource::new("v1", "Node"));
    let Some(node) = nodes.first().filter(|_| missing > 0) else { return };
    let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let count = gpus_of(node).saturating_add(missing);
    cluster.add_node(&NodeSpec::named(name).with(GPU, &count.to_string()));
}

/// Returns the GPUs of a node.
fn gpus_of(node: &Value) -> u32 {
    let text = node.pointer("/status/capacity").and_then(|capacity| capacity.get(GPU)).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use cluster::runtime::VirtualPods;

    use super::*;

    fn open(path: &Path, nodes: u32, gpus: u32) -> Cluster {
        let mut cluster = cluster(path, Machine { nodes, gpus }, Timestamp(1_000), Box::new(VirtualPods)).unwrap();
        cluster::ClusterFile::new(path).save(&mut cluster).unwrap();
        cluster
    }

    fn shown(cluster: &Cluster) -> Vec<String> {
        let node = |node: &Value| {
            let status = &node["status"];
            let gpus = |of: &str| status[of]["nvidia.com/gpu"].as_str().unwrap_or_default().to_owned();
            let ready = &status["conditions"][0]["status"];
            format!("{} {}/{} {ready}", node["metadata"]["name"], gpus("capacity"), gpus("allocatable"))
        };
        cluster.objects_of(&Resource::new("v1", "Node")).iter().map(|n| node(n).replace('"', "")).collect()
    }

    #[test]
    fn an_existing_directory_follows_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.json");
        assert_eq!(shown(&open(&path, 2, 0)), ["local-1 0/0 True", "local-2 0/0 True"]);
        let mut grown = open(&path, 3, 5);
        assert_eq!(shown(&grown), ["local-1 2/2 True", "local-2 2/2 True", "local-3 1/1 True"]);
        grow(&mut grown, 7);
        grow(&mut grown, 6);
        assert_eq!(shown(&grown)[0], "local-1 4/4 True", "for a job that another process submits");
        grown.node("local-1", NodeState::Unknown).unwrap();
        cluster::ClusterFile::new(&path).save(&mut grown).unwrap();
        assert_eq!(shown(&open(&path, 1, 4)), ["local-1 4/4 True"], "fewer nodes, and the one that was lost is back");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for nodes in [0, MAX_NODES + 1, u32::MAX] {
            let machine = Machine { nodes, gpus: 0 };
            let error = cluster(&directory.path().join("c"), machine, Timestamp(0), Box::new(VirtualPods)).unwrap_err();
            assert!(error.to_string().contains(&format!("--nodes {nodes}")), "{error}");
        }
    }
}
