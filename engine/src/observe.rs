//! Folds facts in: uid and resourceVersion gates, then what is known, then the sets kept from it.
//!
//! Nothing is decided here. A fact that says nothing new changes nothing, so taking one in twice is harmless.

use model::command::Outcome;
use model::{
    Fact, JobFact, JobKey, Kind, NodeFact, ObjectRef, Phase, PodFact, PodPhase, ServiceFact, SlotId, SpecFact, Stamp,
    Timestamp, Uid,
};

use crate::job::{Attempt, Doom, Job, Pod, Service};
use crate::slots;
use crate::state::{Dirty, Node, Scope, State, Surroundings};

/// How many uids of unknown pods that are gone are remembered per job.
const MAX_DEAD: usize = 64;

/// A fact that cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fact {fact} does not belong in a {scope} record")]
pub struct FactError {
    /// The kind of fact.
    pub fact: &'static str,
    /// `job` or `cluster`.
    pub scope: &'static str,
}

impl State {
    /// Takes a fact in. Returns the jobs it touched; a job touched by a cluster fact gets its own record with the facts given.
    ///
    /// # Errors
    /// When the fact does not belong in a record of that scope.
    pub fn observe(&mut self, scope: &Scope, fact: &Fact) -> Result<Dirty, FactError> {
        match scope {
            Scope::Cluster => self.observe_cluster(fact),
            Scope::Job(key) => {
                self.observe_job(key, fact)?;
                Ok(Dirty::from([(key.clone(), Vec::new())]))
            }
        }
    }

    fn observe_cluster(&mut self, fact: &Fact) -> Result<Dirty, FactError> {
        match fact {
            Fact::TermBegan { term } => {
                self.terms.push((*term, self.stamp.position));
                Ok(Dirty::new())
            }
            Fact::Configured(config) => {
                let changed = self.config != **config;
                self.config = (**config).clone();
                let again = if changed { vec![Fact::Due] } else { Vec::new() };
                Ok(self.jobs.keys().map(|key| (key.clone(), again.clone())).collect())
            }
            Fact::Node(node) => Ok(self.observe_node(node)),
            Fact::NodeGone { name } => {
                self.nodes.remove(name);
                Ok(self.on_node(name))
            }
            Fact::Relisted { kind, rv } => {
                let first = self.floor(*kind).0 == 0;
                let floor = self.floors.entry(*kind).or_default();
                *floor = (*floor).max(*rv);
                if !(first && *kind == Kind::Node) {
                    return Ok(Dirty::new());
                }
                // Only now is a node that is not known known to be missing.
                let missing: Vec<_> = self.on_node.keys().filter(|n| !self.nodes.contains_key(*n)).cloned().collect();
                let mut dirty = Dirty::new();
                for name in missing {
                    for (key, facts) in self.on_node(&name) {
                        dirty.entry(key).or_default().extend(facts);
                    }
                }
                Ok(dirty)
            }
            Fact::Job(_)
            | Fact::Spec(_)
            | Fact::JobGone
            | Fact::Pod(_)
            | Fact::PodGone { .. }
            | Fact::Service(_)
            | Fact::ServiceGone { .. }
            | Fact::NodeChanged { .. }
            | Fact::Answered { .. }
            | Fact::Published { .. }
            | Fact::Due
            | Fact::Adopted(_) => Err(FactError { fact: fact.name(), scope: "cluster" }),
        }
    }

    fn observe_node(&mut self, fact: &NodeFact) -> Dirty {
        let since = if fact.ready { None } else { Some(self.at) };
        match self.nodes.get_mut(&fact.name) {
            Some(node) if node.fact.rv >= fact.rv => return Dirty::new(),
            Some(node) => {
                node.not_ready_since = if fact.ready { None } else { node.not_ready_since.or(since) };
                node.fact = fact.clone();
            }
            None => {
                self.nodes.insert(fact.name.clone(), Node { fact: fact.clone(), not_ready_since: since });
            }
        }
        self.on_node(&fact.name)
    }

    fn on_node(&self, name: &model::Text) -> Dirty {
        let jobs = self.on_node.get(name).into_iter().flat_map(|jobs| jobs.keys());
        jobs.map(|key| ((**key).clone(), vec![Fact::NodeChanged { name: name.clone() }])).collect()
    }

    /// The key, its texts shared with those of the job next to it: most jobs of a namespace are of one kind.
    fn like_neighbour(&self, key: &JobKey) -> JobKey {
        let mut key = key.clone();
        let before = self.jobs.range(..&key).next_back();
        if let Some((near, _)) = before.or_else(|| self.jobs.range(&key..).next()) {
            share(&mut key.namespace, &near.namespace);
            share(&mut key.kind, &near.kind);
        }
        key
    }

    fn observe_job(&mut self, key: &JobKey, fact: &Fact) -> Result<(), FactError> {
        let (at, stamp) = (self.at, self.stamp);
        if matches!(fact, Fact::JobGone | Fact::PodGone { .. } | Fact::ServiceGone { .. })
            && !self.jobs.contains_key(key)
        {
            return Ok(());
        }
        if !self.jobs.contains_key(key) {
            self.jobs.insert(self.like_neighbour(key), Box::new(Job { orphan_since: Some(at), ..Job::default() }));
        }
        let around = Surroundings {
            nodes: &self.nodes,
            listed: self.floors.get(&Kind::Node).is_some_and(|rv| rv.0 > 0),
            grace_ms: self.config.node_grace_ms,
            faults: &self.config.gpu_faults,
        };
        let Some(job) = self.jobs.get_mut(key) else { return Ok(()) };
        let turn = Turn { at, stamp, around };
        let mut moves = Vec::new();
        match fact {
            Fact::Job(fact) => Turn::job(job, fact),
            Fact::Spec(fact) => turn.spec(job, fact),
            Fact::JobGone => {
                job.gone = true;
                job.orphan_since = Some(at);
            }
            Fact::Pod(fact) => turn.pod(job, fact, &mut moves),
            Fact::PodGone { uid } => turn.pod_gone(job, uid, &mut moves),
            Fact::Service(fact) => turn.service(job, fact),
            Fact::ServiceGone { uid } => turn.service_gone(job, uid),
            Fact::NodeChanged { name } => {
                let here: Vec<SlotId> = job
                    .pods
                    .values()
                    .filter(|p| p.fact.node.as_ref() == Some(name))
                    .filter_map(|p| p.fact.slot.clone())
                    .collect();
                for slot in here {
                    slots::refresh(job, &slot, &turn.around);
                }
            }
            Fact::Answered { object, outcome } => answered(job, object, outcome, stamp, at, &self.config),
            Fact::Published { stamp, rv } => {
                job.acked = job.acked.max(*stamp);
                job.attempts.remove(&ObjectRef::Status);
                if *rv > job.rv {
                    job.rv = *rv;
                    job.mirror = *stamp;
                }
            }
            Fact::Due => {
                let names: Vec<_> = job.groups.keys().cloned().collect();
                for name in names {
                    slots::refresh_group(job, &name, &turn.around);
                }
            }
            Fact::Adopted(adopted) => {
                let pods: Vec<_> = job.pods.values().filter_map(|p| p.fact.node.clone()).collect();
                moves.extend(pods.into_iter().map(|node| (Some(node), None)));
                crate::adopt::adopt(job, adopted, stamp, at);
            }
            Fact::TermBegan { .. }
            | Fact::Configured(_)
            | Fact::Node(_)
            | Fact::NodeGone { .. }
            | Fact::Relisted { .. } => return Err(FactError { fact: fact.name(), scope: "job" }),
        }
        for (from, to) in moves {
            self.moved(key, from.as_ref(), to.as_ref());
        }
        Ok(())
    }
}

type Moves = Vec<(Option<model::Text>, Option<model::Text>)>;

struct Turn<'a> {
    at: Timestamp,
    stamp: Stamp,
    around: Surroundings<'a>,
}

impl Turn<'_> {
    fn job(job: &mut Job, fact: &JobFact) {
        if job.known && fact.rv < job.rv {
            return;
        }
        job.known = true;
        job.orphan_since = None;
        job.rv = fact.rv;
        job.deleting = fact.deleting;
        job.marks.clone_from(&fact.marks);
        // Once written it is not written again: taking it away is the user's business.
        job.marker |= fact.marker;
        job.mirror = fact.mirror;
        job.acked = job.acked.max(fact.mirror);
    }

    fn spec(&self, job: &mut Job, fact: &SpecFact) {
        let fact = std::sync::Arc::new(fact.clone());
        // An edit after the ending was decided changes nothing any more.
        let too_late = job.valid.is_some() && job.ending().is_some();
        if fact.spec.is_ok() && !too_late {
            job.valid = Some(fact.clone());
            // What was refused may be accepted now.
            job.attempts.retain(|_, attempt| !matches!(attempt.last, Outcome::Refused { .. }));
            slots::lay_out(job, &self.around);
        }
        if job.spec.is_some() || fact.spec.is_err() || !fact.warnings.is_empty() {
            job.shown = self.stamp;
        }
        job.spec = Some(fact);
    }

    fn pod(&self, job: &mut Job, fact: &PodFact, moves: &mut Moves) {
        let uid = &fact.uid;
        if job.pods.get(uid).is_some_and(|known| known.fact.rv >= fact.rv) || job.dead.contains(uid) {
            return;
        }
        let id = fact.slot.as_ref().filter(|id| job.slot(id).is_some()).cloned();
        if let Some(id) = &id {
            let holder = job.slot(id).and_then(|s| s.pod.clone()).filter(|held| held != uid);
            if job.slot(id).is_some_and(|s| s.last_gone.as_ref() == Some(uid)) {
                return;
            }
            if let Some(held) = holder
                && let Some(known) = job.pods.get(&held).filter(|p| p.fact.name == fact.name)
            {
                if known.fact.rv > fact.rv {
                    return;
                }
                // One name holds one pod at a time: the one known before is gone.
                self.pod_gone(job, &held, moves);
            }
        }
        let before = job.pods.get(uid);
        moves.push((before.and_then(|p| p.fact.node.clone()), fact.node.clone()));
        let running = (fact.phase == PodPhase::Running).then_some(self.at);
        let pod = Pod {
            doom: before
                .and_then(|p| p.doom.clone())
                .or_else(|| job.awaits(fact).then(|| Box::new(Doom::without_evidence()))),
            running_at: before.and_then(|p| p.running_at).or(running),
            fact: self.share_texts(job, fact),
        };
        if running.is_some() && job.first_running_at.is_none() && !job.phase.is_terminal() {
            job.first_running_at = running;
            job.shown = self.stamp;
        }
        let doomed = pod.doom.is_some();
        if doomed {
            job.doomed.insert(uid.clone());
        }
        let leaving = pod.is_leaving();
        let late = job.phase.is_terminal() && before.is_none() && job.adopted != self.stamp;
        match &fact.message {
            Some(message) if fact.phase == PodPhase::Pending && fact.node.is_none() => {
                if job.unschedulable.is_none() {
                    job.unschedulable = Some((uid.clone(), message.clone()));
                }
            }
            Some(_) | None => job.schedulable(uid),
        }
        job.pods.insert(uid.clone(), Box::new(pod));
        let kept = !late && job.ending().is_some_and(|(_, clean, _)| !clean);
        let held = id
            .as_ref()
            .filter(|_| !late)
            .and_then(|id| job.slot_mut(id))
            .is_some_and(|slot| slot.pod.get_or_insert_with(|| uid.clone()) == uid);
        let Some(id) = id.filter(|_| held) else {
            if !kept {
                job.strays.insert(uid.clone());
            }
            return;
        };
        let Some(slot) = job.slot_mut(&id) else { return };
        slot.incarnation = slot.incarnation.max(fact.incarnation);
        if fact.phase == PodPhase::Succeeded && !leaving {
            slot.done = true;
        }
        if !doomed && slot.planned {
            slot.planned = false;
            slot.cancelled = false;
            job.planned_pods.remove(&id);
            job.attempts.remove(&ObjectRef::Pod(id.clone()));
        }
        self.refresh_shown(job, &id);
    }

    /// The fact, its texts shared with what is known: a record that was read brings its own copy of each.
    fn share_texts(&self, job: &Job, fact: &PodFact) -> PodFact {
        let mut fact = fact.clone();
        let known = job.pods.get(&fact.uid).map(|p| &p.fact);
        if let Some(known) = known {
            fact.uid = known.uid.clone();
            share(&mut fact.name, &known.name);
        }
        if let Some(id) = &mut fact.slot
            && let Some((group, _)) = job.groups.get_key_value(&id.group)
        {
            id.group = group.clone();
        }
        if let Some(node) = &mut fact.node
            && let Some((name, _)) = self.around.nodes.get_key_value(node)
        {
            *node = name.clone();
        }
        // Pods of a job mostly have the same containers.
        if let Some(like) = known.or_else(|| job.pods.values().next().map(|p| &p.fact)) {
            for (container, like) in fact.containers.iter_mut().zip(&like.containers) {
                share(&mut container.name, &like.name);
            }
        }
        fact
    }

    fn pod_gone(&self, job: &mut Job, uid: &Uid, moves: &mut Moves) {
        job.doomed.remove(uid);
        job.strays.remove(uid);
        job.schedulable(uid);
        job.attempts.remove(&ObjectRef::PodUid(uid.clone()));
        let Some(pod) = job.pods.remove(uid) else {
            if job.dead.len() >= MAX_DEAD {
                job.dead.pop_front();
            }
            job.dead.push_back(uid.clone());
            return;
        };
        moves.push((pod.fact.node, None));
        let Some(id) = pod.fact.slot else { return };
        let mut promoted = None;
        if job.slot(&id).is_some_and(|s| s.pod.as_ref() == Some(uid)) {
            // Another pod that claimed the slot takes it.
            promoted = job
                .strays
                .iter()
                .find(|s| job.pods.get(*s).is_some_and(|p| p.fact.slot.as_ref() == Some(&id)))
                .cloned();
        } else if job.slot(&id).is_none_or(|s| s.pod.is_some()) {
            return;
        }
        if let Some(uid) = &promoted {
            job.strays.remove(uid);
        }
        if let Some(slot) = job.slot_mut(&id) {
            if pod.doom.is_none() {
                // Lost by no decision: its replacement shows the restarts of its group so far.
                slot.count = None;
            }
            slot.last_gone = Some(pod.fact.uid);
            slot.pod = promoted;
        }
        if let Some(attempt) = job.attempts.get_mut(&ObjectRef::Pod(id.clone())) {
            // The name may be free now.
            attempt.retry_at = attempt.retry_at.map(|_| self.at);
        }
        self.refresh_shown(job, &id);
    }

    fn refresh_shown(&self, job: &mut Job, id: &SlotId) {
        let before = job.groups.get(&id.group).map(|g| g.counters);
        slots::refresh(job, id, &self.around);
        if job.phase == Phase::Restarting && job.creating_at.is_none() && all_placed(job) {
            job.creating_at = Some(self.at);
        }
        // What an ended job shows is final.
        if before != job.groups.get(&id.group).map(|g| g.counters) && job.ended_at.is_none() && job.phase != Phase::New
        {
            job.shown = self.stamp;
        }
    }

    fn service(&self, job: &mut Job, fact: &ServiceFact) {
        if job.services.get(&fact.uid).is_some_and(|known| known.rv >= fact.rv) {
            return;
        }
        let doom = job.services.get(&fact.uid).and_then(|s| s.doom.clone());
        let mut service =
            Service { name: fact.name.clone(), slot: fact.slot.clone(), rv: fact.rv, deleting: fact.deleting, doom };
        if let Some(id) = &mut service.slot
            && let Some((group, _)) = job.groups.get_key_value(&id.group)
        {
            id.group = group.clone();
        }
        // A slot's service is called like its pod.
        let pod = service.slot.as_ref().and_then(|id| job.pods.get(job.slot(id)?.pod.as_ref()?));
        if let Some(pod) = pod {
            share(&mut service.name, &pod.fact.name);
        }
        job.services.insert(fact.uid.clone(), Box::new(service));
        let held = fact.slot.as_ref().and_then(|id| job.slot_mut(id)).is_some_and(|slot| {
            slot.service_planned = false;
            slot.service.get_or_insert_with(|| fact.uid.clone()) == &fact.uid
        });
        let kept = job.ending().is_some_and(|(_, clean, _)| !clean) && job.adopted == self.stamp;
        if !held && !kept {
            job.stray_services.insert(fact.uid.clone());
        }
        let Some(id) = fact.slot.as_ref() else { return };
        job.planned_services.remove(id);
        job.attempts.remove(&ObjectRef::Service(id.clone()));
        slots::refresh(job, id, &self.around);
    }

    fn service_gone(&self, job: &mut Job, uid: &Uid) {
        job.attempts.remove(&ObjectRef::ServiceUid(uid.clone()));
        job.stray_services.remove(uid);
        let Some(id) = job.services.remove(uid).and_then(|s| s.slot) else { return };
        if let Some(slot) = job.slot_mut(&id)
            && slot.service.as_ref() == Some(uid)
        {
            slot.service = None;
        }
        slots::refresh(job, &id, &self.around);
    }
}

impl Job {
    /// The pod is not waiting for a node (any more).
    fn schedulable(&mut self, uid: &Uid) {
        if self.unschedulable.as_ref().is_some_and(|(held, _)| held == uid) {
            self.unschedulable = None;
        }
    }

    /// Whether an adopted mirror names a pod as going.
    fn awaits(&self, pod: &PodFact) -> bool {
        let below = pod.slot.as_ref().and_then(|id| self.waits_below.get(&id.group));
        self.doomed.contains(&pod.uid) || below.is_some_and(|newest| pod.incarnation < *newest)
    }
}

impl Doom {
    /// For what may go at once: surplus, or a pod that an adopted mirror already names as going.
    pub(crate) fn without_evidence() -> Self {
        Self { evidence: Stamp::default(), ordered: false, forced: false }
    }
}

/// Holds equal texts once.
fn share(text: &mut model::Text, known: &model::Text) {
    if text == known {
        *text = known.clone();
    }
}

/// Whether every wanted slot has a pod on a node, and one of them has not started.
fn all_placed(job: &Job) -> bool {
    let mut starting = false;
    for group in job.groups.values() {
        starting |= group.counters.scheduled > 0;
        if group.counters.pending > 0 || !group.missing.is_empty() {
            return false;
        }
    }
    starting && job.planned_pods.is_empty()
}

/// Whether users are told of an answer in the status.
const fn shows(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { .. } | Outcome::Taken { waiting: false })
}

/// Forgets the planned creation of a pod.
pub(crate) fn give_up(job: &mut Job, id: &SlotId) {
    job.planned_pods.remove(id);
    job.attempts.remove(&ObjectRef::Pod(id.clone()));
    if let Some(slot) = job.slot_mut(id) {
        slot.planned = false;
        slot.cancelled = false;
    }
}

fn answered(job: &mut Job, object: &ObjectRef, outcome: &Outcome, stamp: Stamp, at: Timestamp, config: &model::Config) {
    match (object, outcome) {
        (ObjectRef::PodUid(uid), Outcome::Done | Outcome::Forced) => {
            job.attempts.remove(object);
            if let Some(pod) = job.pods.get_mut(uid)
                && let Some(doom) = &mut pod.doom
            {
                doom.forced |= *outcome == Outcome::Forced;
                doom.ordered = true;
            }
        }
        (ObjectRef::ServiceUid(uid), Outcome::Done) => {
            job.attempts.remove(object);
            if let Some(service) = job.services.get_mut(uid)
                && let Some(doom) = &mut service.doom
            {
                doom.ordered = true;
            }
        }
        (ObjectRef::Marker, Outcome::Done | Outcome::Gone) => {
            job.attempts.remove(object);
            job.marker = true;
        }
        (ObjectRef::Pod(id), Outcome::Gone) => {
            // A creation that was given up did not happen; or a name that was taken is free.
            if job.attempts.remove(object).is_some_and(|a| shows(&a.last)) {
                job.shown = stamp;
            }
            let cancelled = job.slot(id).is_some_and(|s| s.cancelled);
            if cancelled {
                give_up(job, id);
            }
        }
        (_, Outcome::Done | Outcome::Forced | Outcome::Gone) => {
            if job.attempts.remove(object).is_some_and(|a| shows(&a.last)) {
                job.shown = stamp;
            }
        }
        (_, Outcome::Taken { .. } | Outcome::Refused { .. } | Outcome::Unknown { .. }) => {
            let failures = job.attempts.get(object).map_or(0, |a| a.failures).saturating_add(1);
            let retry_at = match outcome {
                Outcome::Refused { code: 422 | 400, .. } => None,
                Outcome::Refused { .. } => Some(at.plus_ms(config.retry_max_ms)),
                Outcome::Taken { .. } | Outcome::Unknown { .. } | Outcome::Done | Outcome::Forced | Outcome::Gone => {
                    Some(at.plus_ms(backoff(failures, config.retry_ms, config.retry_max_ms)))
                }
            };
            let before = job.attempts.insert(object.clone(), Attempt { failures, retry_at, last: outcome.clone() });
            if shows(outcome) && before.is_none_or(|a| a.last != *outcome) {
                job.shown = stamp;
            }
            // A creation that was given up and refused did not happen.
            if let (ObjectRef::Pod(id), Outcome::Refused { .. }) = (object, outcome)
                && job.slot(id).is_some_and(|s| s.cancelled)
            {
                give_up(job, id);
            }
        }
    }
}

/// Delay before try `failures + 1`: none for the second, then `first` doubling up to `max`.
pub(crate) fn backoff(failures: u32, first: u64, max: u64) -> u64 {
    match failures.checked_sub(2) {
        None => 0,
        Some(doublings) => first.checked_shl(doublings.min(32)).map_or(max, |ms| ms.min(max)),
    }
}
