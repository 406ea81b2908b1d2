//! Simulated nodes as objects: names, labels, addresses and capacity as real GPU nodes have them.

use serde_json::{Value, json};

/// A list of nodes for `kubectl create`: Ready from the start, so that none of them needs another write. Times are those
/// of the API server.
pub(crate) fn list(range: std::ops::Range<u32>, gpus: u32) -> Value {
    let items: Vec<Value> = range.map(|index| node(index, gpus)).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn node(index: u32, gpus: u32) -> Value {
    let name = format!("node-{index}");
    let [_, high, middle, low] = index.to_be_bytes();
    // One per zone in turn, as node pools over several zones are.
    let zone = format!("local-{}", ["a", "b", "c"].get(index as usize % 3).unwrap_or(&"a"));
    let pods = format!("10.{middle}.{low}.0/24");
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": labels(&name, &zone, gpus),
        },
        "spec": {"podCIDR": pods, "podCIDRs": [pods], "providerID": format!("kwok://{name}")},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": format!("172.{}.{middle}.{low}", 16 + (high & 15))},
                {"type": "Hostname", "address": name},
            ],
            "capacity": capacity(gpus),
            "allocatable": capacity(gpus),
            "conditions": conditions(),
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "kernelVersion": "6.12.0",
                "containerRuntimeVersion": "kwok://0.8.0",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
            },
        },
    })
}

fn labels(name: &str, zone: &str, gpus: u32) -> Value {
    let kind = if gpus == 0 { "simulated.cpu-96".to_owned() } else { format!("simulated.gpu-{gpus}") };
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        // The controller manager would add these two, with a write for each node.
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": "local",
        "topology.kubernetes.io/zone": zone,
        "trainyard.dev/node": "simulated",
    });
    if let (Some(labels), true) = (labels.as_object_mut(), gpus > 0) {
        labels.insert("nvidia.com/gpu.present".into(), "true".into());
        labels.insert("nvidia.com/gpu.count".into(), gpus.to_string().into());
        labels.insert("nvidia.com/gpu.product".into(), "NVIDIA-H100-80GB-HBM3".into());
    }
    labels
}

fn capacity(gpus: u32) -> Value {
    let mut capacity = json!({
        "cpu": "96",
        "memory": "1152Gi",
        "ephemeral-storage": "1Ti",
        "pods": "250",
        "hugepages-2Mi": "0",
    });
    if let (Some(capacity), true) = (capacity.as_object_mut(), gpus > 0) {
        capacity.insert("nvidia.com/gpu".into(), gpus.to_string().into());
    }
    capacity
}

fn conditions() -> Value {
    let pressure = |kind: &str, reason: &str| json!({"type": kind, "status": "False", "reason": reason});
    json!([
        pressure("MemoryPressure", "KubeletHasSufficientMemory"),
        pressure("DiskPressure", "KubeletHasNoDiskPressure"),
        pressure("PIDPressure", "KubeletHasSufficientPID"),
        pressure("NetworkUnavailable", "RouteCreated"),
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kwok answers for this node"},
    ])
}
