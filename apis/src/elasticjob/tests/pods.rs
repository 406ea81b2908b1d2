//! Slot -> pod and service.

use serde_json::{Value, json};

use super::super::DESCRIPTOR;
use super::{base, edited, without};
use crate::api::PodApi;
use crate::elasticjob::ElasticJob;
use crate::testing::{self, slot};

const CONTAINERS: &str = "/spec/replicaSpecs/Worker/template/spec/containers";

fn render(object: &Value, index: u32) -> Value {
    testing::render(&ElasticJob, object, &slot("worker", index), 3, 0)
}

fn args(object: &Value) -> Vec<String> {
    let pod = render(object, 0);
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect()
}

fn labels(index: &str) -> Value {
    json!({"group-name": "elastic.pytorch.org", "job-name": "imagenet", "replica-type": "worker", "replica-index": index})
}

fn owner() -> Value {
    json!([{"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "name": "imagenet", "uid": "job-1",
        "controller": true, "blockOwnerDeletion": true}])
}

/// The environment of a worker of `base`.
fn env(rank: &str) -> Value {
    let all = [
        ("MASTER_ADDR", "imagenet-worker-0"),
        ("MASTER_PORT", "29500"),
        ("WORLD_SIZE", "2"),
        ("RANK", rank),
        ("LOCAL_WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("PET_NODE_RANK", rank),
        ("PET_RDZV_BACKEND", "etcd"),
        ("PET_RDZV_ENDPOINT", "etcd-service:2379"),
        ("PET_RDZV_ID", "imagenet"),
        ("PET_NNODES", "1:4"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

#[test]
fn variables_that_the_template_sets_are_its_own() {
    let own = json!([{"name": "A", "value": "$(RANK)"}, {"name": "RANK", "value": "7"}, {"name": "MASTER_PORT", "value": "1"}]);
    let pod = render(&edited(&[(&format!("{CONTAINERS}/0/env"), own.clone())]), 1);
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env[env.len() - 3..], own.as_array().unwrap()[..], "after ours, which they may refer to");
    let names = |name: &str| env.iter().filter(|variable| variable["name"] == name).count();
    assert_eq!((names("RANK"), names("MASTER_PORT"), names("WORLD_SIZE")), (1, 1, 1), "{env:?}");
}

#[test]
fn a_pod_is_the_template_with_name_labels_owner_and_the_launchers_arguments() {
    let pod = render(&base(), 1);
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "imagenet-worker-1", "namespace": "elastic-job", "labels": labels("1"),
                "annotations": {"trainyard.dev/incarnation": "3"}, "ownerReferences": owner()},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "elasticjob-worker", "image": "img:1", "args": [
                "--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet", "--nnodes=1:4",
                "--nproc_per_node=1", "main.py"], "env": env("1"),
                "terminationMessagePolicy": "FallbackToLogsOnError"}]},
        })
    );
    assert_eq!(ElasticJob.slot_of(&pod), Some(slot("worker", 1)));
    assert!(DESCRIPTOR.selector().selects(&pod));
    assert_eq!(ElasticJob.main_containers(&pod), ["elasticjob-worker"]);
}

#[test]
fn no_container_restarts_in_a_pod_that_is_restarted_with_the_others() {
    let policy = |scope: &[(&str, serde_json::Value)]| {
        let policy = [("/spec/replicaSpecs/Worker/restartPolicy", json!("OnFailure"))];
        render(&edited(&[&policy[..], scope].concat()), 1)["spec"]["restartPolicy"].clone()
    };
    let scope = |word: &str| [("/metadata/annotations", json!({"trainyard.dev/restart-scope": word}))];
    assert_eq!(policy(&scope("All")), "Never");
    assert_eq!((policy(&scope("Pod")), policy(&[])), (json!("OnFailure"), json!("OnFailure")));
}

#[test]
fn a_container_keeps_its_last_words_unless_the_template_says_otherwise() {
    let policy = |own: serde_json::Value| {
        let path = format!("{CONTAINERS}/0/terminationMessagePolicy");
        render(&edited(&[(&path, own)]), 1)["spec"]["containers"][0]["terminationMessagePolicy"].clone()
    };
    assert_eq!(policy(json!("File")), "File");
    assert_eq!(
        (policy(json!("")), policy(json!(null))),
        (json!("FallbackToLogsOnError"), json!("FallbackToLogsOnError"))
    );
    let init = json!([{"name": "prepare", "image": "img:1"}]);
    let pod = render(&edited(&[("/spec/replicaSpecs/Worker/template/spec/initContainers", init)]), 1);
    assert_eq!(pod["spec"]["initContainers"][0]["terminationMessagePolicy"], "FallbackToLogsOnError");
}

#[test]
fn a_service_has_the_pods_name_and_selects_it() {
    assert_eq!(
        testing::render_service(&ElasticJob, &base(), &slot("worker", 0)),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "imagenet-worker-0", "namespace": "elastic-job", "labels": labels("0"), "ownerReferences": owner()},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": labels("0")},
        })
    );
}

#[test]
fn the_range_is_what_was_written_and_else_the_number_of_replicas() {
    for (taken, range, shape) in [
        (vec![], "--nnodes=1:4", json!(null)),
        (vec!["/spec/minReplicas"], "--nnodes=2:4", json!("2:4")),
        (vec!["/spec/maxReplicas"], "--nnodes=1:2", json!("1:2")),
        (vec!["/spec/minReplicas", "/spec/maxReplicas"], "--nnodes=2:2", json!("2:2")),
        // EJ-22
        (vec!["/spec/replicaSpecs/Worker/replicas"], "--nnodes=1:4", json!(null)),
    ] {
        let job = without(&taken);
        assert_eq!(args(&job)[3], range, "{taken:?}");
        assert_eq!(render(&job, 0)["metadata"]["annotations"]["trainyard.dev/shape"], shape, "{taken:?}");
    }
}

#[test]
fn the_back_end_is_that_of_the_annotation() {
    for (word, endpoint, want) in [
        ("etcd", "etcd-service:2379", ["--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379"]),
        ("etcd-v2", "etcd-service:2379", ["--rdzv_backend=etcd-v2", "--rdzv_endpoint=etcd-service:2379"]),
        ("c10d", "imagenet-worker-0:1234", ["--rdzv_backend=c10d", "--rdzv_endpoint=imagenet-worker-0:1234"]),
        ("c10d", "imagenet-worker-0", ["--rdzv_backend=c10d", "--rdzv_endpoint=imagenet-worker-0"]),
        ("c10d", "etcd-service:2379", ["--rdzv_backend=c10d", "--rdzv_endpoint=imagenet-worker-0:29400"]),
        ("c10d", "", ["--rdzv_backend=c10d", "--rdzv_endpoint=imagenet-worker-0:29400"]),
    ] {
        let job = edited(&[
            ("/metadata/annotations", json!({"elastic.pytorch.org/rdzv-backend": word})),
            ("/spec/rdzvEndpoint", json!(endpoint)),
        ]);
        assert_eq!(args(&job)[..2], want, "{word} {endpoint}");
    }
}

#[test]
fn only_the_launchers_container_gets_arguments_where_it_can_be_reported() {
    let given = |containers: Value| -> Vec<usize> {
        let pod = render(&edited(&[(CONTAINERS, containers)]), 0);
        let containers = pod["spec"]["containers"].as_array().unwrap();
        containers.iter().map(|container| container["args"].as_array().map_or(0, Vec::len)).collect()
    };
    let own = json!(["a"]);
    assert_eq!(
        given(json!([{"name": "side", "image": "i", "args": own}, {"name": "elasticjob-worker", "image": "i"}])),
        [1, 4]
    );
    assert_eq!(
        given(json!([{"name": "torchelasticworker", "image": "i", "args": own}, {"name": "side", "image": "i"}])),
        [5, 4]
    );
    assert_eq!(given(json!([{"name": "trainer", "image": "i", "args": null, "command": ["torchrun"]}])), [4]);
    let mut job = base();
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] =
        json!([{"name": "init", "image": "i"}]);
    assert!(render(&job, 0)["spec"]["initContainers"][0].get("args").is_none());
}

#[test]
fn the_container_that_counts_is_the_launchers_or_the_first() {
    for (names, want) in [
        (vec!["side", "elasticjob-worker"], vec!["elasticjob-worker"]),
        (vec!["trainer", "side"], vec!["trainer"]),
        (vec![], vec![]),
    ] {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        assert_eq!(ElasticJob.main_containers(&json!({"spec": {"containers": containers}})), want);
    }
}

#[test]
fn the_templates_members_stay_and_our_labels_win() {
    let mut job = base();
    let template = &mut job["spec"]["replicaSpecs"]["Worker"]["template"];
    template["metadata"] = json!({"creationTimestamp": null, "labels": {"a": "b", "replica-index": "9"},
        "annotations": {"c": "d"}, "finalizers": ["example.com/f"], "name": "zzz"});
    let constraint =
        json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "novel": [1.0, null]});
    template["spec"]["topologySpreadConstraints"] = json!([constraint]);
    template["spec"]["restartPolicy"] = json!("Always");
    let pod = render(&job, 0);
    let metadata = &pod["metadata"];
    assert_eq!((&metadata["labels"]["a"], &metadata["labels"]["replica-index"]), (&json!("b"), &json!("0")));
    assert_eq!(metadata["annotations"], json!({"c": "d", "trainyard.dev/incarnation": "3"}));
    assert_eq!((&metadata["finalizers"], &metadata["name"]), (&json!(["example.com/f"]), &json!("imagenet-worker-0")));
    assert_eq!(pod["spec"]["topologySpreadConstraints"], json!([constraint]));
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert!(metadata.get("creationTimestamp").is_none());
}

#[test]
fn every_group_gets_pods_and_services_of_its_name() {
    let mut helper = base()["spec"]["replicaSpecs"]["Worker"].clone();
    helper["restartPolicy"] = json!("OnFailure");
    let job = edited(&[("/spec/replicaSpecs/Etcd", helper)]);
    let pod = testing::render(&ElasticJob, &job, &slot("etcd", 0), 1, 0);
    assert_eq!(
        (&pod["metadata"]["name"], &pod["spec"]["restartPolicy"]),
        (&json!("imagenet-etcd-0"), &json!("OnFailure"))
    );
    assert_eq!(pod["spec"]["containers"][0]["args"][3], "--nnodes=1:4");
    let service = testing::render_service(&ElasticJob, &job, &slot("etcd", 0));
    assert_eq!(service["spec"]["selector"]["replica-type"], "etcd");
}
