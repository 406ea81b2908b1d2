//! A record with every fact and event of format 1: what the stored text beside this file says. The state is in `values/state.rs`.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::command::Outcome;
use model::fact::{Adopted, EndRequest, Milestone};
use model::policy::{CleanPodPolicy, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope};
use model::{
    Cause, CauseKind, ClusterFact, Config, ContainerEnd, ContainerFact, ContainerState, Decision, FieldError,
    GroupSpec, Incarnation, JobEvent, JobFact, JobKey, JobSpec, Kind, Mirror, NodeFact, ObjectFact, ObjectRef, Phase,
    PhaseRules, PodFact, PodPhase, Position, QueueEvent, QueueFact, ResourceVersion, ServiceFact, SlotId, SpecFact,
    Stamp, Term, Timestamp,
};

pub(super) use self::state::group;
pub(crate) use self::state::state;
use crate::record::{Body, Record};

pub(super) fn slot(index: u32) -> SlotId {
    SlotId { group: "trainer".into(), index }
}

pub(super) fn stamp(position: u64) -> Stamp {
    Stamp { term: Term(3), position: Position(position) }
}

pub(crate) fn key() -> JobKey {
    JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "u1".into() }
}

fn config() -> Config {
    Config {
        creating_restart_ms: 1,
        creating_timeout_ms: 2,
        creating_failed: true,
        node_grace_ms: 3,
        restart_backoff_ms: 4,
        restart_backoff_max_ms: 5,
        restart_backoff_reset_ms: 6,
        retry_ms: 7,
        retry_max_ms: 8,
        orphan_grace_ms: 9,
        gpu_faults: vec!["Xid".to_owned()],
        restart_limit: Some(10),
        failure_window_ms: 11,
        // Members of formats 4 and 5 as they are where nothing is written.
        ignores_capacity: false,
        quiet_ms: 0,
        start_timeout_ms: 300_000,
        queue_selector: model::QueueSelector::RoundRobin,
        dequeue_period_ms: 100,
    }
}

pub(super) fn error() -> FieldError {
    FieldError {
        path: "spec.x".to_owned(),
        value: "-1".to_owned(),
        problem: "must be at least 0".to_owned(),
        suggestion: Some("y".to_owned()),
    }
}

/// A spec that names every value of every policy.
pub(super) fn spec() -> JobSpec {
    use GroupEndPolicy as End;
    use RestartPolicy as Restart;
    let scopes = [RestartScope::Pod, RestartScope::Replica, RestartScope::All];
    let groups = [
        (End::Any, End::All, Restart::Always),
        (End::Rank0, End::None, Restart::OnFailure),
        (End::All, End::Any, Restart::OnNodeFail),
        (End::None, End::Rank0, Restart::Never),
        (End::Any, End::Any, Restart::ExitCode),
        (End::All, End::All, Restart::OnNodeFailWithExitCode),
    ];
    let group = |(n, (complete, fail, restart))| GroupSpec {
        name: format!("g{n}").into(),
        display: Some(format!("G{n}").into()),
        replicas: 2,
        complete,
        fail,
        restart,
        scope: scopes[n % 3],
        restart_limit: Some(4),
        services: true,
        gpus: true,
        ..GroupSpec::default()
    };
    JobSpec {
        groups: groups.into_iter().enumerate().map(group).collect(),
        complete: JobEndPolicy::Any,
        fail: JobEndPolicy::All,
        clean_pods: CleanPodPolicy::None,
        restartable_codes: vec![128, 137],
        time_limit_ms: Some(5000),
        phase_rules: PhaseRules::default(),
        ..JobSpec::default()
    }
}

pub(crate) fn pod(phase: PodPhase) -> PodFact {
    PodFact {
        uid: "p1".into(),
        name: "j-trainer-0".into(),
        slot: Some(slot(0)),
        rv: ResourceVersion(20),
        incarnation: Incarnation(2),
        phase,
        node: Some("n1".into()),
        started: Some(Timestamp(21)),
        deleting: Some(Timestamp(22)),
        containers: vec![
            ContainerFact {
                name: "main".into(),
                main: true,
                state: ContainerState::Waiting { reason: "ErrImagePull".into(), message: Some("no such image".into()) },
                last: None,
            },
            ContainerFact { name: "side".into(), main: false, state: ContainerState::Running, last: None },
            ContainerFact {
                name: "last".into(),
                main: true,
                state: ContainerState::Terminated(ContainerEnd {
                    code: 137,
                    reason: "OOMKilled".into(),
                    message: Some("out of memory".into()),
                    finished: Some(Timestamp(23)),
                    lost_peer: true,
                }),
                last: None,
            },
        ],
        init: vec![],
        reason: Some("Evicted".into()),
        message: Some("low on memory".into()),
        conditions: vec!["GpuUnhealthy".into()],
        restarts: 0,
        shape: None,
        protected: None,
        lingers: false,
        size: None,
        holds: None,
    }
}

/// The least that a pod can say.
fn bare_pod() -> PodFact {
    PodFact {
        slot: None,
        node: None,
        started: None,
        deleting: None,
        containers: vec![ContainerFact {
            name: "c".into(),
            main: false,
            state: ContainerState::Terminated(ContainerEnd {
                code: 0,
                reason: "".into(),
                message: None,
                finished: None,
                lost_peer: false,
            }),
            last: None,
        }],
        reason: None,
        message: None,
        conditions: vec![],
        ..pod(PodPhase::Pending)
    }
}

pub(super) fn cause(kind: CauseKind) -> Cause {
    Cause { kind, slots: vec![slot(0), slot(1)], message: "pod j-trainer-0 failed".into() }
}

fn restart(kind: CauseKind) -> Decision {
    Decision::Restart {
        group: "trainer".into(),
        scope: RestartScope::Replica,
        slot: slot(0),
        cause: cause(kind),
        failures: 2,
        retry_at: Some(Timestamp(30)),
    }
}

fn ending(kind: CauseKind) -> Decision {
    Decision::End {
        phase: Phase::Failed,
        cause: Cause { kind, slots: vec![], message: "over".into() },
        clean: true,
        live_only: false,
    }
}

pub(super) fn mirror() -> Mirror {
    Mirror {
        stamp: stamp(40),
        phase: Phase::Terminating,
        decision: Some(restart(CauseKind::GpuFault)),
        wait_uids: BTreeSet::from(["p1".into()]),
        wait_below: BTreeMap::from([("trainer".into(), Incarnation(3))]),
        charged: BTreeMap::from([("trainer".into(), 1)]),
        retry_at: Some(Timestamp(41)),
        slot_retry: BTreeMap::from([("trainer-0".to_owned(), Timestamp(42))]),
        grown_from: BTreeMap::from([("trainer".into(), 2)]),
        replicas: BTreeMap::from([("trainer".into(), 4)]),
        first_creating_at: Some(Timestamp(43)),
        first_running_at: Some(Timestamp(44)),
        slot_counts: BTreeMap::from([("trainer-1".to_owned(), 5)]),
        ..Mirror::default()
    }
}

fn milestones() -> Vec<Milestone> {
    // Words of later formats.
    let later = [Phase::Suspended, Phase::Preparing, Phase::Queued];
    let milestone = |(at, phase)| Milestone { phase, at: Timestamp(at), message: "m".into() };
    (50..)
        .zip(Phase::ALL.into_iter().filter(|phase| !later.contains(phase)))
        .map(milestone)
        .chain([Milestone { phase: Phase::New, at: Timestamp(1), message: "".into() }])
        .collect()
}

fn outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Done,
        Outcome::Forced,
        Outcome::Gone,
        Outcome::Taken { waiting: true, unseen: false },
        Outcome::Taken { waiting: false, unseen: true },
        Outcome::Refused { code: 422, message: "no".into() },
        Outcome::Unknown { code: 500 },
    ]
}

fn objects() -> Vec<ObjectRef> {
    vec![
        ObjectRef::Pod(slot(0)),
        ObjectRef::Service(slot(0)),
        ObjectRef::PodUid("p1".into()),
        ObjectRef::ServiceUid("s1".into()),
        ObjectRef::Status,
        ObjectRef::EndAnnotation,
        ObjectRef::Status,
    ]
}

pub(super) fn job_facts() -> [ObjectFact; 2] {
    let end_requests = [(EndRequest::Preempted, "p"), (EndRequest::Failed, "f"), (EndRequest::NodeFailed, "n")];
    let end_requests = end_requests.map(|(request, text)| (request, text.into())).into();
    let full = ObjectFact {
        rv: ResourceVersion(9),
        deleting: true,
        end_requests,
        end_annotated: true,
        mirror: stamp(4),
        finalizers: vec![],
        finalized: false,
        reported_end: None,
        progress: None,
    };
    [
        full,
        ObjectFact {
            rv: ResourceVersion(1),
            deleting: false,
            end_requests: BTreeMap::new(),
            end_annotated: false,
            mirror: Stamp::default(),
            finalizers: vec![],
            finalized: false,
            reported_end: None,
            progress: None,
        },
    ]
}

/// A spec without anything beside it.
pub(crate) fn spec_fact(spec: JobSpec) -> SpecFact {
    SpecFact::of(Ok(spec), "{}".into())
}

fn spec_facts() -> [SpecFact; 3] {
    let other = JobSpec {
        groups: vec![],
        complete: JobEndPolicy::None,
        fail: JobEndPolicy::None,
        clean_pods: CleanPodPolicy::All,
        restartable_codes: vec![],
        time_limit_ms: None,
        phase_rules: PhaseRules { creating: false, sticky_restarting: false, ..PhaseRules::default() },
        ..JobSpec::default()
    };
    [
        SpecFact { warnings: vec![error()], manifest: r#"{"a":1}"#.into(), ..spec_fact(spec()) },
        SpecFact { spec: Err(vec![error()]), ..spec_fact(JobSpec::default()) },
        spec_fact(other),
    ]
}

fn service() -> ServiceFact {
    ServiceFact {
        uid: "s1".into(),
        slot: Some(slot(0)),
        name: "j-trainer-0".into(),
        rv: ResourceVersion(7),
        deleting: true,
    }
}

pub(super) fn node() -> NodeFact {
    NodeFact {
        name: "n1".into(),
        rv: ResourceVersion(8),
        ready: true,
        conditions: vec!["Xid".into()],
        gpus: BTreeMap::new(),
        closed: false,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        allocatable: BTreeMap::new(),
    }
}

pub(super) fn adopted() -> Adopted {
    Adopted {
        mirror: mirror(),
        restarts: BTreeMap::from([("trainer".into(), 2)]),
        milestones: milestones(),
        started_at: Some(Timestamp(60)),
        running_at: Some(Timestamp(61)),
        ended_at: Some(Timestamp(62)),
        finals: BTreeMap::from([("trainer".into(), (3, 4))]),
        remarks: true,
    }
}

/// Facts and events of one format, from which a record of each scope is made.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) facts: Vec<JobFact>,
    pub(super) events: Vec<JobEvent>,
    pub(super) cluster: Vec<ClusterFact>,
    pub(super) queues: (Vec<QueueFact>, Vec<QueueEvent>),
}

impl Contents {
    /// Returns the record of the job, that of the cluster and that of the queues, as far as there is something in them.
    pub(super) fn records(self) -> Vec<Record> {
        let Self { facts, events, cluster, queues } = self;
        let mut records = vec![record(Body::Job { key: key(), facts, events })];
        if !cluster.is_empty() {
            records.push(record(Body::Cluster { facts: cluster }));
        }
        let (facts, events) = queues;
        if !facts.is_empty() || !events.is_empty() {
            records.push(record(Body::Queues { facts, events }));
        }
        records
    }
}

pub(super) fn record(body: Body) -> Record {
    Record {
        position: Position(7),
        term: Term(3),
        at: Timestamp(1000),
        behaviour: 2,
        causes: vec![Position(5), Position(6)],
        body,
    }
}

/// Every fact about the cluster, each of its members set at least once and left out at least once.
fn cluster_facts() -> Vec<ClusterFact> {
    let mut facts = vec![
        ClusterFact::TermBegan { term: Term(3) },
        ClusterFact::Configured(Box::new(config())),
        ClusterFact::Configured(Box::default()),
        ClusterFact::Node(Box::new(node())),
        ClusterFact::Node(Box::new(NodeFact { ready: false, conditions: vec![], ..node() })),
        ClusterFact::NodeGone { name: "n1".into() },
        ClusterFact::Relisted { kind: Kind::Job, of: Some("AITrainingJob".into()), rv: ResourceVersion(6) },
    ];
    facts.extend([Kind::Pod, Kind::Service, Kind::Node].map(|kind| ClusterFact::Relisted {
        kind,
        of: None,
        rv: ResourceVersion(6),
    }));
    facts
}

/// Every fact and every event, each of their members set at least once and left out at least once.
pub(super) fn contents() -> Contents {
    let mut facts = vec![
        JobFact::Gone,
        JobFact::Pod(Box::new(bare_pod())),
        JobFact::PodGone { uid: "p1".into(), rv: Some(ResourceVersion(5)) },
        JobFact::PodGone { uid: "p1".into(), rv: None },
        JobFact::Service(Box::new(service())),
        JobFact::Service(Box::new(ServiceFact { slot: None, deleting: false, ..service() })),
        JobFact::ServiceGone { uid: "s1".into() },
        JobFact::NodeChanged { name: "n1".into() },
        JobFact::Published { stamp: stamp(5), rv: ResourceVersion(7) },
        JobFact::Due,
        JobFact::Adopted(Box::new(adopted())),
        JobFact::Adopted(Box::new(Adopted {
            mirror: Mirror::default(),
            restarts: BTreeMap::new(),
            milestones: vec![],
            started_at: None,
            running_at: None,
            ended_at: None,
            finals: BTreeMap::new(),
            remarks: false,
        })),
    ];
    facts.extend(job_facts().map(|fact| JobFact::Object(Box::new(fact))));
    facts.extend(spec_facts().map(|fact| JobFact::Spec(Box::new(fact))));
    let phases = [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed, PodPhase::Unknown];
    facts.extend(phases.map(|phase| JobFact::Pod(Box::new(pod(phase)))));
    facts.extend(objects().into_iter().zip(outcomes()).map(|(object, outcome)| JobFact::Answered { object, outcome }));
    let mut events = vec![
        JobEvent::Fenced,
        JobEvent::PodsPlanned { slots: vec![(slot(0), Incarnation(1))] },
        JobEvent::ServicesPlanned { slots: vec![slot(0)] },
        JobEvent::PodsDropped { uids: vec!["p1".into()] },
        JobEvent::ServicesDropped { uids: vec!["s1".into()] },
        JobEvent::RestartCleared,
        JobEvent::Ended { phase: Phase::Succeeded },
        JobEvent::PhaseChanged { to: Phase::Running, message: "every pod is running".into() },
        JobEvent::PhaseChanged { to: Phase::Pending, message: "".into() },
        JobEvent::Stalled { message: Some("stalled".into()) },
        JobEvent::Stalled { message: None },
        JobEvent::MessageChanged { message: "m".into() },
    ];
    let kinds =
        [CauseKind::Exited, CauseKind::PodFailed, CauseKind::NodeLost, CauseKind::GpuFault, CauseKind::CreationFailed];
    events.extend(kinds.map(|kind| JobEvent::Decided(Box::new(restart(kind)))));
    let kinds =
        [CauseKind::Completed, CauseKind::EndRequested(EndRequest::Failed), CauseKind::TimeLimit, CauseKind::NoPods];
    events.extend(kinds.map(|kind| JobEvent::Decided(Box::new(ending(kind)))));
    for scope in [RestartScope::Pod, RestartScope::All] {
        events.push(JobEvent::Decided(Box::new(Decision::Restart {
            group: "trainer".into(),
            scope,
            slot: slot(1),
            cause: cause(CauseKind::Exited),
            failures: 0,
            retry_at: None,
        })));
    }
    Contents { facts, events, cluster: cluster_facts(), ..Contents::default() }
}
