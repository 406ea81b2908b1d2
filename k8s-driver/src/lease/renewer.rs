//! Runs the task of a holder: it renews the Lease, writes terms into it, releases it, and ends the hold if that fails.
//!
//! Owns writing the Lease while the hold lasts, so there is one request about it at a time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use model::Term;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::hold::{Request, Shared};
use super::record::{self, Change};
use super::{Error, LeaseOptions};
use crate::client::exchange::error_chain;
use crate::metrics::{LeaseOutcome, Metrics};

/// Reason of a hold that ends because the API server does not answer.
const NOT_RENEWED: &str = "the lease was not renewed in time";
/// Interval after a conflict, so that another writer of the Lease can finish.
const CONFLICT_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Renews the Lease for one hold.
pub(super) struct Renewer {
    pub(super) api: Api<Lease>,
    pub(super) options: LeaseOptions,
    pub(super) metrics: Metrics,
    pub(super) shared: Arc<Shared>,
    /// The Lease as last read or written.
    pub(super) lease: Lease,
    /// Time at which the update that acquired it was sent.
    pub(super) renewed: Instant,
    pub(super) requests: mpsc::Receiver<Request>,
}

/// Outcome of one attempt.
enum Outcome {
    Written,
    /// The Lease had changed and this process still holds it: retry on its new version.
    Conflict,
    /// The outcome is unknown, or the API server rejected this attempt; a later one may succeed.
    Retry,
    /// The hold has ended.
    ThreadEnded,
}

/// A term to write.
struct Claim {
    term: Term,
    reply: oneshot::Sender<Result<(), Error>>,
    /// True if it was sent before: the Lease may carry it already.
    sent: bool,
}

impl Renewer {
    /// Runs until the hold has ended. Returns the Lease as last known, and a moment after it was read.
    pub(super) async fn run(mut self) -> (Lease, Instant) {
        let mut next = self.renewed + self.options.retry_period;
        let mut claim: Option<Claim> = None;
        while !self.shared.is_over() {
            tokio::select! {
                biased;
                () = sleep_until(self.shared.ends()) => self.end(NOT_RENEWED.to_owned()),
                ask = self.requests.recv(), if claim.is_none() => match ask {
                    Some(Request::Claim { term, reply }) => {
                        claim = Some(Claim { term, reply, sent: false });
                        next = Instant::now();
                    }
                    Some(Request::Release { reply }) => {
                        let released = self.release().await;
                        let _ = reply.send(released);
                    }
                    None => self.end("every handle of the hold was dropped".to_owned()),
                },
                () = sleep_until(next) => next = self.update(&mut claim).await,
            }
        }
        if let Some(claim) = claim {
            let _ = claim.reply.send(Err(self.shared.lost()));
        }
        (self.lease, Instant::now())
    }

    /// Renews the Lease, with the claimed term if there is one. Returns the time of the next attempt.
    async fn update(&mut self, claim: &mut Option<Claim>) -> Instant {
        let last = record::term(&self.lease).max(self.shared.last_term());
        if let Some(Claim { term: offered, reply, .. }) = claim.take_if(|c| c.term < last || c.term == last && !c.sent)
        {
            let _ = reply.send(Err(Error::TermTaken { offered, last }));
        }
        let started = Instant::now();
        let term = claim.as_mut().map(|claim| {
            claim.sent = true;
            claim.term
        });
        match self.write(term.unwrap_or_default()).await {
            Outcome::Written => {
                if let Some(claim) = claim.take() {
                    let _ = claim.reply.send(Ok(()));
                }
                started + self.options.retry_period
            }
            Outcome::Conflict => Instant::now() + CONFLICT_RETRY_INTERVAL,
            // Not at once: the API server may be overloaded.
            Outcome::Retry => Instant::now() + record::jittered(self.options.retry_period / 4),
            Outcome::ThreadEnded => Instant::now(),
        }
    }

    fn end(&self, why: String) {
        tracing::warn!(lease = %self.options.name, %why, "leadership is over");
        self.shared.end(why);
    }

    /// Sends one update and drops it at the end of the hold. A conflict is resolved by reading: still held, or lost.
    async fn write(&mut self, term: Term) -> Outcome {
        let least = term.max(self.shared.last_term());
        let lease = record::changed(Some(&self.lease), Change::Renew, least, &self.options);
        let sent = Instant::now();
        let (api, name) = (self.api.clone(), self.options.name.clone());
        let params = PostParams::default();
        let answer = tokio::select! {
            biased;
            () = sleep_until(self.shared.ends()) => {
                self.metrics.lease_attempt(LeaseOutcome::Failed);
                self.end(NOT_RENEWED.to_owned());
                return Outcome::ThreadEnded;
            }
            answer = timeout(self.options.attempt_timeout(), api.replace(&name, &params, &lease)) => answer,
        };
        match answer {
            Ok(Ok(written)) => {
                self.metrics.lease_attempt(LeaseOutcome::Renewed);
                self.lease = written;
                self.shared.saw_term(record::term(&self.lease));
                self.shared.extend(sent + self.options.renew_deadline);
                Outcome::Written
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                self.metrics.lease_attempt(LeaseOutcome::Conflict);
                self.resolve_conflict().await
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                self.metrics.lease_attempt(LeaseOutcome::Lost);
                self.end("the Lease was deleted".to_owned());
                Outcome::ThreadEnded
            }
            Ok(Err(error)) => self.failed(&error_chain(&error)),
            // The update may still be applied: the next one then meets a conflict and reads.
            Err(_) => self.failed("no answer in time"),
        }
    }

    fn failed(&self, error: &str) -> Outcome {
        self.metrics.lease_attempt(LeaseOutcome::Failed);
        tracing::warn!(lease = %self.options.name, error, "the Lease could not be renewed; retrying");
        Outcome::Retry
    }

    async fn resolve_conflict(&mut self) -> Outcome {
        let (api, name) = (self.api.clone(), self.options.name.clone());
        let answer = tokio::select! {
            biased;
            () = sleep_until(self.shared.ends()) => {
                self.end(NOT_RENEWED.to_owned());
                return Outcome::ThreadEnded;
            }
            answer = timeout(self.options.attempt_timeout(), api.get(&name)) => answer,
        };
        match answer {
            Ok(Ok(lease)) => {
                self.lease = lease;
                self.shared.saw_term(record::term(&self.lease));
                match record::holder(&self.lease) {
                    Some(holder) if holder == self.options.identity => Outcome::Conflict,
                    Some(other) => {
                        self.metrics.lease_attempt(LeaseOutcome::Lost);
                        self.end(format!("the lease is held by {other}"));
                        Outcome::ThreadEnded
                    }
                    None => {
                        self.metrics.lease_attempt(LeaseOutcome::Lost);
                        self.end("the Lease has no holder any more".to_owned());
                        Outcome::ThreadEnded
                    }
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                self.end("the Lease was deleted".to_owned());
                Outcome::ThreadEnded
            }
            Ok(Err(error)) => self.failed(&error_chain(&error)),
            Err(_) => self.failed("no answer in time"),
        }
    }

    /// Ends the hold, then releases the Lease: this process must not write once it is free.
    async fn release(&mut self) -> Result<(), Error> {
        let until = self.shared.ends();
        self.shared.end("the lease was released".to_owned());
        let lost = |why: String| Err(Error::Lost { why });
        for _ in 0..3 {
            let lease = record::changed(Some(&self.lease), Change::Release, self.shared.last_term(), &self.options);
            let name = &self.options.name;
            let params = PostParams::default();
            let limit = until.min(Instant::now() + self.options.attempt_timeout());
            match tokio::time::timeout_at(limit, self.api.replace(name, &params, &lease)).await {
                Ok(Ok(written)) => {
                    self.lease = written;
                    return Ok(());
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    match tokio::time::timeout_at(limit, self.api.get(name)).await {
                        Ok(Ok(lease)) if record::holder(&lease) == Some(self.options.identity.as_str()) => {
                            self.lease = lease;
                        }
                        Ok(Ok(_)) => return Ok(()),
                        Ok(Err(error)) => return lost(format!("the lease could not be released: {error}")),
                        Err(_) => break,
                    }
                }
                Ok(Err(error)) => return lost(format!("the lease could not be released: {error}")),
                Err(_) => break,
            }
        }
        lost("the lease could not be released in time".to_owned())
    }
}
