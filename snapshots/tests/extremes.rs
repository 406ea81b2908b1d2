//! Extremes: whatever a field of a tenant's job says, the operator continues, and the job of another tenant starts.
//!
//! Each value inside `spec` of a small job of every API is replaced by the largest, the deepest, the longest and the most numerous that
//! an object can hold. What is written about it can be shown and stored.

mod definitions;

use engine::queues::report;
use model::{Phase, printable};
use serde_json::{Map, Value, json};
use simulator::{Scenario, scenario};

use crate::per_api::{APIS, Api};

/// Two nodes, and the job of another tenant, which is created last.
const WORLD: &str = "
description: An extreme value.
nodes: [{name: n1, gpus: 8}, {name: n2, gpus: 8}]
manifests:
  - apiVersion: elasticdeeplearning.ai/v1
    kind: AITrainingJob
    metadata: {name: witness, namespace: other}
    spec:
      replicaSpecs:
        trainer:
          replicas: 1
          template: {spec: {containers: [{name: aitj-main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}
steps:
  - apply: []
  - run: all
  - apply: [witness]
  - run: all
";

/// Elements of a list that is made long.
const MANY: usize = 500;
/// Characters of a text that is made long.
const LONG: usize = 100_000;
/// Characters that the message of an Event may have, by the API server's validation of `events.k8s.io`.
const LONGEST_EVENT: usize = 1024;
/// Characters that the message of a condition may have, by `metav1.Condition`.
const LONGEST_MESSAGE: usize = 32_768;
/// Levels of a value that is made deep: more than an object may have, and fewer than its reader cuts off.
const DEEP: usize = 90;

fn extremes(value: &Value) -> Vec<Value> {
    let deep = (0..DEEP).fold(json!(1), |inner, _| json!({"a": inner}));
    let mut all = vec![deep, Value::Null];
    match value {
        Value::Number(_) => {
            all.extend([json!(-1), json!(i32::MAX), json!(u32::MAX), json!(i64::MAX), json!(1e300)]);
        }
        Value::String(_) => {
            all.extend([json!("a".repeat(LONG)), json!("\u{0}\u{1b}[31m\u{202e}\r\n"), json!(i64::MAX.to_string())]);
        }
        Value::Array(elements) => all.push(elements.iter().cycle().take(MANY).cloned().collect()),
        Value::Object(members) => {
            let some = members.values().next().cloned().unwrap_or_default();
            let many: Map<String, Value> = (0..MANY).map(|n| (format!("k{n}"), some.clone())).collect();
            all.push(Value::Object(many));
            for name in ["\u{1b}[2J\n\u{202e}".to_owned(), "a".repeat(LONG)] {
                let mut more = members.clone();
                more.insert(name, some.clone());
                all.push(Value::Object(more));
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
    all
}

/// Gives the pods of a job GPUs where they are written as containers.
fn with_gpus(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Array(containers)) = members.get_mut("containers") {
                for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                    container.insert("resources".to_owned(), json!({"limits": {"nvidia.com/gpu": 1}}));
                }
            }
            members.values_mut().for_each(with_gpus);
        }
        Value::Array(elements) => elements.iter_mut().for_each(with_gpus),
        _ => {}
    }
}

/// Finds the messages in an object that give a terminal orders, or that an API server refuses for their length.
fn unfit_messages(value: &Value, is_event: bool, unfit: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(message) = members.get("message").and_then(Value::as_str) {
                if message.contains(printable::is_control) {
                    unfit.push(format!("{message:?}"));
                }
                let longest = if is_event { LONGEST_EVENT } else { LONGEST_MESSAGE };
                let length = message.chars().count();
                if length > longest {
                    let words: Vec<&str> = message.split(' ').filter(|word| word.len() < 100).collect();
                    unfit.push(format!("a message of {length} characters: {}", words.join(" ")));
                }
            }
            members.iter().filter(|(name, _)| *name != "spec").for_each(|(_, member)| {
                unfit_messages(member, is_event, unfit);
            });
        }
        Value::Array(elements) => elements.iter().for_each(|element| unfit_messages(element, is_event, unfit)),
        _ => {}
    }
}

fn parsed(text: &str) -> Scenario {
    scenario::parse(text, "extremes").unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a scenario with an extreme, and adds what was wrong of it.
fn judge(scenario: &Scenario, shown: &str, wrong: &mut Vec<String>) {
    // The API server may refuse the object: then it stops no other job.
    let Ok(outcome) = simulator::run(scenario) else { return };
    let is_witness = |object: &Value| {
        object["kind"] == "Pod"
            && object["metadata"]["namespace"] == "other"
            && object["status"]["phase"] != Value::Null
    };
    if !outcome.objects.iter().any(|object| is_witness(object)) {
        wrong.push(format!("{shown} keeps the job of another tenant from starting"));
    }
    for object in &outcome.objects {
        let mut unfit = Vec::new();
        unfit_messages(object, object["kind"] == "Event", &mut unfit);
        wrong.extend(unfit.iter().map(|text| format!("{shown}: {text}")));
    }
}

/// Plays every extreme of a manifest, and returns their number.
fn play(base: &Scenario, index: usize, name: &str, wrong: &mut Vec<String>) -> usize {
    let inside = fixtures::paths(&base.manifests[index]["spec"]).into_iter().map(|path| format!("/spec{path}"));
    let places = inside.chain(["/spec".to_owned()]);
    let mut played = 0;
    for place in places {
        let old = base.manifests[index].pointer(&place).cloned().unwrap_or_default();
        for extreme in extremes(&old) {
            let mut scenario = base.clone();
            if let Some(value) = scenario.manifests[index].pointer_mut(&place) {
                *value = extreme.clone();
            }
            played += 1;
            let shown: String = extreme.to_string().chars().take(40).collect();
            judge(&scenario, &format!("{name}{place} = {shown}"), wrong);
        }
    }
    played
}

/// Plays the extremes of every field that the definition of an API has, and returns their number.
fn play_defined(base: &Scenario, name: &str, wrong: &mut Vec<String>) -> usize {
    let is_own = |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.to_lowercase() == name);
    let index = base.manifests.iter().position(is_own).unwrap_or_else(|| panic!("no object of {name}"));
    // Pod templates are read by one piece of code for all APIs.
    let extremes = definitions::extremes(name, name == APIS[0].name);
    for extreme in &extremes {
        let mut scenario = base.clone();
        extreme.write(&mut scenario.manifests[index]);
        judge(&scenario, &format!("{name}: {}", extreme.shown()), wrong);
    }
    extremes.len()
}

/// Returns the small job of an API beside the job of another tenant, and the number of its objects.
fn world(api: &Api) -> (Scenario, usize) {
    let phase = if api.phases.contains(&Phase::Running) { Phase::Running } else { api.phases[0] };
    let mut own = parsed(&(api.enter)(phase)).manifests;
    own.iter_mut().for_each(with_gpus);
    let mut world: Value = serde_saphyr::from_str(WORLD).unwrap_or_else(|error| panic!("{error}"));
    world["steps"][0]["apply"] = own.iter().map(|manifest| manifest["metadata"]["name"].clone()).collect();
    let others = world["manifests"].as_array().cloned().unwrap_or_default();
    world["manifests"] = own.iter().cloned().chain(others).collect();
    (parsed(&world.to_string()), own.len())
}

#[test]
fn no_value_of_a_field_stops_the_job_of_another_tenant() {
    let (mut played, mut wrong) = (0, Vec::new());
    for api in APIS {
        let (base, own) = world(api);
        played += (0..own).map(|index| play(&base, index, api.name, &mut wrong)).sum::<usize>();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(played > 400, "only {played} values were tried");
}

#[test]
fn no_value_of_a_field_that_a_definition_has_stops_the_job_of_another_tenant() {
    let (mut played, mut wrong) = (0, Vec::new());
    for api in APIS {
        let (base, _) = world(api);
        played += play_defined(&base, api.name, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(played > 2_000, "only {played} values were tried");
}

#[test]
fn metrics_have_no_label_of_a_queue_that_only_jobs_name() {
    let job = |n: usize| {
        json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": format!("j{n}"), "labels": {"trainyard.dev/queue": format!("q{n}")}},
            "spec": {"replicaSpecs": {"trainer": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "aitj-main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}}}})
    };
    let names: Vec<String> = (0..MANY).map(|n| format!("j{n}")).collect();
    let scenario = json!({"description": "Queues that do not exist.", "nodes": [{"name": "n1", "gpus": 8}],
        "manifests": (0..MANY).map(job).collect::<Vec<_>>(), "steps": [{"apply": names}, {"run": "all"}]});
    let outcome = simulator::run(&parsed(&scenario.to_string())).unwrap_or_else(|error| panic!("{error}"));
    let counts = report::bounded_counts(&outcome.state);
    let pending: Vec<_> = counts.iter().map(|(name, counts)| (&**name, counts.pending)).collect();
    assert_eq!(pending, [(report::MISSING, u32::try_from(MANY).unwrap())]);
    assert_eq!(report::counts(&outcome.state).len(), MANY, "by name there are as many as jobs name");
}
