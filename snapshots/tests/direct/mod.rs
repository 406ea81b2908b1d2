//! One fact offered to one job in a given phase, past the operator: what the engine makes of it.

use engine::State;
use model::fact::{Adopted, EndRequest};
use model::{
    JobFact, JobKey, ObjectFact, ObjectRef, Outcome, Phase, Position, ResourceVersion, ServiceFact, SlotId, Stamp, Uid,
};

use crate::per_api::Api;

const ORIGIN: &str = "direct";

/// Name of a record without facts, beside the names of facts.
pub(crate) const WITHOUT_FACTS: &str = "(none)";

/// A job brought into a phase by a small scenario.
fn state_in(api: &Api, phase: Phase) -> (State, JobKey) {
    let place = format!("{} in phase {phase:?}", api.name);
    let text = (api.enter)(phase);
    let scenario = simulator::parse(&text, ORIGIN).unwrap_or_else(|error| panic!("{place}: {error}"));
    let outcome = simulator::run(&scenario).unwrap_or_else(|error| panic!("{place}: {error}"));
    let state = outcome.state;
    let key = state.jobs.keys().next().unwrap_or_else(|| panic!("{place}: no job")).clone();
    assert_eq!(state.job(&key).map(|j| j.phase), Some(phase), "the small scenario leads there");
    (state, key)
}

/// A fact of a kind, as it might come next for this job.
fn sample(api: &Api, kind: &str, state: &State, key: &JobKey) -> Option<JobFact> {
    let job = state.job(key)?;
    let rv = ResourceVersion(1_000_000);
    let slot = SlotId { group: api.group.into(), index: 0 };
    let name = format!("j-{}-0", api.group);
    let stamp = Stamp { term: state.stamp.term, position: state.stamp.position };
    let pod = job.pods.values().next().map(|p| p.fact.clone());
    Some(match kind {
        "Job" => JobFact::Object(Box::new(ObjectFact {
            rv,
            deleting: false,
            end_requests: [(EndRequest::Failed, "asked so".into())].into(),
            end_annotated: false,
            mirror: job.stamps.observed(),
            finalizers: Vec::new(),
            finalized: false,
            reported_end: None,
            progress: None,
        })),
        "Spec" => JobFact::Spec(Box::new((**job.spec.as_ref()?).clone())),
        "JobGone" => JobFact::Gone,
        "Pod" => JobFact::Pod(Box::new(model::PodFact { rv, ..pod.unwrap_or_else(|| stranger(slot, &name, rv)) })),
        "PodGone" => JobFact::PodGone { uid: pod.map_or_else(|| Uid::from("pod-x"), |p| p.uid), rv: None },
        "Service" => JobFact::Service(Box::new(ServiceFact {
            uid: Uid::from("service-x"),
            slot: Some(slot),
            name: name.into(),
            rv,
            deleting: false,
        })),
        "ServiceGone" => {
            JobFact::ServiceGone { uid: job.services.keys().next().cloned().unwrap_or_else(|| Uid::from("service-x")) }
        }
        "Owned" => JobFact::Owned(Box::new(owned(&job, rv))),
        "OwnedGone" => JobFact::OwnedGone { uid: owned(&job, rv).uid },
        "NodeChanged" => JobFact::NodeChanged { name: "n1".into() },
        "Answered" => JobFact::Answered { object: ObjectRef::Pod(slot), outcome: Outcome::Unknown { code: 500 } },
        "Published" => JobFact::Published { stamp, rv },
        "Due" => JobFact::Due,
        "Adopted" => JobFact::Adopted(Box::new(Adopted {
            mirror: job.mirror(),
            restarts: std::collections::BTreeMap::new(),
            remarks: false,
            milestones: job.milestones.iter().cloned().collect(),
            started_at: job.started_at,
            running_at: job.running_at,
            ended_at: job.ended_at,
            finals: job.finals.clone(),
        })),
        _ => return None,
    })
}

/// An object that the job owns, or a claim that was never decided.
fn owned(job: &engine::Job, rv: ResourceVersion) -> model::OwnedFact {
    let known = job.owned.values().find_map(|owned| owned.fact.clone());
    known.map_or_else(
        || model::OwnedFact {
            object: model::OwnedRef::new("v1", "PersistentVolumeClaim", "claim-x"),
            uid: Uid::from("claim-x"),
            rv,
            deleting: false,
            keep: model::Retain::WithJob,
            ready: false,
            failed: None,
            digest: None,
            gate: None,
            contents: None,
        },
        |known| model::OwnedFact { rv, ..known },
    )
}

/// A pod that was never decided.
fn stranger(slot: SlotId, name: &str, rv: ResourceVersion) -> model::PodFact {
    model::PodFact {
        incarnation: model::Incarnation(1),
        phase: model::PodPhase::Running,
        node: Some("n1".into()),
        ..model::PodFact::accepted(Uid::from("pod-x"), name.into(), Some(slot), rv)
    }
}

/// Returns the outcome of a fact of that kind for a job in that phase; `None` where this file has no fact of that kind.
pub(crate) fn tried(api: &Api, phase: Phase, kind: &str) -> Option<String> {
    let (mut state, key) = state_in(api, phase);
    let before = state.job(&key).map(|job| engine::wire::job_value(&job));
    state.begin(Stamp { term: state.stamp.term, position: Position(state.stamp.position.0 + 1) }, state.at);
    let then = ["Job", "Spec"].map(|kind| sample(api, kind, &state, &key));
    if kind != WITHOUT_FACTS {
        state.apply_job_fact(&key, &sample(api, kind, &state, &key)?);
    }
    if kind == "Adopted" {
        // An adoption is followed by what the object says, in the same record.
        for fact in then.into_iter().flatten() {
            state.apply_job_fact(&key, &fact);
        }
    }
    let events = engine::step(&mut state, &key);
    let Some(job) = state.job(&key) else { return Some("the job is forgotten".to_owned()) };
    let after = engine::wire::job_value(&job);
    let names: Vec<&str> = events.iter().map(model::JobEvent::name).collect();
    Some(match (events.is_empty(), job.phase == phase) {
        (true, _) if before.as_ref() == Some(&after) => "no effect".to_owned(),
        (true, _) => "noted, nothing decided".to_owned(),
        (false, true) => format!("same phase, {}", names.join(", ")),
        (false, false) => format!("{:?}, {}", job.phase, names.join(", ")),
    })
}
