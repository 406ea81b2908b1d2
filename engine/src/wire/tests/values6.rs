//! A record with every word and member that format 6 adds, and a state with them.

use std::collections::BTreeMap;

use model::fact::Adopted;
use model::{
    Autoscaled, Autoscaler, ClusterFact, Coordination, GroupSpec, JobEvent, JobFact, JobSpec, LabelOperator,
    LabelRequirement, LabelSelector, Measurement, Mirror, ObjectAnnotations, ObjectRef, Outcome, PodFact, PodPhase,
    QuotaFact, Scaling, ScalingCondition, ScalingStep, ScopedRequest, SpecFact, Timestamp,
};

use super::values::{self, Contents, key, spec_fact, stamp};
use super::values5;
use crate::autoscaler::JobAutoscaler;
use crate::job::Job;
use crate::state::State;
use crate::storage::JobStorage;

const STEPS: [ScalingStep; 7] = [
    ScalingStep::Look { at: Timestamp(5) },
    ScalingStep::AwaitPods { until: Timestamp(6) },
    ScalingStep::ReadLog,
    ScalingStep::Judge { latency_us: Some(7) },
    ScalingStep::Judge { latency_us: None },
    ScalingStep::RestartPods,
    ScalingStep::Rest,
];

const CONDITIONS: [ScalingCondition; 5] = [
    ScalingCondition::Start,
    ScalingCondition::Continue,
    ScalingCondition::ReachMaxMetric,
    ScalingCondition::ReachMaxReplicas,
    ScalingCondition::Stop,
];

fn scaling(condition: ScalingCondition) -> Scaling {
    let continues = condition == ScalingCondition::Continue;
    Scaling { condition, continues, replicas: 4, last: 2, at: Timestamp(8), message: "m".into() }
}

/// Facts each of which needs format 6.
pub(super) fn facts() -> Vec<JobFact> {
    let settings = Autoscaler { group: "worker".into(), min: 1, max: 4 };
    let spec = spec_fact(JobSpec { autoscaler: Some(Box::new(settings)), ..JobSpec::default() });
    let noted = |restarts| {
        let notes = Some(Box::new(ObjectAnnotations { restarts: Some(restarts), ..ObjectAnnotations::default() }));
        JobFact::Spec(Box::new(SpecFact { notes, ..spec_fact(JobSpec::default()) }))
    };
    let bare = Scaling { last: 0, message: "".into(), ..scaling(ScalingCondition::Start) };
    let states = CONDITIONS.map(scaling).into_iter().chain([bare]);
    let mirrors = states.map(|scaling| Mirror { scaling: Some(Box::new(scaling)), ..values::mirror() });
    let adopted = mirrors.map(|mirror| JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() })));
    let mut facts = vec![JobFact::Spec(Box::new(spec)), noted(true), noted(false)];
    facts.extend(adopted);
    let restarted = JobSpec { restarts_by: Some(("v1".into(), "Restart".into())), ..JobSpec::default() };
    let sized = GroupSpec { size: Some("3".into()), ..GroupSpec::default() };
    let sized = JobSpec { groups: vec![sized], ..JobSpec::default() };
    let part = |scopes| ScopedRequest { scopes, request: BTreeMap::from([("cpu".into(), 500)]) };
    let scopes = BTreeMap::from([("PriorityClass".into(), "high".into()), ("BestEffort".into(), "".into())]);
    let empty = ScopedRequest { scopes: BTreeMap::new(), request: BTreeMap::new() };
    let scoped = Coordination { scoped: vec![part(scopes), empty], ..values5::coordination() };
    let scoped = JobSpec { coordination: Some(Box::new(scoped)), ..JobSpec::default() };
    facts.extend([restarted, sized, scoped].map(|spec| JobFact::Spec(Box::new(spec_fact(spec)))));
    facts.push(JobFact::Pod(Box::new(PodFact { size: Some("3".into()), ..values::pod(PodPhase::Running) })));
    facts.extend([JobFact::Measured { latency_us: Some(123_000) }, JobFact::Measured { latency_us: None }]);
    let answered = |object| JobFact::Answered { object, outcome: Outcome::Done };
    facts.extend([ObjectRef::Log, ObjectRef::StorageNode].map(answered));
    let stored = JobSpec { storage_group: Some("master".into()), ..JobSpec::default() };
    let notes = ObjectAnnotations { storage_node: Some("n".into()), ..ObjectAnnotations::default() };
    let placed = SpecFact { notes: Some(Box::new(notes)), ..spec_fact(JobSpec::default()) };
    facts.extend([spec_fact(stored), placed].map(|spec| JobFact::Spec(Box::new(spec))));
    facts.extend(["n", ""].map(|node| JobFact::NodeFound { node: node.into() }));
    facts
}

/// Facts about the cluster, each of which needs format 6.
pub(super) fn cluster_facts() -> Vec<ClusterFact> {
    let operator = LabelOperator::Exists;
    let requirement = LabelRequirement { key: "BestEffort".into(), operator, values: vec![] };
    let scopes = LabelSelector { requirements: vec![requirement] };
    vec![ClusterFact::Quota(Box::new(QuotaFact { scopes, ..values5::quota() }))]
}

/// Events each of which needs format 6.
pub(super) fn events() -> Vec<JobEvent> {
    let scaling = scaling(ScalingCondition::Continue);
    let step = |next| JobEvent::Autoscaled(Box::new(Autoscaled { scaling: None, latency_us: None, next }));
    let whole = Autoscaled { scaling: Some(scaling), latency_us: Some(9), next: ScalingStep::Rest };
    STEPS.map(step).into_iter().chain([JobEvent::Autoscaled(Box::new(whole)), JobEvent::NodeDropped]).collect()
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), cluster: cluster_facts(), ..Contents::default() }
}

/// A state with every member that format 6 adds.
pub(crate) fn state() -> State {
    let own = JobAutoscaler {
        scaling: scaling(ScalingCondition::Continue),
        next: ScalingStep::ReadLog,
        latencies_us: BTreeMap::from([(2, vec![1, 2]), (4, vec![3])]),
        measured: Measurement { units: 5, took_ms: 6 },
        resizes: true,
        reverts: 1,
    };
    let storage = JobStorage { found: Some("n".into()), unplaced_since: Some(Timestamp(9)) };
    let job = Job { autoscaler: Some(Box::new(own)), storage: Some(Box::new(storage)), ..Job::default() };
    State { stamp: stamp(22), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 6, ..State::default() }
}
