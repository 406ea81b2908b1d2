//! Builders of states and of facts for the table of verdicts.

use std::collections::BTreeMap;

use model::fact::{Adopted, EndRequest};
use model::{
    ClassFact, GroupEndPolicy, GroupSpec, Incarnation, JobEndPolicy, JobSpec, Kind, Mirror, NamespaceFact, NodeFact,
    ObjectFact, ObjectRef, Outcome, OwnedRef, Phase, PhaseRules, PodPhase, Position, RestartPolicy, RestartScope,
    Retain, ServiceFact, SlotId, SpecFact, Stamp, Term, Timestamp,
};

use super::super::*;
use crate::handle::Handled;

/// Type of the objects of a list.
pub(super) const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");
pub(super) const ADMITTED: Handled<()> = Handled::Recorded(());
pub(super) const STALE: Handled<()> = Handled::Dropped(DropReason::Stale);
pub(super) const UNCHANGED: Handled<()> = Handled::Dropped(DropReason::Unchanged);
pub(super) const UNKNOWN: Handled<()> = Handled::Dropped(DropReason::Unknown);

/// The job and all it has are known at this version; so are the lists.
pub(super) const KNOWN: u64 = 10;

pub(super) fn key() -> JobKey {
    JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "u".into() }
}

pub(super) fn stranger() -> JobKey {
    JobKey { uid: "other".into(), ..key() }
}

pub(super) fn stamp(term: u64, position: u64) -> Stamp {
    Stamp { term: Term(term), position: Position(position) }
}

pub(super) fn slot(index: u32) -> SlotId {
    SlotId { group: "g".into(), index }
}

pub(super) fn pod_fact(uid: &str, index: u32, rv: u64) -> PodFact {
    let name = format!("j-g-{index}").into();
    PodFact {
        incarnation: Incarnation(1),
        ..PodFact::accepted(uid.into(), name, Some(slot(index)), ResourceVersion(rv))
    }
}

pub(super) fn pod(uid: &str, index: u32, rv: u64) -> JobFact {
    JobFact::Pod(Box::new(pod_fact(uid, index, rv)))
}

pub(super) fn running(uid: &str, index: u32, rv: u64) -> JobFact {
    JobFact::Pod(Box::new(PodFact { phase: PodPhase::Running, ..pod_fact(uid, index, rv) }))
}

pub(super) fn service(uid: &str, rv: u64, deleting: bool) -> JobFact {
    let fact =
        ServiceFact { uid: uid.into(), slot: Some(slot(0)), name: "j-g-0".into(), rv: ResourceVersion(rv), deleting };
    JobFact::Service(Box::new(fact))
}

pub(super) fn node(rv: u64, ready: bool, conditions: &[&str]) -> ClusterFact {
    let conditions = conditions.iter().map(|condition| (*condition).into()).collect();
    ClusterFact::Node(Box::new(NodeFact {
        name: "n".into(),
        rv: ResourceVersion(rv),
        ready,
        conditions,
        gpus: BTreeMap::default(),
        closed: false,
        labels: BTreeMap::default(),
        taints: Vec::new(),
        allocatable: BTreeMap::default(),
    }))
}

pub(super) fn class(rv: u64, value: i32) -> ClusterFact {
    ClusterFact::Class(Box::new(ClassFact { name: "c".into(), rv: ResourceVersion(rv), value, is_default: false }))
}

pub(super) fn namespace(rv: u64, team: &str) -> ClusterFact {
    let labels = [("team".into(), team.into())].into();
    ClusterFact::Namespace(Box::new(NamespaceFact { name: "ns".into(), rv: ResourceVersion(rv), labels }))
}

/// A state that knows that namespace.
pub(super) fn with_namespace() -> State {
    let mut state = empty();
    state.apply_cluster_fact(&namespace(KNOWN, "a"));
    state
}

/// A state that knows that class.
pub(super) fn with_class() -> State {
    let mut state = empty();
    state.apply_cluster_fact(&class(KNOWN, 1));
    state
}

pub(super) fn foreign(gpus: u32) -> ClusterFact {
    let gpus = [("nvidia.com/gpu".into(), gpus)].into_iter().filter(|(_, gpus)| *gpus > 0).collect();
    ClusterFact::ForeignUse { node: "n".into(), gpus, requests: BTreeMap::new() }
}

pub(super) fn object_fact(rv: u64, mirror: Stamp) -> ObjectFact {
    ObjectFact {
        rv: ResourceVersion(rv),
        deleting: false,
        end_requests: BTreeMap::new(),
        end_annotated: false,
        mirror,
        finalizers: vec![],
        finalized: false,
        reported_end: None,
        progress: None,
    }
}

pub(super) fn object(rv: u64, mirror: Stamp) -> JobFact {
    JobFact::Object(Box::new(object_fact(rv, mirror)))
}

pub(super) fn spec(replicas: u32) -> JobFact {
    let group = GroupSpec {
        name: "g".into(),
        display: None,
        replicas,
        complete: GroupEndPolicy::All,
        fail: GroupEndPolicy::Any,
        restart: RestartPolicy::Never,
        scope: RestartScope::Pod,
        restart_limit: None,
        services: true,
        gpus: false,
        ..GroupSpec::default()
    };
    let spec = JobSpec {
        groups: vec![group],
        complete: JobEndPolicy::All,
        fail: JobEndPolicy::Any,
        clean_pods: model::CleanPodPolicy::None,
        restartable_codes: Vec::new(),
        time_limit_ms: None,
        phase_rules: PhaseRules { creating: false, sticky_restarting: false, ..PhaseRules::default() },
        ..JobSpec::default()
    };
    JobFact::Spec(Box::new(SpecFact::of(Ok(spec), "{}".into())))
}

pub(super) fn adopted(mirror: Stamp, phase: Phase) -> Adopted {
    Adopted {
        mirror: Mirror { stamp: mirror, phase, ..Mirror::default() },
        restarts: BTreeMap::new(),
        milestones: Vec::new(),
        started_at: None,
        running_at: None,
        ended_at: None,
        finals: BTreeMap::new(),
        remarks: false,
    }
}

pub(super) fn adoption(mirror: Stamp) -> JobFact {
    JobFact::Adopted(Box::new(adopted(mirror, Phase::Pending)))
}

/// Type of the objects in a list.
pub(super) fn type_of(kind: Kind) -> (&'static str, &'static str) {
    if kind == Kind::Owned { CLAIM } else { ("v1", "Service") }
}

pub(super) fn claim(uid: &str, rv: u64, ready: bool) -> JobFact {
    claim_kept(Retain::WithJob, uid, rv, ready)
}

pub(super) fn claim_kept(keep: Retain, uid: &str, rv: u64, ready: bool) -> JobFact {
    JobFact::Owned(Box::new(OwnedFact {
        object: OwnedRef::new(CLAIM.0, CLAIM.1, "data"),
        uid: uid.into(),
        rv: ResourceVersion(rv),
        deleting: false,
        keep,
        ready,
        failed: None,
        digest: None,
        gate: None,
        contents: None,
    }))
}

pub(super) fn claim_gone(uid: &str) -> JobFact {
    JobFact::OwnedGone { uid: uid.into() }
}

pub(super) fn gone(uid: &str) -> JobFact {
    JobFact::PodGone { uid: uid.into(), rv: None }
}

pub(super) fn relisted(kind: Kind, rv: u64) -> ClusterFact {
    ClusterFact::Relisted { kind, of: None, rv: ResourceVersion(rv) }
}

pub(super) fn published(position: u64, rv: u64) -> JobFact {
    JobFact::Published { stamp: stamp(3, position), rv: ResourceVersion(rv) }
}

pub(super) fn answered(object: ObjectRef) -> JobFact {
    JobFact::Answered { object, outcome: Outcome::Unknown { code: 500 } }
}

/// A job with a pod and a service in slot 0 and nothing in slot 1, on a cluster of one node; then these facts.
pub(super) fn known(then: &[JobFact]) -> State {
    let mut state = State::default();
    state.begin(stamp(3, 1), Timestamp(1000));
    for fact in [ClusterFact::TermBegan { term: Term(3) }, node(KNOWN, true, &[]), relisted(Kind::Pod, KNOWN)] {
        state.apply_cluster_fact(&fact);
    }
    state.begin(stamp(3, 2), Timestamp(1000));
    let first = [object(KNOWN, stamp(3, 2)), spec(2), pod("p0", 0, KNOWN), service("s0", KNOWN, false)];
    for fact in first.iter().chain(then) {
        state.apply_job_fact(&key(), fact);
    }
    state.begin(stamp(3, 9), Timestamp(2000));
    state
}

pub(super) fn empty() -> State {
    State::default()
}

pub(super) fn requested(rv: u64) -> JobFact {
    let end_requests = BTreeMap::from([(EndRequest::Failed, "x".into())]);
    JobFact::Object(Box::new(ObjectFact { end_requests, ..object_fact(rv, stamp(3, 2)) }))
}

pub(super) fn with_end_annotation(rv: u64) -> JobFact {
    JobFact::Object(Box::new(ObjectFact { end_annotated: true, ..object_fact(rv, stamp(3, 2)) }))
}

/// A pod was seen before its job.
pub(super) fn known_pods_only() -> State {
    let mut state = State::default();
    state.begin(stamp(3, 1), Timestamp(1000));
    state.apply_job_fact(&key(), &pod("p0", 0, KNOWN));
    state
}

/// The create of the pod in slot 1 has no outcome yet.
pub(super) fn with_plan() -> State {
    let mut state = known(&[]);
    state.jobs.get_mut(&key()).unwrap().planned_pods.insert(slot(1));
    state
}

/// An adopted mirror waits for the end of a pod.
pub(super) fn with_wait() -> State {
    let mut state = known(&[]);
    state.jobs.get_mut(&key()).unwrap().deleting_pods.insert("x".into());
    state
}
