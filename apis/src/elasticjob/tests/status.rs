//! State -> status.

use engine::{Attempt, Counters, Job};
use model::{Cause, CauseKind, Decision, JobKey, ObjectRef, Outcome, Phase, Timestamp};
use serde_json::{Value, json};

use super::base;
use crate::api::JobApi;
use crate::elasticjob::ElasticJob;
use crate::testing::{self, T0, milestone, refusals, slot};

pub(super) fn job() -> (JobKey, Job) {
    let (key, mut job) = testing::job(&ElasticJob, &base());
    job.started_at = Some(Timestamp(T0));
    (key, job)
}

pub(super) fn end(phase: Phase, kind: CauseKind) -> Decision {
    let cause = Cause { kind, slots: Vec::new(), message: "why".into() };
    Decision::End { phase, cause, clean: true, live_only: true }
}

pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    let status = ElasticJob.status(key, job);
    let mut object = base();
    object["status"] = status.clone();
    assert_eq!(refusals(&testing::schema(&ElasticJob), &object, "$"), [""; 0]);
    status
}

/// Type, status and reason of each condition.
fn short(status: &Value) -> Vec<String> {
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap().to_owned();
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().map(|c| [text(c, "type"), text(c, "status"), text(c, "reason")].join(" ")).collect()
}

#[test]
fn a_running_jobs_status_has_the_originals_members() {
    let (key, mut job) = job();
    job.phase = Phase::Running;
    job.milestones = [milestone(Phase::Pending, 0, "waiting"), milestone(Phase::Running, 5, "")].into();
    job.groups.get_mut("worker").unwrap().counters = Counters { active: 2, failed: 1, ..Counters::default() };
    let mut status = status(&key, &job);
    assert_eq!(status["trainyard"], json!({"term": 2, "position": 7, "phase": "Running"}));
    status.as_object_mut().unwrap().remove("trainyard");
    assert_eq!(
        status,
        json!({
            "conditions": [
                {"type": "Created", "status": "True", "reason": "ElasticJobCreated",
                    "message": "ElasticJob imagenet is created. waiting",
                    "lastUpdateTime": "2024-02-29T00:00:00Z", "lastTransitionTime": "2024-02-29T00:00:00Z"},
                {"type": "Running", "status": "True", "reason": "ElasticJobRunning", "message": "ElasticJob imagenet is running.",
                    "lastUpdateTime": "2024-02-29T00:00:05Z", "lastTransitionTime": "2024-02-29T00:00:05Z"}],
            "replicaStatuses": {"Worker": {"active": 2, "failed": 1}},
            "ready": "2/2",
            "restarts": 0,
            "startTime": "2024-02-29T00:00:00Z",
        })
    );
}

#[test]
fn the_start_of_a_job_that_was_taken_over_is_its_adoption() {
    let (key, mut job) = job();
    job.started_at = None;
    job.admitted_at = Some(Timestamp(T0).plus_ms(3000));
    assert_eq!(status(&key, &job)["startTime"], "2024-02-29T00:00:03Z");
}

#[test]
fn every_end_has_its_condition_and_running_stays_as_false() {
    for (phase, kind, want) in [
        (Phase::Succeeded, CauseKind::Completed, "Succeeded True ElasticJobSucceeded"),
        (Phase::Failed, CauseKind::Exited, "Failed True ElasticJobFailed"),
        (Phase::Failed, CauseKind::BudgetSpent, "Failed True BackoffLimitExceeded"),
        (Phase::TimedOut, CauseKind::TimeLimit, "Failed True DeadlineExceeded"),
    ] {
        let (key, mut job) = job();
        job.milestones =
            [milestone(Phase::Pending, 0, ""), milestone(Phase::Running, 5, ""), milestone(phase, 9, "why")].into();
        job.phase = phase;
        job.decision = Some(end(phase, kind));
        job.ended_at = Some(Timestamp(T0).plus_ms(9000));
        job.finals = [("worker".into(), (1, 1))].into();
        let status = status(&key, &job);
        assert_eq!(short(&status), ["Created True ElasticJobCreated", "Running False ElasticJobRunning", want]);
        assert_eq!(status["completionTime"], "2024-02-29T00:00:09Z");
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "2024-02-29T00:00:09Z");
        assert_eq!(status["replicaStatuses"], json!({"Worker": {"succeeded": 1, "failed": 1}}));
    }
}

#[test]
fn the_message_of_a_failed_job_begins_with_the_originals_sentence() {
    let (key, mut job) = job();
    let cause =
        Cause { kind: CauseKind::Exited, slots: vec![slot("worker", 0), slot("worker", 1)], message: "code 1".into() };
    job.decision = Some(Decision::End { phase: Phase::Failed, cause, clean: true, live_only: true });
    job.milestones = [milestone(Phase::Running, 0, ""), milestone(Phase::Failed, 1, "code 1")].into();
    let message = |job: &Job| status(&key, job)["conditions"][1]["message"].clone();
    assert_eq!(message(&job), "ElasticJob imagenet is failed because 2 Worker replica(s) failed. code 1");
    // A job of the original has its message as the cause.
    let original = "ElasticJob imagenet is failed because 1 Worker replica(s) failed.";
    job.milestones = [milestone(Phase::Running, 0, ""), milestone(Phase::Failed, 1, original)].into();
    assert_eq!(message(&job), original);
}

#[test]
fn remarks_stand_before_the_conditions_that_are_states() {
    let (key, mut job) = job();
    job.milestones = [milestone(Phase::Pending, 0, "")].into();
    let taken = Attempt { failures: 1, retry_at: None, last: Outcome::Taken { waiting: false, unseen: true } };
    job.attempts = [(ObjectRef::Pod(slot("worker", 1)), taken)].into();
    job.quarantine = Some("fact out of place".into());
    let status = status(&key, &job);
    let want =
        ["NameTaken True ElasticJobNameTaken", "Degraded True ElasticJobDegraded", "Created True ElasticJobCreated"];
    assert_eq!(short(&status), want);
    assert_eq!(
        status["conditions"][0]["message"],
        "pod imagenet-worker-1: it exists without its label group-name=elastic.pytorch.org: put the label back, or delete it"
    );
}

#[test]
fn a_replacement_below_the_minimum_and_a_pause_are_shown() {
    let (key, mut job) = job();
    job.milestones =
        [milestone(Phase::Pending, 0, ""), milestone(Phase::Running, 5, ""), milestone(Phase::Restarting, 6, "r")]
            .into();
    let restarting = status(&key, &job);
    let running_before = ["Created True ElasticJobCreated", "Running False ElasticJobRunning"];
    assert_eq!(short(&restarting), [running_before[0], running_before[1], "Restarting True ElasticJobRestarting"]);
    job.milestones.push_back(milestone(Phase::Suspended, 7, ""));
    assert_eq!(
        short(&status(&key, &job)),
        [running_before[0], running_before[1], "Suspended True ElasticJobSuspended"]
    );
}
