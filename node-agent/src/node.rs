//! The Node object and its Lease, as a kubelet writes them. Pure. Tests: at the end.

use model::Timestamp;
use serde_json::{Map, Value, json};

use crate::machine::{Machine, architecture};
use crate::options::Options;

/// Namespace of the leases of nodes.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How long a lease is good without being renewed, in seconds: the kubelet's.
const LEASE_SECONDS: u32 = 40;
/// The one address of all nodes of this machine.
const ADDRESS: &str = "127.0.0.1";

/// What an API server may rely on: `WebSocket`s are passed on to this node and need no translation. One before 1.36 drops the member.
const DECLARED_FEATURES: [&str; 1] = ["ExtendWebSocketsToKubelet"];

/// Whether the node takes and runs pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    ShuttingDown,
}

/// The labels every node has, and those asked for.
fn labels(options: &Options) -> Map<String, Value> {
    let usual = [
        ("kubernetes.io/hostname", options.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("node.kubernetes.io/instance-type", "process"),
        ("trainyard.dev/runtime", "process"),
    ];
    let mut labels: Map<String, Value> = usual.map(|(key, value)| (key.to_owned(), json!(value))).into_iter().collect();
    labels.extend(options.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    labels
}

/// The object to create.
pub(crate) fn object(options: &Options, machine: &Machine, now: Timestamp) -> Value {
    let taints: Vec<Value> = options
        .taints
        .iter()
        .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect}))
        .collect();
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": options.node_name, "labels": labels(options)},
        "spec": {},
        "status": status(options, machine, Readiness::Ready, None, now),
    });
    if !taints.is_empty() {
        node["spec"]["taints"] = Value::Array(taints);
    }
    node
}

/// What to change of a node that was registered before: its labels.
pub(crate) fn labels_patch(options: &Options) -> Value {
    json!({"metadata": {"labels": labels(options)}})
}

/// The status, to be merged by kind of condition. `before` is the node as it stands: a condition that says what it said keeps
/// its time.
pub(crate) fn status(
    options: &Options,
    machine: &Machine,
    readiness: Readiness,
    before: Option<&Value>,
    now: Timestamp,
) -> Value {
    let cpus = options.cpus.unwrap_or(machine.cpus);
    let memory = options.memory.as_ref().map_or_else(|| format!("{}Ki", machine.memory_kib), |m| m.as_str().to_owned());
    let mut capacity = json!({
        "cpu": cpus.to_string(),
        "memory": memory,
        "pods": options.pods.to_string(),
        "ephemeral-storage": format!("{}Ki", machine.storage_kib),
    });
    if options.gpus > 0 {
        capacity["nvidia.com/gpu"] = json!(options.gpus.to_string());
    }
    let (ready, reason, message) = match readiness {
        Readiness::Ready => ("True", "NodeAgentReady", "the node agent runs pods as processes"),
        Readiness::ShuttingDown => ("False", "NodeAgentStopped", "the node agent was asked to stop"),
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let known = before.and_then(|node| node["status"]["conditions"].as_array()).into_iter().flatten();
        let same = known.into_iter().find(|old| old["type"] == kind && old["status"] == status);
        let since = same.map_or_else(|| json!(now.to_rfc3339()), |old| old["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now.to_rfc3339(), "lastTransitionTime": since})
    };
    let fine = |kind: &str| condition(kind, "False", "NotMeasured", "this agent does not measure it");
    json!({
        "capacity": capacity.clone(),
        "allocatable": capacity,
        // No host name: an API server would look for it first, and no name server knows it.
        "addresses": [{"type": "InternalIP", "address": ADDRESS}],
        "conditions": [
            fine("MemoryPressure"), fine("DiskPressure"), fine("PIDPressure"),
            condition("Ready", ready, reason, message),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": machine.port}},
        "declaredFeatures": DECLARED_FEATURES,
        "nodeInfo": {
            "architecture": architecture(),
            "operatingSystem": "linux",
            "bootID": machine.boot_id,
            "machineID": machine.id,
            "systemUUID": machine.id,
            "kernelVersion": machine.kernel,
            "osImage": machine.os_image,
            "containerRuntimeVersion": format!("process://{}", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": format!("v{}-trainyard", env!("CARGO_PKG_VERSION")),
            "kubeProxyVersion": "",
        },
    })
}

/// The Lease to create; it goes with its node.
pub(crate) fn lease(name: &str, node_uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
        },
        "spec": lease_spec(name, now),
    })
}

/// The patch that renews it.
pub(crate) fn renewal(name: &str, now: Timestamp) -> Value {
    json!({"spec": lease_spec(name, now)})
}

fn lease_spec(name: &str, now: Timestamp) -> Value {
    json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now)})
}

/// `metav1.MicroTime`, which wants exactly six digits of a second.
fn micro_time(at: Timestamp) -> String {
    let text = at.to_rfc3339();
    format!("{}.{:03}000Z", text.trim_end_matches('Z'), at.0 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let mut options = Options::new("n1", "/data", "/bin/x");
        options.gpus = 8;
        options.cpus = Some(4);
        options.memory = Some("16Gi".parse().unwrap());
        options.labels.insert("rack".to_owned(), "r1".to_owned());
        options.taints.push("runtime=process:NoSchedule".parse().unwrap());
        options
    }

    #[test]
    fn a_node_says_what_it_has() {
        let node = object(&options(), &Machine { storage_kib: 5, ..Machine::default() }, Timestamp(1_000));
        let labels = &node["metadata"]["labels"];
        assert_eq!((&labels["kubernetes.io/hostname"], &labels["rack"]), (&json!("n1"), &json!("r1")));
        assert_eq!(
            node["status"]["allocatable"],
            json!({"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "5Ki", "nvidia.com/gpu": "8"})
        );
        assert_eq!(node["spec"]["taints"], json!([{"key": "runtime", "value": "process", "effect": "NoSchedule"}]));
        let machine = Machine { cpus: 2, memory_kib: 7, ..Machine::default() };
        let plain = object(&Options::new("n1", "/data", "/bin/x"), &machine, Timestamp(1_000));
        assert_eq!(plain["status"]["capacity"]["memory"], "7Ki");
        assert_eq!(plain["status"]["capacity"]["cpu"], "2");
        assert!(plain["status"]["capacity"]["nvidia.com/gpu"].is_null() && plain["spec"]["taints"].is_null());
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let machine = Machine::default();
        let times = |node: &Value, kind: &str| {
            let conditions = node["status"]["conditions"].as_array().unwrap();
            let condition = conditions.iter().find(|c| c["type"] == kind).unwrap();
            let text = |field: &str| condition[field].as_str().unwrap().to_owned();
            (text("status"), text("lastTransitionTime"), text("lastHeartbeatTime"))
        };
        let first = object(&options(), &machine, Timestamp(1_000));
        let (one, two, three) = ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z");
        let second = json!({"status": status(&options(), &machine, Readiness::Ready, Some(&first), Timestamp(2_000))});
        assert_eq!(times(&second, "Ready"), ("True".to_owned(), one.to_owned(), two.to_owned()));
        let third =
            json!({"status": status(&options(), &machine, Readiness::ShuttingDown, Some(&second), Timestamp(3_000))});
        assert_eq!(times(&third, "Ready"), ("False".to_owned(), three.to_owned(), three.to_owned()));
        assert_eq!(times(&third, "DiskPressure"), ("False".to_owned(), one.to_owned(), three.to_owned()));
    }

    #[test]
    fn leases_are_the_nodes_own() {
        let lease = lease("n1", "u1", Timestamp(1_234));
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:01.234000Z");
        assert_eq!(renewal("n1", Timestamp(1_234))["spec"], lease["spec"]);
    }
}
