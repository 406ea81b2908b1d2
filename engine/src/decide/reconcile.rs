//! Reconciles: what the spec asks for is created, what it does not is deleted, and progress is shown.

use std::collections::BTreeSet;

use model::{JobEvent, JobSpec, ObjectRef, OwnedRef, Phase, PodPhase, Running, SlotId, Text, Timestamp, Uid};

use crate::blocked_by::BlockedBy;
use crate::classify::DecisionContext;
use crate::group::Group;
use crate::job::{Job, Owned, Pod, Service};
use crate::message::{creation_trouble, trouble};
use crate::nodes::NodeTrouble;

/// Pods created in one record: bounds the size of a record, not of a job.
const MAX_PLANNED: usize = 4096;

/// Stands between what a job restarts and what keeps its new pods from starting.
const BUT: &str = "; but ";

/// Reconciles an active job: deletes surplus, creates what is missing, and lets the phase follow the counters.
pub(super) fn active_job(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let mut events = Vec::new();
    let surplus: Vec<Uid> = job
        .surplus_pods
        .iter()
        .filter(|uid| !job.deleting_pods.contains(*uid))
        .cloned()
        .chain(stuck(context, job, spec))
        .collect();
    if !surplus.is_empty() {
        events.push(JobEvent::PodsDropped { uids: surplus });
    }
    if !job.surplus_services.is_empty() {
        events.push(JobEvent::ServicesDropped { uids: job.surplus_services.iter().cloned().collect() });
    }
    events.extend(prepare(context, job, spec));
    progress(job, spec, &mut events);
    let stalled = is_stalled(job);
    if stalled != job.stalled.is_some() {
        let words =
            "every pod has ended, but neither a complete nor a fail policy is met: the job cannot end by itself";
        events.push(JobEvent::Stalled { message: stalled.then(|| Text::from(words)) });
    }
    events
}

/// Brings the job's objects, and the pods of groups that are not held, to what the spec asks for. Shows nothing.
pub(super) fn prepare(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<JobEvent> {
    let mut events = super::owned::reconcile(job, spec);
    runs(job, spec, &mut events);
    create(context, job, spec, &mut events);
    events
}

/// Notes the completed runs of groups whose pods run once, and drops pods of other runs, and of completed ones where the group
/// says so.
fn runs(job: &Job, spec: &JobSpec, events: &mut Vec<JobEvent>) {
    let mut dropped: Vec<Uid> = Vec::new();
    for wanted in spec.groups.iter().filter(|group| group.once) {
        let Some(group) = job.groups.get(&wanted.name) else { continue };
        let is_done = wanted.replicas > 0 && u32::try_from(group.done.len()).is_ok_and(|done| done == wanted.replicas);
        if let Some(run) = wanted.shape.as_ref().filter(|_| is_done && !group.has_run(wanted)) {
            events.push(JobEvent::Achieved { group: wanted.name.clone(), run: run.clone() });
        }
        let pod = |index: &u32| group.slot(*index)?.pod.as_ref().and_then(|uid| job.pods.get(uid));
        let ended: Vec<u32> =
            (0..wanted.replicas).filter(|_| wanted.drops_succeeded && group.has_run(wanted)).collect();
        let going = group.outdated.iter().chain(&ended).filter_map(pod).filter(|pod| !pod.is_leaving());
        dropped.extend(going.map(|pod| pod.fact.uid.clone()));
    }
    if !dropped.is_empty() {
        events.push(JobEvent::PodsDropped { uids: dropped });
    }
}

/// Shows why a job without a spec waits: an object that the spec references cannot be used. A job that had pods before the log was
/// lost is left as it stands until the object is there again.
pub(super) fn without_spec(job: &Job) -> Vec<JobEvent> {
    let waits = matches!(job.phase, Phase::New | Phase::Pending | Phase::Preparing | Phase::Queued);
    let Some(missing) = job.missing().first().filter(|_| waits) else { return Vec::new() };
    let mut events = Vec::new();
    show(job, Phase::Pending, Text::from(BlockedBy::Missing(missing).to_string()), &mut events);
    events
}

/// Returns true if every pod has ended and nothing follows from it.
fn is_stalled(job: &Job) -> bool {
    let mut pods = 0u32;
    for (_, group) in job.spec_groups() {
        let c = group.counters;
        if c.active > 0 || c.pending > 0 || c.scheduled > 0 || !group.missing.is_empty() {
            return false;
        }
        pods = pods.saturating_add(group.replicas);
    }
    pods > 0 && job.planned_pods.is_empty() && job.deleting_pods.is_empty() && job.time_limit_at().is_none()
}

/// Returns the pods being deleted whose node is lost: no kubelet ends them.
fn stuck(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Vec<Uid> {
    let mut found = Vec::new();
    for group in &spec.groups {
        for index in job.groups.get(&group.name).into_iter().flat_map(|g| &g.to_evaluate) {
            let slot = SlotId { group: group.name.clone(), index: *index };
            let Some(pod) = job.slot(&slot).and_then(|s| s.pod.as_ref()).and_then(|uid| job.pods.get(uid)) else {
                continue;
            };
            let over = pod.fact.deleting.is_some_and(|at| at <= context.now) && pod.deletion.is_none();
            let lost = || {
                pod.fact.node.as_ref().and_then(|n| context.node_view.trouble(n, context.now))
                    == Some(NodeTrouble::Lost)
            };
            if over && lost() {
                found.push(pod.fact.uid.clone());
            }
        }
    }
    found
}

/// A back-off holds back the pods it was decided for. Services and other pods do not wait.
fn create(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec, events: &mut Vec<JobEvent>) {
    let (mut pods, mut services) = (Vec::new(), Vec::new());
    let passed = |until: Option<&Timestamp>| until.is_none_or(|until| *until <= context.now);
    let all_held = !passed(job.retry_at.as_ref());
    let open = spec.groups.iter().filter(|group| job.blocked_by(spec, group).is_none());
    for (name, group) in open.filter_map(|g| Some((&g.name, job.groups.get(&g.name)?))) {
        let id = |index: &u32| SlotId { group: name.clone(), index: *index };
        let next = |index: &u32| Some((id(index), group.slot(*index)?.incarnation.next()));
        let is_placed = |index: &u32| job.may_create_on(spec, context, &id(index));
        let due = |index: &&u32| !all_held && passed(group.delays.get(*index)) && is_placed(index);
        pods.extend(group.missing.iter().filter(due).filter_map(next).take(MAX_PLANNED.saturating_sub(pods.len())));
        services.extend(group.missing_services.iter().map(id).take(MAX_PLANNED.saturating_sub(services.len())));
    }
    if !pods.is_empty() {
        events.push(JobEvent::PodsPlanned { slots: pods });
    }
    if !services.is_empty() {
        events.push(JobEvent::ServicesPlanned { slots: services });
    }
}

impl Job {
    /// Returns true if a pod of the slot has a place: its share names a node that is not lost, or it needs none.
    fn may_create_on(&self, spec: &JobSpec, context: &DecisionContext<'_>, slot: &SlotId) -> bool {
        let Some(group) = spec.group(&slot.group).filter(|group| self.is_gated(group)) else { return true };
        if group.gpu_request.is_none() {
            return true;
        }
        let is_lost = |node: &Text| context.node_view.trouble(node, context.now) == Some(NodeTrouble::Lost);
        self.allocation.share.node(slot).is_some_and(|node| node.is_empty() || !is_lost(node))
    }
}

/// One phase per record. Running comes first; `Restarting` is left only through it.
fn progress(job: &Job, spec: &JobSpec, events: &mut Vec<JobEvent>) {
    let (to, message) = held(job, spec).unwrap_or_else(|| match &spec.phase_rules.running {
        Running::All => by_all_pods(job, spec),
        Running::Minimum(groups) => by_minimum(job, groups),
        Running::Any(groups) => by_any(job, groups),
    });
    let is_queued = to == Phase::Pending && spec.phase_rules.queued && held(job, spec).is_none();
    show(job, if is_queued { Phase::Queued } else { to }, message, events);
}

/// Returns the phase, with its message, of a job that waits and none of whose lasting pods may be created yet.
fn held(job: &Job, spec: &JobSpec) -> Option<(Phase, Text)> {
    let lasting = || spec.groups.iter().filter(|group| !group.once && group.replicas > 0);
    if !job.phase.is_waiting() || job.has_lasting_pods() || lasting().next().is_none() {
        return None;
    }
    let blockers: Option<Vec<BlockedBy<'_>>> = lasting().map(|group| job.blocked_by(spec, group)).collect();
    let blocker = blockers?.into_iter().next()?;
    let prepares = |name: &str| spec.group(name).is_some_and(|group| group.once);
    let is_prepared = matches!(&blocker, BlockedBy::After(after) if prepares(&after.group));
    Some((if is_prepared { Phase::Preparing } else { Phase::Pending }, with_trouble(job, blocker.to_string())))
}

pub(super) fn show(job: &Job, to: Phase, message: Text, events: &mut Vec<JobEvent>) {
    if to != job.phase {
        events.push(JobEvent::PhaseChanged { to, message });
    } else if job.phase != Phase::New && job.milestones.back().is_some_and(|m| m.phase == to && m.message != message) {
        events.push(JobEvent::MessageChanged { message });
    }
}

/// Returns the phase, with its message, of a job that runs once the minimum of some groups runs.
fn by_minimum(job: &Job, names: &BTreeSet<Text>) -> (Phase, Text) {
    let groups = || job.spec_groups().filter(|(spec, _)| names.contains(&spec.name));
    let sum = |each: fn(&model::GroupSpec) -> u32| groups().fold(0u32, |sum, (spec, _)| sum.saturating_add(each(spec)));
    if sum(|spec| spec.replicas) == 0 {
        return (Phase::Suspended, Text::from("no replicas are asked for"));
    }
    let minimum = sum(model::GroupSpec::minimum);
    let done = |group: &Group| u32::try_from(group.done.len()).unwrap_or(u32::MAX);
    // What succeeded is not waited for: it counts beside what runs.
    let has_minimum = |spec: &model::GroupSpec, group: &Group| {
        let active = group.counters.active;
        active > 0 && active.saturating_add(done(group)) >= spec.minimum()
    };
    if groups().all(|(spec, group)| has_minimum(spec, group)) {
        let succeeded = if groups().any(|(_, group)| !group.done.is_empty()) { " or have succeeded" } else { "" };
        let running = format!("the minimum of {minimum} pods or more are running{succeeded}");
        return (Phase::Running, with_trouble(job, running));
    }
    let is_settled = |count: u32, group: &Group| {
        let ended = group.done.len().saturating_add(group.lost.len());
        u32::try_from(ended).is_ok_and(|ended| ended.saturating_add(group.counters.active) >= count)
    };
    if !is_under_way(job) {
        return (Phase::Pending, waiting_words(job));
    }
    // Pods that succeeded are not waited for.
    if job.phase == Phase::Running && groups().all(|(spec, group)| is_settled(spec.replicas, group)) {
        return (Phase::Running, said(job));
    }
    (Phase::Restarting, with_trouble(job, format!("fewer than the minimum of {minimum} pods are running")))
}

/// Returns the phase, with its message, of a job that runs once one pod of some groups is placed.
fn by_any(job: &Job, names: &BTreeSet<Text>) -> (Phase, Text) {
    // Pods that make room for a newer generation have not failed, however they end.
    let is_elastic = job.elastic().is_some();
    let is_replaced = |pod: &Pod| {
        let Some(id) = &pod.fact.slot else { return false };
        let in_slot = job.slot(id).is_some_and(|slot| slot.pod.as_ref() == Some(&pod.fact.uid));
        let shape = job.spec().and_then(|spec| spec.group(&id.group)?.shape.as_ref());
        let has_failed = || pod.fact.phase.is_terminal() && pod.fact.shape.as_ref() == shape;
        // Nor has one that waited for its node for too long.
        let is_unplaced = pod.fact.phase == PodPhase::Pending && pod.fact.node.is_none();
        in_slot && !is_unplaced && (!is_elastic || has_failed())
    };
    let deleting = job.deleting_pods.iter().filter_map(|uid| job.pods.get(uid));
    let replaced = deleting.filter(|pod| is_replaced(pod)).count();
    if replaced > 0 {
        let message = if matches!(job.phase, Phase::Restarting) {
            said(job)
        } else {
            Text::from(format!("replacing failed pods: {replaced}"))
        };
        return (Phase::Restarting, message);
    }
    let groups = || job.spec_groups().filter(|(spec, _)| names.contains(&spec.name));
    let is_placed = |group: &Group| group.counters.active.saturating_add(group.counters.scheduled) > 0;
    if groups().any(|(_, group)| is_placed(group)) {
        let names: Vec<&str> = groups().map(|(spec, _)| &**spec.display()).collect();
        return (Phase::Running, with_trouble(job, format!("a pod of {} has a node", names.join(" or "))));
    }
    if job.phase == Phase::Restarting {
        return (Phase::Restarting, restarting_words(job));
    }
    if is_under_way(job) { (job.phase, said(job)) } else { (Phase::Pending, waiting_words(job)) }
}

/// Returns true if the job has run and has not ended.
const fn is_under_way(job: &Job) -> bool {
    matches!(job.phase, Phase::Running | Phase::Restarting | Phase::Terminating)
}

/// Returns the message of the present phase.
fn said(job: &Job) -> Text {
    job.milestones.back().map(|m| m.message.clone()).unwrap_or_default()
}

/// Returns what the pods of a job that waits lack: nodes, containers that can be created, or nothing but time.
fn waiting_words(job: &Job) -> Text {
    let awaits_nodes = job.spec_groups().any(|(spec, group)| !spec.once && !group.all_scheduled());
    // The remarks of the job say why.
    let is_refused = job.refusals().any(|(object, _)| matches!(object, ObjectRef::Pod(_)));
    let usual = match awaits_nodes {
        true if is_refused => "waiting for pods to be created",
        true => "waiting for pods to be scheduled",
        false => "waiting for containers to start",
    };
    waiting_for(job, usual)
}

/// Returns what a job waits for: the trouble of its pods, or else what is usual.
pub(super) fn waiting_for(job: &Job, usual: &str) -> Text {
    let trouble = trouble(job);
    Text::from(if trouble.is_empty() { usual.to_owned() } else { trouble })
}

/// Returns a message, followed by the trouble of the job's pods, if any.
pub(super) fn with_trouble(job: &Job, mut message: String) -> Text {
    let trouble = trouble(job);
    if !trouble.is_empty() {
        message.push_str("; ");
        message.push_str(&trouble);
    }
    Text::from(message)
}

/// Returns the phase, with its message, of a job that runs once all of its pods run.
fn by_all_pods(job: &Job, spec: &JobSpec) -> (Phase, Text) {
    let rules = &spec.phase_rules;
    let groups = || job.spec_groups().filter(|(spec, _)| !spec.once).map(|(_, g)| g);
    let all_running = groups().all(|g| g.counters.active == g.replicas);
    let some_restarting = groups().any(|g| g.restarting() > 0);
    let some_starting = groups().any(|g| g.starting().1 > 0);
    let all_scheduled = groups().all(Group::all_scheduled);
    let to = if all_running {
        Phase::Running
    } else if some_restarting || (job.phase == Phase::Restarting && rules.sticky_restarting) {
        Phase::Restarting
    } else if some_starting && all_scheduled && rules.creating {
        Phase::Creating
    } else if !all_scheduled {
        Phase::Pending
    } else {
        job.phase
    };
    let message = match to {
        Phase::Pending => waiting_words(job),
        Phase::Creating => creation_trouble(job),
        Phase::Restarting => restarting_words(job),
        Phase::Running if spec.groups.is_empty() => Text::default(),
        Phase::Running => Text::from("every pod is running"),
        // Where Creating is no phase of its own, the phase before it shows why containers cannot be created.
        Phase::Queued if !trouble(job).is_empty() => Text::from(trouble(job)),
        Phase::New
        | Phase::Terminating
        | Phase::Succeeded
        | Phase::Failed
        | Phase::TimedOut
        | Phase::Preempted
        | Phase::NodeFailed
        | Phase::Suspended
        | Phase::Preparing
        | Phase::Queued => said(job),
    };
    (to, message)
}

/// Returns the message of a job that restarts: what it restarts, and what keeps its new pods from starting.
fn restarting_words(job: &Job) -> Text {
    let said = said(job);
    let restarts = said.split_once(BUT).map_or(&*said, |(restarts, _)| restarts);
    let trouble = trouble(job);
    Text::from(if trouble.is_empty() { restarts.to_owned() } else { format!("{restarts}{BUT}{trouble}") })
}

/// Deletes what is left of a finished job and kept by no record.
pub(super) fn collect_leftovers(job: &Job) -> Vec<JobEvent> {
    let mut events = Vec::new();
    let dropped = |pod: &Pod| job.end_deletes(pod) || job.surplus_pods.contains(&pod.fact.uid);
    let pods = job.pods.iter().filter(|(uid, pod)| !job.deleting_pods.contains(*uid) && dropped(pod));
    let pods: Vec<Uid> = pods.map(|(uid, _)| uid.clone()).collect();
    if !pods.is_empty() {
        events.push(JobEvent::PodsDropped { uids: pods });
    }
    let is_surplus = |uid: &Uid| job.surplus_services.contains(uid);
    let dropped = |uid: &Uid, service: &Service| {
        is_surplus(uid) || (service.deletion.is_none() && job.end_deletes_service(service))
    };
    let services = job.services.iter().filter(|(uid, service)| dropped(uid, service));
    let services: Vec<Uid> = services.map(|(uid, _)| uid.clone()).collect();
    if !services.is_empty() {
        events.push(JobEvent::ServicesDropped { uids: services });
    }
    events.extend(job.spec().map(|spec| super::owned::reconcile(job, spec)).unwrap_or_default());
    events
}

/// What is left without a job object: the garbage collector has its turn first, then it is deleted.
pub(super) fn orphan(context: &DecisionContext<'_>, job: &Job) -> Vec<JobEvent> {
    let over = job.orphan_since.is_some_and(|since| context.now.since_ms(since) >= context.config.orphan_grace_ms);
    if !over {
        return Vec::new();
    }
    let mut events = Vec::new();
    let pods: Vec<Uid> = job.pods.keys().filter(|uid| !job.deleting_pods.contains(*uid)).cloned().collect();
    if !pods.is_empty() {
        events.push(JobEvent::PodsDropped { uids: pods });
    }
    let services: Vec<Uid> =
        job.services.iter().filter(|(_, s)| s.deletion.is_none()).map(|(uid, _)| uid.clone()).collect();
    if !services.is_empty() {
        events.push(JobEvent::ServicesDropped { uids: services });
    }
    let is_going = |owned: &Owned| owned.deletion.is_some() || owned.fact.as_ref().is_some_and(|fact| fact.deleting);
    let objects = job.leftovers().filter(|(_, owned)| !is_going(owned)).map(|(object, _)| object.clone());
    let objects: Vec<OwnedRef> = objects.collect();
    if !objects.is_empty() {
        events.push(JobEvent::OwnedDropped { objects });
    }
    events
}
