//! Nodes that differ, and jobs that choose among them: by a label, by a taint, and by CPUs and memory.
//!
//! Half of the walks have them. Labels and taints of nodes change while jobs run. What happens to all nodes is in [`super`].

use cluster::Cluster;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use simulator::scenario::NodeSpec;

use super::super::{below, core, pick};

/// Label by which jobs choose nodes.
const ZONE: &str = "zone";
const ZONES: [&str; 2] = ["east", "west"];
/// Key of the taint that some jobs tolerate.
const TAINT: &str = "team";

/// Draws the label, CPUs and memory of a node.
pub(super) fn vary(rng: &mut TestRng, node: &mut NodeSpec) {
    node.labels.insert(ZONE.to_owned(), pick(rng, &ZONES));
    node.cpu = Some(pick(rng, &["4", "8", "8", "16"]));
    node.memory = Some(pick(rng, &["16Gi", "64Gi"]));
}

/// Draws what the pods of a template need of their nodes. A job's groups with GPUs are its only ones here.
pub(super) fn choose(rng: &mut TestRng, template: &mut Value) {
    let spec = &mut template["spec"];
    if below(rng, 3) == 0 {
        spec["nodeSelector"] = json!({ZONE: pick(rng, &ZONES)});
    }
    if below(rng, 4) == 0 {
        let zone = json!({"key": ZONE, "operator": pick(rng, &["In", "NotIn"]), "values": [pick(rng, &ZONES)]});
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}});
    }
    if below(rng, 2) == 0 {
        spec["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
    }
    let memory = pick(rng, &["1Gi", "8Gi"]);
    spec["containers"][0]["resources"]["requests"] = json!({"cpu": 1 + below(rng, 5), "memory": memory});
}

/// Puts a taint on a node, takes it off, or moves the node to another zone. Returns what was done, in words.
pub(super) fn change(rng: &mut TestRng, cluster: &mut Cluster, node: &str) -> String {
    let patch = match below(rng, 3) {
        0 => json!({"spec": {"taints": [{"key": TAINT, "value": "x", "effect": "NoSchedule"}]}}),
        1 => json!({"spec": {"taints": null}}),
        _ => json!({"metadata": {"labels": {ZONE: pick(rng, &ZONES)}}}),
    };
    drop(cluster.merge_patch(&core("Node"), "", node, &patch, false));
    format!("{node}: {patch}")
}

/// Takes the taints off all nodes.
pub(super) fn heal(cluster: &mut Cluster, nodes: &[&str]) {
    for node in nodes {
        drop(cluster.merge_patch(&core("Node"), "", node, &json!({"spec": {"taints": null}}), false));
    }
}
