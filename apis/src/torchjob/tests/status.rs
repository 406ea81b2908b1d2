//! State -> status, and back.

use engine::{Counters, Job};
use model::{Cause, CauseKind, Decision, JobKey, Phase, Timestamp};
use serde_json::{Value, json};

use super::base;
use crate::api::JobApi;
use crate::testing::{self, T0, milestone, refusals};
use crate::torchjob::TorchJob;

fn job() -> (JobKey, Job) {
    let (key, mut job) = testing::job(&TorchJob::default(), &base());
    job.started_at = Some(Timestamp(T0));
    job.admitted_at = Some(Timestamp(T0).plus_ms(1000));
    (key, job)
}

fn status(key: &JobKey, job: &Job) -> Value {
    let status = TorchJob::default().status(key, job);
    let mut object = base();
    object["status"] = status.clone();
    assert_eq!(refusals(&testing::schema(&TorchJob::default()), &object, "$"), [""; 0]);
    status
}

fn end(phase: Phase) -> Decision {
    let cause = Cause { kind: CauseKind::Completed, slots: Vec::new(), message: "why".into() };
    Decision::End { phase, cause, clean: false, live_only: false }
}

#[test]
fn a_placed_pod_is_active_and_the_clock_starts_with_the_queue() {
    let (key, mut job) = job();
    job.phase = Phase::Running;
    job.milestones =
        [milestone(Phase::Pending, 0, ""), milestone(Phase::Queued, 1, ""), milestone(Phase::Running, 2, "")].into();
    job.groups.get_mut("worker").unwrap().counters =
        Counters { active: 1, scheduled: 1, pending: 1, ..Counters::default() };
    let shown = status(&key, &job);
    assert_eq!(shown["taskStatuses"], json!({"Master": {}, "Worker": {"active": 2}}));
    assert_eq!(shown["startTime"], "2024-02-29T00:00:01Z");
    job.admitted_at = None;
    assert_eq!(status(&key, &job).get("startTime"), None);
}

#[test]
fn what_runs_beside_a_success_counts_as_success_for_good() {
    let (key, mut job) = job();
    job.phase = Phase::Succeeded;
    job.decision = Some(end(Phase::Succeeded));
    job.ended_at = Some(Timestamp(T0).plus_ms(9000));
    job.groups.get_mut("worker").unwrap().counters = Counters { active: 1, succeeded: 1, ..Counters::default() };
    job.finals = [("worker".into(), (1, 0))].into();
    let shown = status(&key, &job);
    assert_eq!(shown["taskStatuses"]["Worker"], json!({"succeed": 2}));
    let mut object = base();
    object["status"] = shown.clone();
    let adopted = TorchJob::default().adopt(&object);
    assert_eq!(adopted.finals.get("worker"), Some(&(2, 0)));
    job.finals = adopted.finals;
    assert_eq!(status(&key, &job), shown, "the same for a job that was taken over");
}

#[test]
fn jobs_of_the_original_go_on_where_they_stood() {
    let adopted = |conditions: Value| {
        let mut object = base();
        object["status"] = json!({"conditions": conditions, "startTime": "2024-02-29T00:00:00Z"});
        TorchJob::default().adopt(&object)
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2024-02-29T00:00:00Z"});
    let running = adopted(json!([condition("Created"), condition("Running")]));
    assert_eq!((running.mirror.phase, running.mirror.decision.is_some()), (Phase::Running, false));
    let failed = adopted(json!([condition("Created"), condition("Failed")]));
    assert_eq!((failed.mirror.phase, failed.mirror.decision.is_some()), (Phase::Failed, true));
    assert_eq!(failed.ended_at, Some(Timestamp(T0)));
    let queued = adopted(json!([condition("Created"), condition("Queuing")]));
    assert_eq!((queued.mirror.phase, queued.milestones.len()), (Phase::New, 0));
}
