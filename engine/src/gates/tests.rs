//! Jobs behind a gate in every state of it: whether it is open, and what is reported on it.

use std::collections::BTreeMap;

use model::{CreatePhase, JobSpec, ResourceVersion, Retain, Text};

use super::*;
use crate::ObjectState;
use crate::group::Group;
use crate::job::{Attempt, Owned, PendingDeletion};
use model::{GroupSpec, Outcome};

fn gate() -> OwnedSpec {
    OwnedSpec {
        object: OwnedRef::new("kueue.x-k8s.io/v1beta1", "Workload", "j"),
        when: CreatePhase::Accepted,
        awaits: ReadinessGate::Admitted,
        keep: Retain::WithJob,
        digest: Some("d-1".into()),
        follows: None,
        pods: Some("d".into()),
    }
}

fn fact(ready: bool, state: GateFact) -> OwnedFact {
    OwnedFact {
        object: gate().object,
        uid: "w1".into(),
        rv: ResourceVersion(3),
        deleting: false,
        keep: Retain::WithJob,
        ready,
        failed: None,
        digest: Some("d-1".into()),
        gate: Some(Box::new(GateFact { pods: Some("d".into()), ..state })),
        contents: None,
    }
}

/// A job of one worker, of which `running` run, behind a gate as it was observed.
fn job(running: u32, observed: Option<OwnedFact>) -> Job {
    let group = GroupSpec { name: "worker".into(), replicas: 1, ..GroupSpec::default() };
    let spec = JobSpec { groups: vec![group], owned: vec![gate()], ..JobSpec::default() };
    let spec = Arc::new(SpecFact::of(Ok(spec), Text::from("{}")));
    let mut workers = Group { replicas: 1, ..Group::default() };
    workers.counters.active = running;
    let owned = observed.map(|fact| (gate().object, Box::new(Owned { fact: Some(fact), ..Owned::default() })));
    Job {
        object: ObjectState::present(ResourceVersion(0)),
        phase: Phase::Pending,
        spec: Some(Arc::clone(&spec)),
        valid: Some(spec),
        groups: BTreeMap::from([("worker".into(), Box::new(workers))]),
        owned: owned.into_iter().collect(),
        ..Job::default()
    }
}

fn holds() -> GateFact {
    GateFact { holds_quota: true, ..GateFact::default() }
}

#[test]
fn a_gate_is_open_while_it_admits_the_pods_that_are_asked_for() {
    let is_open = |job: &Job| job.blocked_by_gate().is_none();
    assert!(is_open(&job(0, Some(fact(true, holds())))));
    assert!(!is_open(&job(0, None)), "not created yet");
    assert!(!is_open(&job(0, Some(fact(false, holds())))));
    assert!(!is_open(&job(0, Some(OwnedFact { deleting: true, ..fact(true, holds()) }))));
    let mut other = fact(true, holds());
    other.gate = Some(Box::new(GateFact { pods: Some("other".into()), ..holds() }));
    let other = job(0, Some(other));
    assert!(!is_open(&other) && other.counts_other_pods(&gate()));
    let mut dropped = job(0, Some(fact(true, holds())));
    dropped.owned.get_mut(&gate().object).unwrap().deletion = Some(Box::new(PendingDeletion::unconditional()));
    assert!(!is_open(&dropped));
}

#[test]
fn a_cluster_without_the_type_has_no_gate() {
    let mut job = job(0, None);
    let last = Outcome::Refused { code: 404, message: "not served".into() };
    job.attempts.insert(ObjectRef::Owned(gate().object), Attempt { failures: 1, retry_at: None, last });
    assert_eq!((job.gate(), job.blocked_by_gate(), job.withdrawal()), (None, None, None));
}

#[test]
fn what_pods_get_something_from_is_read_before_they_are_created() {
    let flavor = OwnedRef::new("kueue.x-k8s.io/v1beta1", "ResourceFlavor", "a100");
    let reads = GateFact { reads: vec![flavor.clone()], ..holds() };
    let mut job = job(0, Some(fact(true, reads)));
    assert_eq!(job.blocked_by_gate().unwrap().to_string(), "waiting until ResourceFlavor a100 is read");
    assert_eq!(job.withdrawal(), None, "pods that run stay");
    let read = OwnedFact { object: flavor.clone(), keep: Retain::Left, gate: None, ..fact(true, holds()) };
    job.owned.insert(flavor, Box::new(Owned { fact: Some(read), ..Owned::default() }));
    assert_eq!((job.unread().count(), job.blocked_by_gate()), (0, None));
}

#[test]
fn a_gate_that_is_asked_for_no_more_is_waited_for() {
    let mut job = job(0, Some(fact(true, holds())));
    let spec = JobSpec { groups: job.spec().unwrap().groups.clone(), ..JobSpec::default() };
    job.valid = Some(Arc::new(SpecFact::of(Ok(spec), Text::from("{}"))));
    assert_eq!(job.blocked_by_gate().unwrap().to_string(), "waiting until Workload j is deleted");
    job.owned.clear();
    assert_eq!(job.blocked_by_gate(), None);
}

#[test]
fn the_report_follows_from_the_job_and_the_gate() {
    let report = |job: &Job| job.gate_report().map(|(_, report)| report);
    let evicted = || GateFact { evicted: true, ..holds() };
    let ended = |phase| Job { phase, ..job(0, Some(fact(true, holds()))) };
    for (job, want) in [
        (job(1, Some(fact(true, holds()))), Some(GateReport::PodsReady(true))),
        (job(0, Some(fact(true, holds()))), None),
        (job(0, Some(fact(true, GateFact { pods_ready: true, ..holds() }))), Some(GateReport::PodsReady(false))),
        (job(1, Some(fact(true, GateFact { pods_ready: true, ..holds() }))), None),
        (job(0, Some(fact(false, evicted()))), Some(GateReport::Released)),
        (job(0, Some(fact(false, GateFact { holds_quota: false, ..evicted() }))), None),
        // Admission checks may still be under way.
        (job(0, Some(fact(false, holds()))), None),
        (ended(Phase::Succeeded), Some(GateReport::Finished { succeeded: true })),
        (ended(Phase::TimedOut), Some(GateReport::Finished { succeeded: false })),
        (Job { phase: Phase::Failed, ..job(0, Some(fact(false, GateFact { finished: true, ..holds() }))) }, None),
    ] {
        assert_eq!(report(&job), want, "{:?} {:?}", job.phase, job.owned);
    }
    let mut busy = job(0, Some(fact(false, evicted())));
    busy.planned_pods.insert(model::SlotId { group: "worker".into(), index: 0 });
    assert_eq!(report(&busy), None, "a creation is unresolved");
    let unwritten =
        Job { decided: model::Stamp { term: model::Term(1), ..Default::default() }, ..ended(Phase::Failed) };
    assert_eq!(report(&unwritten), None, "its end is not in the mirror yet");
}
