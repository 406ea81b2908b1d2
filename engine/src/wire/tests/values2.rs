//! A record with every word and member that format 2 adds, and a state with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::command::Outcome;
use model::fact::{Adopted, Milestone};
use model::policy::{CleanPodPolicy, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope};
use model::{
    Budget, CauseKind, CleanBy, ClockStart, Decision, EndTiming, JobEvent, JobFact, JobSpec, Milestones, Mirror,
    ObjectRef, Phase, PhaseRules, PodFact, PodPhase, Replacement, Retryable, Running, Threshold, Timestamp,
};

use super::values::{self, Contents, cause, key, slot, spec_fact, stamp};
use crate::group::{Group, Slot};
use crate::job::{Job, Pod};
use crate::state::State;

fn spec() -> JobSpec {
    let mut spec = values::spec();
    for (n, group) in spec.groups.iter_mut().enumerate() {
        group.scope = RestartScope::Each;
        group.restart = RestartPolicy::Listed;
        group.fail = GroupEndPolicy::Minimum;
        group.min = (n == 0).then_some(1);
        group.shape = (n == 0).then(|| "2:2".into());
    }
    JobSpec {
        complete: JobEndPolicy::Sets(vec![BTreeSet::from(["g0".into()]), BTreeSet::from(["g1".into(), "g2".into()])]),
        clean_pods: CleanPodPolicy::Running,
        phase_rules: PhaseRules {
            running: Running::Minimum(BTreeSet::from(["g0".into()])),
            ignores_leaving: true,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            ..PhaseRules::default()
        },
        retryable: Some(Retryable {
            reasons: vec!["Evicted".into()],
            disrupted: true,
            node: true,
            gpu: true,
            main_ended: false,
        }),
        budget: Some(Budget { limit: 3, containers: true, reach: Threshold::AtLeast, rounds: false }),
        limit_from: ClockStart::Admitted,
        clean_by: Some(CleanBy {
            succeeded: CleanPodPolicy::None,
            failed: CleanPodPolicy::Running,
            other: CleanPodPolicy::All,
        }),
        ttl_ms: Some(5000),
        end_annotation: false,
        suspended: true,
        ..spec
    }
}

/// One spec for each member alone, so that each by itself makes its record one of format 2.
fn specs() -> Vec<JobSpec> {
    let full = spec();
    let bare = JobSpec::default;
    let of = |rules: PhaseRules| JobSpec { phase_rules: rules, ..bare() };
    let rules = PhaseRules::default;
    vec![
        JobSpec { complete: full.complete.clone(), ..bare() },
        JobSpec { clean_pods: CleanPodPolicy::Running, ..bare() },
        of(PhaseRules { running: full.phase_rules.running.clone(), ..rules() }),
        of(PhaseRules { ignores_leaving: true, ..rules() }),
        of(PhaseRules { ends: EndTiming::Decided, ..rules() }),
        of(PhaseRules { milestones: Milestones::EachPhase, ..rules() }),
        JobSpec { retryable: Some(Retryable::default()), ..bare() },
        JobSpec {
            budget: Some(Budget { limit: 0, containers: false, reach: Threshold::Above, rounds: false }),
            ..bare()
        },
        JobSpec { limit_from: ClockStart::Admitted, ..bare() },
        JobSpec { clean_by: full.clean_by, ..bare() },
        JobSpec { ttl_ms: Some(0), ..bare() },
        JobSpec { end_annotation: false, ..bare() },
        JobSpec { suspended: true, ..bare() },
        JobSpec { groups: full.groups[1..2].to_vec(), ..bare() },
        full,
    ]
}

fn pods() -> [PodFact; 2] {
    let pod = || values::pod(PodPhase::Running);
    [PodFact { restarts: 4, ..pod() }, PodFact { shape: Some("2:2".into()), ..pod() }]
}

fn decisions() -> Vec<Decision> {
    let restart = |scope, kind| Decision::Restart {
        group: "trainer".into(),
        scope,
        slot: slot(0),
        cause: cause(kind),
        failures: 0,
        retry_at: None,
    };
    let end = |live_only, kind| Decision::End { phase: Phase::Failed, cause: cause(kind), clean: true, live_only };
    vec![
        restart(RestartScope::Each, CauseKind::Exited),
        restart(RestartScope::Replica, CauseKind::Resized),
        end(true, CauseKind::Exited),
        end(false, CauseKind::BudgetSpent),
        Decision::Halt { cause: cause(CauseKind::Suspended) },
    ]
}

fn mirrors() -> Vec<Mirror> {
    let bare = Mirror::default;
    let mut mirrors = vec![
        Mirror { phase: Phase::Suspended, ..bare() },
        Mirror { lost: BTreeMap::from([("trainer".into(), "1,3-5".to_owned())]), ..bare() },
        Mirror { admitted_at: Some(Timestamp(45)), ..bare() },
        Mirror { container_restarts: 6, ..bare() },
    ];
    mirrors.extend(decisions().into_iter().map(|decision| Mirror { decision: Some(decision), ..values::mirror() }));
    mirrors
}

/// Facts each of which needs format 2.
pub(super) fn facts() -> Vec<JobFact> {
    let mut facts: Vec<JobFact> = specs().into_iter().map(|spec| JobFact::Spec(Box::new(spec_fact(spec)))).collect();
    facts.extend(pods().map(|pod| JobFact::Pod(Box::new(pod))));
    facts.push(JobFact::Answered { object: ObjectRef::Job, outcome: Outcome::Done });
    facts.extend(
        mirrors().into_iter().map(|mirror| JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() }))),
    );
    let paused = Milestone { phase: Phase::Suspended, at: Timestamp(1), message: "".into() };
    facts.push(JobFact::Adopted(Box::new(Adopted { milestones: vec![paused], ..values::adopted() })));
    facts
}

/// Events each of which needs format 2.
pub(super) fn events() -> Vec<JobEvent> {
    let replacement =
        |retry_at| Replacement { index: 0, uid: "p1".into(), kind: CauseKind::Exited, failures: 2, retry_at };
    let mut events = vec![
        JobEvent::Replaced { group: "trainer".into(), slots: vec![replacement(None), replacement(Some(Timestamp(5)))] },
        JobEvent::Lost { slots: vec![(slot(1), CauseKind::Exited)] },
        JobEvent::PhaseChanged { to: Phase::Suspended, message: "".into() },
        JobEvent::Ended { phase: Phase::Suspended },
    ];
    events.extend(decisions().into_iter().map(|decision| JobEvent::Decided(Box::new(decision))));
    events
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), ..Contents::default() }
}

/// A state with every member that format 2 adds.
pub(crate) fn state() -> State {
    let lost = Slot { lost: true, ..Slot::default() };
    let group =
        Group { slots: vec![lost], lost: BTreeSet::from([0]), outdated: BTreeSet::from([1]), ..values::group() };
    let [pod, _] = pods();
    let pod = Pod { fact: pod, deletion: None, running_at: None, failed_at: None };
    let job = Job {
        phase: Phase::Suspended,
        valid: Some(Arc::new(spec_fact(spec()))),
        groups: [("trainer".into(), Box::new(group))].into(),
        pods: [("p1".into(), Box::new(pod))].into(),
        admitted_at: Some(Timestamp(92)),
        retry_counts: crate::RetryCounts::new(3, 4, 0, None),
        ..Job::default()
    };
    State { stamp: stamp(19), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 2, ..State::default() }
}
