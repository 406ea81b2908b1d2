//! The oldest format that can hold a record: 2 if it has a word or a member that builds of format 1 do not know.
//!
//! An older build passes unknown members over, and would fold another state from the same bytes; the format makes it refuse
//! them. Each member that a later format adds is named here.

use model::fact::Adopted;
use model::policy::{CleanPodPolicy, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope};
use model::{
    Cause, CauseKind, ClockStart, Decision, Event, Fact, GroupSpec, JobSpec, Mirror, ObjectRef, Phase, PhaseRules,
    PodFact,
};

/// Returns the oldest format that can hold a record of these facts and events.
pub(super) fn of_record(facts: &[Fact], events: &[Event]) -> u16 {
    facts.iter().map(of_fact).chain(events.iter().map(of_event)).max().unwrap_or(1)
}

/// Returns the oldest format that can hold a fact.
pub(crate) fn of_fact(fact: &Fact) -> u16 {
    format(match fact {
        Fact::Spec(fact) => fact.spec.as_ref().is_ok_and(spec),
        Fact::Pod(fact) => pod(fact),
        Fact::Answered { object, .. } => matches!(object, ObjectRef::Job),
        Fact::Adopted(adopted) => adoption(adopted),
        Fact::TermBegan { .. }
        | Fact::Configured(_)
        | Fact::Job(_)
        | Fact::JobGone
        | Fact::PodGone { .. }
        | Fact::Service(_)
        | Fact::ServiceGone { .. }
        | Fact::Node(_)
        | Fact::NodeGone { .. }
        | Fact::NodeChanged { .. }
        | Fact::Relisted { .. }
        | Fact::Published { .. }
        | Fact::Due => false,
    })
}

/// Returns the oldest format that can hold an event.
pub(crate) fn of_event(event: &Event) -> u16 {
    format(match event {
        Event::Replaced { .. } | Event::Lost { .. } => true,
        Event::Decided(of) => decision(of),
        Event::Ended { phase } | Event::PhaseChanged { to: phase, .. } => is_new_phase(*phase),
        Event::Fenced
        | Event::PodsPlanned { .. }
        | Event::ServicesPlanned { .. }
        | Event::PodsDropped { .. }
        | Event::ServicesDropped { .. }
        | Event::RestartCleared
        | Event::Stalled { .. }
        | Event::MessageChanged { .. } => false,
    })
}

const fn format(is_new: bool) -> u16 {
    if is_new { 2 } else { 1 }
}

const fn is_new_phase(phase: Phase) -> bool {
    matches!(phase, Phase::Suspended)
}

fn spec(spec: &JobSpec) -> bool {
    let JobSpec { retryable, budget, limit_from, clean_by, ttl_ms, end_annotation, suspended, .. } = spec;
    let policies = [&spec.complete, &spec.fail].into_iter().any(|policy| matches!(policy, JobEndPolicy::Sets(_)));
    let members = retryable.is_some()
        || budget.is_some()
        || *limit_from != ClockStart::FirstRunning
        || clean_by.is_some()
        || ttl_ms.is_some()
        || !*end_annotation
        || *suspended;
    policies
        || members
        || spec.clean_pods == CleanPodPolicy::Running
        || rules(&spec.phase_rules)
        || spec.groups.iter().any(group)
}

fn rules(rules: &PhaseRules) -> bool {
    let PhaseRules { creating: _, sticky_restarting: _, running, ignores_leaving, ends, milestones } = rules;
    *running != model::Running::All
        || *ignores_leaving
        || *ends != model::Ends::AfterCleanUp
        || *milestones != model::Milestones::Latest
}

fn group(group: &GroupSpec) -> bool {
    [group.complete, group.fail].contains(&GroupEndPolicy::Minimum)
        || group.restart == RestartPolicy::Listed
        || group.scope == RestartScope::Each
        || group.min.is_some()
        || group.shape.is_some()
}

const fn pod(pod: &PodFact) -> bool {
    pod.restarts > 0 || pod.shape.is_some()
}

fn adoption(adopted: &Adopted) -> bool {
    let Mirror { phase, decision: decided, lost, admitted_at, container_restarts, .. } = &adopted.mirror;
    is_new_phase(*phase)
        || decided.as_ref().is_some_and(decision)
        || !lost.is_empty()
        || admitted_at.is_some()
        || *container_restarts > 0
        || adopted.milestones.iter().any(|milestone| is_new_phase(milestone.phase))
}

fn decision(decision: &Decision) -> bool {
    let cause =
        |cause: &Cause| matches!(cause.kind, CauseKind::BudgetSpent | CauseKind::Resized | CauseKind::Suspended);
    match decision {
        Decision::Restart { scope, cause: of, .. } => *scope == RestartScope::Each || cause(of),
        Decision::End { live_only, cause: of, .. } => *live_only || cause(of),
        Decision::Halt { .. } => true,
    }
}
