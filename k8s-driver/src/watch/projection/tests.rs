//! Checks that the kept members are those that are read: whole and projected objects give the same facts.

use std::collections::BTreeSet;

use apis::{Registry, Resource, objects};
use model::JudgedNode;
use serde_json::{Value, json};

use super::*;
use crate::watch::decode::{self, ObjectType};

fn project(object: &Value, fields: FieldMask) -> Value {
    let Resource { api_version, kind } = Resource::of(object);
    let bytes = serde_json::to_vec(object).unwrap();
    decode::object(&bytes, &ObjectType { api_version, kind, fields }).unwrap()
}

/// Members that a real API server adds, and more.
fn fattened(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata
        .insert("managedFields".to_owned(), json!([{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]));
    metadata.entry("creationTimestamp").or_insert_with(|| json!("2024-02-29T00:00:00Z"));
    if metadata.get("annotations").is_none_or(Value::is_null) {
        metadata.insert("annotations".to_owned(), json!({}));
    }
    metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("x".repeat(10_000));
    object
}

/// Everything that is read of an object, by whatever reads it.
fn facts(registry: &Registry, object: &Value) -> String {
    match object["kind"].as_str().unwrap() {
        "Pod" | "Service" => {
            let owner = registry.owner(object);
            let apis = registry.iter().map(|api| {
                (
                    apis::pod::fact(&**api, object),
                    apis::service::fact(&**api, object),
                    api.slot_of(object),
                    objects::incarnation(object),
                )
            });
            format!("{owner:?} {:?}", apis.collect::<Vec<_>>())
        }
        "Node" => format!("{:?}", apis::node::fact(object)),
        "ResourceQuota" => format!("{:?}", apis::quota::fact(object)),
        "Namespace" => format!("{:?}", apis::namespace::fact(object)),
        "PersistentVolumeClaim" | "Workload" | "ContainerRecreateRequest" => {
            format!("{:?} {:?}", registry.owner(object), apis::owned::fact(object))
        }
        _ => {
            let api = registry.get(&Resource::of(object)).unwrap();
            let read = (api.object_fact(object), api.spec_fact(object), api.adopt(object));
            let inputs = api.spec_inputs(object);
            format!("{:?} {read:?} {inputs} {:?}", registry.job_key(object), objects::mirror_stamp(object))
        }
    }
}

fn keep_of(kind: &str) -> FieldMask {
    match kind {
        "Pod" => POD,
        "Service" => SERVICE,
        "Node" => NODE,
        "PersistentVolumeClaim" | "Workload" | "ContainerRecreateRequest" => OWNED,
        "ResourceQuota" => QUOTA,
        "Namespace" => NAMESPACE,
        _ => JOB,
    }
}

#[test]
fn every_object_of_every_scenario_reads_the_same_when_project() {
    let registry = Registry::all();
    let mut seen = BTreeSet::new();
    let mut kinds: std::collections::BTreeMap<String, (usize, usize, usize)> = std::collections::BTreeMap::new();
    for named in fixtures::all_scenarios().unwrap() {
        let Ok(outcome) = named.scenario.map_err(|_| ()).and_then(|s| simulator::run(&s).map_err(|_| ())) else {
            continue;
        };
        for object in outcome.steps.iter().flat_map(|step| &step.objects) {
            let kind = object["kind"].as_str().unwrap_or_default();
            let owned = ["PersistentVolumeClaim", "Workload", "ContainerRecreateRequest"];
            let of_all = [&owned[..], &["Pod", "Service", "Node", "ResourceQuota", "Namespace"]].concat();
            let known = of_all.contains(&kind) || registry.get(&Resource::of(object)).is_some();
            if !known || !seen.insert(object.to_string()) {
                continue;
            }
            let whole = fattened(object);
            let small = project(&whole, keep_of(kind));
            // What the answer of the original, not fattened, would read must not differ either.
            assert_eq!(facts(&registry, object), facts(&registry, &small), "{}: {object}", named.name);
            let sizes = kinds.entry(kind.to_owned()).or_default();
            *sizes = (sizes.0 + 1, sizes.1 + whole.to_string().len(), sizes.2 + small.to_string().len());
        }
    }
    // The former name of a kind has few scenarios of its own.
    let least = |is_former| if is_former { 2 } else { 20 };
    let jobs = registry.iter().map(|api| (api.resource().kind.to_string(), least(api.descriptor().is_former)));
    let others = [
        ("Pod", 500),
        ("Service", 150),
        ("Node", 20),
        ("AITrainingJob", 500),
        ("ElasticJob", 100),
        ("TorchrunJob", 100),
        ("PersistentVolumeClaim", 20),
        ("Workload", 20),
        ("ContainerRecreateRequest", 5),
        ("Namespace", 2),
    ];
    for (kind, least) in others.map(|(kind, least)| (kind.to_owned(), least)).into_iter().chain(jobs) {
        let (count, whole, small) = kinds[&kind];
        assert!(count >= least, "{kind}: only {count} objects were looked at");
        assert!(small * 3 < whole * 2, "{kind}: {small} of {whole} bytes are kept");
    }
}

#[test]
fn foreign_members_are_left_out_and_odd_types_do_no_harm() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "managedFields": [1], "annotations": {"a": "b", "trainyard.dev/incarnation": "3", "trainyard.dev/shape": "1:2"},
            "ownerReferences": [{"kind": "K", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "env": [{"name": "E"}]}]},
        "status": {"phase": "Running", "podIP": "1.2.3.4", "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}],
            "initContainerStatuses": [{"name": "d", "restartCount": 1, "state": {}}],
            "containerStatuses": [{"name": "c", "image": "i", "restartCount": 2, "lastState": {"running": {}},
                "state": {"terminated": {"exitCode": 3, "startedAt": "x"}}}]}});
    assert_eq!(
        project(&pod, POD),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "uid": "u", "annotations": {"trainyard.dev/incarnation": "3", "trainyard.dev/shape": "1:2"},
                "ownerReferences": [{"kind": "K", "controller": true}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "initContainerStatuses": [{"name": "d", "restartCount": 1, "state": {}}],
                "containerStatuses": [{"name": "c", "restartCount": 2, "lastState": {}, "state": {"terminated": {"exitCode": 3}}}]}})
    );
    for odd in [json!(null), json!(3), json!(-3), json!(1.5), json!(true), json!("x"), json!([{"name": "n"}])] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": odd, "status": odd, "spec": {"nodeName": odd}});
        let registry = Registry::all();
        assert_eq!(facts(&registry, &pod), facts(&registry, &project(&pod, POD)), "{odd}");
    }
}

#[test]
fn a_job_loses_nothing_but_what_other_tools_wrote() {
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "j", "managedFields": [], "annotations":
            {"Preempted": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"}, "finalizers": ["f"]},
        "spec": {"x": {"annotations": 1, "managedFields": 2}}, "status": {"trainyard": {"term": 1}}});
    let mut want = job.clone();
    want["metadata"].as_object_mut().unwrap().remove("managedFields");
    want["metadata"]["annotations"].as_object_mut().unwrap().remove("kubectl.kubernetes.io/last-applied-configuration");
    assert_eq!(project(&job, JOB), want);
}

#[test]
fn of_a_node_all_is_kept_that_is_judged_and_little_else() {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "managedFields": [1]},
        "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"}, "images": [{"names": ["i"]}], "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2024-02-29T00:00:00Z", "reason": "KubeletReady"},
            {"type": "GpuUnhealthy", "status": "True", "message": "Xid 79"}]}});
    let small = project(&node, NODE);
    let fact = |object: &Value| apis::node::fact(object).unwrap();
    assert_eq!(fact(&small), fact(&node));
    let (conditions, gpus) = (["GpuUnhealthy".into()], [("nvidia.com/gpu".into(), 8)].into());
    let labels = [("a".into(), "b".into())].into();
    let taints = [model::Taint { key: "k".into(), value: "v".into(), effect: "NoSchedule".into() }];
    let allocatable = [("cpu".into(), 64_000)].into();
    let judged = JudgedNode {
        ready: true,
        conditions: &conditions,
        gpus: &gpus,
        closed: true,
        labels: &labels,
        taints: &taints,
        allocatable: &allocatable,
    };
    assert_eq!(fact(&small).judged(), judged, "the node shows each judged member");
    // A heartbeat is distinguished from a change by what is judged: the two lists of members cannot differ.
    for path in fixtures::paths(&small) {
        let without = apis::node::fact(&without(&small, &path));
        let matters = without.as_ref().ok() != Some(&fact(&small));
        assert!(
            matters || ["/apiVersion", "/kind", "/metadata/uid"].contains(&path.as_str()),
            "{path} is kept for nothing"
        );
        let judged = without.as_ref().map(model::NodeFact::judged).ok() != Some(fact(&small).judged());
        assert_eq!(
            judged,
            ["/status", "/spec", "/metadata/labels"].iter().any(|judged| path.starts_with(judged))
                || path == "/metadata/name"
                || path == "/metadata",
            "{path}"
        );
    }
}

fn without(object: &Value, path: &str) -> Value {
    let mut object = object.clone();
    let (parent, name) = path.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Object(members) => {
            members.remove(&name.replace("~1", "/"));
        }
        Value::Array(items) => {
            items.remove(name.parse().unwrap());
        }
        other => panic!("{other}"),
    }
    object
}
