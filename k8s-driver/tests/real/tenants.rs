//! Attacks of a tenant with the right to write jobs in one namespace, against a real API server: jobs of others start all the same.

use control_plane::until;
use serde_json::{Value, json};

use crate::common::{Operator, Space, directory, job};

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

fn until_invalid(space: &Space, name: &str, words: &str) {
    let object = format!("aitrainingjob/{name}");
    until(&format!("{name} is invalid"), || {
        let said = read(space, &object, "{.status.conditions[?(@.type=='Invalid')].message}");
        if said.contains(words) { Ok(()) } else { Err(read(space, &object, "{.status}")) }
    });
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
