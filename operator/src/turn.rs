//! One turn, in the order that is the contract: take in, stage (observe and decide), append durably, dispatch.
//!
//! Tests: every scenario, and the crash sweep in `snapshots/tests/crashes.rs`.

use std::collections::{BTreeMap, BTreeSet};

use apis::ApiCall;
use engine::wire::BEHAVIOUR;
use engine::{Arrival, Body, Handled, Record};
use event_log::NewRecord;
use model::{ClusterFact, JobFact, JobKey, Phase, Position, QueueFact, Stamp, Timestamp};

use crate::error::Error;
use crate::intake::Intake;
use crate::operator::Operator;
use crate::step::{ShareStep, Step};

/// Records staged for one job in one turn, beyond which the rest waits for the next turn.
const MAX_RECORDS: usize = 16;

/// Times that the queues are asked in one turn; what is due then is done by the next turn.
const MAX_GRANTS: usize = 4;

impl Operator {
    /// Does one turn at `now` and returns the calls to make. Before every source has been listed it does nothing.
    ///
    /// # Errors
    /// After an error nothing of this turn is dispatched: open another operator on the log.
    pub fn turn(&mut self, now: Timestamp) -> Result<Vec<ApiCall>, Error> {
        let now = now.max(self.state.at);
        let begins = !self.is_ready();
        let mut facts = Intake::new(begins);
        if begins {
            if !self.has_listed_all() {
                return Ok(Vec::new());
            }
            let Some(term) = self.terms.begin(self.newest_term(), now) else { return Ok(Vec::new()) };
            facts.push_cluster(ClusterFact::TermBegan { term });
            facts.push_cluster(ClusterFact::Configured(Box::new(self.config.clone())));
        }
        self.take_observations(&mut facts)?;
        for fact in self.foreign.take_facts(&self.state) {
            facts.push_cluster(fact);
        }
        self.take_answers(&mut facts)?;
        let due = self.state.deadlines().take_while(|(at, _)| *at <= now).map(|(_, key)| key);
        for key in due.filter(|key| self.sources.serves(key)) {
            facts.push(key, JobFact::Due);
        }
        let (records, touched) = self.stage(facts, now)?;
        self.append(&records)?;
        let mut calls = std::mem::take(&mut self.events);
        // A new term finds what an earlier one left undone.
        let concerned = if begins { self.state.jobs.keys().cloned().collect() } else { touched };
        let mut causes = BTreeMap::new();
        for record in records {
            let stamp = record.stamp();
            if let Body::Job { key, .. } = record.body {
                causes.insert(key, stamp);
            }
        }
        self.throttle.set_busy(!self.backlog.is_empty());
        self.backlog.add(concerned.into_iter().filter(|key| self.sources.serves(key)));
        self.backlog.add(self.throttle.take_due(now));
        self.dispatch(&causes, now, &mut calls);
        Ok(calls)
    }

    /// Observes and decides: the cluster's record first, then each job's, in key order.
    fn stage(&mut self, mut facts: Intake, now: Timestamp) -> Result<(Vec<Record>, Vec<JobKey>), Error> {
        let mut records = Vec::new();
        let mut causes = Vec::new();
        let before = (self.state.stamp, self.state.at);
        if !facts.cluster.is_empty() {
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            for (fact, arrival) in std::mem::take(&mut facts.cluster) {
                let Handled::Recorded((fact, dirty)) = self.state.handle_cluster_fact(fact, arrival) else { continue };
                for (key, follow_up) in dirty {
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
                records.push(self.record(now, Vec::new(), Body::Cluster { facts: news }));
            }
        }
        let mut touched: Vec<JobKey> = facts.jobs.keys().cloned().collect();
        let mut freed: BTreeSet<JobKey> = BTreeSet::new();
        for (key, facts) in facts.jobs {
            self.stage_job(&key, facts, now, &causes, &mut records)?;
            if self.state.jobs.summary(&key).is_none_or(|job| job.phase.is_terminal()) {
                freed.extend(self.references.deleting(&key));
            }
            if self.state.jobs.is_finished(&key) {
                self.forget(&key);
            }
        }
        // What waits to be deleted until no job needs it.
        for key in freed {
            self.stage_job(&key, Vec::new(), now, &causes, &mut records)?;
            touched.push(key);
        }
        touched.extend(self.stage_queues(now, &mut records)?);
        let mut shown_otherwise: Vec<JobKey> = self.state.with_changed_referrers().cloned().collect();
        shown_otherwise.extend(self.state.take_stale_waits());
        for key in shown_otherwise {
            self.stage_job(&key, Vec::new(), now, &[], &mut records)?;
            touched.push(key);
        }
        self.announce_queue_states();
        Ok((records, touched))
    }

    /// Stages what is due of the queues, and the records of the jobs whose shares that changes. What these free is granted in the
    /// same turn. Returns the jobs.
    fn stage_queues(&mut self, now: Timestamp, records: &mut Vec<Record>) -> Result<Vec<JobKey>, Error> {
        let mut touched = Vec::new();
        for _ in 0..MAX_GRANTS {
            let Some(asked) = self.state.queues_due(now) else { break };
            let before = (self.state.stamp, self.state.at);
            self.begin(before.0.position.next(), now);
            let QueueFact::SchedulingCycle { round } = asked;
            let events = engine::queues::step(&mut self.state, round);
            if events.is_empty() {
                self.state.begin(before.0, before.1);
                break;
            }
            self.state.apply_queue_fact(&asked);
            let position = self.state.stamp.position;
            let follow_ups: Vec<(JobKey, JobFact)> =
                engine::queues::follow_ups(&events).map(|(key, fact)| (key.clone(), fact)).collect();
            records.push(self.record(now, Vec::new(), Body::Queues { facts: vec![asked], events }));
            for (key, fact) in follow_ups {
                self.stage_job(&key, vec![(fact, Arrival::default())], now, &[position], records)?;
                touched.push(key);
            }
        }
        Ok(touched)
    }

    /// Stages the records of one job: one for the facts that came in, and one for each further change of phase that
    /// follows.
    fn stage_job(
        &mut self,
        key: &JobKey,
        mut facts: Vec<(JobFact, Arrival)>,
        now: Timestamp,
        causes: &[Position],
        records: &mut Vec<Record>,
    ) -> Result<(), Error> {
        let has_cause = |(fact, _): &(JobFact, Arrival)| {
            matches!(fact, JobFact::NodeChanged { .. } | JobFact::ShareChanged(_) | JobFact::Dequeued)
        };
        let mut causes: Vec<Position> = if facts.iter().any(has_cause) { causes.to_vec() } else { Vec::new() };
        self.note_queue_state(key, false);
        for _ in 0..MAX_RECORDS {
            let before = (self.state.stamp, self.state.at);
            let from = self.state.jobs.summary(key).map_or(Phase::New, |job| job.phase);
            let had_run = self.state.job(key).is_some_and(|job| job.first_running_at.is_some());
            self.begin(before.0.position.next(), now);
            let mut news = Vec::new();
            let mut share = None;
            for (fact, arrival) in std::mem::take(&mut facts) {
                if let JobFact::ShareChanged(change) = &fact {
                    share = self.state.job(key).and_then(|job| ShareStep::of(&job, change, now));
                }
                match self.state.handle_job_fact(key, fact, arrival) {
                    Handled::Recorded(fact) => news.push(fact),
                    Handled::Dropped(_) => {}
                    Handled::Superseded { mirror } => {
                        return Err(Error::Superseded { job: key.to_string(), mirror: mirror.to_string() });
                    }
                }
            }
            let events = engine::step(&mut self.state, key);
            self.announce_step(key, from, &news, &events);
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
            let adopted = news.iter().any(|fact| matches!(fact, JobFact::Adopted(_)));
            let gone = news.iter().any(|fact| matches!(fact, JobFact::Gone));
            let launch = job.filter(|_| !adopted).map(|job| self.launches.take(key, had_run, job, now));
            let body = Body::Job { key: key.clone(), facts: news, events };
            records.push(self.record(now, std::mem::take(&mut causes), body));
            let launch = launch.unwrap_or_default();
            self.steps.push(Step { position, job: key.clone(), from, phase, message, share, adopted, gone, launch });
            causes = vec![position];
            if adopted {
                self.note_queue_state(key, true);
            }
            if ended {
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self, position: Position, now: Timestamp) {
        self.state.begin(Stamp { term: self.terms.current(), position }, now);
    }

    fn record(&self, at: Timestamp, causes: Vec<Position>, body: Body) -> Record {
        let Stamp { term, position } = self.state.stamp;
        Record { position, term, at, behaviour: BEHAVIOUR, causes, body }
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
}
