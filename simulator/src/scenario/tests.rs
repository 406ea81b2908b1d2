use cluster::FailVerb;
use serde_json::json;

use super::*;

const BASE: &str = "manifests: [{apiVersion: v1, kind: Pod, metadata: {name: j}}]\nsteps:\n";

fn steps(text: &str) -> Vec<Action> {
    parse(&format!("{BASE}{text}"), "t.yaml")
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .steps
        .into_iter()
        .map(|s| s.action)
        .collect()
}

fn error(text: &str) -> String {
    parse(text, "t.yaml").map(|s| format!("{s:?}")).unwrap_err().to_string()
}

fn pods(names: &[&str]) -> Pods {
    Pods::Named(names.iter().map(|n| ObjectName::from(*n)).collect())
}

#[test]
fn every_verb_of_the_language_is_read() {
    let text = r#"
  - apply: [j]
  - apply:
  - apply: {}
  - storeUnchecked: [j]
  - schedule: {pod: j-trainer-0, node: n1}
  - run: j-trainer-0
  - run: [a, b]
  - run: all
  - wait: {pod: j-trainer-1, reason: ErrImagePull, since: 10m}
  - exit: {pod: j-trainer-1, code: 1, container: main}
  - evict: j-trainer-1
  - gone: all
  - gone: {pod: j-trainer-1}
  - node: {name: n2, ready: "False"}
  - node: {name: n2, ready: removed, conditions: {GpuUnhealthy: "True"}}
  - annotate: {job: j, set: {Preempted: x, n: 5}, remove: [k]}
  - patch: {job: j, spec: {replicaSpecs: {trainer: {replicas: 3}}}}
  - delete: {kind: AITrainingJob, name: j}
  - advance: 98s
  - fail: {verb: delete, kind: Pod, times: 3, code: 500, applied: false}
  - hold: Pod
  - release: [Pod, Node]
  - relist: Pod
  - crash: {}
  - crash: {before: append, nth: 2}
  - crash:
  - loseLog: {}
  - restoreLog: {position: 12}
  - swapLeader: {}
  - together: [{exit: {pod: a, code: 0}}, {advance: 1h}]
  - scale: {job: ns/j, replicas: 3}
"#;
    let steps = steps(text);
    assert_eq!(steps.len(), 31);
    let verbs: Vec<&str> = steps.iter().map(Action::verb).collect();
    assert_eq!(verbs[..5], ["apply", "apply", "apply", "storeUnchecked", "schedule"]);
    assert!(matches!(&steps[0], Action::Apply(Names(names)) if *names == ["j"]));
    assert!(matches!(&steps[1], Action::Apply(Names(names)) if names.is_empty()));
    assert!(matches!(&steps[2], Action::Apply(Names(names)) if names.is_empty()));
    assert!(matches!(&steps[5], Action::Run(p) if *p == pods(&["j-trainer-0"])));
    assert!(matches!(&steps[6], Action::Run(p) if *p == pods(&["a", "b"])));
    assert!(matches!(&steps[7], Action::Run(Pods::All)));
    assert!(matches!(&steps[8], Action::Wait(w) if w.0[0].since == Millis(600_000)));
    assert!(matches!(&steps[12], Action::Gone(p) if *p == pods(&["j-trainer-1"])));
    assert!(matches!(&steps[15], Action::Annotate(a) if a.set["n"].0 == "5" && a.remove.0 == ["k"]));
    assert!(matches!(&steps[18], Action::Advance(Millis(98_000))));
    assert!(matches!(&steps[19], Action::Fail(f) if f.verb == FailVerb::Delete && f.times == 3 && f.code == 500));
    assert!(matches!(&steps[23], Action::Crash(CrashPoint { before: None, after: None, nth: 1 })));
    assert!(matches!(&steps[24], Action::Crash(CrashPoint { before: Some(Boundary::Append), nth: 2, .. })));
    assert!(matches!(&steps[27], Action::RestoreLog(RestoreLog { position: 12, .. })));
    assert!(matches!(&steps[29], Action::Together(inner) if inner.len() == 2));
    assert!(matches!(&steps[30], Action::Scale(s) if s.0[0].replicas == 3 && s.0[0].job.to_string() == "ns/j"));
}

#[test]
fn steps_know_their_lines_and_defaults_are_filled_in() {
    let scenario = parse(&format!("{BASE}  - apply: [j]\n\n  - run: all\n"), "t.yaml").unwrap();
    assert_eq!(scenario.steps.iter().map(|s| s.line).collect::<Vec<_>>(), [3, 5]);
    assert_eq!(scenario.nodes, NodeSpec::defaults());
    let scenario = parse("nodes: [a, {name: g, gpus: 8}]\nsteps: []\n", "").unwrap();
    assert_eq!(scenario.nodes, [NodeSpec::new("a"), NodeSpec { gpus: 8, ..NodeSpec::new("g") }]);
    let scenario = parse("nodes: [{name: c, cpu: 4, memory: 64Gi}]\nsteps: []\n", "").unwrap();
    let (cpu, memory) = (Some("4".to_owned()), Some("64Gi".to_owned()));
    assert_eq!(scenario.nodes, [NodeSpec { cpu, memory, ..NodeSpec::new("c") }]);
}

#[test]
fn manifests_keep_what_yaml_says() {
    let text = "manifests:\n- apiVersion: v1\n  kind: X\n  metadata: {name: a}\n  spec:\n    codes: 137,128\n    code: 137\n    cpu: 1.0\n    off: no\n    none: None\n    nil: null\n    minus: -1\n    yes: true\nsteps: []\n";
    let scenario = parse(text, "t.yaml").unwrap();
    let want = json!({"codes": "137,128", "code": 137, "cpu": 1.0, "off": "no", "none": "None", "nil": null, "minus": -1, "yes": true});
    assert_eq!(scenario.manifests[0]["spec"], want);
}

#[test]
fn what_cannot_be_read_is_refused_with_file_line_and_reason() {
    let manifest = "manifests: [{apiVersion: v1, kind: Pod, metadata: {name: j}}]\n";
    for (text, place, words) in [
        ("steps:\n  - apply: [j]\n  - frobnicate: j\n", "t.yaml:3:", "frobnicate"),
        ("steps:\n  - exit: {pod: a, cod: 1}\n", "t.yaml:2:", "cod"),
        ("steps:\n  - exit: {pod: a}\n", "t.yaml:2:", "code"),
        ("stepz: []\n", "t.yaml:1:", "stepz"),
        ("description: x\n", "t.yaml", "steps"),
        ("steps:\n  - advance: 3d\n", "t.yaml:2:", "the unit `d`"),
        ("steps:\n  - advance: 90\n", "t.yaml:2:", "a number has no unit"),
        ("steps:\n  - apply: [k]\n", "t.yaml:2", "step 0 (apply): `k` names no manifest"),
        ("steps:\n  - {apply: [j], run: all}\n", "t.yaml:2:", ""),
        ("steps:\n  - crash: {before: append, after: call}\n", "t.yaml:2", "either before or after"),
        ("steps:\n  - crash: {before: apend}\n", "t.yaml:2:", "apend"),
        ("steps:\n  - crash: {before: call, nth: 0}\n", "t.yaml:2", "counts from 1"),
        ("steps:\n  - together: [{crash: {}}]\n", "t.yaml:2", "crash: cannot be part"),
        ("steps:\n  - together: [{together: []}]\n", "t.yaml:2", "cannot stand inside another"),
        ("steps:\n  - node: {name: n, ready: maybe}\n", "t.yaml:2", "`maybe` is no state of a node"),
        ("steps:\n  - annotate: {set: {a: b}}\n", "t.yaml:2", "exactly one of job, pod and node"),
        ("steps:\n  - patch: {spec: {}}\n", "t.yaml:2", "names no object"),
        ("steps:\n  - patch: {job: j, pod: p, spec: {}}\n", "t.yaml:2", "more than one object"),
        ("steps:\n  - run: /x\n", "t.yaml:2:", "names no object"),
        ("nodes: [{name: a, cpu: many}]\nsteps: []\n", "t.yaml", "node a: cpu: `many` is no quantity"),
        ("with: [trainers]\nsteps: []\n", "t.yaml:1:", "trainers"),
        ("flags: {bogus: 1}\nsteps: []\n", "t.yaml", "unknown flag `bogus`"),
        ("expect: {phasez: []}\nsteps: []\n", "t.yaml:1:", "phasez"),
        ("steps: [\n", "t.yaml:", ""),
    ] {
        let text = if text.contains("apply") { format!("{text}{manifest}") } else { text.to_owned() };
        let error = error(&text);
        assert!(error.starts_with(place), "{text}: {error}");
        assert!(error.contains(words), "{text}: {error}");
    }
    assert!(
        error("manifests: [{kind: Pod, metadata: {name: j}}]\nsteps: []\n").contains("manifest 0 has no apiVersion")
    );
    assert!(
        load(std::path::Path::new("no-such-file.yaml")).unwrap_err().to_string().starts_with("no-such-file.yaml: ")
    );
}

#[test]
fn names_find_manifests_by_kind_and_namespace_too() {
    let manifest = json!({"kind": "Pod", "metadata": {"name": "j", "namespace": "ns"}});
    for (name, found) in
        [("j", true), ("ns/j", true), ("Pod/j", true), ("Pod/ns/j", true), ("default/j", false), ("k", false)]
    {
        assert_eq!(names_manifest(name, &manifest), found, "{name}");
    }
}

#[test]
fn patches_name_their_object_in_several_ways() {
    let of = |text: &str| match steps(&format!("  - patch: {text}\n")).remove(0) {
        Action::Patch(patch) => patch.target_and_body().unwrap(),
        other => panic!("{other:?}"),
    };
    let spec = json!({"spec": {"a": 1}});
    assert_eq!(of("{job: j, spec: {a: 1}}"), (PatchTarget { kind: String::new(), name: "j".into() }, spec.clone()));
    assert_eq!(
        of("{job: j, object: {spec: {a: 1}}}"),
        (PatchTarget { kind: String::new(), name: "j".into() }, spec.clone())
    );
    let pod = PatchTarget { kind: "Pod".to_owned(), name: "ns/p".into() };
    assert_eq!(of("{pod: ns/p, spec: {a: 1}}"), (pod.clone(), spec.clone()));
    assert_eq!(of("{object: Pod/ns/p, spec: {a: 1}}"), (pod.clone(), spec.clone()));
    assert_eq!(of("{kind: Pod, name: p, namespace: ns, spec: {a: 1}}"), (pod.clone(), spec.clone()));
    assert_eq!(
        of("{object: {kind: Pod, metadata: {name: p, namespace: ns}}, spec: {a: 1}}"),
        (pod.clone(), spec.clone())
    );
    assert_eq!(of("{object: {kind: Pod, name: p, namespace: ns, spec: {a: 1}}}"), (pod, spec));
}
