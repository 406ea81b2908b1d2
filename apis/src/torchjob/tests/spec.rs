//! Object -> spec: defaults, names, limits, and what is refused.

use std::collections::BTreeSet;

use model::{
    Budget, CleanPodPolicy, JobEndPolicy, JobSpec, Phase, Reached, ReadinessGate, RestartPolicy, Retain, Running,
    Threshold,
};
use serde_json::{Value, json};
use settings::TorchSettings;

use super::{base, edited, errors, warnings};
use crate::api::JobApi;
use crate::testing;
use crate::torchjob::TorchJob;

const TASKS: &str = "/spec/torchTaskSpecs";

fn spec(object: &Value) -> JobSpec {
    testing::accepted(&TorchJob::default(), object).1
}

fn template() -> Value {
    base()["spec"]["torchTaskSpecs"]["Master"]["template"].clone()
}

fn tasks(tasks: &Value) -> Value {
    edited(&[(TASKS, tasks.clone())])
}

#[test]
fn types_start_in_order_and_have_the_originals_policies() {
    let of = |spec: &JobSpec| -> Vec<(String, u32, RestartPolicy, bool, Vec<String>)> {
        let after = |group: &model::GroupSpec| {
            assert!(group.after.iter().all(|after| after.reached == Reached::Started));
            group.after.iter().map(|after| after.group.to_string()).collect()
        };
        let group = |g: &model::GroupSpec| (g.display().to_string(), g.replicas, g.restart, g.services, after(g));
        spec.groups.iter().map(group).collect()
    };
    let want = [
        ("Master".to_owned(), 1, RestartPolicy::Listed, false, vec![]),
        ("Worker".to_owned(), 2, RestartPolicy::OnNodeFail, false, vec!["master".to_owned()]),
    ];
    assert_eq!(of(&spec(&base())), want);
    let object = tasks(&json!({"MASTER": {"template": template()}, "worker": {"template": template()},
        "AIMaster": {"restartPolicy": "ExitCode", "template": template()}}));
    let with = spec(&object);
    let want = [
        ("AIMaster".to_owned(), 1, RestartPolicy::OnNodeFail, false, vec![]),
        ("Master".to_owned(), 1, RestartPolicy::Listed, false, vec!["aimaster".to_owned()]),
        ("Worker".to_owned(), 1, RestartPolicy::OnNodeFail, false, vec!["master".to_owned()]),
    ];
    assert_eq!(of(&with), want);
    let closed: Vec<bool> = with.groups.iter().map(|group| group.closed.is_some()).collect();
    assert_eq!(closed, [false, true, true]);
    let set = |names: &[&str]| names.iter().map(|name| model::Text::from(*name)).collect::<BTreeSet<_>>();
    assert_eq!(with.complete, JobEndPolicy::Sets(vec![set(&["aimaster"]), set(&["master", "worker"])]));
    assert_eq!(with.phase_rules.running, Running::Any(set(&["aimaster", "master"])));
    let object = testing::edited(object, &[("/metadata/annotations", json!({"aimaster": "ready"}))]);
    assert!(spec(&object).groups.iter().all(|group| group.closed.is_none()));
}

#[test]
fn without_the_gate_for_an_order_all_types_start_at_once() {
    let api = TorchJob { settings: TorchSettings { ordered: false, ..TorchSettings::default() } };
    let (_, spec, _) = testing::accepted(&api, &base());
    assert!(spec.groups.iter().all(|group| group.after.is_empty()));
    assert_eq!(spec.owned.iter().map(|owned| owned.object.name.to_string()).collect::<Vec<_>>(), ["j1", "j1-master-0"]);
}

#[test]
fn limits_and_clean_up_have_two_names_and_the_originals_counts() {
    let all = |ttl: &str, limit: &str, clean: &str| {
        let mut object = base();
        let fields = object["spec"].as_object_mut().unwrap();
        fields.insert(ttl.to_owned(), json!(5));
        fields.insert(limit.to_owned(), json!(6));
        fields.insert(clean.to_owned(), json!("Running"));
        let spec = spec(&object);
        (spec.ttl_ms, spec.time_limit_ms, spec.clean(Phase::Failed))
    };
    let want = (Some(5_000), Some(6_000), CleanPodPolicy::Running);
    assert_eq!(all("TTLSecondsAfterFinished", "activeDurations", "clenPodPolicy"), want);
    assert_eq!(all("ttlSecondsAfterFinished", "activeDeadlineSeconds", "cleanPodPolicy"), want);
    let both = edited(&[("/spec/clenPodPolicy", json!("All")), ("/spec/cleanPodPolicy", json!("None"))]);
    assert_eq!(spec(&both).clean(Phase::Succeeded), CleanPodPolicy::All);
    assert_eq!(warnings(&both), ["spec.cleanPodPolicy: does not count beside clenPodPolicy (\"None\")"]);
    let odd = edited(&[("/spec/clenPodPolicy", json!("Whatever"))]);
    assert_eq!(spec(&odd).clean(Phase::Failed), CleanPodPolicy::All);
    assert_eq!(spec(&base()).clean(Phase::TimedOut), CleanPodPolicy::None);
}

#[test]
fn a_limit_of_retries_counts_rounds_and_restarts_in_running_pods() {
    let limited = spec(&edited(&[("/spec/backoffLimit", json!(3))]));
    let want = Budget { limit: 3, containers: false, reach: Threshold::Above, rounds: true };
    assert_eq!((limited.budget, limited.running_restart_limit), (Some(want), Some(3)));
    assert_eq!(limited.groups.iter().map(|group| group.counts_restarts).collect::<Vec<_>>(), [false, true]);
    assert_eq!((spec(&base()).budget, spec(&base()).running_restart_limit), (None, None));
}

#[test]
fn pod_groups_are_owned_until_the_end_and_waited_for_where_they_are_served() {
    let owned: Vec<_> = spec(&base()).owned.into_iter().filter(|owned| &*owned.object.kind == "PodGroup").collect();
    let names: Vec<&str> = owned.iter().map(|owned| &*owned.object.name).collect();
    assert_eq!(names, ["j1-master", "j1-worker"]);
    assert!(owned.iter().all(|each| each.keep == Retain::UntilEnd && each.awaits == ReadinessGate::ExistsIfServed));
    let other = spec(&edited(&[("/spec/torchTaskSpecs/Worker/numTasks", json!(3))])).owned;
    assert_eq!((owned[0].digest == other[0].digest, owned[1].digest == other[1].digest), (true, false));
    let api = TorchJob { settings: TorchSettings { gang: false, ..TorchSettings::default() } };
    assert_eq!(testing::accepted(&api, &base()).1.owned.len(), 1, "the service of the master");
}

#[test]
fn what_cannot_be_served_names_field_and_value_and_is_fatal() {
    let torch = template();
    for (edits, want) in [
        (vec![("/spec", Value::Null)], "spec: must be an object with torchTaskSpecs (null)"),
        (vec![(TASKS, json!({}))], "spec.torchTaskSpecs: must name at least the type Master ({})"),
        (
            vec![(TASKS, json!({"Worker": {"template": torch}}))],
            "spec.torchTaskSpecs.Master: a job needs a Master: it is rank 0, and the others meet there (missing)",
        ),
        (
            vec![("/spec/torchTaskSpecs/Master/numTasks", json!(2))],
            "spec.torchTaskSpecs.Master.numTasks: must be 1: a job has a single master (2)",
        ),
        (
            vec![("/spec/torchTaskSpecs/worker", json!({"template": torch}))],
            "spec.torchTaskSpecs.worker: is the same type as `Worker`: types that differ in case alone are the same (\"worker\")",
        ),
        (
            vec![("/spec/torchTaskSpecs/Evaluator", json!({"template": torch}))],
            "spec.torchTaskSpecs.Evaluator: must be one of AIMaster, Master, Worker: no pods are made of another type \
             (\"Evaluator\")",
        ),
        (
            vec![("/spec/torchTaskSpecs/Master/template/spec/containers/0/name", json!("main"))],
            "spec.torchTaskSpecs.Master.template.spec.containers: a Master needs a container torch: the others meet at its \
             port torchjob-port ([\"main\"])",
        ),
        (
            vec![("/spec/minMembers", json!({"Worker": 3}))],
            "spec.minMembers.Worker: must be at most numTasks of Worker, which is 2 (3)",
        ),
        (
            vec![("/spec/torchTaskSpecs/Worker/restartPolicy", json!("Sometimes"))],
            "spec.torchTaskSpecs.Worker.restartPolicy: must be one of Always, OnFailure, Never, ExitCode (\"Sometimes\")",
        ),
    ] {
        let object = edited(&edits);
        let found = errors(&object);
        assert!(found.iter().any(|error| error.starts_with(want)), "{want}\n{found:#?}");
        assert!(TorchJob::default().spec_fact(&object).fatal);
    }
    assert!(!TorchJob::default().spec_fact(&base()).fatal);
}

#[test]
fn the_launcher_needs_a_place_to_meet() {
    let policy =
        |policy: Value| edited(&[("/spec/enableTorchElastic", json!(true)), ("/spec/torchElasticPolicy", policy)]);
    assert_eq!(
        errors(&policy(json!({"rendezvousBackend": "c10d"}))),
        ["spec.torchElasticPolicy.rendezvousEndpoint: must be written where there is a torchElasticPolicy (missing)"]
    );
    let good =
        json!({"rendezvousBackend": "c10d", "rendezvousEndpoint": "e:1", "numMinReplicas": 3, "numMaxReplicas": 2});
    let want = "spec.torchElasticPolicy.numMinReplicas: must be at most numMaxReplicas, which is 2 (3)";
    assert_eq!(errors(&policy(good)), [want]);
    let alone = edited(&[("/spec/enableTorchElastic", json!(true))]);
    assert_eq!(warnings(&alone), ["spec.torchElasticPolicy: enableTorchElastic has no effect without it (missing)"]);
}

#[test]
fn tasks_count_for_quotas_by_their_scopes() {
    let spec_of = |task: &str| format!("/spec/torchTaskSpecs/{task}/template/spec");
    let terms = json!([{"topologyKey": "zone", "namespaceSelector": {}}]);
    let edits = [
        (format!("{}/priorityClassName", spec_of("Master")), json!("high")),
        (format!("{}/activeDeadlineSeconds", spec_of("Master")), json!(60)),
        (format!("{}/containers/0/resources", spec_of("Worker")), json!({})),
        (
            format!("{}/affinity", spec_of("Worker")),
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}),
        ),
    ];
    let edits: Vec<(&str, Value)> = edits.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
    let coordination = spec(&edited(&edits)).coordination.unwrap();
    let words = |part: &model::ScopedRequest| {
        let scopes = part.scopes.iter().map(|(scope, value)| format!("{scope}={value}")).collect::<Vec<_>>().join(" ");
        (scopes, part.request.get("pods").copied(), part.request.get("cpu").copied())
    };
    let master = "NotBestEffort= PriorityClass=high Terminating=".to_owned();
    let worker = "BestEffort= CrossNamespacePodAffinity= NotTerminating=".to_owned();
    let parts: Vec<_> = coordination.scoped.iter().map(words).collect();
    assert_eq!(parts, [(master, Some(1000), Some(500)), (worker, Some(2000), None)]);
    assert_eq!(coordination.request.get("pods"), Some(&3000), "of all tasks");
    let alike = spec(&base()).coordination.unwrap();
    assert_eq!(alike.scoped.len(), 1, "tasks in the same scopes stand together");
    assert_eq!(alike.scoped[0].request, alike.request);
}
