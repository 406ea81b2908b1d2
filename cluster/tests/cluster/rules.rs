//! What is refused of metadata, pods and services.

use serde_json::{Value, json};

use crate::common::*;

#[test]
fn pods_and_services_are_checked_like_on_a_server() {
    type Edit = fn(&mut Value);
    let pods: [(Edit, &str); 20] = [
        (|m| m["metadata"]["name"] = json!("a.b-c"), ""),
        (|m| m["metadata"]["name"] = json!("UPPER"), "metadata.name"),
        (|m| m["metadata"]["name"] = json!("x".repeat(254)), "metadata.name"),
        (|m| m["metadata"]["labels"] = json!({"a/b": "", "c": "D_e.f"}), ""),
        (|m| m["metadata"]["labels"] = json!({"JobName": "x".repeat(64)}), "metadata.labels"),
        (|m| m["metadata"]["labels"] = json!({"a": "with space"}), "metadata.labels"),
        (|m| m["metadata"]["labels"] = json!({"-a": "b"}), "metadata.labels"),
        (|m| m["metadata"]["labels"] = json!({"a": 1}), "metadata.labels.a"),
        (|m| m["metadata"]["annotations"] = json!({"A/b": "any text\n"}), ""),
        (|m| m["metadata"]["annotations"] = json!({"a": true}), "metadata.annotations.a"),
        (|m| m["metadata"]["annotations"] = json!({"a": "x".repeat(262_144)}), "metadata.annotations: Too long"),
        (|m| m["metadata"]["ownerReferences"] = json!([{"kind": "Pod"}]), "metadata.ownerReferences[0].uid"),
        (|m| m["metadata"]["finalizers"] = json!([" "]), "metadata.finalizers[0]"),
        (|m| m["spec"]["containers"] = json!([]), "spec.containers: Required value"),
        (|m| m["spec"]["containers"][0]["name"] = json!("Main"), "spec.containers[0].name"),
        (|m| m["spec"]["initContainers"] = json!([{"name": "main"}]), "Duplicate value: \"main\""),
        (
            |m| m["spec"]["containers"][0]["ports"] = json!([{"containerPort": 0}]),
            "spec.containers[0].ports[0].containerPort",
        ),
        (
            |m| m["spec"]["containers"][0]["ports"] = json!([{"name": "a-name-that-is-long", "containerPort": 1}]),
            "spec.containers[0].ports[0].name",
        ),
        (|m| m["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": 1}]), "spec.containers[0].env[0].value"),
        (|m| m["spec"]["restartPolicy"] = json!("Sometimes"), "spec.restartPolicy: Unsupported value"),
    ];
    let services: [(Edit, &str); 7] = [
        (|m| m["spec"] = json!({"clusterIP": "None"}), ""),
        (|m| m["spec"] = json!({}), "spec.ports: Required value"),
        (|m| m["metadata"]["name"] = json!("1st"), "DNS-1035"),
        (|m| m["metadata"]["name"] = json!("a.b"), "DNS-1035"),
        (|m| m["spec"] = json!({"ports": [{"port": 1}, {"port": 2}]}), "spec.ports[0].name: Required value"),
        (
            |m| m["spec"] = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}),
            "spec.ports[1]: Duplicate value: 1",
        ),
        (
            |m| {
                m["spec"] = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1, "protocol": "UDP"}]});
            },
            "",
        ),
    ];
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "p"}, "spec": {"clusterIP": "None"}});
    let bases = [pod_manifest("p", &[]), service];
    for (base, cases) in bases.iter().zip([pods.as_slice(), services.as_slice()]) {
        for (edit, why) in cases {
            let mut manifest = base.clone();
            edit(&mut manifest);
            match create(&mut cluster(), &manifest) {
                Ok(_) => assert_eq!(*why, "", "{manifest}"),
                Err(error) => {
                    assert_eq!(error.code, 422, "{error}");
                    assert!(!why.is_empty() && error.message.contains(why), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_pods_spec_is_settled() {
    let mut cluster = cluster();
    create(&mut cluster, &pod_manifest("p", &[])).unwrap();
    let refused = patch(&mut cluster, "Pod", "p", json!({"spec": {"nodeName": "n1"}}));
    assert!(refused.unwrap_err().message.contains("pod updates may not change fields other than"));
    let image = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
    let patched = patch(&mut cluster, "Pod", "p", image).unwrap();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(verdict(&patch(&mut cluster, "Pod", "p", json!({"metadata": {"labels": {"a": "b"}}}))), "ok");
}
