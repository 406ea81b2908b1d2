//! Pods for which no job has places: amounts that they hold on nodes. A pod counts from when it has a node until it has ended.
//!
//! Reads pods that no watch of a served API shows, and those of jobs that request no GPU, such as launchers: queues place only pods with GPUs.
//! Nothing else is kept of them. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{FieldError, ResourceVersion, Text, Uid};
use serde_json::Value;

use crate::demand;
use crate::objects::{at, resource_version, text_at, uid};

/// A pod of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignPod {
    /// Its uid.
    pub uid: Uid,
    /// Its version.
    pub rv: ResourceVersion,
    /// Its node; empty without one.
    pub node: Text,
    /// Amounts that it holds there; zero for a pod that has no node or has ended.
    pub amounts: PodAmounts,
}

/// Amounts of a pod, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAmounts {
    /// GPUs by resource.
    pub gpus: BTreeMap<Text, u32>,
    /// Requests of other resources, and the number of pods, in thousandths of their units.
    pub requests: BTreeMap<Text, u64>,
}

impl PodAmounts {
    /// Adds the amounts of a pod.
    pub fn add(&mut self, pod: &Self) {
        change(&mut self.gpus, &pod.gpus, u32::saturating_add);
        change(&mut self.requests, &pod.requests, u64::saturating_add);
    }

    /// Takes the amounts of a pod off.
    pub fn take(&mut self, pod: &Self) {
        change(&mut self.gpus, &pod.gpus, u32::saturating_sub);
        change(&mut self.requests, &pod.requests, u64::saturating_sub);
    }
}

/// Changes sums by amounts; those of zero are left out.
fn change<V: Copy + Default + PartialEq>(sums: &mut BTreeMap<Text, V>, by: &BTreeMap<Text, V>, with: fn(V, V) -> V) {
    for (resource, amount) in by {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = with(*sum, *amount);
    }
    sums.retain(|_, sum| *sum != V::default());
}

/// Reads a pod.
///
/// # Errors
/// Returns an error if the object has no uid.
pub(crate) fn pod(object: &Value) -> Result<ForeignPod, FieldError> {
    let node = Text::from(text_at(object, &["spec", "nodeName"]).unwrap_or_default());
    let counts = !node.is_empty() && !crate::pod::phase(object).is_terminal();
    let amounts = at(object, &["spec"]).filter(|_| counts).map(demand::amounts).unwrap_or_default();
    Ok(ForeignPod { uid: uid(object)?, rv: resource_version(object), node, amounts })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_counts_on_its_node_until_it_has_ended() {
        let of = |node: &str, phase: &str| {
            let container = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": 1}}});
            let object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
                "spec": {"nodeName": node, "containers": [container, container]}, "status": {"phase": phase}});
            pod(&object).unwrap().amounts
        };
        let gpus = BTreeMap::from([("nvidia.com/gpu".into(), 4)]);
        let requests = BTreeMap::from([("cpu".into(), 2000), ("pods".into(), 1000)]);
        let all = PodAmounts { gpus, requests };
        for (node, phase, counts) in [
            ("n1", "Running", true),
            ("n1", "Pending", true),
            ("n1", "", true),
            ("", "Pending", false),
            ("n1", "Succeeded", false),
            ("n1", "Failed", false),
        ] {
            let want = if counts { all.clone() } else { PodAmounts::default() };
            assert_eq!(of(node, phase), want, "{node} {phase}");
        }
        assert_eq!(pod(&json!({})).unwrap_err().path, "metadata.uid");
    }
}
