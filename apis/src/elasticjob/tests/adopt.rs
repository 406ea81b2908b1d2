//! Status -> state: what `status` wrote, and statuses that the original controller left behind.

use std::collections::BTreeMap;

use engine::Job;
use model::fact::Adopted;
use model::{CauseKind, Decision, JobKey, Phase, Stamp, Timestamp};
use serde_json::{Value, json};

use super::status::{end, job, status};
use super::{base, edited};
use crate::api::JobApi;
use crate::elasticjob::ElasticJob;
use crate::testing::{T0, milestone};

fn written(key: &JobKey, job: &Job) -> Value {
    edited(&[("/status", status(key, job))])
}

/// The job that the engine makes of an adopted one, as far as its status goes.
fn engine_job(adopted: &Adopted, before: &Job) -> Job {
    Job {
        phase: adopted.mirror.phase,
        decision: adopted.mirror.decision.clone(),
        milestones: adopted.milestones.iter().cloned().collect(),
        started_at: adopted.started_at,
        ended_at: adopted.ended_at,
        finals: adopted.finals.clone(),
        ..before.clone()
    }
}

#[test]
fn what_was_written_is_read_back_and_makes_the_same_status_again() {
    let phases = [
        vec![],
        vec![Phase::Pending],
        vec![Phase::Pending, Phase::Running],
        vec![Phase::Pending, Phase::Running, Phase::Restarting],
        vec![Phase::Pending, Phase::Running, Phase::Terminating, Phase::Restarting, Phase::Running],
        vec![Phase::Suspended, Phase::Pending, Phase::Running, Phase::Suspended],
        vec![Phase::Pending, Phase::Running, Phase::Restarting, Phase::Failed],
        vec![Phase::Pending, Phase::TimedOut],
        vec![Phase::Pending, Phase::Running, Phase::Succeeded],
    ];
    for walk in phases {
        let (key, mut job) = job();
        job.milestones = walk.iter().zip(0..).map(|(phase, n)| milestone(*phase, n, "m")).collect();
        job.phase = walk.last().copied().unwrap_or_default();
        if job.phase.is_terminal() {
            let kind = if job.phase == Phase::TimedOut { CauseKind::TimeLimit } else { CauseKind::BudgetSpent };
            job.decision = Some(end(job.phase, kind));
            job.ended_at = Some(Timestamp(T0).plus_ms(60_000));
            job.finals = [("worker".into(), (1, 0))].into();
        }
        job.groups.get_mut("worker").unwrap().charged = 2;
        job.retry_counts = engine::RetryCounts::new(3, 0, 0, None);
        let object = written(&key, &job);
        let adopted = ElasticJob.adopt(&object);
        assert_eq!(adopted.mirror, job.mirror(), "{walk:?}");
        assert_eq!(ElasticJob.object_fact(&object).mirror, job.stamps.wanted());
        assert_eq!(written(&key, &engine_job(&adopted, &job)), object, "{walk:?}");
    }
}

fn legacy(status: Value) -> Adopted {
    ElasticJob.adopt(&edited(&[("/status", status)]))
}

fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "m",
        "lastUpdateTime": time, "lastTransitionTime": time})
}

#[test]
fn a_running_job_of_the_original_goes_on() {
    let running = condition("Running", "True", "ElasticJobRunning", "2024-02-29T00:01:00Z");
    let adopted = legacy(json!({"conditions": [running], "replicaStatuses": {"Worker": {"active": 2}}}));
    assert_eq!(adopted.mirror.phase, Phase::Running);
    assert_eq!((adopted.mirror.stamp, adopted.mirror.decision), (Stamp::default(), None));
    let created = Timestamp(T0).0 - 86_400_000;
    assert_eq!(adopted.milestones[0].at, Timestamp(created));
    assert_eq!(
        (adopted.milestones[0].phase, &adopted.milestones[1]),
        (Phase::Pending, &milestone(Phase::Running, 60, "m"))
    );
    assert_eq!((adopted.started_at, adopted.ended_at, adopted.finals), (None, None, BTreeMap::new()));
}

#[test]
fn a_job_that_the_original_only_called_running_starts_like_a_new_one() {
    let running = condition("Running", "True", "ElasticJobRunning", "2024-02-29T00:01:00Z");
    let restarting = condition("Restarting", "True", "ElasticJobRestarting", "2024-02-29T00:01:00Z");
    for status in [
        json!(null),
        json!({}),
        json!({"conditions": null, "replicaStatuses": null}),
        json!({"conditions": [running], "replicaStatuses": {"Worker": {}}}),
        json!({"conditions": [restarting], "replicaStatuses": {"Worker": {"active": 1}}}),
        json!({"conditions": [{"type": "Novel"}, 7], "trainyard": "planted"}),
    ] {
        let adopted = legacy(status.clone());
        assert_eq!((adopted.mirror.phase, adopted.milestones.len()), (Phase::New, 0), "{status}");
    }
}

#[test]
fn ends_of_the_original_stay_ends() {
    let running = condition("Running", "False", "ElasticJobRunning", "2024-02-29T00:00:00Z");
    let ended = "2024-02-29T00:02:00Z";
    for (last, completion, phase, kind) in [
        (
            condition("Succeeded", "True", "ElasticJobSucceeded", ended),
            json!(ended),
            Phase::Succeeded,
            CauseKind::Completed,
        ),
        (condition("Failed", "True", "ElasticJobFailed", ended), json!(null), Phase::Failed, CauseKind::PodFailed),
        (condition("Failed", "True", "JobFailed", ended), json!(ended), Phase::Failed, CauseKind::BudgetSpent),
    ] {
        let status = json!({"conditions": [running, last], "completionTime": completion.clone(),
            "replicaStatuses": {"Worker": {"succeeded": 1, "failed": 1}}});
        let adopted = legacy(status.clone());
        let Some(Decision::End { phase: decided, cause, clean, live_only }) = adopted.mirror.decision else {
            panic!("{status}: it has ended")
        };
        assert_eq!((adopted.mirror.phase, decided, cause.kind), (phase, phase, kind));
        // Without a written clean-up, what still runs of a job that failed goes.
        assert_eq!((clean, live_only), (phase == Phase::Failed, phase == Phase::Failed));
        assert_eq!(adopted.ended_at, Some(Timestamp(T0).plus_ms(120_000)), "the original lost some of these times");
        assert_eq!(adopted.remarks, completion.is_null(), "the time that is lost is written");
        assert_eq!(adopted.finals, [("worker".into(), (1, 1))].into());
        // From here on the status is ours, and makes the same one again.
        let (key, job) = job();
        let ours = written(&key, &engine_job(&legacy(status), &job));
        assert_eq!(written(&key, &engine_job(&ElasticJob.adopt(&ours), &job)), ours);
    }
    let mut object = base();
    object["spec"]["RunPolicy"] = json!({"cleanPodPolicy": "None"});
    object["status"] = json!({"conditions": [condition("Failed", "True", "ElasticJobFailed", ended)]});
    let Some(Decision::End { clean, .. }) = ElasticJob.adopt(&object).mirror.decision else { panic!("it has ended") };
    assert!(!clean, "None was written, by the user or by the original");
}
