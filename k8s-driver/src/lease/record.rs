//! The Lease object: what stands in it, and how it is changed. Everything of other tools in it is kept.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, Client};
use model::Term;

use super::{Advertised, Error, LeaseOptions};

/// The last term that was claimed, in decimal. Never decreases.
pub(super) const TERM: &str = "trainyard.dev/term";
/// Where the holder serves its log.
pub(super) const LOG_ADDRESS: &str = "trainyard.dev/log-address";
/// The certificate a reader of that log shall trust, as PEM.
pub(super) const LOG_CERTIFICATE: &str = "trainyard.dev/log-certificate";

/// Who leads, as the Lease tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its identity: in a cluster the pod's name, an underscore and random digits.
    pub identity: String,
    /// The last term it claimed; zero before the first.
    pub term: Term,
    /// Where it serves its log.
    pub advertised: Option<Advertised>,
}

/// Reads from the Lease who leads at present; `None` when nobody does. Whether the holder is still alive is not judged.
///
/// # Errors
/// [`Error::Read`] when there is no Lease or it cannot be read.
pub async fn find_leader(client: Client, namespace: &str, name: &str) -> Result<Option<Leader>, Error> {
    let fail =
        |source| Error::Read { namespace: namespace.to_owned(), name: name.to_owned(), source: Box::new(source) };
    Ok(leader(&Api::namespaced(client, namespace).get(name).await.map_err(fail)?))
}

/// The holder and what it says of itself.
pub(super) fn leader(lease: &Lease) -> Option<Leader> {
    let identity = holder(lease)?.to_owned();
    let advertised = annotation(lease, LOG_ADDRESS).map(|address| Advertised {
        address: address.to_owned(),
        certificate: annotation(lease, LOG_CERTIFICATE).map(str::to_owned),
    });
    Some(Leader { identity, term: term(lease), advertised })
}

/// The holder, if the Lease was not released.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// The last claimed term; zero when none stands there, or nothing readable.
pub(super) fn term(lease: &Lease) -> Term {
    Term(annotation(lease, TERM).and_then(|text| text.parse().ok()).unwrap_or_default())
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// How long the holder said that others must wait; `otherwise` when it does not say.
pub(super) fn duration(lease: &Lease, otherwise: Duration) -> Duration {
    let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    said.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map_or(otherwise, Duration::from_secs)
}

/// Whether two readings show the same renewal: another tool that edits labels or annotations renews nothing.
pub(super) fn same_renewal(a: &Lease, b: &Lease) -> bool {
    let (a, b) = (a.spec.as_ref(), b.spec.as_ref());
    let key = |spec: &LeaseSpec| {
        (spec.holder_identity.clone(), spec.renew_time.clone(), spec.acquire_time.clone(), spec.lease_transitions)
    };
    a.map(key) == b.map(key)
}

/// What an update of the Lease changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Take it over, or make it.
    Acquire,
    /// Renew it.
    Renew,
    /// Give it up.
    Release,
}

/// The Lease after a change, with the resourceVersion of `before` as precondition. `term` is the least that stands in it.
pub(super) fn changed(before: Option<&Lease>, change: Change, term_known: Term, options: &LeaseOptions) -> Lease {
    let mut lease = before.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(options.name.clone()),
            namespace: Some(options.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.metadata.managed_fields = None;
    let known = term(&lease).max(term_known);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    if known > Term(0) {
        annotations.insert(TERM.to_owned(), known.to_string());
    }
    let advertised = options.advertised.as_ref().filter(|_| change != Change::Release);
    set(annotations, LOG_ADDRESS, advertised.map(|a| &a.address));
    set(annotations, LOG_CERTIFICATE, advertised.and_then(|a| a.certificate.as_ref()));

    let spec = lease.spec.get_or_insert_default();
    let now = later_than(spec.renew_time.as_ref());
    match change {
        Change::Acquire => {
            if spec.holder_identity.as_ref() != Some(&options.identity) {
                let transitions = spec.lease_transitions.filter(|n| *n >= 0).unwrap_or_default();
                // The first holder is no transition.
                let further = i32::from(before.is_some());
                spec.lease_transitions = Some(transitions.saturating_add(further));
            }
            spec.holder_identity = Some(options.identity.clone());
            spec.acquire_time = Some(MicroTime(now));
        }
        Change::Renew => {}
        Change::Release => spec.holder_identity = Some(String::new()),
    }
    spec.renew_time = Some(MicroTime(now));
    spec.lease_duration_seconds = i32::try_from(options.duration.as_secs()).ok();
    lease
}

fn set(annotations: &mut BTreeMap<String, String>, name: &str, value: Option<&String>) {
    match value {
        Some(value) => annotations.insert(name.to_owned(), value.clone()),
        None => annotations.remove(name),
    };
}

/// The present time, or a microsecond after `last`: a wall clock that was set back must not make a renewal look like the one
/// before.
fn later_than(last: Option<&MicroTime>) -> Timestamp {
    let now = Timestamp::now();
    let after = last.and_then(|last| last.0.checked_add(SignedDuration::from_micros(1)).ok());
    after.map_or(now, |after| after.max(now))
}

/// A number nobody else has. Randomness is only for names and for spreading requests.
pub(super) fn random() -> u64 {
    std::hash::RandomState::new().hash_one(0u8)
}

/// `period`, plus up to a fifth of it: candidates that began together do not stay together.
pub(super) fn jittered(period: Duration) -> Duration {
    let share = u32::try_from(random() % 200).unwrap_or_default();
    period + period * share / 1000
}
