//! The task of a holder: renews the Lease, writes terms into it, gives it up, and ends the tenure when it cannot.
//!
//! It alone writes the Lease while the tenure lasts, so there is one request about it at a time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use model::Term;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::record::{self, Change};
use super::tenure::{Ask, Shared};
use super::{Error, LeaseOptions};
use crate::client::exchange::words;
use crate::metrics::{LeaseOutcome, Metrics};

/// Why a tenure ends when the API server does not answer.
const LATE: &str = "the lease was not renewed in time";
/// Pause after a conflict: whoever wrote the Lease has time to finish.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);

/// Keeps the Lease for one tenure.
pub(super) struct Keeper {
    pub(super) api: Api<Lease>,
    pub(super) options: LeaseOptions,
    pub(super) metrics: Metrics,
    pub(super) shared: Arc<Shared>,
    /// The Lease as last read or written.
    pub(super) lease: Lease,
    /// When the update that acquired it was sent.
    pub(super) renewed: Instant,
    pub(super) asks: mpsc::Receiver<Ask>,
}

/// What came of one attempt.
enum Outcome {
    Written,
    /// The Lease had changed, and is still ours: the same again on what stands there now.
    Conflict,
    /// Not known, or refused for now.
    Again,
    /// The tenure is over.
    Over,
}

/// A term that is to be written.
struct Claim {
    term: Term,
    reply: oneshot::Sender<Result<(), Error>>,
    /// It was sent before, so the Lease may carry it already.
    sent: bool,
}

impl Keeper {
    /// Runs until the tenure is over; gives the Lease as last known, with a moment after it was read.
    pub(super) async fn run(mut self) -> (Lease, Instant) {
        let mut next = self.renewed + self.options.retry_period;
        let mut claim: Option<Claim> = None;
        while !self.shared.is_over() {
            tokio::select! {
                biased;
                () = sleep_until(self.shared.ends()) => self.over(LATE.to_owned()),
                ask = self.asks.recv(), if claim.is_none() => match ask {
                    Some(Ask::Claim { term, reply }) => {
                        claim = Some(Claim { term, reply, sent: false });
                        next = Instant::now();
                    }
                    Some(Ask::Release { reply }) => {
                        let released = self.release().await;
                        let _ = reply.send(released);
                    }
                    None => self.over("nobody uses the tenure any more".to_owned()),
                },
                () = sleep_until(next) => next = self.update(&mut claim).await,
            }
        }
        if let Some(claim) = claim {
            let _ = claim.reply.send(Err(self.shared.lost()));
        }
        (self.lease, Instant::now())
    }

    /// Renews the Lease, with the claimed term if there is one; gives the time of the next attempt.
    async fn update(&mut self, claim: &mut Option<Claim>) -> Instant {
        let last = record::term(&self.lease).max(self.shared.last_term());
        if let Some(Claim { term: offered, reply, .. }) = claim.take_if(|c| c.term < last || c.term == last && !c.sent)
        {
            let _ = reply.send(Err(Error::TermTaken { offered, last }));
        }
        let begun = Instant::now();
        let term = claim.as_mut().map(|claim| {
            claim.sent = true;
            claim.term
        });
        match self.write(term.unwrap_or_default()).await {
            Outcome::Written => {
                if let Some(claim) = claim.take() {
                    let _ = claim.reply.send(Ok(()));
                }
                begun + self.options.retry_period
            }
            Outcome::Conflict => Instant::now() + AFTER_CONFLICT,
            // Soon, but not at once: the API server may be what is in trouble.
            Outcome::Again => Instant::now() + record::jittered(self.options.retry_period / 4),
            Outcome::Over => Instant::now(),
        }
    }

    fn over(&self, why: String) {
        tracing::warn!(lease = %self.options.name, %why, "leadership is over");
        self.shared.end(why);
    }

    /// One update, given up at the end of the tenure. A conflict is looked into: still ours, or lost.
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
                self.over(LATE.to_owned());
                return Outcome::Over;
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
                self.read_again().await
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                self.metrics.lease_attempt(LeaseOutcome::Lost);
                self.over("the Lease was deleted".to_owned());
                Outcome::Over
            }
            Ok(Err(error)) => self.failed(&words(&error)),
            // It may yet be applied: the next update then meets a conflict and reads.
            Err(_) => self.failed("no answer in time"),
        }
    }

    fn failed(&self, error: &str) -> Outcome {
        self.metrics.lease_attempt(LeaseOutcome::Failed);
        tracing::warn!(lease = %self.options.name, error, "the lease could not be renewed; trying again");
        Outcome::Again
    }

    async fn read_again(&mut self) -> Outcome {
        let (api, name) = (self.api.clone(), self.options.name.clone());
        let answer = tokio::select! {
            biased;
            () = sleep_until(self.shared.ends()) => {
                self.over(LATE.to_owned());
                return Outcome::Over;
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
                        self.over(format!("the lease is held by {other}"));
                        Outcome::Over
                    }
                    None => {
                        self.metrics.lease_attempt(LeaseOutcome::Lost);
                        self.over("the lease was taken away".to_owned());
                        Outcome::Over
                    }
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                self.over("the Lease was deleted".to_owned());
                Outcome::Over
            }
            Ok(Err(error)) => self.failed(&words(&error)),
            Err(_) => self.failed("no answer in time"),
        }
    }

    /// Ends the tenure, then gives the Lease up: nobody may write once it is free.
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
