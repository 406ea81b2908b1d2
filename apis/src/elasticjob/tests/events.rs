//! Records -> Kubernetes Events.

use model::{Cause, CauseKind, Decision, JobEvent, JobFact, Phase, Replacement, Timestamp};
use serde_json::{Value, json};

use super::status::{end, job};
use super::{base, edited};
use crate::api::{JobApi, JobStep};
use crate::elasticjob::ElasticJob;
use crate::testing;

fn reported(facts: &[JobFact], events: &[JobEvent]) -> Vec<String> {
    let (key, job) = job();
    let step = JobStep { key: &key, from: Phase::Running, job: &job, facts, events, predecessor: None };
    let event = |event: crate::ReportedEvent| format!("{} {}: {}", event.warning, event.reason, event.message);
    ElasticJob.events(&step).into_iter().map(event).collect()
}

fn pod(phase: &str, state: &Value) -> JobFact {
    let mut object = testing::render(&ElasticJob, &base(), &testing::slot("worker", 1), 2, 0);
    object["metadata"]["uid"] = json!("p");
    object["status"] = json!({"phase": phase, "containerStatuses": [{"name": "elasticjob-worker", "state": state}]});
    JobFact::Pod(Box::new(crate::pod::fact(&ElasticJob, &object).unwrap()))
}

#[test]
fn exit_codes_are_reported_once_a_pod_has_ended() {
    let exited = json!({"terminated": {"exitCode": 137}});
    assert_eq!(
        reported(&[pod("Failed", &exited)], &[]),
        ["false ExitedWithCode: Pod: elastic-job.imagenet-worker-1 exited with code 137"]
    );
    assert_eq!(reported(&[pod("Running", &exited)], &[]), [""; 0]);
    assert_eq!(reported(&[pod("Failed", &json!({"waiting": {}}))], &[]), [""; 0], "evicted before it started");
}

#[test]
fn decisions_are_reported_in_the_originals_reasons() {
    let decided = |decision: Decision| JobEvent::Decided(Box::new(decision));
    let replaced = JobEvent::Replaced {
        group: "worker".into(),
        slots: vec![Replacement { index: 1, uid: "p".into(), kind: CauseKind::Exited, failures: 1, retry_at: None }],
    };
    let resized = Decision::Restart {
        group: "worker".into(),
        scope: model::RestartScope::Replica,
        slot: testing::slot("worker", 0),
        cause: Cause { kind: CauseKind::Resized, slots: Vec::new(), message: "resized".into() },
        failures: 0,
        retry_at: None,
    };
    for (event, want) in [
        (
            replaced,
            "true ElasticJobRestarting: ElasticJob imagenet is restarting because 1 Worker replica(s) failed. replacing failed pods: worker-1",
        ),
        (decided(resized), "true ElasticJobRestarting: resized"),
        (
            decided(end(Phase::Succeeded, CauseKind::Completed)),
            "false ElasticJobSucceeded: ElasticJob imagenet is successfully completed. why",
        ),
        (decided(end(Phase::Failed, CauseKind::Exited)), "false ElasticJobFailed: why"),
        (decided(end(Phase::Failed, CauseKind::BudgetSpent)), "false JobFailed: why"),
        (decided(end(Phase::TimedOut, CauseKind::TimeLimit)), "false JobFailed: why"),
    ] {
        assert_eq!(reported(&[], &[event]), [want]);
    }
    assert_eq!(reported(&[JobFact::Due], &[JobEvent::Fenced]), [""; 0]);
}

#[test]
fn a_policy_of_the_template_that_does_not_count_is_reported() {
    let job = edited(&[("/spec/replicaSpecs/Worker/template/spec/restartPolicy", json!("Always"))]);
    let found = reported(&[JobFact::Spec(Box::new(ElasticJob.spec_fact(&job)))], &[]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0]
            .starts_with("true SettedPodTemplateRestartPolicy: spec.replicaSpecs.Worker.template.spec.restartPolicy")
    );
}

#[test]
fn a_name_that_is_used_again_within_the_hour_is_reported_once() {
    let (key, mut job) = job();
    let mut reasons = |from: Phase, now: Phase, predecessor: Option<Timestamp>| -> Vec<String> {
        job.phase = now;
        let step = JobStep { key: &key, from, job: &job, facts: &[], events: &[], predecessor };
        ElasticJob.events(&step).into_iter().map(|event| event.reason).collect()
    };
    let ended = Some(Timestamp(testing::T0));
    assert_eq!(reasons(Phase::New, Phase::Pending, ended), ["RunIdReused"]);
    assert_eq!(reasons(Phase::New, Phase::Pending, None), [""; 0]);
    assert_eq!(reasons(Phase::New, Phase::New, ended), [""; 0]);
    assert_eq!(reasons(Phase::Pending, Phase::Running, ended), [""; 0]);
}
