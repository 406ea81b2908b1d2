//! A pod that cannot start is reported wherever users look: a table of the APIs, the reasons, and the places.
//!
//! Owns the reasons that only a cluster has. Failures of programs stand in `cli/tests/local/causes.rs`.

use apis::Registry;
use model::Phase;
use serde_json::{Value, json};
use simulator::runner::ScenarioOutcome;
use simulator::scenario;

use crate::per_api::{APIS, Api};

/// Returns the steps that keep a pod from starting.
type Steps = fn(pod: &str, others: &[String]) -> Vec<Value>;

/// A reason that a pod cannot start, and the texts that every place shows besides the name of the pod.
struct Reason {
    name: &'static str,
    steps: Steps,
    texts: &'static [&'static str],
}

const REASONS: [Reason; 4] = [
    Reason { name: "image", steps: image, texts: &["ImagePullBackOff"] },
    Reason { name: "configuration", steps: configuration, texts: &["CreateContainerConfigError"] },
    Reason { name: "claim", steps: claim, texts: &["cannot be placed", "unbound immediate PersistentVolumeClaims"] },
    Reason { name: "place", steps: place, texts: &["cannot be placed", "3 Insufficient nvidia.com/gpu"] },
];

fn image(pod: &str, others: &[String]) -> Vec<Value> {
    let reason = json!({"pod": pod, "reason": "ImagePullBackOff"});
    vec![scheduled(pod, others), json!({"wait": reason})]
}

fn configuration(pod: &str, others: &[String]) -> Vec<Value> {
    let reason = json!({"pod": pod, "reason": "CreateContainerConfigError"});
    vec![scheduled(pod, others), json!({"wait": reason})]
}

fn claim(pod: &str, _: &[String]) -> Vec<Value> {
    vec![unschedulable(pod, "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")]
}

fn place(pod: &str, _: &[String]) -> Vec<Value> {
    vec![unschedulable(pod, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")]
}

fn scheduled(pod: &str, others: &[String]) -> Value {
    let pods = others.iter().map(String::as_str).chain([pod]);
    json!({"schedule": pods.map(|pod| json!({"pod": pod, "node": "n1"})).collect::<Vec<_>>()})
}

fn unschedulable(pod: &str, message: &str) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    json!({"patch": {"pod": pod, "status": {"phase": "Pending", "conditions": [condition]}}})
}

fn played(api: &Api, more: Vec<Value>) -> ScenarioOutcome {
    let mut scenario: Value =
        serde_saphyr::from_str(&(api.enter)(Phase::Running)).unwrap_or_else(|error| panic!("{}: {error}", api.name));
    // Only the objects of the small job: what happens to it follows.
    let steps = scenario["steps"].as_array_mut().unwrap_or_else(|| panic!("{}: no steps", api.name));
    steps.truncate(1);
    steps.extend(more);
    let text = scenario.to_string();
    let scenario = scenario::parse(&text, api.name).unwrap_or_else(|error| panic!("{}: {error}", api.name));
    simulator::run(&scenario).unwrap_or_else(|error| panic!("{}: {error}\n{text}", api.name))
}

fn pods(outcome: &ScenarioOutcome) -> Vec<String> {
    let pods = outcome.objects.iter().filter(|object| object["kind"] == "Pod");
    pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn is_job(api: &Api) -> bool {
    let registry = Registry::all();
    let mut kinds = registry.iter().map(|served| served.resource().kind).filter(|kind| registry.is_job(kind));
    kinds.any(|kind| kind.to_lowercase() == api.name) && api.phases.contains(&Phase::Running)
}

/// Returns what each place shows of the job.
fn places(api: &Api, outcome: &ScenarioOutcome) -> [(&'static str, String); 3] {
    let is_job = |object: &&std::sync::Arc<Value>| {
        object["kind"].as_str().is_some_and(|kind| kind.to_lowercase() == api.name) && object["metadata"]["name"] == "j"
    };
    let job = outcome.objects.iter().find(is_job).unwrap_or_else(|| panic!("{}: no job j", api.name));
    let key = Registry::all().job_key(job).unwrap_or_else(|| panic!("{}: no key of job j", api.name));
    // The state of an MPIJob stands in annotations: its status is the MPI operator's.
    let shown = if api.name == "mpijob" {
        job["metadata"]["annotations"]["trainyard.dev/message"].as_str().unwrap_or_default().to_owned()
    } else {
        let mut status = job["status"].clone();
        // What is kept for a lost log is not for people.
        status.as_object_mut().map(|members| members.remove("trainyard"));
        messages(&status).join("\n")
    };
    let events = outcome.steps.iter().flat_map(|step| &step.events);
    let events: Vec<String> = events.flat_map(|event| messages(event)).collect();
    [("status", shown), ("Event", events.join("\n")), ("explain", explain::waits_for(&outcome.state, &key).join("\n"))]
}

/// Returns the texts of all members of the name `message`.
fn messages(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let own = members.get("message").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(members.values().flat_map(messages)).collect()
        }
        Value::Array(elements) => elements.iter().flat_map(messages).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_pod_that_cannot_start_is_reported_in_every_place() {
    let (mut empty, mut tried) = (Vec::new(), Vec::new());
    for api in APIS {
        // The pods of queues and models train nothing.
        if !is_job(api) {
            continue;
        }
        let mut names = pods(&played(api, Vec::new()));
        let Some(first) = names.pop() else { continue };
        tried.push(api.name);
        for reason in &REASONS {
            let outcome = played(api, (reason.steps)(&first, &names));
            for (place, text) in places(api, &outcome) {
                let wanted = reason.texts.iter().copied().chain([first.as_str()]);
                let missing: Vec<&str> = wanted.filter(|words| !text.contains(words)).collect();
                if !missing.is_empty() {
                    empty.push(format!("{} {}, {place}: {missing:?} not in:\n{text}\n", api.name, reason.name));
                }
            }
        }
    }
    assert!(empty.is_empty(), "{} cells are empty:\n{}", empty.len(), empty.join("\n"));
    assert!(tried.len() >= 5, "only these APIs have pods: {tried:?}");
}
