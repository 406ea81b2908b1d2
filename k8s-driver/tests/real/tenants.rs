//! Attacks of a tenant with the right to write jobs in one namespace, against a real API server: jobs of others start all the same.

use apis::Registry;
use control_plane::{Definition, until};
use serde_json::{Value, json};
use settings::{ApiSettings, TorchrunSettings};

use crate::common::{Operator, Space, directory, job, options, plane};

fn named(name: &str) -> Value {
    let mut job = job(1, "Never", None);
    job["metadata"]["name"] = json!(name);
    job
}

fn template(job: &mut Value) -> &mut Value {
    &mut job["spec"]["replicaSpecs"]["trainer"]["template"]
}

/// Returns a field of an object as kubectl prints it: this process cannot read an object that is nested so deep.
fn read(space: &Space, object: &str, path: &str) -> String {
    space.kubectl(&["get", object, &format!("--output=jsonpath={path}")])
}

fn until_said(space: &Space, object: &str, path: &str, words: &str) {
    until(&format!("{object} says {words}"), || {
        let said = read(space, object, path);
        if said.contains(words) { Ok(()) } else { Err(read(space, object, "{.status}")) }
    });
}

fn until_invalid(space: &Space, name: &str, words: &str) {
    let message = "{.status.conditions[?(@.type=='Invalid')].message}";
    until_said(space, &format!("aitrainingjob/{name}"), message, words);
}

fn until_pod(space: &Space, name: &str) {
    until(&format!("{name} runs"), || {
        let phase = space.kubectl(&["get", "pods", "--ignore-not-found", name, "--output=jsonpath={.status.phase}"]);
        if phase == "Running" { Ok(()) } else { Err(phase) }
    });
}

#[test]
fn a_job_that_is_nested_too_deep_stops_no_other_job() {
    let (space, data) = (Space::new("deep"), directory());
    let mut deep = named("deep");
    template(&mut deep)["metadata"]["more"] = (0..300).fold(json!(1), |inner, _| json!({"a": inner}));
    // It is there before the operator lists, and another one comes by the watch.
    space.apply(&deep);
    let operator = Operator::start(&space, data.path());
    until_invalid(&space, "deep", "64 levels");
    deep["metadata"]["name"] = json!("deeper");
    space.apply(&deep);
    until_invalid(&space, "deeper", "64 levels");
    space.apply(&named("good"));
    until_pod(&space, "good-trainer-0");
    operator.stop();
}

#[test]
fn a_job_that_asks_for_more_gpus_than_there_are_stops_no_other_job() {
    let (space, data) = (Space::new("gpus"), directory());
    let operator = Operator::start(&space, data.path());
    for (name, gpus, words) in [
        ("most", json!("9223372036854775807"), "at most 10000 GPUs"),
        ("u32", json!("4294967295"), "at most 10000 GPUs"),
    ] {
        let mut many = named(name);
        template(&mut many)["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
        space.apply(&many);
        until_invalid(&space, name, words);
    }
    let mut good = named("good");
    template(&mut good)["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    space.apply(&good);
    until_pod(&space, "good-trainer-0");
    operator.stop();
}

/// Starts an operator that checks parents of KAI Queues, and looks again every two seconds at what it refused.
fn strict(space: &Space, data: &std::path::Path) -> Operator {
    let torchrun = TorchrunSettings { checks_parents: true };
    let mut options = options(space, data);
    options.config.retry_max_ms = 2000;
    let operator = Operator::serving(Registry::with(&ApiSettings { torchrun, ..ApiSettings::default() }), options);
    operator.until_leading();
    operator
}

/// Returns true if an object exists.
fn exists(space: &Space, object: &str) -> bool {
    !space.kubectl(&["get", object, "--ignore-not-found", "--output=name"]).is_empty()
}

fn until_exists(space: &Space, object: &str) {
    until(&format!("{object} exists"), || if exists(space, object) { Ok(()) } else { Err(object.to_owned()) });
}

#[test]
fn a_model_gets_no_volume_that_pod_security_of_its_namespace_forbids() {
    let (space, data) = (Space::new("volumes"), directory());
    let enforce = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        space.kubectl(&["label", "--overwrite", "namespace", &space.name, &label]);
    };
    enforce("baseline");
    let operator = strict(&space, data.path());
    let version = |name: &str, storage: Value| {
        json!({"apiVersion": "model.distributed.io/v1alpha1", "kind": "ModelVersion", "metadata": {"name": name},
            "spec": {"modelName": "m", "imageRepo": "r.io/m", "imageTag": name, "storage": storage}})
    };
    let (local, nfs) = (format!("{}-local", space.name), format!("{}-nfs", space.name));
    space.apply(&version(&local, json!({"localStorage": {"nodeName": "n", "path": "/"}})));
    until_said(&space, &format!("modelversion/{local}"), "{.status.message}", "forbids host paths");
    space.apply(&version(&nfs, json!({"nfs": {"server": "10.0.0.1", "path": "/"}})));
    let [host_volume, nfs_volume] = [format!("pv/mv-pv-{local}-n"), format!("pv/mv-pv-{nfs}")];
    until_exists(&space, &nfs_volume);
    assert!(!exists(&space, &host_volume), "a tenant got the file system of a node");
    enforce("privileged");
    until_exists(&space, &host_volume);
    operator.stop();
}

#[test]
fn a_queue_takes_nothing_that_its_parent_does_not_give_to_its_namespace() {
    let (space, data) = (Space::new("parents"), directory());
    let queues = Definition { api_version: "scheduling.run.ai/v2", kind: "Queue", plural: "queues", namespaced: false };
    plane().define(queues).unwrap();
    let [top, of_admin, own] = ["top", "admin", "own"].map(|name| format!("{name}-{}", space.name));
    let kai = |name: &str, spec: Value| {
        let queue =
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        until("the queue is accepted", || plane().apply(&queue.to_string()).map_err(|error| error.to_string()));
    };
    kai(
        &top,
        json!({"resources": {"gpu": {"quota": 4, "limit": -1}, "cpu": {"quota": -1, "limit": -1}, "memory": {"quota": -1, "limit": -1}}}),
    );
    kai(&of_admin, json!({"parentQueue": top, "resources": {"gpu": {"quota": 1}}}));
    let operator = strict(&space, data.path());
    let queue = |name: &str, kai: &str, quota: i64| {
        json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunQueue", "metadata": {"name": name}, "spec": {"image": "i",
            "queue": {"name": kai, "parentQueue": top, "resources": {"gpu": {"quota": quota}}}}})
    };
    let ready = "{.status.conditions[?(@.type=='QueueReady')].message}";
    space.apply(&queue("taker", &of_admin, 64));
    until_said(&space, "torchrunqueue/taker", ready, "belongs to something else");
    space.apply(&queue("maker", &own, 64));
    until_said(&space, "torchrunqueue/maker", ready, "has no annotation");
    let annotation = format!(
        r#"trainyard.dev/namespace-selector={{"matchLabels":{{"kubernetes.io/metadata.name":"{}"}}}}"#,
        space.name
    );
    space.kubectl(&["annotate", &format!("queues.scheduling.run.ai/{top}"), &annotation]);
    until_said(&space, "torchrunqueue/maker", ready, "gpu.quota: 64 is more");
    assert!(!exists(&space, &format!("queues.scheduling.run.ai/{own}")), "a tenant made a KAI Queue");
    space.apply(&queue("maker", &own, 4));
    until_exists(&space, &format!("queues.scheduling.run.ai/{own}"));
    let quota = space.kubectl(&[
        "get",
        &format!("queues.scheduling.run.ai/{of_admin}"),
        "--output=jsonpath={.spec.resources.gpu.quota}",
    ]);
    assert_eq!(quota, "1", "a tenant wrote the queue of an administrator");
    operator.stop();
}
