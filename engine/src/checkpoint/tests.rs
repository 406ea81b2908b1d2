//! Deletions of pods for every reason: which leave the grace period of the job's checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fact::EndRequest;
use model::{
    Cause, CauseKind, Decision, GroupSpec, JobSpec, LossKind, Phase, PodPhase, RestartScope, SlotId, SpecFact, Text,
};

use crate::group::{Group, Slot};
use crate::job::{Job, Pod};
use crate::wire::tests::values;

fn pod(index: u32) -> Pod {
    let slot = Some(SlotId { group: "worker".into(), index });
    let fact = model::PodFact { slot, ..values::pod(PodPhase::Running) };
    Pod { fact, deletion: None, running_at: None, failed_at: None }
}

/// A job of one worker with this grace period, after a decision.
fn job(checkpoint_grace_seconds: Option<u32>, phase: Phase, decision: Option<Decision>) -> Job {
    let group = GroupSpec { name: "worker".into(), replicas: 1, ..GroupSpec::default() };
    let spec = JobSpec { groups: vec![group], checkpoint_grace_seconds, ..JobSpec::default() };
    let workers = Group { replicas: 1, slots: vec![Slot::default()], ..Group::default() };
    Job {
        valid: Some(Arc::new(SpecFact::of(Ok(spec), Text::from("{}")))),
        phase,
        decision,
        groups: BTreeMap::from([("worker".into(), Box::new(workers))]),
        ..Job::default()
    }
}

fn cause(kind: CauseKind) -> Cause {
    Cause { kind, slots: Vec::new(), message: Text::from("") }
}

fn halt(kind: CauseKind) -> Decision {
    Decision::Halt { cause: cause(kind) }
}

fn restart(kind: CauseKind) -> Decision {
    let slot = SlotId { group: "worker".into(), index: 0 };
    let scope = RestartScope::All;
    Decision::Restart { group: "worker".into(), scope, slot, cause: cause(kind), failures: 1, retry_at: None }
}

fn end(kind: CauseKind) -> Decision {
    Decision::End { phase: Phase::Failed, cause: cause(kind), clean: true, live_only: false }
}

#[test]
fn a_deletion_that_answers_no_failure_leaves_time() {
    let preempted = CauseKind::ShareLost(LossKind::Preempted);
    for (name, phase, decision, leaves_time) in [
        ("preempted", Phase::Running, Some(halt(preempted)), true),
        ("not admitted any more", Phase::Running, Some(halt(CauseKind::NotAdmitted)), true),
        ("suspended", Phase::Suspended, Some(halt(CauseKind::Suspended)), true),
        ("seen late while suspended", Phase::Suspended, None, true),
        ("made for another size", Phase::Terminating, Some(restart(CauseKind::Resized)), true),
        ("ended by a scheduler", Phase::Terminating, Some(end(CauseKind::EndRequested(EndRequest::Preempted))), true),
        ("stopped by its user", Phase::Terminating, Some(end(CauseKind::EndRequested(EndRequest::Stopped))), false),
        ("a peer failed", Phase::Terminating, Some(restart(CauseKind::Exited)), false),
        ("a node is lost", Phase::Terminating, Some(restart(CauseKind::NodeLost)), false),
        ("the job failed", Phase::Terminating, Some(end(CauseKind::Exited)), false),
        ("over time", Phase::Terminating, Some(end(CauseKind::TimeLimit)), false),
        ("replaced alone", Phase::Running, None, false),
    ] {
        let grace = job(Some(60), phase, decision.clone()).checkpoint_grace_seconds(&pod(0));
        assert_eq!(grace, leaves_time.then_some(60), "{name}");
        assert_eq!(job(None, phase, decision).checkpoint_grace_seconds(&pod(0)), None, "{name}, not asked for");
    }
}

#[test]
fn a_pod_beyond_the_size_of_its_group_has_time_unless_the_job_ends() {
    for (decision, leaves_time) in
        [(None, true), (Some(restart(CauseKind::Exited)), true), (Some(end(CauseKind::Exited)), false)]
    {
        let grace = job(Some(60), Phase::Running, decision.clone()).checkpoint_grace_seconds(&pod(1));
        assert_eq!(grace, leaves_time.then_some(60), "{decision:?}");
    }
}

#[test]
fn a_halt_reports_the_time() {
    assert_eq!(job(None, Phase::Running, None).deletion_words(), "deleting pods");
    let words = "deleting pods, which have 60 s to save a checkpoint";
    assert_eq!(job(Some(60), Phase::Running, None).deletion_words(), words);
}
