//! A state with every member of format 1 set: what the stored text says.

use super::*;
use crate::group::{Counter, Counters, Group, Slot};
use crate::job::{Attempt, Job, PendingDeletion, Pod, Service, Trail};
use crate::nodes::Node;
use crate::state::State;
use crate::{ObjectState, StatusStamps};

pub(in crate::wire::tests) fn group() -> Group {
    let counters = Counters { pending: 1, scheduled: 2, active: 3, succeeded: 4, failed: 5 };
    let counter = [Counter::Pending, Counter::Scheduled, Counter::Active, Counter::Succeeded, Counter::Failed];
    let slot = |counter| Slot {
        incarnation: Incarnation(2),
        count: Some(1),
        pod: Some("p1".into()),
        planned: true,
        planned_on: None,
        cancelled: true,
        done: true,
        service: Some("s1".into()),
        service_planned: true,
        failures: BTreeMap::from([(CauseKind::Exited, 2), (CauseKind::EndRequested(EndRequest::Failed), 1)]),
        last_gone: Some("p0".into()),
        last_gone_rv: ResourceVersion(3),
        lost: false,
        counter: Some(counter),
    };
    Group {
        slots: counter.map(slot).into_iter().chain([Slot::default()]).collect(),
        replicas: 6,
        restarts: 7,
        charged: 8,
        counters,
        missing: BTreeSet::from([1]),
        missing_services: BTreeSet::from([2]),
        done: BTreeSet::from([3]),
        to_evaluate: BTreeSet::from([4]),
        delays: BTreeMap::from([(5, Timestamp(6))]),
        past: Incarnation(9),
        grown_from: Some(4),
        grown: counters,
        ..Group::default()
    }
}

/// A job with every member of format 1 set.
fn job() -> Job {
    let [valid, spec, _] = spec_facts();
    let deletion = PendingDeletion { requires: stamp(11), ordered: true, forced: true };
    let pod = |phase| Pod {
        fact: pod(phase),
        deletion: Some(Box::new(deletion)),
        running_at: Some(Timestamp(70)),
        failed_at: Some(Timestamp(71)),
    };
    let bare = Pod { fact: bare_pod(), deletion: None, running_at: None, failed_at: None };
    let attempt = |last| Attempt { failures: 3, retry_at: Some(Timestamp(72)), last };
    let service = |slot, deletion| Service { name: "s".into(), slot, rv: ResourceVersion(4), deleting: true, deletion };
    let [fact, _] = job_facts();
    Job {
        object: ObjectState::of_version(ResourceVersion(10))
            .with_flags(true, true, true)
            .with_metadata(fact.end_requests, true),
        spec: Some(Arc::new(spec)),
        valid: Some(Arc::new(valid)),
        phase: Phase::Restarting,
        milestones: milestones().into(),
        decision: Some(restart(CauseKind::Exited)),
        decided: stamp(12),
        groups: [("trainer".into(), Box::new(group())), ("g".into(), Box::default())].into(),
        pods: [("p1".into(), Box::new(pod(PodPhase::Running))), ("p2".into(), Box::new(bare))].into(),
        services: [
            ("s1".into(), Box::new(service(Some(slot(0)), Some(Box::new(deletion))))),
            ("s2".into(), Box::new(service(None, None))),
        ]
        .into(),
        surplus_pods: BTreeSet::from(["p3".into()]),
        surplus_services: BTreeSet::from(["s3".into()]),
        deleting_pods: BTreeSet::from(["p1".into()]),
        attempts: objects().into_iter().zip(outcomes()).map(|(object, last)| (object, attempt(last))).collect(),
        planned_pods: BTreeSet::from([slot(1)]),
        planned_services: BTreeSet::from([slot(2)]),
        retry_at: Some(Timestamp(80)),
        stamps: StatusStamps::new(stamp(13), stamp(14), stamp(15), stamp(16)),
        started_at: Some(Timestamp(81)),
        running_at: Some(Timestamp(82)),
        first_running_at: Some(Timestamp(83)),
        creating_at: Some(Timestamp(84)),
        unschedulable: Some(("p1".into(), "0/3 nodes".into())),
        stalled: Some("stalled".into()),
        adopted: stamp(17),
        ended_at: Some(Timestamp(85)),
        finals: BTreeMap::from([("trainer".into(), (1, 2))]),
        quarantine: Some("q".into()),
        deadline: Some(Timestamp(86)),
        waits_below: BTreeMap::from([("trainer".into(), Incarnation(4))]),
        slot_counts: BTreeMap::from([("trainer-0".to_owned(), 6)]),
        dead: ["p9".into()].into(),
        orphan_since: Some(Timestamp(87)),
        trail: [Trail { stamp: stamp(18), at: Timestamp(88), text: "t".into() }].into(),
        ..Job::default()
    }
}

/// A state with every member set.
pub(crate) fn state() -> State {
    let bare = JobKey { uid: "u2".into(), ..key() };
    let node = |not_ready_since| Node { fact: node(), not_ready_since };
    State {
        stamp: stamp(19),
        at: Timestamp(90),
        config: config(),
        jobs: [(key(), Box::new(job())), (bare, Box::default())].into_iter().collect(),
        nodes: [("n1".into(), node(Some(Timestamp(91)))), ("n2".into(), node(None))].into(),
        list_rvs: [Kind::Job, Kind::Pod, Kind::Service, Kind::Node].map(|kind| (kind, ResourceVersion(92))).into(),
        source_list_rvs: [((Kind::Job, "AITrainingJob".into()), ResourceVersion(93))].into(),
        terms: vec![(Term(2), Position(1)), (Term(3), Position(4))],
        ..State::default()
    }
}
