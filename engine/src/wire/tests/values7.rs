//! A record with every word and member that format 7 adds, and a state with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fact::{Adopted, EndRequest};
use model::{
    Cause, CauseKind, ClusterFact, ContainerEnd, Decision, GroupSpec, JobEvent, JobFact, JobSpec, Kind, LabelOperator,
    LabelRequirement, LabelSelector, LossKind, Mirror, NAMESPACE_NAME, NamespaceFact, NodeFact, NodeRefusal,
    NodeSelectorTerm, ObjectFact, Phase, PodFact, PodHolding, PodPhase, PodRequirements, QueueEvent, QueueSpec,
    ResourceVersion, RestartPolicy, Share, ShareChange, ShareLoss, ShareTarget, Taint, TargetUpdate, Text, Timestamp,
    Toleration,
};

use super::values::{self, Contents, key, spec_fact, stamp};
use super::values4;
use crate::allocation::Allocation;
use crate::job::Job;
use crate::state::State;

fn label(key: &str, operator: LabelOperator, values: &[&str]) -> LabelRequirement {
    LabelRequirement { key: key.into(), operator, values: values.iter().map(|value| (*value).into()).collect() }
}

fn requirements() -> PodRequirements {
    let own = NodeSelectorTerm {
        expressions: vec![label("zone", LabelOperator::Exists, &[])],
        fields: vec![label("metadata.name", LabelOperator::In, &["n1"])],
    };
    let exists = Toleration { key: "k".into(), exists: true, ..Toleration::default() };
    let equal = Toleration { key: "k".into(), exists: false, value: "v".into(), effect: "NoExecute".into() };
    PodRequirements {
        requests: BTreeMap::from([("cpu".into(), 1500), ("pods".into(), 1000)]),
        node_name: Some("n1".into()),
        node_selector: BTreeMap::from([("gpu".into(), "a100".into())]),
        affinity: Some(vec![own, NodeSelectorTerm::default()]),
        tolerations: vec![exists, equal, Toleration::default()],
    }
}

/// Selectors of namespaces that format 4 cannot hold.
fn selectors() -> [LabelSelector; 3] {
    let team = label("team", LabelOperator::In, &["a"]);
    let unordered = label(NAMESPACE_NAME, LabelOperator::In, &["b", "a"]);
    let others = label(NAMESPACE_NAME, LabelOperator::NotIn, &["ns"]);
    [vec![team, label("frozen", LabelOperator::DoesNotExist, &[])], vec![unordered], vec![others]]
        .map(|requirements| LabelSelector { requirements })
}

fn namespace() -> NamespaceFact {
    NamespaceFact { name: "ns".into(), rv: ResourceVersion(4), labels: BTreeMap::from([("team".into(), "a".into())]) }
}

/// Facts each of which needs format 7.
pub(super) fn facts() -> Vec<JobFact> {
    let spec = |requirements| {
        let group = GroupSpec { requirements: Some(Arc::new(requirements)), ..GroupSpec::default() };
        JobFact::Spec(Box::new(spec_fact(JobSpec { groups: vec![group], ..JobSpec::default() })))
    };
    let allocation = |queue| {
        let holds = Some(Box::new(PodHolding { queue, gpus: BTreeMap::from([("nvidia.com/gpu".into(), 4)]) }));
        JobFact::Pod(Box::new(PodFact { holds, ..values::pod(PodPhase::Running) }))
    };
    let refusal = NodeRefusal { times: 1, until: Timestamp(12), words: "no".into() };
    let refused = BTreeMap::from([("n1".into(), refusal)]);
    let loss = ShareLoss { job: Some("ns/j".into()), ..ShareLoss::of(LossKind::Preempted) };
    let mirror = Mirror { limit_paused_at: Some(Timestamp(11)), refused, ..values::mirror() };
    let lost = Mirror { share_loss: Some(Box::new(loss.clone())), ..values::mirror() };
    let change = ShareChange { share: Share::default(), target: None, why: Some(loss) };
    let adopted = JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() }));
    let group = GroupSpec { restart: RestartPolicy::OnNodeLost, ..GroupSpec::default() };
    let on_node_lost = spec_fact(JobSpec { groups: vec![group], ..JobSpec::default() });
    let queue = |selector| {
        let queue = QueueSpec { namespaces: Some(selector), ..values4::queue() };
        JobFact::Spec(Box::new(spec_fact(JobSpec { queue: Some(Box::new(queue)), ..JobSpec::default() })))
    };
    let saves = spec_fact(JobSpec { checkpoint_grace_seconds: Some(60), ..JobSpec::default() });
    let [by_labels, unordered, others] = selectors().map(queue);
    let [_, plain] = values::job_facts();
    vec![
        by_labels,
        unordered,
        others,
        spec(requirements()),
        spec(PodRequirements::default()),
        JobFact::Spec(Box::new(on_node_lost)),
        JobFact::Spec(Box::new(saves)),
        JobFact::Pod(Box::new(PodFact { lingers: true, ..values::pod(PodPhase::Succeeded) })),
        allocation(Some("q".into())),
        allocation(None),
        adopted,
        JobFact::Adopted(Box::new(Adopted { mirror: lost, ..values::adopted() })),
        JobFact::ShareChanged(Box::new(change)),
        JobFact::WaitReported(Some("no room".into())),
        JobFact::WaitReported(None),
        JobFact::Object(Box::new(ObjectFact { end_requests: stopped(), ..plain })),
        JobFact::Pod(Box::new(started_again())),
        JobFact::Pod(Box::new(PodFact {
            init: values::pod(PodPhase::Pending).containers,
            ..values::pod(PodPhase::Pending)
        })),
    ]
}

fn stopped() -> BTreeMap<EndRequest, Text> {
    BTreeMap::from([(EndRequest::Stopped, "s".into())])
}

/// A pod whose containers failed and were started again.
fn started_again() -> PodFact {
    let end = |message| ContainerEnd { code: 1, message, finished: Some(Timestamp(24)), ..ContainerEnd::default() };
    let mut pod = values::pod(PodPhase::Running);
    for (container, message) in pod.containers.iter_mut().zip([Some("ValueError".into()), None]) {
        container.last = Some(Box::new(end(message)));
    }
    pod
}

/// Facts about the cluster, each of which needs format 7.
pub(super) fn cluster_facts() -> Vec<ClusterFact> {
    let taint = |value: &str| Taint { key: "team".into(), value: value.into(), effect: "NoSchedule".into() };
    let node = values::node();
    let allocatable = BTreeMap::from([("memory".into(), 8000)]);
    vec![
        ClusterFact::Node(Box::new(NodeFact { taints: vec![taint("x"), taint("")], ..node.clone() })),
        ClusterFact::Node(Box::new(NodeFact { allocatable, ..node })),
        ClusterFact::ForeignUse {
            node: "n1".into(),
            gpus: BTreeMap::new(),
            requests: BTreeMap::from([("cpu".into(), 1500), ("pods".into(), 1000)]),
        },
        ClusterFact::Namespace(Box::new(namespace())),
        ClusterFact::Namespace(Box::new(NamespaceFact { labels: BTreeMap::new(), ..namespace() })),
        ClusterFact::NamespaceGone { name: "ns".into() },
        ClusterFact::Relisted { kind: Kind::Namespace, of: None, rv: ResourceVersion(5) },
    ]
}

/// Events each of which needs format 7.
pub(super) fn events() -> Vec<JobEvent> {
    vec![JobEvent::Decided(Box::new(Decision::End {
        phase: Phase::Failed,
        cause: Cause {
            kind: CauseKind::EndRequested(EndRequest::Stopped),
            slots: Vec::new(),
            message: "stopped by its user: s".into(),
        },
        clean: true,
        live_only: true,
    }))]
}

/// Events of the queues, each of which needs format 7.
pub(super) fn queue_events() -> Vec<QueueEvent> {
    let loss = ShareLoss { job: Some("ns/j".into()), ..ShareLoss::of(LossKind::Reclaimed) };
    let target = ShareTarget { share: Share::default(), why: Some(loss.clone()) };
    let change = ShareChange { share: Share::default(), target: None, why: Some(loss) };
    vec![
        QueueEvent::WaitsReported { jobs: vec![(key(), Some("no room".into())), (key(), None)] },
        QueueEvent::Allocated(Box::new(TargetUpdate { targets: vec![(key(), target)], memory: "".into() })),
        QueueEvent::Shared { changes: vec![(key(), change)] },
    ]
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), cluster: cluster_facts(), queues: (Vec::new(), queue_events()) }
}

/// A state with every member that format 7 adds.
pub(crate) fn state() -> State {
    let refusal = NodeRefusal { times: 2, until: Timestamp(9), words: "no".into() };
    let allocation = Allocation { refused: BTreeMap::from([("n1".into(), refusal)]), ..Allocation::default() };
    let wait_reason = Some("no room".into());
    let job = Job { allocation, limit_paused_at: Some(Timestamp(10)), wait_reason, ..Job::default() };
    let mut state =
        State { stamp: stamp(22), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 7, ..State::default() };
    state.foreign_requests.insert("n1".into(), BTreeMap::from([("cpu".into(), 1500)]));
    state.queues.namespaces.insert("ns".into(), namespace());
    state
}
