//! State -> status and end annotation.

use std::sync::Arc;

use engine::{Attempt, Counters, Job};
use model::{Cause, CauseKind, Decision, FieldError, JobKey, ObjectRef, Outcome, Phase, RestartScope, Timestamp, Uid};
use serde_json::{Value, json};

use super::{accepted, edited};
use crate::aitrainingjob::AiTrainingJob;
use crate::api::{AnnotationApi, JobApi};
pub(super) use crate::testing::{self, T0, milestone, slot};

pub(super) fn cause(kind: CauseKind, message: &str) -> Cause {
    Cause { kind, slots: vec![slot("trainer", 1)], message: message.into() }
}

/// A job of groups `ps` and `Trainer`, as the engine holds it.
pub(super) fn job(object: &Value) -> (JobKey, Job) {
    testing::job(&AiTrainingJob, object)
}

pub(super) fn object() -> Value {
    let trainer = super::base()["spec"]["replicaSpecs"]["trainer"].clone();
    edited(&[("/spec/replicaSpecs", json!({"ps": trainer, "Trainer": trainer}))])
}

pub(super) fn status(key: &JobKey, job: &Job) -> Value {
    AiTrainingJob.status(key, job)
}

#[test]
fn a_fresh_jobs_status_has_the_originals_members() {
    let (key, mut job) = job(&object());
    job.phase = Phase::Pending;
    job.started_at = Some(Timestamp(T0));
    job.milestones = [milestone(Phase::Pending, 0, "waiting")].into();
    let mut status = status(&key, &job);
    assert_eq!(
        status["trainyard"],
        json!({"term": 2, "position": 7, "phase": "Pending"}),
        "the mirror of a job without decisions is its stamp and phase"
    );
    status.as_object_mut().unwrap().remove("trainyard");
    assert_eq!(
        status,
        json!({
            "phase": "Pending",
            "conditions": [{"type": "Pending", "status": "True", "reason": "TrainingJobPending", "message": "waiting",
                "lastProbeTime": "2024-02-29T00:00:00Z", "lastTransitionTime": "2024-02-29T00:00:00Z"}],
            "replicaStatuses": {"ps": {}, "Trainer": {}},
            "RestartReplicaName": "",
            "ready": "0/4",
            "restarts": 0,
            "startTime": "2024-02-29T00:00:00Z",
        })
    );
}

#[test]
fn nothing_known_is_null_as_the_original_wrote_it() {
    let key = accepted(&object()).0;
    let status = status(&key, &Job::default());
    assert_eq!(
        (&status["phase"], &status["conditions"], &status["replicaStatuses"], &status["RestartReplicaName"]),
        (&json!(""), &json!(null), &json!(null), &json!(""))
    );
    for absent in ["RestartCount", "startTime", "startRunningTime", "endTime", "lastReconcileTime"] {
        assert!(status.get(absent).is_none(), "{absent}");
    }
    assert_eq!(AiTrainingJob.end_annotation(&key, &Job::default()), None);
}

#[test]
fn counters_leave_out_zeros_and_count_waiting_pods_of_a_restart_as_restarting() {
    let (key, mut job) = job(&object());
    let counters = Counters { pending: 1, scheduled: 2, active: 3, succeeded: 4, failed: 5 };
    for (restarts, want) in [
        (0, json!({"pending": 1, "scheduled": 2, "active": 3, "succeeded": 4, "failed": 5})),
        (2, json!({"restarting": 3, "active": 3, "succeeded": 4, "failed": 5})),
    ] {
        let group = job.groups.get_mut("trainer").unwrap();
        (group.counters, group.restarts) = (counters, restarts);
        let status = status(&key, &job);
        assert_eq!(status["replicaStatuses"], json!({"ps": {}, "Trainer": want}));
        assert_eq!(status.get("RestartCount"), (restarts > 0).then(|| json!({"Trainer": restarts})).as_ref());
    }
}

#[test]
fn a_restart_names_the_group_as_the_user_spelt_it() {
    let (key, mut job) = job(&object());
    job.phase = Phase::Terminating;
    job.decision = Some(Decision::Restart {
        group: "trainer".into(),
        scope: RestartScope::All,
        slot: slot("trainer", 1),
        cause: cause(CauseKind::Exited, "exit 1"),
        failures: 1,
        retry_at: None,
    });
    assert_eq!(status(&key, &job)["RestartReplicaName"], "Trainer");
    assert_eq!(AiTrainingJob.end_annotation(&key, &job), None, "a restart is no ending");
}

#[test]
fn endings_show_their_word_their_time_and_the_final_counters() {
    for (phase, word) in [
        (Phase::Succeeded, "Succeed"),
        (Phase::Failed, "Failed"),
        (Phase::TimedOut, "Timeout"),
        (Phase::Preempted, "Preempted"),
        (Phase::NodeFailed, "NodeFail"),
    ] {
        let (key, mut job) = job(&object());
        job.phase = phase;
        job.decision =
            Some(Decision::End { phase, cause: cause(CauseKind::Exited, "why"), clean: true, live_only: false });
        job.milestones =
            [milestone(Phase::Running, 1, ""), milestone(Phase::Terminating, 2, "x"), milestone(phase, 9, "why")]
                .into();
        job.ended_at = Some(Timestamp(T0).plus_ms(9_000));
        job.finals = [("ps".into(), (0, 1)), ("trainer".into(), (2, 0))].into();
        let status = status(&key, &job);
        assert_eq!((&status["phase"], &status["endTime"]), (&json!(word), &json!("2024-02-29T00:00:09Z")));
        assert_eq!(status["replicaStatuses"], json!({"ps": {"failed": 1}, "Trainer": {"succeeded": 2}}));
        let conditions: Vec<String> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| {
                format!(
                    "{} {} {}",
                    condition["type"].as_str().unwrap(),
                    condition["status"].as_str().unwrap(),
                    condition["reason"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            conditions,
            [
                "Running False TrainingJobRunning".to_owned(),
                "Terminating False TrainingJobTerminating".to_owned(),
                format!("{word} True TrainingJob{word}")
            ]
        );
        assert!(status["conditions"][0].get("message").is_none());
        assert_eq!(
            AiTrainingJob.end_annotation(&key, &job),
            Some(
                json!({"metadata": {"annotations": {word: "why", "trainyard.dev/marked-for": format!("job-1/{word}")}}})
            )
        );
    }
}

#[test]
fn an_ending_that_keeps_its_pods_leaves_no_annotation() {
    let (key, mut job) = job(&object());
    job.phase = Phase::Failed;
    job.decision = Some(Decision::End {
        phase: Phase::Failed,
        cause: cause(CauseKind::Exited, "why"),
        clean: false,
        live_only: false,
    });
    assert_eq!(AiTrainingJob.end_annotation(&key, &job), None);
}

#[test]
fn remarks_stand_before_the_phases() {
    let warned = edited(&[("/spec/failPolicy", json!("Rank0"))]);
    let (key, mut job) = job(&warned);
    job.phase = Phase::Running;
    job.milestones = [milestone(Phase::Running, 0, "")].into();
    job.quarantine = Some("fact out of place".into());
    let attempt = |last: Outcome| Attempt { failures: 1, retry_at: None, last };
    job.attempts = [
        (ObjectRef::Pod(slot("trainer", 0)), attempt(Outcome::Taken { waiting: false, unseen: false })),
        (ObjectRef::Pod(slot("trainer", 1)), attempt(Outcome::Taken { waiting: true, unseen: false })),
        (ObjectRef::Service(slot("trainer", 0)), attempt(Outcome::Refused { code: 403, message: "quota".into() })),
        (ObjectRef::PodUid(Uid::from("u9")), attempt(Outcome::Unknown { code: 500 })),
    ]
    .into();
    // A later edit cannot be accepted.
    job.spec = Some(Arc::new(AiTrainingJob.spec_fact(&edited(&[("/spec/timeLimit", json!("x"))]))));
    let status = status(&key, &job);
    let conditions: Vec<(&str, &str, &str)> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            (c["type"].as_str().unwrap(), c["status"].as_str().unwrap(), c["message"].as_str().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        conditions,
        [
            (
                "Invalid",
                "True",
                "spec.timeLimit: must be a whole number, not text (\"x\"); the job keeps the previous spec"
            ),
            (
                "NameTaken",
                "True",
                "pod j-trainer-0: the name belongs to another object; pod j-trainer-1: the name belongs to \
              another object, which is going away"
            ),
            (
                "Degraded",
                "True",
                "nothing is done for this job: fact out of place; service j-trainer-0: refused with 403: quota"
            ),
            ("Warning", "True", "spec.failPolicy: is none of Any, All, None; it acts as None (\"Rank0\")"),
            ("Running", "True", ""),
        ]
    );
}

#[test]
fn an_invalid_job_shows_the_first_errors_and_counts_the_rest() {
    let key = accepted(&object()).0;
    let mut fact = AiTrainingJob.spec_fact(&json!({}));
    let error = |n: usize| FieldError::new(format!("p{n}"), "v", "bad");
    fact.spec = Err((0..6).map(error).collect());
    let job = Job { spec: Some(Arc::new(fact)), ..Job::default() };
    let status = status(&key, &job);
    assert_eq!(status["phase"], "");
    assert_eq!(
        status["conditions"],
        json!([{"type": "Invalid", "status": "True", "reason": "TrainingJobInvalid",
            "message": "p0: bad (v); p1: bad (v); p2: bad (v); p3: bad (v); and 2 more"}])
    );
}
