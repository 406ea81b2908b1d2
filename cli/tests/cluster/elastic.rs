//! Tests `ElasticJob`s with kubectl, beside `AITrainingJob`s that the same operator serves: manifests, columns, `scale`,
//! `wait`, `explain`, events, deletion in time, takeover from the original controller, and a failover.

use std::collections::BTreeMap;
use std::path::Path;

use control_plane::{Options, until};
use serde_json::{Value, json};

use crate::common::{Cluster, file};
use crate::kubectl::with_input;
use crate::operator::Operator;

/// Maximum time that `kubectl wait` waits, as its argument.
const WAIT: &str = "--timeout=90s";

/// A job of two workers that nothing is wrong with.
fn job(name: &str) -> Value {
    json!({"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"rdzvEndpoint": "etcd-service:2379", "minReplicas": 1, "maxReplicas": 4,
            "replicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "ExitCode",
                "template": {"apiVersion": "v1", "kind": "Pod",
                    "spec": {"containers": [{"name": "elasticjob-worker", "image": "none", "args": ["main.py"]}]}}}}}})
}

/// The same, whose pods end well after a while.
fn short_job(name: &str, runs_for: &str) -> Value {
    let mut job = job(name);
    job["spec"]["replicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({"annotations": {"trainyard.dev/kwok-run-for": runs_for}});
    job
}

fn create(cluster: &Cluster, object: &Value) {
    let (code, says) = with_input(cluster, &["create", "--validate=strict"], &object.to_string());
    assert_eq!(code, 0, "{says}");
}

/// Uids of a job's pods that are not being deleted, by name.
fn pods(cluster: &Cluster, job: &str) -> BTreeMap<String, String> {
    let list = cluster.get("default", &["pods", "--selector", &format!("job-name={job}")]);
    let text = |pod: &Value, member: &str| pod["metadata"][member].as_str().unwrap_or_default().to_owned();
    let stays = |pod: &&Value| pod["metadata"].get("deletionTimestamp").is_none();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter(stays).map(|pod| (text(pod, "name"), text(pod, "uid"))).collect()
}

fn until_pods(cluster: &Cluster, job: &str, count: usize) -> BTreeMap<String, String> {
    until(&format!("{job} has {count} pods"), || {
        let pods = pods(cluster, job);
        if pods.len() == count { Ok(pods) } else { Err(format!("{pods:?}")) }
    })
}

/// The condition of a type of a job.
fn condition(cluster: &Cluster, job: &str, kind: &str) -> Option<Value> {
    let job = cluster.get("default", &["elasticjob", job]);
    job["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
}

fn words_of(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn manifests_are_taken_or_refused_by_path(cluster: &Cluster) {
    let sample = file("deploy/samples/torch-elastic.yaml");
    let words = ["create", "--validate=strict", "--dry-run=server", "--namespace=default"];
    let (code, says) = with_input(cluster, &words, &sample);
    assert!(code == 0 && says.contains("created (server dry run)"), "{says}");
    let rows = [
        ("/spec/minReplicas", json!(0), "spec.minReplicas"),
        ("/spec/replicaSpecs/Worker/replicas", json!(-1), "spec.replicaSpecs.Worker.replicas"),
        ("/spec", json!("x"), "spec"),
    ];
    for (pointer, value, path) in rows {
        let mut bad = job("bad");
        *bad.pointer_mut(pointer).unwrap() = value.clone();
        let (code, says) = with_input(cluster, &["create", "--validate=strict"], &bad.to_string());
        assert_ne!(code, 0, "{pointer} = {value} was taken: {says}");
        assert!(says.contains(path) && says.contains("is invalid"), "{pointer}: {says}");
    }
}

/// A value that the definition accepts becomes a condition that names field and value.
fn bad_input_becomes_a_condition(cluster: &Cluster) {
    let rows = [
        ("/spec/minReplicas", json!(3), "spec.replicaSpecs.Worker.replicas: must be at least minReplicas, which is 3"),
        ("/spec/maxReplicas", json!(1), "spec.replicaSpecs.Worker.replicas: must be at most maxReplicas, which is 1"),
        ("/spec/replicaSpecs/Worker/restartPolicy", json!("Sometimes"), "spec.replicaSpecs.Worker.restartPolicy: "),
    ];
    for (at, (pointer, value, says)) in rows.iter().enumerate() {
        let name = format!("bad-{at}");
        let mut bad = job(&name);
        *bad.pointer_mut(pointer).unwrap() = value.clone();
        create(cluster, &bad);
        cluster.kubectl(&["wait", &format!("elasticjob/{name}"), "--for=condition=Invalid", WAIT]);
        let invalid = condition(cluster, &name, "Invalid").unwrap();
        assert!(invalid["message"].as_str().unwrap().contains(says), "{invalid}");
        assert!(pods(cluster, &name).is_empty());
        cluster.kubectl(&["delete", "elasticjob", &name]);
    }
}

fn fields_are_explained(cluster: &Cluster) {
    for (field, says) in [
        ("elasticjob", "A training job whose number of workers may change while it runs."),
        ("elasticjob.spec.minReplicas", "The least number of workers"),
        ("elasticjob.spec.replicaSpecs.replicas", "Number of pods, with indices from 0"),
    ] {
        let text = cluster.kubectl(&["explain", field]);
        let text = words_of(&text).join(" ");
        assert!(text.contains(says), "{field}: {text}");
    }
}

/// A job of each API by one operator; the elastic one is looked at and scaled.
fn two_apis_run_side_by_side(cluster: &Cluster) {
    let other = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "run", "namespace": "default"},
        "spec": {"replicaSpecs": {"w": {"replicas": 1,
            "template": {"spec": {"containers": [{"name": "aitj-main", "image": "none"}]}}}}}});
    create(cluster, &other);
    create(cluster, &job("run"));
    cluster.kubectl(&["wait", "aitj/run", "--for=jsonpath={.status.phase}=Running", WAIT]);
    cluster.kubectl(&["wait", "elasticjob/run", "--for=condition=Running", WAIT]);
    let uid = cluster.get("default", &["pod", "run-w-0"])["metadata"]["uid"].clone();

    let table = cluster.kubectl(&["get", "elasticjobs"]);
    let lines: Vec<&str> = table.lines().collect();
    let columns =
        ["NAME", "STATE", "MIN", "MAX", "DESIRED", "RDZVENDPOINT", "READY", "RESTARTS", "QUEUE", "REASON", "AGE"];
    assert_eq!(words_of(lines[0]), columns);
    assert_eq!(words_of(lines[1])[..6], ["run", "Running", "1", "4", "2", "etcd-service:2379"], "{table}");
    until("kubectl describe shows what was done", || {
        let described = cluster.kubectl(&["describe", "elasticjob", "run"]);
        let events = described.split_once("Events:").unwrap().1;
        let reported = events.contains("SuccessfulCreatePod") && events.contains("run-worker-1");
        if reported && described.contains("Replica Statuses:") { Ok(()) } else { Err(described) }
    });

    let before = until_pods(cluster, "run", 2);
    cluster.kubectl(&["scale", "elasticjob/run", "--replicas=4"]);
    let more = until_pods(cluster, "run", 4);
    assert!(before.iter().all(|(name, uid)| more.get(name) == Some(uid)), "{before:?} and {more:?}");
    cluster.kubectl(&["wait", "elasticjob/run", "--for=jsonpath={.status.replicaStatuses.Worker.active}=4", WAIT]);
    cluster.kubectl(&["scale", "elasticjob/run", "--replicas=1"]);
    let fewer = until_pods(cluster, "run", 1);
    assert_eq!(fewer.get("run-worker-0"), before.get("run-worker-0"));
    // Outside of its bounds the job continues as it is, and says why.
    cluster.kubectl(&["scale", "elasticjob/run", "--replicas=9"]);
    cluster.kubectl(&["wait", "elasticjob/run", "--for=condition=Invalid", WAIT]);
    assert_eq!(pods(cluster, "run"), fewer);

    cluster.kubectl(&["delete", "elasticjob", "run", "--timeout=60s"]);
    until_pods(cluster, "run", 0);
    assert_eq!(cluster.get("default", &["pod", "run-w-0"])["metadata"]["uid"], uid, "the other API's pod was touched");
    cluster.kubectl(&["delete", "aitj", "run", "--timeout=60s"]);
}

fn a_job_succeeds_and_is_deleted_in_time(cluster: &Cluster) {
    create(cluster, &short_job("ends", "3s"));
    cluster.kubectl(&["wait", "elasticjob/ends", "--for=condition=Succeeded", WAIT]);
    let succeeded = condition(cluster, "ends", "Succeeded").unwrap();
    assert_eq!(succeeded["reason"], "ElasticJobSucceeded");
    assert_eq!(condition(cluster, "ends", "Running").unwrap()["status"], "False");
    assert_eq!(pods(cluster, "ends").len(), 2, "ended pods are kept for their logs");
    cluster.kubectl(&["delete", "elasticjob", "ends", "--timeout=60s"]);

    let mut job = short_job("forgotten", "1s");
    job["spec"]["ttlSecondsAfterFinished"] = json!(2);
    create(cluster, &job);
    cluster.kubectl(&["wait", "elasticjob/forgotten", "--for=create", WAIT]);
    cluster.kubectl(&["wait", "elasticjob/forgotten", "--for=delete", WAIT]);
    until_pods(cluster, "forgotten", 0);
}

/// A pod's worker ends with this code.
fn exit(cluster: &Cluster, pod: &str, code: u8) {
    let container = json!({"name": "elasticjob-worker", "image": "none", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": "Error"}}});
    let patch = json!({"status": {"phase": "Failed", "containerStatuses": [container]}}).to_string();
    cluster.kubectl(&["patch", "pod", pod, "--subresource=status", "--type=merge", "--patch", &patch]);
}

/// Leftovers of the original controller: a job that runs by its word, with one of its two pods.
fn the_originals_objects_are_adopted(cluster: &Cluster, data: &Path) {
    create(cluster, &job("old"));
    let uid = cluster.get("default", &["elasticjob", "old"])["metadata"]["uid"].clone();
    let labels =
        json!({"group-name": "elastic.pytorch.org", "job-name": "old", "replica-type": "worker", "replica-index": "0"});
    let metadata = json!({"name": "old-worker-0", "namespace": "default", "labels": labels, "ownerReferences": [{
        "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "name": "old", "uid": uid, "controller": true,
        "blockOwnerDeletion": true}]});
    create(
        cluster,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "elasticjob-worker", "image": "none"}]}}),
    );
    create(
        cluster,
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": labels}}),
    );
    let at = "2024-01-01T00:00:00Z";
    let running = json!({"type": "Running", "status": "True", "reason": "ElasticJobRunning", "message": "m",
        "lastUpdateTime": at, "lastTransitionTime": at});
    let status = json!({"status": {"conditions": [running], "replicaStatuses": {"Worker": {"active": 1}}}}).to_string();
    cluster.kubectl(&["patch", "elasticjob", "old", "--subresource=status", "--type=merge", "--patch", &status]);
    let service = cluster.get("default", &["service", "old-worker-0"])["metadata"]["uid"].clone();
    let before = until_pods(cluster, "old", 1);

    let _operator = Operator::start(cluster, data);
    let after = until_pods(cluster, "old", 2);
    assert_eq!(after.get("old-worker-0"), before.get("old-worker-0"), "the pod of the original is kept");
    assert_eq!(cluster.get("default", &["service", "old-worker-0"])["metadata"]["uid"], service);
    cluster.kubectl(&["wait", "elasticjob/old", "--for=jsonpath={.status.replicaStatuses.Worker.active}=2", WAIT]);
    cluster.kubectl(&["delete", "elasticjob", "old", "--timeout=60s"]);
}

/// The operator dies, a worker fails, and another operator replaces that worker alone: once with the log, once without.
fn a_failover_touches_no_healthy_pod(cluster: &Cluster, data: &Path) {
    create(cluster, &job("goes-on"));
    let mut operator = Operator::start(cluster, data);
    cluster.kubectl(&["wait", "elasticjob/goes-on", "--for=jsonpath={.status.replicaStatuses.Worker.active}=2", WAIT]);
    for is_log_lost in [false, true] {
        let before = until_pods(cluster, "goes-on", 2);
        drop(operator);
        exit(cluster, "goes-on-worker-1", 137);
        if is_log_lost {
            std::fs::remove_dir_all(data).unwrap();
        }
        operator = Operator::start(cluster, data);
        let replaced = || {
            let now = pods(cluster, "goes-on");
            let is_new = now.get("goes-on-worker-1").is_some_and(|uid| before.get("goes-on-worker-1") != Some(uid));
            if is_new { Ok(now) } else { Err(format!("{now:?}")) }
        };
        let after = until("worker 1 is replaced", replaced);
        assert_eq!(after.get("goes-on-worker-0"), before.get("goes-on-worker-0"), "log lost: {is_log_lost}");
        let active = "--for=jsonpath={.status.replicaStatuses.Worker.active}=2";
        cluster.kubectl(&["wait", "elasticjob/goes-on", active, WAIT]);
    }
    cluster.kubectl(&["delete", "elasticjob", "goes-on", "--timeout=60s"]);
}

#[test]
fn elastic_jobs_do_what_users_expect() {
    let cluster = Cluster::start(Options { nodes: 2, ..Options::default() });
    manifests_are_taken_or_refused_by_path(&cluster);
    fields_are_explained(&cluster);
    until("the default account", || cluster.try_kubectl(&["get", "serviceaccount", "default"]));
    let data = tempfile::tempdir().unwrap();
    the_originals_objects_are_adopted(&cluster, &data.path().join("upgrade"));
    a_failover_touches_no_healthy_pod(&cluster, &data.path().join("failover"));
    let _operator = Operator::start(&cluster, &data.path().join("data"));
    bad_input_becomes_a_condition(&cluster);
    two_apis_run_side_by_side(&cluster);
    a_job_succeeds_and_is_deleted_in_time(&cluster);
}
