//! Sends API calls while this process may write, as many at a time as the budget allows.
//!
//! Owns the last two of the three steps of flow control:
//!
//! 1. the operator shares the dispatcher's window among its jobs and renders calls into it, once per turn;
//! 2. the dispatcher's window bounds the calls it holds, a few for each call in flight, in the operator's order;
//! 3. the adaptive `budget` bounds the calls in flight. When it shrinks, the window shrinks with it.
//!
//! It must not retry a call: the operator decides what an unanswered one means. Kubernetes Events are sent when no call waits. Tests: `dispatch/tests.rs`.

mod budget;
pub(crate) mod dry_run;
mod event_limiter;
pub(crate) mod request;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use apis::{ApiAnswer, ApiCall, CallId, Registry, Verb};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use model::Text;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::client::exchange;
use crate::dispatch::budget::{Budget, Health};
use crate::dispatch::dry_run::DryRun;
use crate::dispatch::event_limiter::EventLimiter;
use crate::dispatch::request::Prepared;
use crate::lease::write_guard::WriteGuard;
use crate::metrics::Metrics;

/// Maximum number of Kubernetes Events in flight.
const MAX_EVENTS_IN_FLIGHT: usize = 2;
/// Calls taken per call in flight. The operator dispatches once per turn, so the calls rendered ahead must last for a turn
/// interval (100 ms).
const TAKEN_PER_CALL_IN_FLIGHT: usize = 4;

/// Returns the number of calls that are taken at a time while `in_flight` of them may be in flight.
pub(crate) const fn window_of(in_flight: usize) -> usize {
    in_flight.saturating_mul(TAKEN_PER_CALL_IN_FLIGHT)
}

/// Sends the calls of one leadership.
pub(crate) struct Dispatcher {
    /// The client.
    pub client: Client,
    /// The served APIs.
    pub registry: Registry,
    /// Write permission.
    pub guard: WriteGuard,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// Maximum number of calls in flight.
    pub max_in_flight: usize,
    /// Time limit of one call.
    pub call_timeout: Duration,
    /// Receives the answers.
    pub answers: mpsc::UnboundedSender<(CallId, ApiAnswer)>,
    /// Reports to the operator's thread how many calls are taken at a time.
    pub window: watch::Sender<usize>,
    /// Prints writes instead of sending them.
    pub dry_run: Option<Arc<DryRun>>,
}

/// A call that was answered or dropped.
struct CompletedCall {
    id: CallId,
    expects_answer: bool,
    verb: Verb,
    kind: Text,
    answer: Option<ApiAnswer>,
    health: Health,
    sent: Instant,
}

impl Dispatcher {
    /// Sends calls until the write permission is lost. After `drain` it sends none, and waits for those in flight.
    pub(crate) async fn run(self, mut calls: mpsc::UnboundedReceiver<Vec<ApiCall>>, drain: CancellationToken) {
        let mut budget = Budget::new(self.max_in_flight);
        let mut queue: VecDeque<(Instant, Prepared)> = VecDeque::new();
        let mut limiter = EventLimiter::new(Instant::now());
        let mut in_flight = FuturesUnordered::new();
        let mut events_in_flight = 0;
        let mut draining = false;
        let mut lost = std::pin::pin!(self.guard.lost());
        loop {
            while !draining && budget.may_send(Instant::now()) {
                let next = queue.pop_front().map(|(since, prepared)| {
                    self.metrics.queue_waited("calls", since.elapsed());
                    prepared
                });
                let Some(prepared) = next.or_else(|| self.next_event(&mut limiter, events_in_flight)) else { break };
                // The last check before a call is sent. Calls in flight are dropped when the permission is lost.
                if !self.guard.holds() {
                    return;
                }
                events_in_flight += usize::from(!prepared.expects_answer);
                budget.sent();
                in_flight.push(self.send(prepared));
            }
            self.metrics.queue_depth("calls", queue.len());
            self.metrics.queue_depth("events", limiter.len());
            if draining && in_flight.is_empty() {
                return;
            }
            let resume = budget.paused_until(Instant::now()).filter(|_| !draining);
            tokio::select! {
                biased;
                () = &mut lost => return,
                () = drain.cancelled(), if !draining => draining = true,
                Some(done) = in_flight.next(), if !in_flight.is_empty() => {
                    events_in_flight -= usize::from(!done.expects_answer);
                    self.finish(done, &mut budget);
                }
                batch = calls.recv(), if !draining => match batch {
                    Some(batch) => self.accept(batch, &mut queue, &mut limiter),
                    None => draining = true,
                },
                () = until(resume), if resume.is_some() => {}
            }
        }
    }

    /// Accepts calls. Bodies are serialized at once: their bytes take a tenth of the memory of the tree.
    fn accept(&self, batch: Vec<ApiCall>, queue: &mut VecDeque<(Instant, Prepared)>, limiter: &mut EventLimiter) {
        let now = Instant::now();
        for call in batch {
            if call.object.is_none() {
                if !limiter.add(call, now) {
                    self.metrics.event_dropped();
                }
                continue;
            }
            let id = call.id;
            match request::prepare(call, &self.registry) {
                Ok(prepared) => {
                    queue.push_back((now, prepared));
                }
                Err(error) => {
                    self.report(id, Err(error));
                }
            }
        }
    }

    fn next_event(&self, limiter: &mut EventLimiter, in_flight: usize) -> Option<Prepared> {
        if in_flight >= MAX_EVENTS_IN_FLIGHT {
            return None;
        }
        // An Event that cannot be rendered is dropped.
        std::iter::from_fn(|| limiter.take()).find_map(|call| request::prepare(call, &self.registry).ok())
    }

    async fn send(&self, prepared: Prepared) -> CompletedCall {
        let sent = Instant::now();
        let (id, expects_answer, verb, kind) =
            (prepared.id, prepared.expects_answer, prepared.verb, prepared.kind.clone());
        let span = tracing::debug_span!("call", id, ?verb, %kind, job = %prepared.job, name = %prepared.name,
            record = %prepared.cause);
        let (answer, health) = self.exchange(prepared).instrument(span).await;
        CompletedCall { id, expects_answer, verb, kind, answer, health, sent }
    }

    /// Sends a call. Only a dry run may give no answer.
    async fn exchange(&self, prepared: Prepared) -> (Option<ApiAnswer>, Health) {
        if let Some(dry_run) = &self.dry_run
            && !prepared.verb.is_read()
        {
            return (dry_run.answer(&prepared).map(Ok), Health::Healthy);
        }
        let (request, read) = prepared.into_request();
        match exchange::exchange(&self.client, request, self.call_timeout).await {
            Ok(answer) => {
                let code = answer.status.as_u16();
                let pause = answer.headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
                let health = Health::of(code, pause);
                (Some(request::answer(&read, code, &answer.body)), health)
            }
            Err(error) => (Some(Err(request::no_answer(error.to_string()))), Health::NoAnswer),
        }
    }

    fn finish(&self, done: CompletedCall, budget: &mut Budget) {
        let now = Instant::now();
        budget.done(done.sent, done.health, now);
        let window = window_of(budget.window());
        self.window.send_if_modified(|current| std::mem::replace(current, window) != window);
        let Some(answer) = done.answer else { return };
        let code = answer.as_ref().err().map_or(200, |error| error.code);
        self.metrics.call_done(done.verb, &done.kind, code, now.saturating_duration_since(done.sent));
        match &answer {
            Ok(_) => tracing::trace!(id = done.id, "answered"),
            Err(error) if matches!(error.code, 401 | 403) && done.expects_answer => {
                tracing::warn!(id = done.id, verb = ?done.verb, kind = %done.kind, %error, "refused");
            }
            Err(error) => tracing::debug!(id = done.id, verb = ?done.verb, kind = %done.kind, %error, "not done"),
        }
        if done.expects_answer {
            self.report(done.id, answer);
        }
    }

    fn report(&self, id: CallId, answer: ApiAnswer) {
        // Without a receiver the leadership is over; the next one reads the objects.
        let _ = self.answers.send((id, answer));
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
