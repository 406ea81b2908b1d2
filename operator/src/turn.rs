//! One turn, in the order that is the contract: observe, decide, stage; one durable append; effects; calls.

use std::collections::BTreeMap;
use std::ops::Bound;

use apis::{ApiCall, Observation, ObservedObject, WatchTarget};
use engine::wire::BEHAVIOUR;
use engine::{Admission, Arrival, Record, Scope};
use event_log::NewRecord;
use model::{Fact, JobKey, Phase, Position, Stamp, Term, Text, Timestamp};

use crate::intake::Intake;
use crate::operator::{Error, Operator};

/// Records staged for one job in one turn, beyond which the rest waits for the next turn.
const MAX_RECORDS: usize = 16;

/// A record as the turn left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its position.
    pub position: Position,
    /// The job it is about.
    pub job: JobKey,
    /// The job's phase after it.
    pub phase: Phase,
    /// The phase before it.
    pub from: Phase,
    /// What is shown beside the phase, in words; empty when there is nothing to add.
    pub message: Text,
}

impl Operator {
    /// Does one turn at `now` and returns the calls to make. Before every kind has been listed it only waits.
    ///
    /// # Errors
    /// After an error nothing of this turn is dispatched and the operator must be opened anew.
    pub fn turn(&mut self, now: Timestamp) -> Result<Vec<ApiCall>, Error> {
        let now = now.max(self.state.at);
        let begins = !self.is_ready();
        let mut facts = Intake::new(begins);
        if begins {
            let Some(term) = self.term_to_begin(now) else { return Ok(Vec::new()) };
            self.term = term;
            facts.cluster.push(Fact::TermBegan { term: self.term });
            facts.cluster.push(Fact::Configured(Box::new(self.options.config.clone())));
        }
        self.take_observations(&mut facts)?;
        self.take_answers(&mut facts);
        if let Some(error) = self.went_back.take() {
            return Err(error);
        }
        for (_, key) in self.state.deadlines().take_while(|(at, _)| *at <= now).filter(|(_, key)| self.serves(key)) {
            facts.push(key, Fact::Due);
        }
        let (records, touched) = self.stage(facts, now)?;
        self.append(&records)?;
        let mut calls = std::mem::take(&mut self.pending_events);
        // A new term finds what an earlier one left undone.
        let concerned = if begins { self.state.jobs.keys().cloned().collect() } else { touched };
        let mut causes = BTreeMap::new();
        for record in records {
            if let Scope::Job(key) = record.scope {
                causes.insert(key, Stamp { term: record.term, position: record.position });
            }
        }
        self.pace.set_busy(!self.owed.is_empty());
        self.owed.extend(concerned.into_iter().filter(|key| !self.unserved.contains(&key.kind)));
        self.owed.extend(self.pace.due(now));
        let mut unfinished = Vec::new();
        while self.calls.len() < self.room
            && let Some(key) = self.next_owed()
        {
            let cause = causes.get(&key).copied().unwrap_or(self.state.stamp);
            if !self.hand_out(&key, cause, now, &mut calls) {
                unfinished.push(key.clone());
            }
            self.served = Some(key);
        }
        self.owed.extend(unfinished);
        if self.owed.is_empty() {
            self.served = None;
        }
        Ok(calls)
    }

    /// Takes out the job that is served next. The ones after the one served last come first, and that one last: where there is
    /// little room each gets its turn. Thousands may wait, so they are not walked.
    fn next_owed(&mut self) -> Option<JobKey> {
        let after = self.served.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.owed.range((after, Bound::Unbounded)).next().or_else(|| self.owed.first());
        let next = next.cloned()?;
        self.owed.remove(&next);
        Some(next)
    }

    /// Observes and decides: the cluster's record first, then each job's, in key order.
    fn stage(&mut self, mut facts: Intake, now: Timestamp) -> Result<(Vec<Record>, Vec<JobKey>), Error> {
        let mut records = Vec::new();
        let mut causes = Vec::new();
        let before = (self.state.stamp, self.state.at);
        if !facts.cluster.is_empty() {
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            for fact in std::mem::take(&mut facts.cluster) {
                if self.state.admit(&Scope::Cluster, &fact, Arrival::default()) != Admission::Admitted {
                    continue;
                }
                for (key, follow_up) in self.state.take_in(&Scope::Cluster, &fact) {
                    facts.touch(&key);
                    for fact in follow_up {
                        facts.push(&key, fact);
                    }
                }
                news.push(fact);
            }
            if news.is_empty() {
                self.state.begin(before.0, before.1);
            } else {
                causes.push(self.state.stamp.position);
                records.push(self.record(Scope::Cluster, now, news, Vec::new(), Vec::new()));
            }
        }
        let touched: Vec<JobKey> = facts.jobs.keys().cloned().collect();
        for (key, facts) in facts.jobs {
            self.stage_job(&key, facts, now, &causes, &mut records)?;
            if self.state.jobs.is_resting(&key) {
                self.forget(&key);
            }
        }
        Ok((records, touched))
    }

    /// One job: a record for what came in, and one more for each further change of phase that follows from it.
    fn stage_job(
        &mut self,
        key: &JobKey,
        mut facts: Vec<(Fact, Arrival)>,
        now: Timestamp,
        causes: &[Position],
        records: &mut Vec<Record>,
    ) -> Result<(), Error> {
        let scope = Scope::Job(key.clone());
        let touches_node = |(fact, _): &(Fact, Arrival)| matches!(fact, Fact::NodeChanged { .. });
        let mut causes: Vec<Position> = if facts.iter().any(touches_node) { causes.to_vec() } else { Vec::new() };
        for _ in 0..MAX_RECORDS {
            let before = (self.state.stamp, self.state.at);
            let from = self.state.jobs.brief(key).map_or(Phase::New, |job| job.phase);
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            for (fact, arrival) in std::mem::take(&mut facts) {
                match self.state.admit(&scope, &fact, arrival) {
                    Admission::Admitted => {
                        self.state.take_in(&scope, &fact);
                        news.push(fact);
                    }
                    Admission::Superseded { mirror } => {
                        return Err(Error::Superseded { job: key.to_string(), mirror: mirror.to_string() });
                    }
                    Admission::Dropped(_) | Admission::Regressed { .. } => {}
                }
            }
            let events = engine::step(&mut self.state, key);
            self.warn(key, &news, &events);
            if news.is_empty() && events.is_empty() {
                // Nothing happened: a state that is folded from the log must not differ from this one.
                self.state.begin(before.0, before.1);
                break;
            }
            let ended = events.is_empty();
            let position = self.state.stamp.position;
            let job = self.state.job(key);
            let job = job.as_deref();
            let phase = job.map_or(Phase::New, |j| j.phase);
            let message = job.and_then(|j| j.milestones.back()).map(|m| m.message.clone()).unwrap_or_default();
            records.push(self.record(scope.clone(), now, news, std::mem::take(&mut causes), events));
            self.steps.push(Step { position, job: key.clone(), from, phase, message });
            causes = vec![position];
            if ended {
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self, position: Position, now: Timestamp) {
        self.state.begin(Stamp { term: self.term, position }, now);
    }

    fn record(
        &self,
        scope: Scope,
        at: Timestamp,
        facts: Vec<Fact>,
        causes: Vec<Position>,
        events: Vec<model::Event>,
    ) -> Record {
        let Stamp { term, position } = self.state.stamp;
        Record { position, term, scope, at, behaviour: BEHAVIOUR, facts, causes, events }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        let bodies = records.iter().map(Record::encode).collect::<Result<Vec<_>, _>>().map_err(Error::Encode)?;
        let group: Vec<NewRecord<'_>> =
            records.iter().zip(&bodies).map(|(r, body)| NewRecord { term: r.term, body }).collect();
        self.log.append(&group)?;
        Ok(())
    }

    /// Returns true if a complete view of every source waits in the inbox, or was taken in.
    pub fn has_listed_all(&self) -> bool {
        let is_of = |observation: &Observation<ObservedObject>, target: &WatchTarget| match observation {
            Observation::Listed { kind, of, .. } => *kind == target.kind && (of.is_none() || *of == target.of),
            Observation::Applied(_) | Observation::Deleted(_) => false,
        };
        self.targets.iter().all(|target| self.inbox.iter().any(|observation| is_of(observation, target)))
            || self.is_ready()
    }

    /// The term to claim, once every kind has been listed and none has begun.
    pub fn proposed_term(&self, now: Timestamp) -> Option<Term> {
        (!self.is_ready() && self.has_listed_all()).then(|| self.next_term(now.max(self.state.at)))
    }

    /// The next turn begins this term, which was claimed where all operators of the cluster see it. One that turns out not
    /// to be new is not begun: propose again.
    pub fn grant_term(&mut self, term: Term) {
        self.granted = Some(term);
    }

    fn term_to_begin(&mut self, now: Timestamp) -> Option<Term> {
        if !self.has_listed_all() {
            return None;
        }
        if self.options.claims_terms {
            return self.granted.take().filter(|term| *term > self.newest_term());
        }
        Some(self.next_term(now))
    }

    /// A term greater than any that is known, and than the present second.
    fn next_term(&self, now: Timestamp) -> Term {
        Term(self.newest_term().0.max(now.0 / 1000).saturating_add(1))
    }

    /// The newest term in the log, in the mirrors just listed, and in the lease.
    fn newest_term(&self) -> Term {
        let logged = self.state.terms.last().map(|(term, _)| *term);
        let mirrored = self.inbox.iter().map(|o| match o {
            Observation::Listed { items, .. } => items.iter().map(mirrored_term).max().unwrap_or_default(),
            Observation::Applied(seen) => mirrored_term(seen),
            Observation::Deleted(_) => Term::default(),
        });
        mirrored.chain(logged).max().unwrap_or_default().max(self.options.last_term)
    }
}

/// Term of the mirror on a job's object.
fn mirrored_term(seen: &ObservedObject) -> Term {
    match seen {
        ObservedObject::Job(_, object) => apis::objects::mirror_stamp(object).term,
        ObservedObject::Pod(..) | ObservedObject::Service(..) | ObservedObject::Node(_) => Term::default(),
    }
}
