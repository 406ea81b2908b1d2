//! A record with every word and member that format 6 adds, and a state with them.

use std::collections::BTreeMap;

use model::fact::Adopted;
use model::{
    Autoscaled, Autoscaler, Event, Fact, GroupSpec, JobSpec, Measurement, Mirror, Noted, ObjectRef, Outcome, PodFact,
    PodPhase, Scaling, ScalingCondition, ScalingStep, SpecFact, Timestamp,
};

use super::values::{self, key, spec_fact, stamp};
use crate::autoscaler::JobAutoscaler;
use crate::job::Job;
use crate::state::State;
use crate::wire::Record;

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
pub(super) fn facts() -> Vec<Fact> {
    let settings = Autoscaler { group: "worker".into(), min: 1, max: 4 };
    let spec = spec_fact(JobSpec { autoscaler: Some(Box::new(settings)), ..JobSpec::default() });
    let noted = |restarts| {
        let notes = Some(Box::new(Noted { restarts: Some(restarts), ..Noted::default() }));
        Fact::Spec(Box::new(SpecFact { notes, ..spec_fact(JobSpec::default()) }))
    };
    let bare = Scaling { last: 0, message: "".into(), ..scaling(ScalingCondition::Start) };
    let states = CONDITIONS.map(scaling).into_iter().chain([bare]);
    let mirrors = states.map(|scaling| Mirror { scaling: Some(Box::new(scaling)), ..values::mirror() });
    let adopted = mirrors.map(|mirror| Fact::Adopted(Box::new(Adopted { mirror, ..values::adopted() })));
    let mut facts = vec![Fact::Spec(Box::new(spec)), noted(true), noted(false)];
    facts.extend(adopted);
    let restarted = JobSpec { restarts_by: Some(("v1".into(), "Restart".into())), ..JobSpec::default() };
    let sized = GroupSpec { size: Some("3".into()), ..GroupSpec::default() };
    let sized = JobSpec { groups: vec![sized], ..JobSpec::default() };
    facts.extend([restarted, sized].map(|spec| Fact::Spec(Box::new(spec_fact(spec)))));
    facts.push(Fact::Pod(Box::new(PodFact { size: Some("3".into()), ..values::pod(PodPhase::Running) })));
    facts.extend([Fact::Measured { latency_us: Some(123_000) }, Fact::Measured { latency_us: None }]);
    facts.push(Fact::Answered { object: ObjectRef::Log, outcome: Outcome::Done });
    facts
}

/// Events each of which needs format 6.
pub(super) fn events() -> Vec<Event> {
    let scaling = scaling(ScalingCondition::Continue);
    let step = |next| Event::Autoscaled(Box::new(Autoscaled { scaling: None, latency_us: None, next }));
    let whole = Autoscaled { scaling: Some(scaling), latency_us: Some(9), next: ScalingStep::Rest };
    STEPS.map(step).into_iter().chain([Event::Autoscaled(Box::new(whole))]).collect()
}

/// A record of all of them.
pub(super) fn record() -> Record {
    Record { facts: facts(), events: events(), ..values::record() }
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
    let job = Job { autoscaler: Some(Box::new(own)), ..Job::default() };
    State { stamp: stamp(22), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 6, ..State::default() }
}
