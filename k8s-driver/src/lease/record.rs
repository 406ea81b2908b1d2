//! Reads and changes the Lease object. Fields and annotations of other tools stay as they are.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, Client};
use model::Term;

use super::{Advertised, Error, LeaseOptions};

/// Annotation of the last claimed term, in decimal. It never decreases.
pub(super) const TERM: &str = "trainyard.dev/term";
/// Annotation of the address at which the holder serves its log.
pub(super) const LOG_ADDRESS: &str = "trainyard.dev/log-address";
/// Annotation of the certificate that readers of that log trust, as PEM.
pub(super) const LOG_CERTIFICATE: &str = "trainyard.dev/log-certificate";

/// The leader, as the Lease names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Identity: in a cluster the pod's name, an underscore and random digits.
    pub identity: String,
    /// Last term it claimed; zero before the first.
    pub term: Term,
    /// Address at which it serves its log; `None` if it does not.
    pub advertised: Option<Advertised>,
}

/// Returns the holder of the Lease; `None` if it has none. Does not check that the holder is alive.
///
/// # Errors
/// [`Error::Read`] if there is no Lease or it cannot be read.
pub async fn find_leader(client: Client, namespace: &str, name: &str) -> Result<Option<Leader>, Error> {
    let fail =
        |source| Error::Read { namespace: namespace.to_owned(), name: name.to_owned(), source: Box::new(source) };
    Ok(leader(&Api::namespaced(client, namespace).get(name).await.map_err(fail)?))
}

/// Returns the holder with its annotations.
pub(super) fn leader(lease: &Lease) -> Option<Leader> {
    let identity = holder(lease)?.to_owned();
    let advertised = annotation(lease, LOG_ADDRESS).map(|address| Advertised {
        address: address.to_owned(),
        certificate: annotation(lease, LOG_CERTIFICATE).map(str::to_owned),
    });
    Some(Leader { identity, term: term(lease), advertised })
}

/// Returns the identity of the holder; `None` if the Lease was released.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns the last claimed term; zero if the annotation is absent or unreadable.
pub(super) fn term(lease: &Lease) -> Term {
    Term(annotation(lease, TERM).and_then(|text| text.parse().ok()).unwrap_or_default())
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// Returns the lease duration that the holder wrote; `otherwise` if it is absent.
pub(super) fn duration(lease: &Lease, otherwise: Duration) -> Duration {
    let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    said.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map_or(otherwise, Duration::from_secs)
}

/// Returns true if two readings show the same renewal. Edits of labels or annotations renew nothing.
pub(super) fn same_renewal(a: &Lease, b: &Lease) -> bool {
    let (a, b) = (a.spec.as_ref(), b.spec.as_ref());
    let key = |spec: &LeaseSpec| {
        (spec.holder_identity.clone(), spec.renew_time.clone(), spec.acquire_time.clone(), spec.lease_transitions)
    };
    a.map(key) == b.map(key)
}

/// A change of the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Acquire it, or create it.
    Acquire,
    /// Renew it.
    Renew,
    /// Release it.
    Release,
}

/// Returns the Lease after a change, with the resourceVersion of `before` as precondition and at least the term `term_known`.
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
                // The first holder counts as no transition, as in client-go.
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

/// Returns the present time, or a microsecond after `last` if the wall clock was set back: each renewal must differ from the
/// one before.
fn later_than(last: Option<&MicroTime>) -> Timestamp {
    let now = Timestamp::now();
    let after = last.and_then(|last| last.0.checked_add(SignedDuration::from_micros(1)).ok());
    after.map_or(now, |after| after.max(now))
}

/// Returns a random number, used for names and for jitter only.
pub(super) fn random() -> u64 {
    std::hash::RandomState::new().hash_one(0u8)
}

/// Returns `period` plus up to a fifth of it, so that candidates that started together spread their requests.
pub(super) fn jittered(period: Duration) -> Duration {
    let share = u32::try_from(random() % 200).unwrap_or_default();
    period + period * share / 1000
}
