//! Object -> spec: defaults, policies, the three spellings of the run policy, remarks.

use std::collections::BTreeSet;

use model::{
    Budget, CleanBy, CleanPodPolicy, ClockStart, EndTiming, GroupEndPolicy, GroupSpec, JobEndPolicy, JobSpec,
    Milestones, PhaseRules, Resize, RestartPolicy, RestartScope, Running, SizeRange, Threshold,
};
use serde_json::{Value, json};

use super::{base, edited, warnings, without};
use crate::api::JobApi;
use crate::elasticjob::ElasticJob;
use crate::testing;

const WORKER: &str = "/spec/replicaSpecs/Worker";

fn spec(object: &Value) -> JobSpec {
    testing::accepted(&ElasticJob, object).1
}

#[test]
fn the_fixture_is_read() {
    let workers = BTreeSet::from(["worker".into()]);
    let read = spec(&base());
    let retryable = read.retryable.clone().unwrap();
    assert!(retryable.disrupted && retryable.node && !retryable.gpu);
    for reason in ["Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeLost", "UnexpectedAdmissionError"] {
        assert!(retryable.reasons.iter().any(|known| **known == *reason), "{reason}");
    }
    let want = JobSpec {
        groups: vec![GroupSpec {
            name: "worker".into(),
            display: Some("Worker".into()),
            replicas: 2,
            complete: GroupEndPolicy::Minimum,
            fail: GroupEndPolicy::Minimum,
            restart: RestartPolicy::Listed,
            scope: RestartScope::Each,
            restart_limit: None,
            services: true,
            gpus: false,
            min: Some(1),
            shape: None,
            sizes: Some(SizeRange { min: 1, preferred: 2, max: 4, resize: Resize::InPlace }),
            ..GroupSpec::default()
        }],
        complete: JobEndPolicy::Sets(vec![workers.clone()]),
        fail: JobEndPolicy::Any,
        clean_pods: CleanPodPolicy::All,
        restartable_codes: vec![130, 137, 138, 143],
        time_limit_ms: None,
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: true,
            running: Running::Minimum(workers),
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: false,
        },
        retryable: Some(retryable),
        budget: None,
        limit_from: ClockStart::Admitted,
        clean_by: Some(CleanBy {
            succeeded: CleanPodPolicy::None,
            failed: CleanPodPolicy::Running,
            other: CleanPodPolicy::Running,
        }),
        ttl_ms: None,
        end_annotation: false,
        suspended: false,
        ..JobSpec::default()
    };
    assert_eq!(read, want);
    assert_eq!(warnings(&base()), [""; 0]);
}

#[test]
fn each_restart_policy_has_its_policies() {
    use GroupEndPolicy::{Any, Minimum, None as Never};
    let helper = base()["spec"]["replicaSpecs"]["Worker"].clone();
    for (word, restart, worker, other, pods) in [
        (json!("ExitCode"), RestartPolicy::Listed, (Minimum, Minimum), (Never, Never), "Never"),
        (json!("Never"), RestartPolicy::Never, (Minimum, Minimum), (Never, Any), "Never"),
        (json!("OnFailure"), RestartPolicy::Always, (Minimum, Never), (Never, Never), "OnFailure"),
        (json!("Always"), RestartPolicy::Always, (Never, Never), (Never, Never), "Always"),
        (json!(null), RestartPolicy::Always, (Never, Never), (Never, Never), "Always"),
        (json!(""), RestartPolicy::Always, (Never, Never), (Never, Never), "Always"),
    ] {
        let job = edited(&[
            (&format!("{WORKER}/restartPolicy"), word.clone()),
            ("/spec/replicaSpecs/Helper", helper.clone()),
            ("/spec/replicaSpecs/Helper/restartPolicy", word.clone()),
        ]);
        let spec = spec(&job);
        let of = |name: &str| spec.group(name).unwrap();
        assert_eq!((of("worker").restart, of("helper").restart), (restart, restart), "{word}");
        assert_eq!((of("worker").complete, of("worker").fail), worker, "{word}");
        assert_eq!((of("helper").complete, of("helper").fail), other, "{word}");
        assert_eq!((of("worker").min, of("helper").min), (Some(1), None));
        let pod = testing::render(&ElasticJob, &job, &testing::slot("worker", 0), 1, 0);
        assert_eq!(pod["spec"]["restartPolicy"], pods, "{word}");
    }
}

#[test]
fn absent_numbers_take_that_of_the_replicas_and_give_the_pods_a_shape() {
    // (members taken away, minimum, shape)
    for (taken, min, shape) in [
        (vec![], 1, None),
        (vec!["/spec/minReplicas"], 2, Some("2:4")),
        (vec!["/spec/maxReplicas"], 1, Some("1:2")),
        (vec!["/spec/minReplicas", "/spec/maxReplicas"], 2, Some("2:2")),
        (vec!["/spec/minReplicas", "/spec/replicaSpecs/Worker/replicas"], 1, Some("1:4")),
    ] {
        let spec = spec(&without(&taken));
        assert_eq!((spec.groups[0].minimum(), spec.groups[0].shape.as_deref()), (min, shape), "{taken:?}");
    }
    for replicas in [json!(null), json!(1)] {
        assert_eq!(spec(&edited(&[(&format!("{WORKER}/replicas"), replicas)])).groups[0].replicas, 1);
    }
}

#[test]
fn no_replicas_pause_a_job_without_a_written_minimum() {
    let mut job = without(&["/spec/minReplicas"]);
    job["spec"]["replicaSpecs"]["Worker"]["replicas"] = json!(0);
    let group = &spec(&job).groups[0];
    assert_eq!((group.replicas, group.shape.as_deref()), (0, None));
}

#[test]
fn every_spelling_of_the_run_policy_counts() {
    let policy = json!({"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 10,
        "backoffLimit": 3, "schedulingPolicy": {"minAvailable": 2}});
    let read = |job: &Value| {
        let spec = spec(job);
        assert_eq!(warnings(job), [""; 0], "{job}");
        (spec.clean_by.unwrap().succeeded, spec.ttl_ms, spec.time_limit_ms, spec.budget.unwrap().limit)
    };
    let want = (CleanPodPolicy::All, Some(5000), Some(10_000), 3);
    let mut plain = base();
    plain["spec"].as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    assert_eq!(read(&plain), want);
    for name in ["RunPolicy", "runPolicy"] {
        assert_eq!(read(&edited(&[(&format!("/spec/{name}"), policy.clone())])), want, "{name}");
        plain["spec"][name] = policy.clone();
        assert_eq!(read(&plain), want, "the same values twice");
    }
    // One field here, another there.
    let mixed = edited(&[
        ("/spec/cleanPodPolicy", json!("All")),
        ("/spec/RunPolicy", json!({"ttlSecondsAfterFinished": 5, "backoffLimit": null})),
        ("/spec/runPolicy", json!({"activeDeadlineSeconds": 10, "backoffLimit": 3})),
    ]);
    assert_eq!(read(&mixed), want);
}

#[test]
fn a_written_clean_up_counts_for_every_end() {
    for (word, policy) in
        [("All", CleanPodPolicy::All), ("Running", CleanPodPolicy::Running), ("None", CleanPodPolicy::None)]
    {
        let clean_by = spec(&edited(&[("/spec/RunPolicy", json!({"cleanPodPolicy": word}))])).clean_by;
        assert_eq!(clean_by, Some(CleanBy { succeeded: policy, failed: policy, other: policy }), "{word}");
    }
}

#[test]
fn retries_are_counted_by_the_policy_of_the_workers() {
    for (word, reach) in [
        ("ExitCode", Threshold::Above),
        ("Never", Threshold::Above),
        ("OnFailure", Threshold::AtLeast),
        ("Always", Threshold::AtLeast),
    ] {
        let job = edited(&[(&format!("{WORKER}/restartPolicy"), json!(word)), ("/spec/backoffLimit", json!(2))]);
        let spec = spec(&job);
        assert_eq!(spec.budget, Some(Budget { limit: 2, containers: true, reach, rounds: false }), "{word}");
        assert_eq!(
            spec.groups[0].restart_limit,
            Some(u32::MAX),
            "an operator's limit for groups without one does not count"
        );
    }
}

#[test]
fn what_has_another_effect_than_it_seems_is_remarked() {
    let policy = format!("{WORKER}/template/spec/restartPolicy");
    let always = [(&*format!("{WORKER}/restartPolicy"), json!("Always"))];
    let c10d = |endpoint: &str| {
        [
            ("/metadata/annotations", json!({"elastic.pytorch.org/rdzv-backend": "c10d"})),
            ("/spec/rdzvEndpoint", json!(endpoint)),
        ]
    };
    for (job, want) in [
        (
            edited(&[(&policy, json!("Always"))]),
            "spec.replicaSpecs.Worker.template.spec.restartPolicy: the restartPolicy of the group decides: pods get Never",
        ),
        (edited(&always), "spec.replicaSpecs.Worker.restartPolicy: with Always, which is the default"),
        (
            edited(&[("/spec/rdzvEndpoint", json!("<your endpoint>:<port>"))]),
            "spec.rdzvEndpoint: looks like no host:port",
        ),
        (edited(&c10d("etcd:2379")), "spec.rdzvEndpoint: names another host than worker 0"),
        (
            edited(&[("/spec/minReplica", json!(1))]),
            "spec.minReplica: unknown field; it has no effect (1); did you mean minReplicas?",
        ),
        (
            edited(&[(&format!("{WORKER}/template/spec/restartpolicy"), json!("Never"))]),
            "spec.replicaSpecs.Worker.template.spec.restartpolicy: unknown field",
        ),
    ] {
        let found = warnings(&job);
        assert!(found.len() == 1 && found[0].starts_with(want), "{found:?}\n{want}");
    }
    for job in [
        edited(&[(&policy, json!("Never"))]),
        edited(&[always[0].clone(), ("/spec/backoffLimit", json!(1))]),
        edited(&c10d("imagenet-worker-0:29400")),
        edited(&c10d("imagenet-worker-0")),
        edited(&c10d("")),
    ] {
        assert_eq!(warnings(&job), [""; 0], "{job}");
    }
}

#[test]
fn a_spec_is_translated_again_for_what_reaches_its_pods() {
    let backend = |word: &str| json!({"elastic.pytorch.org/rdzv-backend": word});
    for (pointer, value, again) in [
        ("/metadata/resourceVersion", json!("2"), false),
        ("/metadata/labels", json!({"team": "b"}), false),
        ("/metadata/annotations", json!({"note": "x"}), false),
        ("/status", json!({"conditions": []}), false),
        ("/metadata/generation", json!(2), true),
        ("/metadata/annotations", backend("c10d"), true),
        ("/metadata/annotations", json!({"trainyard.dev/restart-scope": "All"}), true),
    ] {
        let other = edited(&[(pointer, value)]);
        assert_eq!(ElasticJob.spec_inputs(&other) != ElasticJob.spec_inputs(&base()), again, "{pointer}");
    }
    let manifest = |object: &Value| ElasticJob.spec_fact(object).manifest;
    assert_eq!(
        manifest(&edited(&[(&format!("{WORKER}/replicas"), json!(3))])),
        manifest(&base()),
        "counts change no pod"
    );
}
