//! The oldest format that can hold a record: that of its newest word or member.
//!
//! An older build passes unknown members over, and would fold another state from the same bytes; the format makes it refuse
//! them. Each member that a later format adds is named here.

use model::fact::{Adopted, EndRequest};
use model::policy::{CleanPodPolicy, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope};
use model::{
    Budget, Cause, CauseKind, ClockStart, ClusterFact, Decision, Demand, Dependency, Edits, GroupSpec, JobEvent,
    JobFact, JobKey, JobSpec, Kind, Mirror, ObjectAnnotations, ObjectRef, OwnedSpec, Phase, PhaseRules, PodFact,
    QueueEvent, QueueFact, QueueSpec, Reached, ReadinessGate, Retain, Running, ShareChange, ShareLoss, ShareTarget,
    SpecFact, Usage,
};

use super::v1::names_of;
use crate::record::Body;

/// Returns the oldest format that can hold a record.
pub(super) fn of_record(body: &Body) -> u16 {
    let newest = match body {
        Body::Cluster { facts } => facts.iter().map(of_cluster_fact).max(),
        Body::Queues { facts, events } => {
            facts.iter().map(of_queue_fact).chain(events.iter().map(of_queue_event)).max()
        }
        Body::Job { facts, events, .. } => facts.iter().map(of_job_fact).chain(events.iter().map(of_job_event)).max(),
    };
    newest.unwrap_or(1)
}

/// Returns the oldest format that can hold a fact about the cluster.
pub(crate) fn of_cluster_fact(fact: &ClusterFact) -> u16 {
    match fact {
        ClusterFact::Relisted { kind: Kind::Namespace, .. }
        | ClusterFact::Namespace(_)
        | ClusterFact::NamespaceGone { .. } => 7,
        ClusterFact::ForeignUse { requests, .. } if !requests.is_empty() => 7,
        ClusterFact::Node(node) if !node.taints.is_empty() || !node.allocatable.is_empty() => 7,
        ClusterFact::Quota(quota) if !quota.scopes.requirements.is_empty() => 6,
        ClusterFact::Configured(config) if config5(config) => 5,
        ClusterFact::Relisted { kind: Kind::Quota, .. } | ClusterFact::Quota(_) | ClusterFact::QuotaGone { .. } => 5,
        ClusterFact::Configured(config) if config4(config) => 4,
        ClusterFact::Node(node) if !node.gpus.is_empty() || node.closed || !node.labels.is_empty() => 4,
        ClusterFact::Relisted { kind: Kind::Foreign | Kind::Class, .. }
        | ClusterFact::Class(_)
        | ClusterFact::ClassGone { .. }
        | ClusterFact::ForeignUse { .. } => 4,
        ClusterFact::Relisted { kind, .. } => format(false, *kind == Kind::Owned),
        ClusterFact::TermBegan { .. }
        | ClusterFact::Configured(_)
        | ClusterFact::Node(_)
        | ClusterFact::NodeGone { .. } => 1,
    }
}

/// Returns the oldest format that can hold a fact about the queues.
pub(crate) const fn of_queue_fact(fact: &QueueFact) -> u16 {
    match fact {
        QueueFact::SchedulingCycle { .. } => 4,
    }
}

/// Returns the oldest format that can hold a fact about a job.
pub(crate) fn of_job_fact(fact: &JobFact) -> u16 {
    match fact {
        JobFact::Spec(fact) => of_spec(fact),
        JobFact::WaitReported(_) => 7,
        JobFact::Pod(fact) if pod7(fact) => 7,
        JobFact::Pod(fact) if fact.size.is_some() => 6,
        JobFact::Pod(fact) if fact.protected.is_some() => 4,
        JobFact::Pod(fact) => format(pod(fact), false),
        JobFact::Measured { .. }
        | JobFact::NodeFound { .. }
        | JobFact::Answered { object: ObjectRef::Log | ObjectRef::StorageNode, .. } => 6,
        JobFact::Answered { object, .. } if *object == ObjectRef::Annotations => 4,
        JobFact::Answered { object, .. } => {
            format(matches!(object, ObjectRef::Job), matches!(object, ObjectRef::Owned(_) | ObjectRef::Finalizer))
        }
        JobFact::Adopted(adopted) if adoption7(&adopted.mirror) => 7,
        JobFact::ShareChanged(change) if change.why.as_ref().is_some_and(loss7) => 7,
        JobFact::Adopted(adopted) if adopted.mirror.scaling.is_some() => 6,
        JobFact::Adopted(adopted) if adoption5(&adopted.mirror) => 5,
        JobFact::Adopted(adopted) if adoption4(adopted) => 4,
        JobFact::Adopted(adopted) => format(adoption(adopted), adoption3(adopted)),
        JobFact::Owned(fact) if fact.keep == Retain::Left || fact.gate.is_some() || fact.contents.is_some() => 4,
        JobFact::Owned(_) | JobFact::OwnedGone { .. } => 3,
        JobFact::Object(fact) if fact.end_requests.contains_key(&EndRequest::Stopped) => 7,
        JobFact::Object(fact) if fact.progress.is_some() => 5,
        JobFact::Object(fact) if fact.reported_end.is_some() => 4,
        JobFact::Object(fact) => format(false, !fact.finalizers.is_empty() || fact.finalized),
        JobFact::QueueReported(report) if !report.speed_samples.is_empty() => 5,
        JobFact::Dequeued => 5,
        JobFact::ShareChanged(_) | JobFact::QueueReported(_) => 4,
        JobFact::Gone
        | JobFact::PodGone { .. }
        | JobFact::Service(_)
        | JobFact::ServiceGone { .. }
        | JobFact::NodeChanged { .. }
        | JobFact::Published { .. }
        | JobFact::Due => 1,
    }
}

fn of_spec(fact: &SpecFact) -> u16 {
    if fact.spec.as_ref().is_ok_and(spec7) {
        return 7;
    }
    let noted = |notes: &ObjectAnnotations| notes.restarts.is_some() || notes.storage_node.is_some();
    if fact.notes.as_deref().is_some_and(noted) || fact.spec.as_ref().is_ok_and(spec6) {
        return 6;
    }
    if fact.spec.as_ref().is_ok_and(spec5) {
        return 5;
    }
    let made_of = !fact.missing.is_empty() || !fact.needs.is_empty();
    if fact.fatal || fact.notes.is_some() || fact.spec.as_ref().is_ok_and(spec4) {
        return 4;
    }
    format(fact.spec.as_ref().is_ok_and(spec), made_of || fact.spec.as_ref().is_ok_and(spec3))
}

/// Returns the oldest format that can hold an event of the queues.
pub(crate) fn of_queue_event(event: &QueueEvent) -> u16 {
    match event {
        QueueEvent::WaitsReported { .. } => 7,
        QueueEvent::Allocated(allocation) if targets7(&allocation.targets) => 7,
        QueueEvent::Shared { changes } if changes7(changes) => 7,
        QueueEvent::Reported { queues } if queues.iter().any(|(_, report)| !report.speed_samples.is_empty()) => 5,
        QueueEvent::Dequeued { .. } => 5,
        QueueEvent::Allocated(_) | QueueEvent::Shared { .. } | QueueEvent::Reported { .. } => 4,
    }
}

/// Returns the oldest format that can hold an event of a job.
pub(crate) fn of_job_event(event: &JobEvent) -> u16 {
    match event {
        JobEvent::Decided(of) if of.cause().kind == CauseKind::EndRequested(EndRequest::Stopped) => 7,
        JobEvent::Autoscaled(_) | JobEvent::NodeDropped => 6,
        JobEvent::UsersCounted(_) => 5,
        JobEvent::Decided(of) if cause4(of) => 4,
        JobEvent::OwnedPlanned { .. } | JobEvent::OwnedDropped { .. } | JobEvent::Achieved { .. } => 3,
        JobEvent::Replaced { .. } | JobEvent::Lost { .. } => 2,
        JobEvent::Decided(of) => format(decision(of), false),
        JobEvent::Ended { phase } | JobEvent::PhaseChanged { to: phase, .. } => of_phase(*phase),
        JobEvent::Fenced
        | JobEvent::PodsPlanned { .. }
        | JobEvent::ServicesPlanned { .. }
        | JobEvent::PodsDropped { .. }
        | JobEvent::ServicesDropped { .. }
        | JobEvent::RestartCleared
        | JobEvent::Stalled { .. }
        | JobEvent::MessageChanged { .. } => 1,
    }
}

/// Returns the format of what has words of format 2, or of format 3.
const fn format(second: bool, third: bool) -> u16 {
    match (second, third) {
        (_, true) => 3,
        (true, false) => 2,
        (false, false) => 1,
    }
}

const fn of_phase(phase: Phase) -> u16 {
    format(matches!(phase, Phase::Suspended), matches!(phase, Phase::Preparing | Phase::Queued))
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

/// Returns true for a spec with members that format 3 adds.
fn spec3(spec: &JobSpec) -> bool {
    let group =
        |group: &GroupSpec| !group.after.is_empty() || group.once || group.drops_succeeded || group.budget.is_some();
    !spec.owned.is_empty()
        || spec.finalizer
        || spec.edits != Edits::All
        || spec.phase_rules.queued
        || spec.groups.iter().any(group)
}

/// Returns true for a spec with members that format 4 adds.
fn spec4(spec: &JobSpec) -> bool {
    let budget = |budget: Option<Budget>| budget.is_some_and(|budget| budget.rounds);
    let started = |after: &Dependency| after.reached == Reached::Started;
    let group = |group: &GroupSpec| {
        group.gpu_request.is_some()
            || group.counts_restarts
            || group.closed.is_some()
            || group.sizes.is_some()
            || budget(group.budget)
            || group.after.iter().any(started)
    };
    spec.demand.is_some()
        || spec.edits == Edits::BeforePods
        || spec.queue.is_some()
        || spec.externally_managed
        || spec.running_restart_limit.is_some()
        || spec.owned.iter().any(owned4)
        || budget(spec.budget)
        || spec.retryable.as_ref().is_some_and(|retryable| retryable.main_ended)
        || matches!(spec.phase_rules.running, Running::Any(_))
        || spec.groups.iter().any(group)
}

/// Returns true for a spec with members that format 5 adds.
fn spec5(spec: &JobSpec) -> bool {
    let demand = |demand: &Demand| demand.category.is_some() || demand.units.is_some() || demand.level > 0;
    spec.counts_referrers || spec.coordination.is_some() || spec.demand.as_ref().is_some_and(demand)
}

/// Returns true for a spec with members that format 6 adds.
fn spec6(spec: &JobSpec) -> bool {
    let has_size = spec.groups.iter().any(|group| group.size.is_some());
    let scoped = spec.coordination.as_ref().is_some_and(|coordination| !coordination.scoped.is_empty());
    spec.autoscaler.is_some() || spec.restarts_by.is_some() || has_size || scoped || spec.storage_group.is_some()
}

/// Returns true for a spec with members that format 7 adds.
fn spec7(spec: &JobSpec) -> bool {
    let selects_labels =
        |queue: &QueueSpec| queue.namespaces.as_ref().is_some_and(|selector| names_of(selector).is_none());
    spec.queue.as_deref().is_some_and(selects_labels)
        || spec.checkpoint_grace_seconds.is_some()
        || spec.groups.iter().any(|group| group.requirements.is_some() || group.restart == RestartPolicy::OnNodeLost)
}

/// Returns true for an owned object with words that format 4 adds.
const fn owned4(owned: &OwnedSpec) -> bool {
    matches!(owned.awaits, ReadinessGate::ExistsIfServed | ReadinessGate::Admitted)
        || matches!(owned.keep, Retain::Left)
        || owned.pods.is_some()
}

fn adoption4(adopted: &Adopted) -> bool {
    let Mirror { share, charge, share_at, usage, failed_starts, start_after, decision, rounds, round_at, .. } =
        &adopted.mirror;
    !share.is_empty()
        || charge.is_some()
        || share_at.is_some()
        || *usage != Usage::default()
        || *failed_starts > 0
        || start_after.is_some()
        || *rounds > 0
        || round_at.is_some()
        || decision.as_ref().is_some_and(cause4)
}

/// Returns true for a decision whose cause format 4 adds.
fn cause4(decision: &Decision) -> bool {
    use CauseKind::{Invalid, NotAdmitted, NotStarted, ShareLost};
    matches!(decision.cause().kind, ShareLost(_) | NotStarted | Invalid | NotAdmitted)
}

fn config4(config: &model::Config) -> bool {
    let model::Config { ignores_capacity, quiet_ms, start_timeout_ms, .. } = config;
    *ignores_capacity || *quiet_ms > 0 || *start_timeout_ms != model::Config::default().start_timeout_ms
}

fn adoption7(mirror: &Mirror) -> bool {
    mirror.limit_paused_at.is_some() || mirror.share_loss.is_some() || !mirror.refused.is_empty()
}

/// Returns true for a loss that names the job that loses.
const fn loss7(loss: &ShareLoss) -> bool {
    loss.job.is_some()
}

fn targets7(targets: &[(JobKey, ShareTarget)]) -> bool {
    targets.iter().any(|(_, target)| target.why.as_ref().is_some_and(loss7))
}

fn changes7(changes: &[(JobKey, ShareChange)]) -> bool {
    changes.iter().any(|(_, change)| change.why.as_ref().is_some_and(loss7))
}

fn adoption5(mirror: &Mirror) -> bool {
    mirror.dequeued_at.is_some() || !mirror.speed_samples.is_empty()
}

fn config5(config: &model::Config) -> bool {
    let usual = model::Config::default();
    (config.queue_selector, config.dequeue_period_ms) != (usual.queue_selector, usual.dequeue_period_ms)
}

fn adoption3(adopted: &Adopted) -> bool {
    let is_new = |phase: Phase| of_phase(phase) == 3;
    !adopted.mirror.achieved.is_empty()
        || is_new(adopted.mirror.phase)
        || adopted.milestones.iter().any(|milestone| is_new(milestone.phase))
}

fn rules(rules: &PhaseRules) -> bool {
    let PhaseRules { creating: _, sticky_restarting: _, running, ignores_leaving, ends, milestones, queued: _ } = rules;
    *running != model::Running::All
        || *ignores_leaving
        || *ends != model::EndTiming::AfterCleanUp
        || *milestones != model::Milestones::Latest
}

fn group(group: &GroupSpec) -> bool {
    [group.complete, group.fail].contains(&GroupEndPolicy::Minimum)
        || group.restart == RestartPolicy::Listed
        || group.scope == RestartScope::Each
        || group.min.is_some()
        || group.shape.is_some()
}

/// Returns true for a pod with members that format 7 adds.
fn pod7(pod: &PodFact) -> bool {
    let started_again = || pod.containers.iter().any(|container| container.last.is_some());
    pod.lingers || pod.holds.is_some() || !pod.init.is_empty() || started_again()
}

const fn pod(pod: &PodFact) -> bool {
    pod.restarts > 0 || pod.shape.is_some()
}

fn adoption(adopted: &Adopted) -> bool {
    let Mirror { phase, decision: decided, lost, admitted_at, container_restarts, .. } = &adopted.mirror;
    of_phase(*phase) == 2
        || decided.as_ref().is_some_and(decision)
        || !lost.is_empty()
        || admitted_at.is_some()
        || *container_restarts > 0
        || adopted.milestones.iter().any(|milestone| of_phase(milestone.phase) == 2)
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
