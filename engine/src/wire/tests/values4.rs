//! A record with every word and member that format 4 adds, and a state with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fact::{Adopted, ReportedEnd};
use model::{
    Budget, Cause, CauseKind, Charge, Checkpoint, ClassFact, ClusterFact, Config, CreatePhase, Decision, Demand,
    Dependency, Edits, Elastic, GateFact, GpuRequest, GroupSpec, JobEvent, JobFact, JobSpec, Kind, LabelOperator,
    LabelRequirement, LabelSelector, LossKind, Mirror, NAMESPACE_NAME, NodeFact, ObjectAnnotations, ObjectFact,
    ObjectRef, Outcome, OwnedFact, OwnedRef, OwnedSpec, Phase, PhaseRules, PodFact, QueueEvent, QueueFact, QueueReport,
    QueueSpec, QuotaSpec, Reached, ReadinessGate, Reclaim, Resize, ResourceVersion, Retain, Retryable, Running, Share,
    ShareChange, ShareLoss, ShareTarget, SizeRange, SpecFact, TargetUpdate, Threshold, Timestamp, Usage, WaitingJob,
    WithinQueue,
};

use super::values::{self, Contents, key, spec_fact, stamp};
use super::values3;
use crate::allocation::Allocation;
use crate::group::{Group, Slot};
use crate::job::Job;
use crate::state::State;

/// Kinds of losses, all of them.
const LOSSES: [LossKind; 5] =
    [LossKind::Preempted, LossKind::Reclaimed, LossKind::Moved, LossKind::Resized, LossKind::NodesLost];

fn share() -> Share {
    Share { groups: BTreeMap::from([("trainer".into(), vec!["n1".into(), "n1".into(), "n2".into(), "n1".into()])]) }
}

fn loss(kind: LossKind) -> ShareLoss {
    ShareLoss { beneficiary: Some("ns/k".into()), ..ShareLoss::of(kind) }
}

fn quota() -> BTreeMap<model::Text, QuotaSpec> {
    let full = QuotaSpec { nominal: 8, borrowing: 4, lending: Some(2) };
    BTreeMap::from([
        ("amd.com/gpu".into(), QuotaSpec { nominal: 3, ..QuotaSpec::default() }),
        ("nvidia.com/gpu".into(), full),
    ])
}

fn queues() -> Vec<QueueSpec> {
    let of = |within, reclaim| QueueSpec {
        cohort: None,
        quota: quota(),
        weight: 1,
        policy: "fifo-backfill".into(),
        by_priority: false,
        within,
        reclaim,
        min_run_ms: 2,
        round_ms: 3,
        spread: false,
        paused: false,
        namespaces: None,
        nodes: None,
        shares_nodes: false,
    };
    vec![
        QueueSpec {
            cohort: Some("c".into()),
            by_priority: true,
            spread: true,
            paused: true,
            namespaces: Some(by_name()),
            nodes: Some(LabelSelector { requirements: requirements() }),
            shares_nodes: true,
            ..of(WithinQueue::Never, Reclaim::Never)
        },
        of(WithinQueue::LowerPriority, Reclaim::LowerPriority),
        of(WithinQueue::Any, Reclaim::Any),
        of(WithinQueue::Never, Reclaim::Any),
    ]
}

/// A selector of names alone, which stands in records as a list of them.
fn by_name() -> LabelSelector {
    let values = vec!["ns".into()];
    LabelSelector {
        requirements: vec![LabelRequirement { key: NAMESPACE_NAME.into(), operator: LabelOperator::In, values }],
    }
}

/// A queue without a selector.
pub(super) fn queue() -> QueueSpec {
    queues().remove(1)
}

/// A requirement with each operator.
fn requirements() -> Vec<LabelRequirement> {
    let requirement = |(_, operator): (&str, LabelOperator)| LabelRequirement {
        key: "pool".into(),
        operator,
        values: if matches!(operator, LabelOperator::Exists) { vec![] } else { vec!["3".into()] },
    };
    LabelOperator::WORDS.into_iter().map(requirement).collect()
}

fn spec(spec: JobSpec) -> JobFact {
    JobFact::Spec(Box::new(spec_fact(spec)))
}

fn demand() -> Demand {
    Demand {
        queue: Some("q".into()),
        priority: Some(-3),
        classes: BTreeSet::new(),
        submitted: Timestamp(4),
        category: None,
        units: None,
        level: 0,
    }
}

fn class() -> ClassFact {
    ClassFact { name: "high".into(), rv: ResourceVersion(9), value: 100, is_default: true }
}

fn charge() -> Charge {
    Charge { queue: Some("q".into()), gpus: BTreeMap::from([("trainer".into(), 2)]), resource: "gpu".into() }
}

fn request() -> GpuRequest {
    GpuRequest { resource: "nvidia.com/gpu".into(), count: 2 }
}

fn changes() -> Vec<ShareChange> {
    let with = |why| ShareChange { share: share(), target: Some(Share::default()), why: Some(loss(why)) };
    let plain = ShareChange { share: share(), target: None, why: None };
    LOSSES.into_iter().map(with).chain([plain]).collect()
}

fn report() -> QueueReport {
    let waiting = WaitingJob {
        name: "ns/k".into(),
        reason: "Nodes".into(),
        message: "needs 4 GPUs".into(),
        expected_start: Some(Timestamp(7)),
    };
    QueueReport {
        admitted: 1,
        pending: 2,
        usage: BTreeMap::from([("nvidia.com/gpu".into(), 5)]),
        waiting: vec![waiting],
        speed_samples: vec![],
    }
}

fn target() -> ShareTarget {
    ShareTarget { share: share(), why: Some(loss(LossKind::Moved)) }
}

/// Specs each of which has one member or word of format 4.
fn specs() -> Vec<JobSpec> {
    let bare = JobSpec::default;
    let of = |group: GroupSpec| JobSpec { groups: vec![group], ..bare() };
    let group = || GroupSpec { name: "g1".into(), ..GroupSpec::default() };
    let rounds = Budget { limit: 3, containers: false, reach: Threshold::Above, rounds: true };
    let started = Dependency { group: "g0".into(), reached: Reached::Started };
    let running = Running::Any(BTreeSet::from(["g1".into()]));
    let owned = OwnedSpec {
        object: OwnedRef::new("v1", "Claim", "c"),
        when: CreatePhase::default(),
        awaits: ReadinessGate::ExistsIfServed,
        keep: Retain::default(),
        digest: None,
        follows: None,
        pods: None,
    };
    let gate = OwnedSpec { awaits: ReadinessGate::Admitted, pods: Some("d".into()), ..owned.clone() };
    let left = OwnedSpec { awaits: ReadinessGate::Exists, keep: Retain::Left, ..owned.clone() };
    vec![
        JobSpec { running_restart_limit: Some(0), ..bare() },
        JobSpec { budget: Some(rounds), ..bare() },
        JobSpec { retryable: Some(Retryable { main_ended: true, ..Retryable::default() }), ..bare() },
        JobSpec { phase_rules: PhaseRules { running, ..PhaseRules::default() }, ..bare() },
        JobSpec { edits: Edits::BeforePods, ..bare() },
        JobSpec { owned: vec![left], ..bare() },
        JobSpec { owned: vec![owned], ..bare() },
        JobSpec { owned: vec![gate], ..bare() },
        of(GroupSpec { counts_restarts: true, ..group() }),
        of(GroupSpec { closed: Some("why".into()), ..group() }),
        of(GroupSpec { sizes: Some(SizeRange { min: 1, preferred: 2, max: 4, resize: Resize::InPlace }), ..group() }),
        of(GroupSpec { sizes: Some(SizeRange { resize: Resize::Restart, ..SizeRange::fixed(1) }), ..group() }),
        JobSpec { externally_managed: true, ..bare() },
        of(GroupSpec { budget: Some(rounds), ..group() }),
        of(GroupSpec { after: vec![started], ..group() }),
    ]
}

fn gate() -> GateFact {
    GateFact {
        holds_quota: true,
        evicted: true,
        finished: true,
        pods_ready: true,
        pods: Some("d".into()),
        message: Some("m".into()),
        reads: vec![OwnedRef::new("v1", "Claim", "c")],
    }
}

fn reported_end() -> ReportedEnd {
    ReportedEnd { phase: Phase::Failed, message: "m".into() }
}

/// Notes, with every member and without.
fn notes() -> Vec<ObjectAnnotations> {
    let elastic = Elastic {
        generation: 2,
        starts: true,
        at_once: true,
        scaling: Some(false),
        requested: Some(Checkpoint { version: 1, done: true }),
        completed: Some(1),
    };
    let asked = Elastic { requested: Some(Checkpoint { version: 1, done: false }), ..Elastic::default() };
    vec![
        ObjectAnnotations {
            failed_over: Some(Timestamp(1000)),
            elastic: Some(elastic),
            ..ObjectAnnotations::default()
        },
        ObjectAnnotations { elastic: Some(asked), ..ObjectAnnotations::default() },
        ObjectAnnotations::default(),
        ObjectAnnotations { marked: Some(false), ..ObjectAnnotations::default() },
        ObjectAnnotations { marked: Some(true), ..ObjectAnnotations::default() },
    ]
}

/// Facts about a job, each of which needs format 4.
pub(super) fn facts() -> Vec<JobFact> {
    let group = GroupSpec { name: "g1".into(), gpu_request: Some(request()), ..GroupSpec::default() };
    let mut facts = vec![
        spec(JobSpec { demand: Some(demand()), ..JobSpec::default() }),
        spec(JobSpec { demand: Some(Demand { queue: None, priority: None, ..demand() }), ..JobSpec::default() }),
        spec(JobSpec {
            demand: Some(Demand { priority: None, classes: BTreeSet::from(["high".into()]), ..demand() }),
            ..JobSpec::default()
        }),
        spec(JobSpec { groups: vec![group], ..JobSpec::default() }),
        JobFact::QueueReported(Box::new(report())),
        JobFact::QueueReported(Box::default()),
    ];
    facts
        .extend(queues().into_iter().map(|queue| spec(JobSpec { queue: Some(Box::new(queue)), ..JobSpec::default() })));
    facts.extend(changes().into_iter().map(|change| JobFact::ShareChanged(Box::new(change))));
    facts.extend(specs().into_iter().map(spec));
    facts.push(JobFact::Spec(Box::new(SpecFact {
        spec: Err(vec![values::error()]),
        fatal: true,
        ..spec_fact(JobSpec::default())
    })));
    facts.extend(notes().into_iter().map(|notes| {
        JobFact::Spec(Box::new(SpecFact { notes: Some(Box::new(notes)), ..spec_fact(JobSpec::default()) }))
    }));
    facts.push(JobFact::Pod(Box::new(PodFact { protected: Some(vec![]), ..values::pod(model::PodPhase::Running) })));
    facts.push(JobFact::Pod(Box::new(PodFact {
        protected: Some(vec!["f".into()]),
        ..values::pod(model::PodPhase::Running)
    })));
    facts.push(JobFact::Owned(Box::new(OwnedFact { keep: Retain::Left, ..values3::owned_fact() })));
    let gates = [gate(), GateFact::default()];
    facts.extend(
        gates.map(|gate| JobFact::Owned(Box::new(OwnedFact { gate: Some(Box::new(gate)), ..values3::owned_fact() }))),
    );
    facts.push(JobFact::Owned(Box::new(OwnedFact { contents: Some("{}".into()), ..values3::owned_fact() })));
    let [_, bare] = values::job_facts();
    facts.push(JobFact::Object(Box::new(ObjectFact { reported_end: Some(Box::new(reported_end())), ..bare })));
    facts.push(JobFact::Answered { object: ObjectRef::Annotations, outcome: Outcome::Done });
    let adopted = |mirror| JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() }));
    facts.push(adopted(Mirror { share: share(), ..values::mirror() }));
    facts.push(adopted(Mirror { charge: Some(Box::new(charge())), ..values::mirror() }));
    facts.push(adopted(Mirror { charge: Some(Box::new(Charge { queue: None, ..charge() })), ..values::mirror() }));
    facts.push(adopted(Mirror { share_at: Some(Timestamp(6)), ..values::mirror() }));
    facts.push(adopted(Mirror { usage: usage(), ..values::mirror() }));
    facts.push(adopted(Mirror { failed_starts: 2, ..values::mirror() }));
    facts.push(adopted(Mirror { start_after: Some(Timestamp(7)), ..values::mirror() }));
    facts.push(adopted(Mirror { rounds: 2, ..values::mirror() }));
    facts.push(adopted(Mirror { round_at: Some(Timestamp(8)), ..values::mirror() }));
    facts
}

/// Facts about the cluster, each of which needs format 4.
pub(super) fn cluster_facts() -> Vec<ClusterFact> {
    let node = NodeFact {
        name: "n1".into(),
        rv: ResourceVersion(8),
        ready: true,
        conditions: vec![],
        gpus: BTreeMap::new(),
        closed: false,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        allocatable: BTreeMap::new(),
    };
    let gpus = BTreeMap::from([("nvidia.com/gpu".into(), 8)]);
    vec![
        ClusterFact::Node(Box::new(NodeFact { gpus, ..node.clone() })),
        ClusterFact::Node(Box::new(NodeFact { closed: true, ..node.clone() })),
        ClusterFact::Node(Box::new(NodeFact { labels: BTreeMap::from([("pool".into(), "a".into())]), ..node })),
        ClusterFact::Configured(Box::new(Config { ignores_capacity: true, ..Config::default() })),
        ClusterFact::Configured(Box::new(Config { quiet_ms: 5, ..Config::default() })),
        ClusterFact::Configured(Box::new(Config { start_timeout_ms: 6, ..Config::default() })),
        ClusterFact::ForeignUse {
            node: "n1".into(),
            gpus: BTreeMap::from([("nvidia.com/gpu".into(), 3)]),
            requests: BTreeMap::new(),
        },
        ClusterFact::ForeignUse { node: "n1".into(), gpus: BTreeMap::new(), requests: BTreeMap::new() },
        ClusterFact::Relisted { kind: Kind::Foreign, of: None, rv: ResourceVersion(3) },
        ClusterFact::Class(Box::new(class())),
        ClusterFact::Class(Box::new(ClassFact { is_default: false, ..class() })),
        ClusterFact::ClassGone { name: "high".into() },
        ClusterFact::Relisted { kind: Kind::Class, of: None, rv: ResourceVersion(3) },
    ]
}

/// Facts about the queues, each of which needs format 4.
pub(super) fn queue_facts() -> Vec<QueueFact> {
    [true, false].map(|round| QueueFact::SchedulingCycle { round }).into()
}

/// Events each of which needs format 4.
pub(super) fn events() -> Vec<JobEvent> {
    let kinds = LOSSES.into_iter().map(CauseKind::ShareLost).chain([
        CauseKind::NotStarted,
        CauseKind::Invalid,
        CauseKind::NotAdmitted,
    ]);
    let halt = |kind| {
        JobEvent::Decided(Box::new(Decision::Halt { cause: Cause { kind, slots: vec![], message: "m".into() } }))
    };
    kinds.map(halt).collect()
}

/// Events of the queues, each of which needs format 4.
pub(super) fn queue_events() -> Vec<QueueEvent> {
    let bare = ShareTarget { why: None, ..target() };
    let allocation = TargetUpdate { targets: vec![(key(), target()), (key(), bare)], memory: "{}".into() };
    vec![
        QueueEvent::Allocated(Box::new(allocation)),
        QueueEvent::Allocated(Box::default()),
        QueueEvent::Shared { changes: changes().into_iter().map(|change| (key(), change)).collect() },
        QueueEvent::Reported { queues: vec![(key(), report())] },
    ]
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), cluster: cluster_facts(), queues: (queue_facts(), queue_events()) }
}

fn usage() -> Usage {
    Usage { gpu_ms: 8, held_ms: 4, spell_ms: 2, first_start: Some(Timestamp(9)), since: Some(Timestamp(10)) }
}

/// A state with every member that format 4 adds.
pub(crate) fn state() -> State {
    let slot = Slot { planned: true, planned_on: Some("n1".into()), ..Slot::default() };
    let group = Group { slots: vec![slot], ..values::group() };
    let allocation = Allocation {
        gated: true,
        share: share(),
        charge: Some(Box::new(charge())),
        stamp: stamp(12),
        at: Some(Timestamp(13)),
        usage: usage(),
        released: vec![(stamp(11), share())],
        loss: Some(ShareLoss { beneficiary: None, ..loss(LossKind::Reclaimed) }),
        has_target: true,
        whole: true,
        failed_starts: 2,
        start_after: Some(Timestamp(14)),
        refused: BTreeMap::new(),
    };
    let spec = spec_fact(JobSpec { demand: Some(demand()), ..JobSpec::default() });
    let job = Job {
        valid: Some(Arc::new(spec)),
        groups: [("trainer".into(), Box::new(group))].into(),
        report: Some(Box::new(report())),
        reported_end: Some(Box::new(reported_end())),
        retry_counts: crate::RetryCounts::new(0, 0, 3, Some(Timestamp(15))),
        allocation,
        ..Job::default()
    };
    let mut state =
        State { stamp: stamp(19), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 4, ..State::default() };
    // The target of a job that asks for nothing is dropped when its job is read.
    state.queues.targets.insert(model::JobKey { uid: "u2".into(), ..key() }, target());
    state.queues.resources = vec!["nvidia.com/gpu".into()];
    state.queues.classes.by_name = BTreeMap::from([("high".into(), class())]);
    state.foreign = BTreeMap::from([("n1".into(), BTreeMap::from([("nvidia.com/gpu".into(), 3)]))]);
    state
}
