//! Runs the operator's turns: waits for input, runs a turn, publishes the log's end.
//!
//! Owns when a turn starts and how many calls it may dispatch. It must wait for its channels only, and hold no state that the log
//! cannot restore. Tests: `core/tests.rs`.

use std::time::{Duration, Instant};

use event_log::{EventLog, HookedLog};
use model::Term;
use operator::{Operator, Options};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::{Batch, Config, Error, LeadershipChannels, LeadershipEvent, Request, RequestError, View};

/// Maximum number of answers, and of observations, taken into one turn.
const MAX_TURN_INPUTS: usize = 1024;
/// Minimum interval between the starts of two turns. The first starts at once; under load, what arrives meanwhile is decided
/// together: a durable append and a walk of the jobs touched cost the same for one pod as for ten.
/// Half the dispatcher's window must last longer than this.
pub(super) const TURN_INTERVAL: Duration = Duration::from_millis(100);

/// State of the thread.
pub(super) struct OperatorThread {
    config: Config,
    operator: Option<Operator>,
    leadership: Option<Leadership>,
    log_status: watch::Sender<View>,
    runtime: Handle,
    /// True if a turn has input; `next` is its earliest start.
    pending: bool,
    next: tokio::time::Instant,
}

struct Leadership {
    queues: LeadershipChannels,
    proposed: bool,
    started: bool,
    /// Number of answers handed to the operator since its last turn.
    offered: usize,
}

/// Reason for which the thread woke.
enum Wakeup {
    Requested(Request),
    Closed,
    Turn,
}

impl OperatorThread {
    pub(super) fn new(config: Config, log_status: watch::Sender<View>, runtime: Handle) -> Self {
        let next = tokio::time::Instant::now();
        Self { config, operator: None, leadership: None, log_status, runtime, pending: false, next }
    }

    /// Runs until every handle is dropped.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let runtime = self.runtime.clone();
        loop {
            let done = match runtime.block_on(self.wait(&mut requests)) {
                Wakeup::Closed => return,
                Wakeup::Requested(request) => {
                    self.handle(request);
                    Ok(())
                }
                Wakeup::Turn => self.turn().and_then(|()| self.maintain_log()),
            };
            if let Err(error) = done {
                self.stopped(error);
            }
            self.report();
        }
    }

    /// Waits for a request or a turn's input. Answers come before observations: they free the in-flight limit.
    async fn wait(&mut self, requests: &mut mpsc::Receiver<Request>) -> Wakeup {
        let (Some(leadership), Some(operator)) = (&mut self.leadership, &mut self.operator) else {
            return requests.recv().await.map_or(Wakeup::Closed, Wakeup::Requested);
        };
        let wake = operator.next_wake();
        let waits = self.pending || wake.is_some_and(|at| at <= self.config.clock.now());
        let (queues, offered) = (&mut leadership.queues, &mut leadership.offered);
        tokio::select! {
            biased;
            request = requests.recv() => return request.map_or(Wakeup::Closed, Wakeup::Requested),
            () = std::future::ready(()), if waits => {}
            Some((call, answer)) = queues.answers.recv() => {
                operator.handle_answer(call, answer);
                *offered += 1;
            }
            Some(observation) = queues.news.recv() => operator.handle_observed(observation),
            () = self.config.clock.sleep_until(wake) => {}
        }
        self.pending = true;
        tokio::select! {
            biased;
            request = requests.recv() => request.map_or(Wakeup::Closed, Wakeup::Requested),
            () = tokio::time::sleep_until(self.next) => Wakeup::Turn,
        }
    }

    /// Takes the waiting input and runs a turn.
    fn turn(&mut self) -> Result<(), operator::Error> {
        let (Some(leadership), Some(operator)) = (&mut self.leadership, &mut self.operator) else { return Ok(()) };
        let woken = tokio::time::Instant::now();
        self.config.metrics.queue_depth("news", leadership.queues.news.len());
        self.config.metrics.queue_depth("answers", leadership.queues.answers.len());
        leadership.take_in(operator);
        leadership.set_in_flight_limit(operator);
        (self.pending, self.next) = (false, woken + TURN_INTERVAL);
        let now = self.config.clock.now();
        let span = tracing::debug_span!("turn", position = operator.log().head().position.0);
        let started = Instant::now();
        let calls = span.in_scope(|| operator.turn(now))?;
        self.config.metrics.turn_done(started.elapsed());
        if !calls.is_empty() {
            // If the dispatcher is gone, the end of the leadership follows.
            let _ = leadership.queues.calls.send(calls);
        }
        // After the turn, which begins the term if it was granted.
        if !operator.is_ready()
            && !leadership.proposed
            && let Some(term) = operator.proposed_term(now)
        {
            leadership.proposed = true;
            leadership
                .report(LeadershipEvent::TermProposed(term.max(Term(leadership.queues.last_term.0.saturating_add(1)))));
        }
        if !leadership.started && operator.is_ready() {
            leadership.started = true;
            leadership.report(LeadershipEvent::TermStarted(operator.state().stamp.term));
        }
        for (kind, needed) in &leadership.queues.on_demand {
            let watches = operator.is_ready() && operator.watches(*kind);
            needed.send_if_modified(|needed| std::mem::replace(needed, watches) != watches);
        }
        for step in operator.take_steps() {
            self.config.report_transition(&step);
            if let Some(share) = &step.share {
                self.config.metrics.share_changed(share);
            }
        }
        Ok(())
    }

    /// Compacts a long log, or caches the state beside a shorter one. Waits until no call is in flight, or until the log is
    /// twice as long. A follower does this itself.
    fn maintain_log(&mut self) -> Result<(), operator::Error> {
        let Some(operator) = self.operator.as_mut().filter(|operator| operator.is_ready()) else { return Ok(()) };
        let factor = if operator.calls_in_flight() == 0 { 1 } else { 2 };
        let (records, uncached, started) = (operator.log().records(), operator.uncached(), Instant::now());
        let seconds = || started.elapsed().as_secs_f64();
        if exceeds(records, self.config.compact_after.saturating_mul(factor)) {
            match operator.compact() {
                Ok(()) => tracing::info!(records, seconds = seconds(), "log compacted"),
                Err(operator::Error::Log(error @ event_log::Error::TooBig { .. })) => {
                    // The log stays in use as it is. The next attempt waits until it is twice as long.
                    self.config.compact_after = records.saturating_mul(2);
                    tracing::warn!(%error, records, "the log cannot be compacted");
                }
                Err(error) => return Err(error),
            }
        } else if exceeds(uncached, self.config.cache_after.saturating_mul(factor)) {
            match operator.cache_state() {
                Ok(()) => tracing::info!(uncached, seconds = seconds(), "state cached beside the log"),
                Err(error) => tracing::warn!(%error, uncached, "the state cannot be cached beside the log"),
            }
        }
        Ok(())
    }

    /// Reopens the operator after an error: its memory may differ from the log.
    fn stopped(&mut self, error: operator::Error) {
        tracing::error!(%error, "the operator stopped; it is reopened on its log");
        let leadership = self.leadership.take();
        self.operator = None;
        let error = match self.open() {
            Ok(()) => error,
            Err(again) => {
                tracing::error!(error = %again, "the log cannot be opened");
                match again {
                    Error::Operator(again) => again,
                    Error::Archive { .. } | Error::Thread(_) => error,
                }
            }
        };
        if let Some(leadership) = leadership {
            leadership.report(LeadershipEvent::OperatorStopped(error));
        }
    }

    /// Opens the operator. A damaged log is archived, and its jobs are adopted from their objects.
    pub(super) fn open(&mut self) -> Result<(), Error> {
        let log = match self.config.log_store.open() {
            Ok(log) => log,
            Err(damage @ event_log::Error::Damaged { .. }) => return self.open_after_damage(&damage),
            Err(error) => return Err(operator::Error::Log(error).into()),
        };
        match Operator::open(self.timed(log), self.config.registry.clone(), self.options()) {
            Ok(operator) => self.operator = Some(operator),
            Err(operator::Error::Log(damage @ event_log::Error::Damaged { .. })) => {
                return self.open_after_damage(&damage);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn open_after_damage(&mut self, damage: &event_log::Error) -> Result<(), Error> {
        let kept = self.config.log_store.archive("damaged");
        let kept = kept.map_err(|source| Error::Archive { damage: damage.to_string(), source })?;
        tracing::error!(%damage, kept, "the log is damaged and was archived; its jobs are adopted from their objects");
        let log = self.config.log_store.open().map_err(operator::Error::Log)?;
        self.operator = Some(Operator::open(self.timed(log), self.config.registry.clone(), self.options())?);
        Ok(())
    }

    fn timed(&self, log: Box<dyn EventLog>) -> Box<dyn EventLog> {
        Box::new(HookedLog::with_hook(log, self.config.metrics.clone()))
    }

    fn options(&self) -> Options {
        Options { claims_terms: true, ..self.config.options.clone() }
    }

    fn handle(&mut self, request: Request) {
        match request {
            Request::ReadFrames { from, limit, max_bytes, reply } => {
                // A log that cannot be read closes the reply.
                if let Some(operator) = &self.operator {
                    let _ = reply.send(Batch::read(operator, from, limit, max_bytes));
                }
            }
            Request::WithOperator(act) => {
                if let Some(operator) = &mut self.operator {
                    act(operator);
                }
            }
            Request::Archive { why, reply } => {
                let _ = reply.send(self.archive(&why));
            }
            Request::Reopen { reply } => {
                let _ = reply.send(self.reopen());
            }
            Request::StartLeadership(queues) => {
                // An operator that has led holds state that must not outlast a leadership.
                self.operator = self.operator.take().filter(|operator| !operator.is_ready());
                if self.operator.is_none()
                    && let Err(error) = self.open()
                {
                    let error = match error {
                        Error::Operator(error) => error,
                        Error::Archive { source, .. } | Error::Thread(source) => operator::Error::Log(lost(&source)),
                    };
                    let _ = queues.events.send(LeadershipEvent::OperatorStopped(error));
                    return;
                }
                if let Some(operator) = &mut self.operator {
                    operator.disable_kinds(queues.unserved.clone());
                }
                self.leadership = Some(Leadership { queues: *queues, proposed: false, started: false, offered: 0 });
            }
            Request::GrantTerm(term) => {
                if let (Some(leadership), Some(operator)) = (&mut self.leadership, &mut self.operator) {
                    operator.grant_term(term);
                    (leadership.proposed, self.pending) = (false, true);
                }
            }
            Request::EndLeadership { last_turn, reply } => {
                if last_turn && let Err(error) = self.turn() {
                    self.stopped(error);
                }
                // After a last turn the next leadership reopens the operator.
                if self.leadership.take().is_some()
                    && !last_turn
                    && let Err(error) = self.reopen()
                {
                    tracing::error!(%error, "the log cannot be opened");
                }
                let _ = reply.send(());
            }
        }
    }

    fn archive(&mut self, why: &str) -> Result<String, RequestError> {
        if self.leadership.is_some() {
            return Err(RequestError::Leading);
        }
        self.operator = None;
        let kept = self.config.log_store.archive(why)?;
        self.open()?;
        Ok(kept)
    }

    /// Drops the operator's memory, calls in flight included. The log stays open.
    fn reopen(&mut self) -> Result<(), RequestError> {
        if self.leadership.is_some() {
            return Err(RequestError::Leading);
        }
        let Some(operator) = self.operator.take() else { return Ok(self.open()?) };
        let operator = Operator::open(operator.into_log(), self.config.registry.clone(), self.options());
        self.operator = Some(operator.map_err(Error::from)?);
        Ok(())
    }

    /// Publishes the log's end and the term.
    fn report(&mut self) {
        let Some(operator) = &self.operator else { return };
        let log = operator.log();
        let led = self.leadership.as_ref().filter(|leadership| leadership.started);
        let term = led.map_or(Term(0), |_| operator.state().stamp.term);
        let view = View { head: log.head(), first: log.first(), term };
        self.log_status.send_if_modified(|shown| {
            let changed = *shown != view;
            *shown = view;
            changed
        });
    }
}

impl Leadership {
    /// Lets the operator dispatch once half of the dispatcher's window is free, and nothing before: walking a job of many pods
    /// and rendering what they share is worth it for many calls, not for one.
    fn set_in_flight_limit(&mut self, operator: &mut Operator) {
        let window = *self.queues.window.borrow();
        let in_flight = operator.calls_in_flight().saturating_sub(std::mem::take(&mut self.offered));
        operator.set_in_flight_limit(if in_flight <= window / 2 { window } else { 0 });
    }

    /// Takes the waiting answers and observations, up to [`MAX_TURN_INPUTS`] of each.
    fn take_in(&mut self, operator: &mut Operator) {
        for _ in 0..MAX_TURN_INPUTS {
            let Ok((call, answer)) = self.queues.answers.try_recv() else { break };
            operator.handle_answer(call, answer);
            self.offered += 1;
        }
        for _ in 0..MAX_TURN_INPUTS {
            let Ok(observation) = self.queues.news.try_recv() else { break };
            operator.handle_observed(observation);
        }
    }

    fn report(&self, milestone: LeadershipEvent) {
        // A leadership that has ended has no receiver.
        let _ = self.queues.events.send(milestone);
    }
}

/// Returns true if `records` exceed the limit; 0 is no limit.
const fn exceeds(records: u64, limit: u64) -> bool {
    limit > 0 && records > limit
}

fn lost(source: &std::io::Error) -> event_log::Error {
    event_log::Error::Engine { action: "archive the damaged log", message: source.to_string() }
}
