//! One turn, in the order that is the contract: observe, decide, stage; one durable append; effects; calls.

use std::collections::BTreeMap;

use apis::ApiCall;
use engine::wire::BEHAVIOUR;
use engine::{Record, Scope};
use event_log::NewRecord;
use model::{Fact, JobKey, Kind, Phase, Position, Stamp, Term, Text, Timestamp};

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
        let mut facts = Intake::default();
        let begins = !self.is_ready();
        if begins {
            if !self.has_listed_all() {
                return Ok(Vec::new());
            }
            self.term = self.next_term(now);
            facts.cluster.push(Fact::TermBegan { term: self.term });
            facts.cluster.push(Fact::Configured(Box::new(self.options.config.clone())));
        }
        self.take_observations(&mut facts, begins)?;
        self.take_answers(&mut facts);
        if let Some(error) = self.went_back.take() {
            return Err(error);
        }
        for key in self.state.due(now) {
            facts.job(&key).push(Fact::Due);
        }
        let (records, touched) = self.stage(facts, now, begins)?;
        self.append(&records)?;
        let mut calls = std::mem::take(&mut self.pending_events);
        // A new term finds what an earlier one left undone.
        let concerned = if begins { self.state.jobs.keys().cloned().collect() } else { touched };
        for key in &concerned {
            self.hand_out(key, &mut calls);
        }
        Ok(calls)
    }

    /// Observes and decides: the cluster's record first, then each job's, in key order.
    fn stage(&mut self, facts: Intake, now: Timestamp, begins: bool) -> Result<(Vec<Record>, Vec<JobKey>), Error> {
        let mut records = Vec::new();
        let mut jobs = facts.jobs;
        let mut causes = Vec::new();
        let before = (self.state.stamp, self.state.at);
        if !facts.cluster.is_empty() {
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            for fact in facts.cluster {
                if !self.is_news(&Scope::Cluster, &fact) {
                    continue;
                }
                for (key, follow_up) in self.state.take_in(&Scope::Cluster, &fact) {
                    jobs.entry(key).or_default().extend(follow_up);
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
        let touched: Vec<JobKey> = jobs.keys().cloned().collect();
        for (key, facts) in jobs {
            self.stage_job(&key, facts, now, begins, &causes, &mut records)?;
        }
        Ok((records, touched))
    }

    /// One job: a record for what came in, and one more for each further change of phase that follows from it.
    fn stage_job(
        &mut self,
        key: &JobKey,
        facts: Vec<Fact>,
        now: Timestamp,
        begins: bool,
        causes: &[Position],
        records: &mut Vec<Record>,
    ) -> Result<(), Error> {
        let scope = Scope::Job(key.clone());
        let mut facts = facts;
        let touches_node = |f: &Fact| matches!(f, Fact::NodeChanged { .. });
        let mut causes: Vec<Position> = if facts.iter().any(touches_node) { causes.to_vec() } else { Vec::new() };
        for _ in 0..MAX_RECORDS {
            let before = (self.state.stamp, self.state.at);
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            for fact in std::mem::take(&mut facts) {
                if self.is_news(&scope, &fact) {
                    self.check_coverage(key, &fact, begins)?;
                    self.state.take_in(&scope, &fact);
                    news.push(fact);
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
            let phase = job.map_or(Phase::New, |j| j.phase);
            let message = job.and_then(|j| j.milestones.back()).map(|m| m.message.clone()).unwrap_or_default();
            records.push(self.record(scope.clone(), now, news, std::mem::take(&mut causes), events));
            self.steps.push(Step { position, job: key.clone(), phase, message });
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

    fn has_listed_all(&mut self) -> bool {
        for observation in &self.inbox {
            if let apis::Observation::Listed { kind, .. } = observation {
                self.lists.insert(*kind);
            }
        }
        Kind::ALL.iter().all(|kind| self.lists.contains(kind))
    }

    /// A term greater than any in the log, in the mirrors just listed and in the lease, and than the present second.
    fn next_term(&self, now: Timestamp) -> Term {
        let logged = self.state.terms.last().map_or(0, |(term, _)| term.0);
        let mirrored = self.inbox.iter().map(|o| match o {
            apis::Observation::Listed { kind: Kind::Job, items, .. } => {
                items.iter().map(|item| apis::objects::mirror_stamp(item).term.0).max().unwrap_or_default()
            }
            apis::Observation::Applied(object) => apis::objects::mirror_stamp(object).term.0,
            apis::Observation::Listed { .. } | apis::Observation::Deleted(_) => 0,
        });
        let known = mirrored.max().unwrap_or_default().max(logged).max(self.options.last_term.0).max(now.0 / 1000);
        Term(known.saturating_add(1))
    }
}

/// Facts that came in this turn, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pub(crate) cluster: Vec<Fact>,
    pub(crate) jobs: BTreeMap<JobKey, Vec<Fact>>,
}

impl Intake {
    pub(crate) fn job(&mut self, key: &JobKey) -> &mut Vec<Fact> {
        self.jobs.entry(key.clone()).or_default()
    }
}
