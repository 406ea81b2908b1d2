//! Status -> state: what `status` wrote, and statuses that the original operator left behind.

use std::collections::BTreeMap;

use engine::Job;
use model::fact::{Adopted, EndRequest};
use model::{CauseKind, Decision, Incarnation, JobKey, Phase, RestartScope, Stamp, Timestamp, Uid};
use serde_json::{Value, json};

use super::status::{T0, cause, job, milestone, object, slot, status};
use crate::aitrainingjob::AiTrainingJob;
use crate::api::JobApi;

/// The object a job would have, were its status written.
fn written(object: &Value, key: &JobKey, job: &Job) -> Value {
    let mut object = object.clone();
    object["status"] = status(key, job);
    object
}

#[test]
fn what_was_written_is_read_back() {
    let (key, mut job) = job(&object());
    job.phase = Phase::Terminating;
    job.started_at = Some(Timestamp(T0));
    job.running_at = Some(Timestamp(T0).plus_ms(5000));
    job.first_running_at = Some(Timestamp(T0).plus_ms(4000));
    job.retry_at = Some(Timestamp(T0).plus_ms(99_500));
    job.milestones = [milestone(Phase::Pending, 0, "waiting"), milestone(Phase::Terminating, 7, "restart")].into();
    job.groups.get_mut("trainer").unwrap().restarts = 3;
    job.groups.get_mut("trainer").unwrap().charged = 2;
    job.groups.get_mut("trainer").unwrap().grown_from = Some(1);
    job.groups.get_mut("trainer").unwrap().delays = [(1, Timestamp(T0).plus_ms(7000))].into();
    job.deleting_pods = [Uid::from("p1")].into();
    job.decision = Some(Decision::Restart {
        group: "trainer".into(),
        scope: RestartScope::Pod,
        slot: slot("trainer", 1),
        cause: cause(CauseKind::Exited, "exit 1"),
        failures: 1,
        retry_at: Some(Timestamp(T0).plus_ms(99_500)),
    });
    let object = written(&object(), &key, &job);
    let adopted = AiTrainingJob.adopt(&object);
    assert_eq!(
        adopted,
        Adopted {
            mirror: job.mirror(),
            restarts: [("trainer".into(), 3)].into(),
            milestones: job.milestones.iter().cloned().collect(),
            started_at: job.started_at,
            running_at: job.running_at,
            ended_at: None,
            finals: BTreeMap::new(),
            remarks: false,
        }
    );
    assert_eq!(AiTrainingJob.object_fact(&object).mirror, job.stamps.wanted());

    job.phase = Phase::Failed;
    job.decision = Some(Decision::End {
        phase: Phase::Failed,
        cause: cause(CauseKind::Exited, "exit 1"),
        clean: true,
        live_only: false,
    });
    job.finals = [("ps".into(), (0, 0)), ("trainer".into(), (1, 1))].into();
    job.ended_at = Some(Timestamp(T0).plus_ms(60_000));
    let adopted = AiTrainingJob.adopt(&written(&object, &key, &job));
    assert_eq!((adopted.finals, adopted.ended_at, adopted.remarks), (job.finals.clone(), job.ended_at, false));
    job.quarantine = Some("fact out of place".into());
    assert!(AiTrainingJob.adopt(&written(&object, &key, &job)).remarks);
    assert_eq!(adopted.mirror.decision, job.decision);
}

/// A job that the original operator left with this status and these annotations.
fn legacy(status: Value, annotations: Value) -> Adopted {
    let mut object = object();
    object["status"] = status;
    object["metadata"]["annotations"] = annotations;
    AiTrainingJob.adopt(&object)
}

#[test]
fn a_running_job_of_the_original_goes_on() {
    let adopted = legacy(
        json!({"phase": "Running", "RestartCount": {"Trainer": 2, "ps": 0}, "RestartReplicaName": "",
            "startTime": "2024-02-29T00:00:00Z", "startRunningTime": "2024-02-29T00:01:00Z",
            "conditions": [
                {"type": "Creating", "status": "False", "lastTransitionTime": "2024-02-29T00:00:30Z"},
                {"type": "Novel", "status": "False"},
                {"type": "Running", "status": "True", "message": "m", "lastTransitionTime": "2024-02-29T00:01:00Z"}],
            "replicaStatuses": {"Trainer": {"active": 2}}}),
        json!({"Succeed": "stale"}),
    );
    assert_eq!(
        (adopted.mirror.phase, adopted.mirror.stamp, adopted.mirror.decision),
        (Phase::Running, Stamp::default(), None)
    );
    assert_eq!(adopted.restarts, [("trainer".into(), 2)].into());
    assert_eq!(adopted.mirror.charged, adopted.restarts);
    assert_eq!(adopted.milestones, [milestone(Phase::Creating, 30, ""), milestone(Phase::Running, 60, "m")]);
    assert_eq!((adopted.started_at, adopted.running_at), (Some(Timestamp(T0)), Some(Timestamp(T0 + 60_000))));
    assert_eq!(
        (adopted.mirror.first_running_at, adopted.mirror.first_creating_at),
        (Some(Timestamp(T0 + 60_000)), None)
    );
    assert!(adopted.finals.is_empty());
}

#[test]
fn a_restart_of_the_original_waits_for_its_old_pods() {
    let trainer = |scope: &str| {
        let mut object = object();
        object["spec"]["replicaSpecs"]["Trainer"]["restartScope"] = json!(scope);
        object["status"] = json!({"phase": "Terminating", "RestartReplicaName": "Trainer", "RestartCount": {"Trainer": 1},
            "conditions": [{"type": "Terminating", "status": "True", "message": "restart 1"}]});
        AiTrainingJob.adopt(&object)
    };
    for (word, scope, groups) in [
        ("All", RestartScope::All, vec!["ps", "trainer"]),
        ("Replica", RestartScope::Replica, vec!["trainer"]),
        ("Pod", RestartScope::Pod, vec![]),
    ] {
        let adopted = trainer(word);
        assert_eq!(adopted.mirror.phase, Phase::Terminating);
        let Some(Decision::Restart { group, scope: found, cause, .. }) = &adopted.mirror.decision else {
            panic!("{:?}", adopted.mirror)
        };
        assert_eq!((&**group, *found, &*cause.message), ("trainer", scope, "restart 1"));
        let want: BTreeMap<_, _> = groups.into_iter().map(|group| (group.into(), Incarnation(1))).collect();
        assert_eq!(adopted.mirror.wait_below, want, "{word}");
    }
}

#[test]
fn an_ending_of_the_original_is_carried_on_or_left_alone() {
    let end = |adopted: &Adopted| match &adopted.mirror.decision {
        Some(Decision::End { phase, cause, clean, .. }) => {
            Some((*phase, cause.kind, cause.message.to_string(), *clean))
        }
        Some(Decision::Restart { .. } | Decision::Halt { .. }) | None => None,
    };
    // Terminating: the first annotation in the original's order decides.
    let terminating = json!({"phase": "Terminating", "RestartReplicaName": "", "conditions": null});
    let adopted = legacy(terminating.clone(), json!({"Preempted": "p", "Timeout": "over"}));
    assert_eq!(end(&adopted), Some((Phase::TimedOut, CauseKind::TimeLimit, "over".to_owned(), true)));
    assert_eq!(adopted.mirror.phase, Phase::Terminating);
    let adopted = legacy(terminating.clone(), json!({"Preempted": "p"}));
    assert_eq!(end(&adopted).map(|e| e.1), Some(CauseKind::EndRequested(EndRequest::Preempted)));
    // Without one, it would have gone on.
    let adopted = legacy(terminating.clone(), json!(null));
    assert_eq!((end(&adopted), adopted.mirror.phase), (None, Phase::Pending));
    // An annotation copied from another job decides nothing.
    let adopted = legacy(terminating, json!({"Failed": "f", "trainyard.dev/marked-for": "other/Failed"}));
    assert_eq!((end(&adopted), adopted.mirror.phase), (None, Phase::Pending));

    // Ended: the phase stands, its pods too where the job keeps them.
    let ended = |phase: &str, keep: &str| {
        let mut object = object();
        object["spec"]["cleanPodPolicy"] = json!(keep);
        object["status"] = json!({"phase": phase, "RestartReplicaName": "", "endTime": "2024-02-29T00:00:01Z",
            "replicaStatuses": {"Trainer": {"succeeded": 2}, "ps": {}},
            "conditions": [{"type": phase, "status": "True", "message": "done"}]});
        AiTrainingJob.adopt(&object)
    };
    let adopted = ended("Succeed", "All");
    assert_eq!(end(&adopted), Some((Phase::Succeeded, CauseKind::Completed, "done".to_owned(), true)));
    assert_eq!(adopted.finals, [("ps".into(), (0, 0)), ("trainer".into(), (2, 0))].into());
    assert_eq!(adopted.ended_at, Some(Timestamp(T0 + 1000)));
    assert_eq!(end(&ended("Failed", "None")).map(|e| e.3), Some(false));
    assert_eq!(end(&ended("Preempted", "None")).map(|e| e.3), Some(true));
}

#[test]
fn no_status_and_planted_ones_start_a_new_job() {
    let fresh = legacy(json!(null), json!({"Succeed": "left over"}));
    assert_eq!((fresh.mirror.phase, fresh.mirror.decision.clone(), fresh.milestones.len()), (Phase::New, None, 0));
    for planted in
        [json!("x"), json!({"phase": "Succeeded", "trainyard": "x", "conditions": {"a": 1}, "RestartCount": [1]})]
    {
        assert_eq!(legacy(planted.clone(), json!(null)), fresh, "{planted}");
    }
}

#[test]
fn a_mirror_this_build_cannot_read_still_says_which_log_it_came_from() {
    let status = json!({"phase": "Running", "trainyard": {"term": 3, "position": 9, "phase": "Novel"}});
    let adopted = legacy(status, json!(null));
    assert_eq!((adopted.mirror.stamp.to_string().as_str(), adopted.mirror.phase), ("3/9", Phase::Running));
}

#[test]
fn long_histories_are_cut_to_what_the_engine_keeps() {
    let conditions: Vec<Value> = (0..100)
        .map(|n| json!({"type": if n % 2 == 0 { "Pending" } else { "Running" }, "message": n.to_string()}))
        .collect();
    let adopted = legacy(json!({"phase": "Running", "conditions": conditions}), json!(null));
    assert_eq!(adopted.milestones.len(), engine::job::MAX_MILESTONES);
    assert_eq!(adopted.milestones.last().map(|last| &*last.message), Some("99"));
}
