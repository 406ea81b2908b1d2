//! Elects a leader on a Lease: who may write, for how long, and under which term.
//!
//! Owns the election on a `coordination.k8s.io/v1` Lease and the answer whether this process may send a write now
//! ([`LeaseHold::holds`]). It must not know what is written, and must not compare the wall clocks of two machines.
//!
//! # Why two leaders never write at once
//!
//! Every update of the Lease is a compare-and-swap on its resourceVersion, so the updates have one order. Times are judged by
//! each process's own monotonic clock; the times in the Lease are for users to read.
//!
//! * A holder counts from the moment *before* it sent the update that renewed the Lease. It may write for the renew deadline
//!   (10 s) after that moment, not for the lease duration (15 s).
//! * A candidate counts from the moment *after* it first read the newest renewal, and waits for the whole duration the holder
//!   wrote into the Lease. The renewal lies between the two moments. So a candidate's wait ends later than the holder's
//!   permission by at least duration minus deadline, for any difference of the two wall clocks.
//! * That difference (5 s) is the margin for requests that were sent in time and are applied late. The sender drops a write at
//!   the end of the hold ([`LeaseHold::within`]). A server that had read the request by then has the margin to apply it.
//!
//! No lease can rule out a request that is applied later than the margin, or a monotonic clock that stood still while the machine
//! was suspended. Therefore every write also carries a uid or a resourceVersion as precondition, or creates an object under a
//! fixed name. The first write of a term to a job is its fence (the term in the job's mirror).
//!
//! A hold that ended stays ended, even if the Lease could be renewed afterwards. [`Elector::acquire`] then returns a new hold,
//! and the new leadership starts a new term.
//!
//! Deleting the Lease while a leader lives ends that leadership at its next renewal. Until then a process that starts may acquire
//! a new Lease. The fence and the preconditions cover that case.
//!
//! Tests: `lease/tests.rs` (a Lease server in memory, virtual time), `tests/leadership.rs` (a real API server).

mod announce;
mod elector;
mod hold;
mod record;
mod renewer;
#[cfg(test)]
mod tests;
pub(crate) mod write_guard;

use std::time::Duration;

use model::Term;

pub use self::elector::Elector;
pub use self::hold::LeaseHold;
pub use self::record::{Leader, find_leader};

/// Address at which this process serves its log, as written in the Lease while it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The base address, for example `https://10.1.2.3:8443`.
    pub address: String,
    /// Certificate (PEM) that readers trust for it; `None` if an authority known to readers signed it.
    pub certificate: Option<String>,
}

impl Advertised {
    /// Returns the audience of tokens for this server. It names the address and the certificate, so that a server with another
    /// one can do nothing with a token it was sent.
    pub fn audience(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.address.as_bytes()).update(b"\n");
        hasher.update(self.certificate.as_deref().unwrap_or_default().as_bytes());
        format!("https://trainyard.dev/log/{}", hasher.finalize().to_hex())
    }
}

/// Settings of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process, unique among all processes, earlier ones included. See [`LeaseOptions::identity_of`].
    pub identity: String,
    /// Time after a renewal that other candidates wait before they acquire the Lease.
    pub duration: Duration,
    /// Time after a renewal that the holder may write.
    pub renew_deadline: Duration,
    /// Interval between renewals, and between attempts while the API server does not answer.
    pub retry_period: Duration,
    /// Address of the served log while this process leads; `None` if it is not served.
    pub advertised: Option<Advertised>,
}

impl LeaseOptions {
    /// Default name of the Lease.
    pub const NAME: &'static str = "trainyard";

    /// Returns the default times (15 s, 10 s, 2 s) and name, in `namespace`, for `identity`.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: Self::NAME.to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            advertised: None,
        }
    }

    /// Returns an identity for a process on `host` (in a pod, the pod's name): the host, an underscore and random digits.
    pub fn identity_of(host: &str) -> String {
        format!("{host}_{:016x}", record::random())
    }

    /// Returns the time in which requests that were sent in time can be applied before another process may lead.
    pub fn margin(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline)
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// [`Error::Options`] naming the setting and its value.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |setting, value: String, must| Err(Error::Options { setting, value, must });
        for (setting, text) in [("namespace", &self.namespace), ("name", &self.name), ("identity", &self.identity)] {
            if text.is_empty() {
                return refuse(setting, String::new(), "must not be empty".to_owned());
            }
        }
        let seconds = self.duration.as_secs();
        if self.duration.subsec_nanos() != 0 || seconds == 0 || i32::try_from(seconds).is_err() {
            return refuse("duration", format!("{:?}", self.duration), "must be whole seconds, at least 1s".to_owned());
        }
        if self.renew_deadline >= self.duration {
            let must = format!("must be shorter than the lease duration, {:?}", self.duration);
            return refuse("renew deadline", format!("{:?}", self.renew_deadline), must);
        }
        if self.retry_period.is_zero() || self.retry_period * 2 > self.renew_deadline {
            let must = format!("must be above zero and at most half the renew deadline, {:?}", self.renew_deadline);
            return refuse("retry period", format!("{:?}", self.retry_period), must);
        }
        Ok(())
    }

    /// Returns the time limit of one request about the Lease: a second one still fits before the deadline.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// An error of leader election.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("lease {setting} {value:?} {must}")]
    Options {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The requirement.
        must: String,
    },
    /// Leadership is lost; this process must not write any more.
    #[error("leadership is lost: {why}")]
    Lost {
        /// Why.
        why: String,
    },
    /// The Lease already carries this term or a later one: propose a greater one.
    #[error("term {offered} is not greater than term {last} in the Lease")]
    TermTaken {
        /// The claimed term.
        offered: Term,
        /// The term in the Lease.
        last: Term,
    },
    /// The Lease cannot be read.
    #[error("Lease {namespace}/{name} cannot be read")]
    Read {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's error.
        source: Box<kube::Error>,
    },
}
