//! Object -> spec: defaults, every refusal with its path, every remark.

use model::{
    CleanPodPolicy, GroupEndPolicy, GroupSpec, JobEndPolicy, JobSpec, PhaseRules, RestartPolicy, RestartScope, SpecFact,
};
use serde_json::{Value, json};

use super::{base, edited};
use crate::aitrainingjob::AiTrainingJob;
use crate::api::JobApi;
use crate::testing;

const TRAINER: &str = "/spec/replicaSpecs/trainer";
const CONTAINER: &str = "/spec/replicaSpecs/trainer/template/spec/containers/0";

fn fact(object: &Value) -> SpecFact {
    AiTrainingJob.spec_fact(object)
}

fn warnings(object: &Value) -> Vec<String> {
    testing::warnings(&AiTrainingJob, object)
}

fn spec(object: &Value) -> JobSpec {
    fact(object).spec.unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn absent_fields_take_their_defaults() {
    let mut job = base();
    job["spec"]["replicaSpecs"]["trainer"].as_object_mut().unwrap().remove("replicas");
    let want = JobSpec {
        groups: vec![GroupSpec {
            name: "trainer".into(),
            display: None,
            replicas: 1,
            complete: GroupEndPolicy::All,
            fail: GroupEndPolicy::Any,
            restart: RestartPolicy::Never,
            scope: RestartScope::All,
            restart_limit: None,
            services: true,
            gpus: false,
            ..GroupSpec::default()
        }],
        complete: JobEndPolicy::All,
        fail: JobEndPolicy::Any,
        clean_pods: CleanPodPolicy::All,
        restartable_codes: vec![],
        time_limit_ms: None,
        phase_rules: PhaseRules::default(),
        ..JobSpec::default()
    };
    assert_eq!(spec(&job), want);
    assert!(warnings(&job).is_empty());
    // Null and empty text are absent; so are the defaults that the original operator stored in the object.
    for fill in [json!(null), json!("")] {
        for key in ["cleanPodPolicy", "failPolicy", "completePolicy", "restartingExitCode", "schedulerName", "priority"]
        {
            job["spec"][key] = fill.clone();
        }
        for key in ["restartPolicy", "restartScope", "failPolicy", "completePolicy"] {
            job["spec"]["replicaSpecs"]["trainer"][key] = fill.clone();
        }
        job["spec"]["timeLimit"] = json!(null);
        job["spec"]["replicaSpecs"]["trainer"]["restartLimit"] = json!(null);
        assert_eq!(spec(&job), want, "{fill}");
    }
    assert!(warnings(&job).is_empty());
}

#[test]
fn the_repositorys_example_is_read() {
    let job = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": "paddle-mnist", "namespace": "default", "uid": "u"},
        "spec": {"cleanPodPolicy": "All", "restartingExitCode": "137,128", "replicaSpecs": {"trainer": {
            "replicas": 1, "completePolicy": "All", "failPolicy": "Rank0", "restartLimit": 1,
            "restartPolicy": "OnNodeFailWithExitCode",
            "template": {"metadata": {"creationTimestamp": null}, "spec": {"hostNetwork": true, "restartPolicy": "Never",
                "containers": [{"name": "aitj-trainer", "image": "mnist", "ports": [
                    {"name": "aitj-24446", "containerPort": 24446}],
                    "resources": {"limits": {"cpu": 1.0, "memory": "1.0Gi"}, "requests": {"cpu": 1.0, "memory": "1.0Gi"}}}]}}}}}});
    let spec = spec(&job);
    let trainer = &spec.groups[0];
    assert_eq!(spec.restartable_codes, [128, 137]);
    assert_eq!((trainer.fail, trainer.restart), (GroupEndPolicy::Rank0, RestartPolicy::OnNodeFailWithExitCode));
    assert_eq!((trainer.restart_limit, trainer.services, trainer.gpus), (Some(1), true, false));
    assert!(warnings(&job).is_empty());
}

#[test]
fn groups_stand_in_the_order_of_their_keys_and_keep_their_spelling() {
    let trainer = base()["spec"]["replicaSpecs"]["trainer"].clone();
    let job =
        edited(&[("/spec/replicaSpecs", json!({"ps": trainer, "Worker": trainer, "my-PS": trainer, "aa": trainer}))]);
    let names: Vec<_> = spec(&job).groups.iter().map(|g| (g.name.to_string(), g.display().to_string())).collect();
    let want = [("worker", "Worker"), ("aa", "aa"), ("my-ps", "my-PS"), ("ps", "ps")];
    assert_eq!(names, want.map(|(name, display)| (name.to_owned(), display.to_owned())));
}

#[test]
fn exit_codes_are_text_or_one_number() {
    for (value, want, warned) in [
        (json!("137,128"), vec![128, 137], 0),
        (json!(" 137 ,\t128,137"), vec![128, 137], 0),
        (json!(137), vec![137], 0),
        (json!("1,two,,3 4, 5,"), vec![1, 5], 2),
        (json!("-1,0"), vec![-1, 0], 0),
        (json!("99999999999"), vec![], 1),
        (json!("every"), vec![], 1),
    ] {
        let job = edited(&[("/spec/restartingExitCode", value.clone())]);
        assert_eq!(spec(&job).restartable_codes, want, "{value}");
        assert_eq!(warnings(&job).len(), warned, "{value}");
    }
}

#[test]
fn numbers_keep_their_meaning_at_the_edges() {
    for (value, want) in [(100, 100_000), (0, 0), (-5, 0), (i64::MAX, u64::MAX)] {
        assert_eq!(spec(&edited(&[("/spec/timeLimit", json!(value))])).time_limit_ms, Some(want), "{value}");
    }
    for (value, want) in [(3, 3), (0, 0), (-1, 0), (i64::from(i32::MAX), 2_147_483_647)] {
        let job = edited(&[("/spec/replicaSpecs/trainer/restartLimit", json!(value))]);
        assert_eq!(spec(&job).groups[0].restart_limit, Some(want), "{value}");
    }
    for value in [0, 1, 100_000] {
        let job = edited(&[("/spec/replicaSpecs/trainer/replicas", json!(value))]);
        assert_eq!(spec(&job).groups[0].replicas, value, "{value}");
    }
}

#[test]
fn a_queue_may_choose_numbers_within_the_bounds() {
    // (minReplicas, maxReplicas, edlPolicy, range)
    for (min, max, policy, want) in [
        (json!(1), json!(4), json!("Auto"), Some((1, 2, 4))),
        (json!(1), json!(4), json!(null), Some((1, 2, 4))),
        (json!(1), json!(null), json!(null), Some((1, 2, 2))),
        (json!(null), json!(4), json!(null), Some((2, 2, 4))),
        (json!(null), json!(null), json!("Auto"), None),
        (json!(1), json!(4), json!("Manual"), None),
        (json!(1), json!(4), json!("Never"), None),
        (json!(3), json!(4), json!(null), None),
        (json!(0), json!(4), json!(null), None),
        (json!(1), json!(1), json!(null), None),
    ] {
        let at = |key: &str| format!("{TRAINER}/{key}");
        let job = edited(&[
            (&at("replicas"), json!(2)),
            (&at("minReplicas"), min.clone()),
            (&at("maxReplicas"), max.clone()),
            (&at("edlPolicy"), policy.clone()),
        ]);
        let sizes = spec(&job).groups[0].sizes.map(|sizes| (sizes.min, sizes.preferred, sizes.max));
        assert_eq!(sizes, want, "{min} {max} {policy}");
    }
    let contrary = edited(&[(&format!("{TRAINER}/minReplicas"), json!(9))]);
    let want = "spec.replicaSpecs.trainer.minReplicas: must be at most replicas, which is 2: a queue does not resize the group (9)";
    assert_eq!(warnings(&contrary), [want]);
}

#[test]
fn every_word_of_every_policy_is_known() {
    let group =
        |key: &str, value: &str| spec(&edited(&[(&format!("{TRAINER}/{key}"), json!(value))])).groups[0].clone();
    for (word, want) in [
        ("Always", RestartPolicy::Always),
        ("OnFailure", RestartPolicy::OnFailure),
        ("OnNodeFail", RestartPolicy::OnNodeFail),
        ("Never", RestartPolicy::Never),
        ("ExitCode", RestartPolicy::ExitCode),
        ("OnNodeFailWithExitCode", RestartPolicy::OnNodeFailWithExitCode),
    ] {
        assert_eq!(group("restartPolicy", word).restart, want);
    }
    for (word, want) in [("All", RestartScope::All), ("Replica", RestartScope::Replica), ("Pod", RestartScope::Pod)] {
        assert_eq!(group("restartScope", word).scope, want);
    }
    for (word, want) in [
        ("Any", GroupEndPolicy::Any),
        ("Rank0", GroupEndPolicy::Rank0),
        ("All", GroupEndPolicy::All),
        ("None", GroupEndPolicy::None),
    ] {
        assert_eq!(group("failPolicy", word).fail, want);
        assert_eq!(group("completePolicy", word).complete, want);
    }
    for (word, want) in [("Any", JobEndPolicy::Any), ("All", JobEndPolicy::All), ("None", JobEndPolicy::None)] {
        assert_eq!(spec(&edited(&[("/spec/failPolicy", json!(word))])).fail, want);
        assert_eq!(spec(&edited(&[("/spec/completePolicy", json!(word))])).complete, want);
    }
    assert_eq!(spec(&edited(&[("/spec/cleanPodPolicy", json!("None"))])).clean_pods, CleanPodPolicy::None);
}

#[test]
fn unknown_words_act_as_the_original_did_and_are_remarked() {
    let trainer = "spec.replicaSpecs.trainer";
    for (pointer, value, path, acts_as) in [
        ("/spec/failPolicy", "Rank0", "spec.failPolicy".to_owned(), "None"),
        ("/spec/completePolicy", "Rank0", "spec.completePolicy".to_owned(), "None"),
        ("/spec/completePolicy", "all", "spec.completePolicy".to_owned(), "None"),
        ("/spec/cleanPodPolicy", "Running", "spec.cleanPodPolicy".to_owned(), "All"),
        ("/spec/replicaSpecs/trainer/restartPolicy", "Sometimes", format!("{trainer}.restartPolicy"), "Never"),
        ("/spec/replicaSpecs/trainer/failPolicy", "most", format!("{trainer}.failPolicy"), "None"),
        ("/spec/replicaSpecs/trainer/completePolicy", "most", format!("{trainer}.completePolicy"), "None"),
    ] {
        let job = edited(&[(pointer, json!(value))]);
        let fact = fact(&job);
        assert!(fact.spec.is_ok(), "{pointer}");
        assert_eq!(fact.warnings.len(), 1, "{:?}", fact.warnings);
        assert_eq!((&fact.warnings[0].path, &fact.warnings[0].value), (&path, &format!("\"{value}\"")));
        assert!(fact.warnings[0].problem.ends_with(&format!("it acts as {acts_as}")), "{}", fact.warnings[0]);
    }
    let job = edited(&[("/spec/failPolicy", json!("Rank0")), ("/spec/cleanPodPolicy", json!("x"))]);
    assert_eq!((spec(&job).fail, spec(&job).clean_pods), (JobEndPolicy::None, CleanPodPolicy::All));
}

#[test]
fn gpus_are_asked_for_by_limits_or_requests_above_zero() {
    for (resources, want) in [
        (json!({"limits": {"nvidia.com/gpu": 1}}), true),
        (json!({"limits": {"nvidia.com/gpu": "8"}}), true),
        (json!({"limits": {"amd.com/gpu": 2}, "requests": {"amd.com/gpu": "2"}}), true),
        (json!({"limits": {"nvidia.com/mig-1g.5gb": 1}}), true),
        (json!({"limits": {"nvidia.com/gpu": 0}}), false),
        (json!({"limits": {"nvidia.com/gpu": "0"}}), false),
        (json!({"limits": {"nvidia.com/gpu": "0e9"}}), false),
        (json!({"limits": {"nvidia.com/gpu": null}}), false),
        (json!({"limits": {"cpu": 1.0, "memory": "1Gi"}}), false),
        (json!(null), false),
    ] {
        let job = edited(&[(&format!("{CONTAINER}/resources"), resources.clone())]);
        assert_eq!(spec(&job).groups[0].gpus, want, "{resources}");
    }
    let init = json!([{"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    assert!(spec(&edited(&[("/spec/replicaSpecs/trainer/template/spec/initContainers", init)])).groups[0].gpus);
}

#[test]
fn a_job_that_no_result_can_end_is_remarked() {
    let t = |key: &str| format!("{TRAINER}/{key}");
    let none = json!("None");
    // (edits, whether remarked)
    for (edits, remarked) in [
        (vec![], false),
        (vec![("/spec/completePolicy".to_owned(), none.clone())], false),
        (vec![("/spec/completePolicy".to_owned(), none.clone()), ("/spec/failPolicy".to_owned(), none.clone())], true),
        (
            vec![
                ("/spec/completePolicy".to_owned(), none.clone()),
                ("/spec/failPolicy".to_owned(), none.clone()),
                ("/spec/timeLimit".to_owned(), json!(9)),
            ],
            false,
        ),
        (vec![(t("completePolicy"), none.clone()), (t("failPolicy"), none.clone())], true),
        (vec![(t("completePolicy"), none.clone())], false),
        (vec![(t("replicas"), json!(0))], false),
        (vec![(t("replicas"), json!(0)), (t("completePolicy"), json!("Any"))], true),
        (vec![(t("replicas"), json!(0)), (t("completePolicy"), json!("Any")), (t("failPolicy"), json!("All"))], false),
        (vec![(t("completePolicy"), none.clone()), ("/spec/failPolicy".to_owned(), none)], true),
    ] {
        let edits: Vec<(&str, Value)> =
            edits.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect();
        let paths: Vec<String> = fact(&edited(&edits)).warnings.into_iter().map(|warning| warning.path).collect();
        assert_eq!(paths.iter().any(|path| path == "spec.completePolicy"), remarked, "{edits:?}: {paths:?}");
    }
}

#[test]
fn lists_of_peers_too_long_for_a_process_are_remarked() {
    let replicas = format!("{TRAINER}/replicas");
    assert!(warnings(&edited(&[(&replicas, json!(1000))])).is_empty());
    let warned = warnings(&edited(&[(&replicas, json!(10_000))]));
    assert_eq!(warned.len(), 1);
    assert!(
        warned[0].starts_with("spec.replicaSpecs.trainer.replicas: the list of its pods in TRAINER_HOSTS"),
        "{}",
        warned[0]
    );
}

#[test]
fn the_manifest_holds_what_pods_need_and_nothing_that_changes_without_them() {
    let job = edited(&[("/metadata/labels", json!({"team": "a"})), ("/spec/priority", json!("high"))]);
    let manifest = fact(&job).manifest;
    for (pointer, value, changes) in [
        ("/metadata/resourceVersion", json!("2"), false),
        ("/metadata/annotations", json!({"Failed": "x"}), false),
        ("/status", json!({"phase": "Running"}), false),
        ("/spec/timeLimit", json!(5), false),
        ("/spec/replicaSpecs/trainer/restartLimit", json!(5), false),
        ("/spec/replicaSpecs/trainer/replicas", json!(5), false),
        ("/metadata/labels", json!({"team": "b"}), true),
        ("/spec/schedulerName", json!("volcano"), true),
        ("/spec/replicaSpecs/trainer/template/spec/novel", json!({"a": [1.0, null]}), true),
    ] {
        let mut other = job.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(fact(&other).manifest != manifest, changes, "{pointer}");
    }
    let parsed: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(
        parsed["spec"]["replicaSpecs"]["trainer"]["template"],
        job["spec"]["replicaSpecs"]["trainer"]["template"]
    );
}
