//! A record with every member that format 5 adds, and a state with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::fact::Adopted;
use model::{
    Demand, Event, Fact, JobFact, JobSpec, Lesson, Measurement, Measurements, Mirror, Progress, QueueReport, Timestamp,
};

use super::values::{self, key, spec_fact, stamp};
use crate::Scope;
use crate::job::Job;
use crate::state::State;
use crate::wire::Record;

fn sizes() -> Measurements {
    [(2, Measurement { units: 3, took_ms: 4 }), (8, Measurement { units: 5, took_ms: 6 })].into()
}

fn progress() -> Progress {
    Progress { done: 8, total: Some(60), sizes: sizes() }
}

fn lesson() -> Lesson {
    Lesson {
        category: "ns/c".into(),
        resource: "nvidia.com/gpu".into(),
        jobs: vec!["u1".into()],
        at: Timestamp(7),
        sizes: sizes(),
    }
}

fn report() -> QueueReport {
    QueueReport { lessons: vec![lesson()], ..QueueReport::default() }
}

fn demand() -> Demand {
    Demand {
        queue: None,
        priority: None,
        classes: BTreeSet::new(),
        submitted: Timestamp(4),
        category: None,
        units: None,
        level: 0,
    }
}

/// Facts about a job, each of which needs format 5.
pub(super) fn facts() -> Vec<Fact> {
    let [_, bare] = values::job_facts();
    let job = |progress| Fact::Job(Box::new(JobFact { progress: Some(Box::new(progress)), ..bare.clone() }));
    let spec = |demand| Fact::Spec(Box::new(spec_fact(JobSpec { demand: Some(demand), ..JobSpec::default() })));
    let mirror = Mirror { learnt: vec![lesson()], ..values::mirror() };
    vec![
        job(progress()),
        job(Progress::default()),
        spec(Demand { category: Some("c".into()), ..demand() }),
        spec(Demand { units: Some(60), ..demand() }),
        spec(Demand { level: 1, ..demand() }),
        Fact::QueueReported(Box::new(report())),
        Fact::Adopted(Box::new(Adopted { mirror, ..values::adopted() })),
    ]
}

/// Events each of which needs format 5.
pub(super) fn events() -> Vec<Event> {
    vec![Event::Reported { queues: vec![(key(), report())] }]
}

/// A record of all of them.
pub(super) fn record() -> Record {
    Record { scope: Scope::Queues, facts: facts(), events: events(), ..values::record() }
}

/// A state with every member that format 5 adds.
pub(crate) fn state() -> State {
    let demand = Demand { category: Some("c".into()), units: Some(60), level: 1, ..demand() };
    let spec = spec_fact(JobSpec { demand: Some(demand), ..JobSpec::default() });
    let job = Job {
        valid: Some(Arc::new(spec)),
        progress: Some(Box::new(progress())),
        learnt: vec![lesson()],
        ..Job::default()
    };
    State { stamp: stamp(21), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 5, ..State::default() }
}
