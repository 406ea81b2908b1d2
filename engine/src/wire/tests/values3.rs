//! A record with every word and member that format 3 adds, and a state with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::command::Outcome;
use model::fact::{Adopted, Milestone};
use model::{
    Budget, ClusterFact, CreatePhase, Dependency, Edits, GroupSpec, JobEvent, JobFact, JobSpec, Kind, Mirror, Missing,
    ObjectFact, ObjectRef, OwnedFact, OwnedRef, OwnedSpec, Phase, PhaseRules, Reached, ReadinessGate, ResourceVersion,
    Retain, SpecFact, Stamp, Threshold, Timestamp,
};

use super::values::{self, Contents, key, spec_fact, stamp};
use crate::group::Group;
use crate::job::{Job, Owned, PendingDeletion};
use crate::state::State;

fn object(name: &str) -> OwnedRef {
    OwnedRef::new("v1", "PersistentVolumeClaim", name)
}

fn owned() -> Vec<OwnedSpec> {
    let of = |name, when, awaits, keep| OwnedSpec {
        object: object(name),
        when,
        awaits,
        keep,
        digest: None,
        follows: None,
        pods: None,
    };
    let owned = of("a", CreatePhase::Accepted, ReadinessGate::Exists, Retain::WithJob);
    vec![
        OwnedSpec { digest: Some("d".into()), follows: Some("g0".into()), ..owned },
        of("b", CreatePhase::Succeeded, ReadinessGate::Nothing, Retain::UntilEnd),
        of("c", CreatePhase::Accepted, ReadinessGate::Ready, Retain::Retained),
        of("d", CreatePhase::Accepted, ReadinessGate::Ready, Retain::Finalized),
    ]
}

fn specs() -> Vec<JobSpec> {
    let bare = JobSpec::default;
    let group = || GroupSpec { name: "g1".into(), ..GroupSpec::default() };
    let of = |group| JobSpec { groups: vec![group], ..JobSpec::default() };
    let after = [Reached::Scheduled, Reached::Running, Reached::Succeeded]
        .map(|reached| Dependency { group: "g0".into(), reached });
    vec![
        JobSpec { owned: owned(), ..bare() },
        JobSpec { finalizer: true, ..bare() },
        JobSpec { edits: Edits::Numbers, ..bare() },
        JobSpec { phase_rules: PhaseRules { queued: true, ..PhaseRules::default() }, ..bare() },
        of(GroupSpec { after: after.to_vec(), ..group() }),
        of(GroupSpec { once: true, ..group() }),
        of(GroupSpec { drops_succeeded: true, ..group() }),
        of(GroupSpec {
            budget: Some(Budget { limit: 3, containers: true, reach: Threshold::Above, rounds: false }),
            ..group()
        }),
    ]
}

fn missing() -> SpecFact {
    let of = |problem| Missing { kind: "Queue".into(), name: "q".into(), problem };
    SpecFact {
        spec: Err(vec![]),
        missing: vec![of(None), of(Some("no template".into()))],
        ..spec_fact(JobSpec::default())
    }
}

pub(super) fn owned_fact() -> OwnedFact {
    OwnedFact {
        object: object("a"),
        uid: "o1".into(),
        rv: ResourceVersion(5),
        deleting: true,
        keep: Retain::Finalized,
        ready: true,
        failed: Some("lost".into()),
        digest: Some("d".into()),
        gate: None,
        contents: None,
    }
}

fn object_fact() -> ObjectFact {
    ObjectFact {
        rv: ResourceVersion(9),
        deleting: false,
        end_requests: BTreeMap::new(),
        end_annotated: false,
        mirror: Stamp::default(),
        finalizers: vec![],
        finalized: false,
        reported_end: None,
        progress: None,
    }
}

/// Facts each of which needs format 3.
pub(super) fn facts() -> Vec<JobFact> {
    let mut facts: Vec<JobFact> = specs().into_iter().map(|spec| JobFact::Spec(Box::new(spec_fact(spec)))).collect();
    let needs = SpecFact { needs: vec![("Queue".into(), "q".into())], ..spec_fact(JobSpec::default()) };
    facts.extend([missing(), needs].map(|fact| JobFact::Spec(Box::new(fact))));
    facts.push(JobFact::Owned(Box::new(owned_fact())));
    facts.push(JobFact::Owned(Box::new(OwnedFact {
        deleting: false,
        keep: Retain::WithJob,
        ready: false,
        failed: None,
        digest: None,
        ..owned_fact()
    })));
    facts.push(JobFact::OwnedGone { uid: "o1".into() });
    facts.push(JobFact::Object(Box::new(ObjectFact { finalizers: vec!["x/y".into()], ..object_fact() })));
    facts.push(JobFact::Object(Box::new(ObjectFact { finalized: true, ..object_fact() })));
    for object in [ObjectRef::Owned(object("a")), ObjectRef::Finalizer] {
        facts.push(JobFact::Answered { object, outcome: Outcome::Unknown { code: 500 } });
    }
    let adopted = |mirror| JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() }));
    facts.push(adopted(Mirror { achieved: [("g0".into(), "2".into())].into(), ..values::mirror() }));
    facts.push(adopted(Mirror { phase: Phase::Preparing, ..values::mirror() }));
    let queued = Milestone { phase: Phase::Queued, at: Timestamp(1), message: "".into() };
    facts.push(JobFact::Adopted(Box::new(Adopted { milestones: vec![queued], ..values::adopted() })));
    facts
}

/// A fact about the cluster that needs format 3.
pub(super) fn cluster_fact() -> ClusterFact {
    ClusterFact::Relisted { kind: Kind::Owned, of: Some("claims".into()), rv: ResourceVersion(3) }
}

/// Events each of which needs format 3.
pub(super) fn events() -> Vec<JobEvent> {
    vec![
        JobEvent::OwnedPlanned { objects: vec![object("a"), object("b")] },
        JobEvent::OwnedDropped { objects: vec![object("a")] },
        JobEvent::Achieved { group: "g0".into(), run: "2".into() },
        JobEvent::PhaseChanged { to: Phase::Preparing, message: "".into() },
        JobEvent::PhaseChanged { to: Phase::Queued, message: "".into() },
    ]
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), cluster: vec![cluster_fact()], ..Contents::default() }
}

/// A state with every member that format 3 adds.
pub(crate) fn state() -> State {
    let group = Group { achieved: Some("2".into()), ..values::group() };
    let deletion = Some(Box::new(PendingDeletion { requires: stamp(7), ordered: true, forced: false }));
    let full = Owned { fact: Some(owned_fact()), planned: true, deletion };
    let job = Job {
        phase: Phase::Preparing,
        valid: Some(Arc::new(spec_fact(JobSpec { owned: owned(), ..JobSpec::default() }))),
        groups: [("g0".into(), Box::new(group))].into(),
        owned: [(object("a"), Box::new(full)), (object("b"), Box::default())].into(),
        finalizers: vec!["x/y".into()],
        finalized: true,
        ..Job::default()
    };
    State { stamp: stamp(19), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 3, ..State::default() }
}
