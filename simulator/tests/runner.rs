//! Runs of small scenarios: the replay document, step errors, crashes, time.

use serde_json::{Value, json};
use simulator::crash::{Crash, LogAfterCrash};
use simulator::scenario::Boundary;
use simulator::{Scenario, ScenarioOutcome, parse, run, run_under, runner};

const JOB: &str = "
  - apiVersion: elasticdeeplearning.ai/v1
    kind: AITrainingJob
    metadata: {name: j, namespace: ns}
    spec:
      replicaSpecs:
        trainer:
          replicas: 1
          template: {spec: {containers: [{name: aitj-main, image: img}]}}
";

fn scenario(steps: &str) -> Scenario {
    parse(&format!("manifests:{JOB}steps:\n{steps}"), "t.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn ran(steps: &str) -> ScenarioOutcome {
    run(&scenario(steps)).unwrap_or_else(|error| panic!("{error}"))
}

fn phases(outcome: &ScenarioOutcome) -> String {
    outcome.phases.get("ns/j").cloned().unwrap_or_default().join(" ")
}

#[test]
fn the_replay_document_has_the_promised_shape() {
    let outcome = ran("  - apply:\n  - run: j-trainer-0\n  - exit: {pod: j-trainer-0, code: 0}\n");
    let document = outcome.to_json();
    assert_eq!(document["phases"], json!({"ns/j": ["Pending", "Running", "Terminating", "Succeed"]}));
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|s| s["step"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(steps[0]["phases"], json!({"ns/j": ["Pending"]}));
    assert_eq!(steps[2]["phases"], json!({"ns/j": ["Terminating", "Succeed"]}));
    let commands = |step: usize, kind: &str| -> Vec<Value> {
        steps[step]["commands"].as_array().unwrap().iter().filter(|c| c["kind"] == kind).cloned().collect()
    };
    let create = &commands(0, "CreatePod")[0];
    assert_eq!(
        (&create["namespace"], &create["name"], &create["attempts"]),
        (&json!("ns"), &json!("j-trainer-0"), &json!(1))
    );
    assert_eq!(create["object"]["spec"]["restartPolicy"], "Never");
    assert!(create["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    let delete = &commands(2, "DeletePod")[0];
    assert_eq!(delete.get("gracePeriodSeconds"), None);
    assert_eq!(delete["uid"], create["uid"]);
    assert!(!commands(1, "PatchAITrainingJob").is_empty());
    assert_eq!(steps[0]["kubernetesEvents"][0]["reason"], "SuccessfulCreatePod");
    let objects = document["objects"].as_array().unwrap();
    let job = objects.iter().find(|o| o["kind"] == "AITrainingJob").unwrap();
    assert_eq!(job["status"]["phase"], "Succeed");
    assert!(document["log"]["records"].as_u64().unwrap() > 3);
    assert_eq!(document["log"]["digest"].as_str().unwrap().len(), 64);
}

#[test]
fn a_step_that_cannot_be_done_names_its_number_verb_and_line() {
    for (steps, number, words) in [
        ("  - run: missing\n", 0, "t.yaml:11: step 0 (run): pod default/missing does not exist"),
        (
            "  - apply:\n  - exit: {pod: j-trainer-1, code: 1}\n",
            1,
            "step 1 (exit): pod default/j-trainer-1 does not exist",
        ),
        ("  - annotate: {job: j, set: {a: b}}\n", 0, "job j does not exist"),
        ("  - delete: {kind: Frob, name: j}\n", 0, "no kind Frob is served"),
        ("  - delete: {kind: Pod, name: j}\n", 0, "404"),
        ("  - hold: Frob\n", 0, "nothing watches objects of kind Frob"),
        ("  - fail: {verb: list, kind: ConfigMap}\n", 0, "ConfigMap"),
        ("  - node: {name: ghost, ready: removed}\n", 0, "ghost"),
        ("  - apply:\n  - patch: {job: j, spec: {replicaSpecs: {trainer: {replicas: -1}}}}\n", 1, "replicas"),
        ("  - apply:\n  - schedule: {pod: j-trainer-0, node: ghost}\n", 1, "node ghost does not exist"),
        ("  - apply:\n  - together: [{run: all}, {exit: {pod: x, code: 1}}]\n", 1, "pod default/x does not exist"),
    ] {
        let error = run(&scenario(steps)).map(|outcome| outcome.phases).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, runner::Error::Step { step, .. } if step == number), "{steps}: {text}");
        assert!(text.contains(words), "{steps}: {text}");
    }
}

#[test]
fn verbs_with_nothing_to_do_are_no_errors() {
    let outcome =
        ran("  - gone: all\n  - gone: missing\n  - release: Pod\n  - run: all\n  - relist: Node\n  - crash: {}\n");
    assert_eq!(outcome.steps.len(), 6);
    assert!(outcome.phases.is_empty());
}

#[test]
fn what_stands_together_is_seen_in_one_turn() {
    // Seen one after the other, the pod would have been Pending, then Running, then Failed.
    let outcome = ran("  - apply:\n  - together: [{run: all}, {exit: {pod: j-trainer-0, code: 1}}]\n");
    assert_eq!(phases(&outcome), "Pending Terminating Failed");
}

#[test]
fn time_stops_at_deadlines_and_settling_moves_none() {
    let text = "  - apply:\n  - patch: {job: j, spec: {timeLimit: 100}}\n  - run: all\n  - advance: 99s\n  - advance: 1h\n  - gone: all\n";
    let outcome = ran(text);
    assert_eq!(phases(&outcome), "Pending Running Terminating Timeout");
    assert!(outcome.steps[3].phases.is_empty());
    let job = outcome.objects.iter().find(|o| o["kind"] == "AITrainingJob").unwrap();
    let ended = job["status"]["conditions"].as_array().unwrap();
    let terminating = ended.iter().find(|c| c["type"] == "Terminating").unwrap();
    assert_eq!(
        terminating["lastTransitionTime"], "2026-01-01T00:01:40Z",
        "at its deadline, not at the end of the hour"
    );
}

#[test]
fn a_death_inside_the_next_step_comes_there_or_not_at_all() {
    let plain = ran("  - apply:\n  - run: all\n");
    for point in ["before: append", "after: append", "before: call", "after: call"] {
        for verb in ["crash", "loseLog", "swapLeader"] {
            let outcome = ran(&format!("  - {verb}: {{{point}, nth: 1}}\n  - apply:\n  - run: all\n"));
            assert_eq!(phases(&outcome).rsplit(' ').next(), Some("Running"), "{verb} {point}");
            assert_eq!(outcome.objects.len(), plain.objects.len(), "{verb} {point}");
        }
    }
    let far = ran("  - crash: {before: call, nth: 99}\n  - apply:\n  - run: all\n");
    assert_eq!(
        (phases(&far), far.log_digest),
        (phases(&plain), plain.log_digest),
        "a crash that never happens leaves no trace"
    );
}

#[test]
fn logs_are_lost_restored_and_swapped() {
    let plain = ran("  - apply:\n  - run: all\n");
    let lost = ran("  - apply:\n  - run: all\n  - loseLog: {}\n");
    assert!(lost.log_records < plain.log_records + 3, "{} records", lost.log_records);
    assert_ne!(lost.log_digest, plain.log_digest);
    for step in
        ["loseLog: {}", "restoreLog: {position: 2}", "restoreLog: {position: 999}", "swapLeader: {}", "crash: {}"]
    {
        let outcome = ran(&format!("  - apply:\n  - run: all\n  - {step}\n  - exit: {{pod: j-trainer-0, code: 0}}\n"));
        assert_eq!(phases(&outcome).rsplit(' ').next(), Some("Succeed"), "{step}");
        let created = outcome.steps.iter().flat_map(|s| &s.commands).filter(|c| &*c.call.resource.kind == "Pod");
        assert_eq!(created.filter(|c| c.call.verb == apis::Verb::Create).count(), 1, "{step}");
    }
}

#[test]
fn the_nth_death_of_a_whole_run_is_found() {
    let scenario = scenario("  - apply:\n  - run: all\n  - exit: {pod: j-trainer-0, code: 1}\n");
    let (appends, calls) = run(&scenario).unwrap().counted;
    assert!(appends > 3 && calls > 3, "{appends} {calls}");
    let crash =
        Crash { boundary: Boundary::Call, after: true, nth: calls, log_after: LogAfterCrash::SameLog, anywhere: true };
    let outcome = run_under(&scenario, simulator::Conditions { crash: Some(crash), ..Default::default() }).unwrap();
    assert_eq!(phases(&outcome), "Pending Running Terminating Failed");
}

#[test]
fn failed_calls_are_counted_as_attempts() {
    let outcome = ran("  - fail: {verb: create, kind: Pod, times: 2, code: 500}\n  - apply:\n  - advance: 1m\n");
    let create = outcome.steps.iter().flat_map(|s| &s.commands).find(|c| &*c.call.resource.kind == "Pod").unwrap();
    assert_eq!(create.attempts, 3);
}

#[test]
fn a_container_that_its_pod_restarts_runs_on() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, \
        spec: {restartPolicy: OnFailure, containers: [{name: a, image: i}, {name: b, image: i}]}}";
    let steps = "  - apply:\n  - run: p\n  - exit: {pod: p, code: 3, container: a, message: boom}\n  - run: p\n";
    let scenario = parse(&format!("manifests: [{pod}]\nsteps:\n{steps}"), "t.yaml").unwrap();
    let outcome = run(&scenario).unwrap();
    let pod = outcome.objects.iter().find(|object| object["kind"] == "Pod").unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
    let [a, b] = [0, 1].map(|n| &pod["status"]["containerStatuses"][n]);
    assert_eq!((&a["restartCount"], &b["restartCount"]), (&json!(1), &json!(0)));
    assert!(a["state"]["running"].is_object(), "{a}");
    let ended = &a["lastState"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["message"]), (&json!(3), &json!("boom")));
    assert!(simulator::text::render(&scenario, &outcome).contains("Pod p Running on n1, containers restarted 1 times"));
}
