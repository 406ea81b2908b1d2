//! A record with every word and member that format 5 adds, and a state with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fact::Adopted;
use model::{
    ClusterFact, Config, Coordination, Demand, JobEvent, JobFact, JobSpec, Kind, LabelSelector, Measurement,
    Measurements, Mirror, ObjectFact, Progress, QueueEvent, QueueReport, QueueSelector, QuotaFact, ResourceVersion,
    SpeedSample, Timestamp, UserCounts,
};
use scheduler::queues::{QueueLoad, Turns};

use super::values::{self, Contents, key, spec_fact, stamp};
use crate::job::Job;
use crate::state::State;

const COUNTS: UserCounts = UserCounts { pending: 1, running: 2, finished: 3, gpus: 4 };

pub(super) fn coordination() -> Coordination {
    Coordination {
        queue: "q".into(),
        priority: Some(-5),
        class: Some("high".into()),
        tasks: 3,
        request: BTreeMap::from([("cpu".into(), 1500)]),
        scoped: Vec::new(),
        submitted: Timestamp(7),
    }
}

fn coordinated() -> [JobSpec; 2] {
    let bare = Coordination { priority: None, class: None, tasks: 0, request: BTreeMap::new(), ..coordination() };
    [coordination(), bare]
        .map(|coordination| JobSpec { coordination: Some(Box::new(coordination)), ..JobSpec::default() })
}

pub(super) fn quota() -> QuotaFact {
    let amounts = |amount| BTreeMap::from([("cpu".into(), amount)]);
    QuotaFact {
        namespace: "ns".into(),
        name: "q".into(),
        rv: ResourceVersion(9),
        hard: amounts(2000),
        used: amounts(500),
        scopes: LabelSelector::default(),
    }
}

fn sizes() -> Measurements {
    [(2, Measurement { units: 3, took_ms: 4 }), (8, Measurement { units: 5, took_ms: 6 })].into()
}

fn progress() -> Progress {
    Progress { done: 8, total: Some(60), sizes: sizes() }
}

fn sample() -> SpeedSample {
    SpeedSample {
        category: "ns/c".into(),
        resource: "nvidia.com/gpu".into(),
        jobs: vec!["u1".into()],
        at: Timestamp(7),
        sizes: sizes(),
    }
}

fn report() -> QueueReport {
    QueueReport { speed_samples: vec![sample()], ..QueueReport::default() }
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
pub(super) fn facts() -> Vec<JobFact> {
    let counting = JobSpec { counts_referrers: true, ..JobSpec::default() };
    let demands = [
        Demand { category: Some("c".into()), ..demand() },
        Demand { units: Some(60), ..demand() },
        Demand { level: 1, ..demand() },
    ];
    let demanding = demands.map(|demand| JobSpec { demand: Some(demand), ..JobSpec::default() });
    let specs = coordinated().into_iter().chain([counting]).chain(demanding);
    let mut facts: Vec<JobFact> = specs.map(|spec| JobFact::Spec(Box::new(spec_fact(spec)))).collect();
    let [_, bare] = values::job_facts();
    let job = |progress| JobFact::Object(Box::new(ObjectFact { progress: Some(Box::new(progress)), ..bare.clone() }));
    let mirrors = [
        Mirror { dequeued_at: Some(Timestamp(8)), ..values::mirror() },
        Mirror { speed_samples: vec![sample()], ..values::mirror() },
    ];
    facts.extend(mirrors.map(|mirror| JobFact::Adopted(Box::new(Adopted { mirror, ..values::adopted() }))));
    facts.extend([job(progress()), job(Progress::default())]);
    facts.extend([JobFact::QueueReported(Box::new(report())), JobFact::Dequeued]);
    facts
}

/// Facts about the cluster each of which needs format 5.
pub(super) fn cluster_facts() -> Vec<ClusterFact> {
    let selectors = [QueueSelector::WeightedRoundRobin, QueueSelector::SmoothWeightedRoundRobin];
    let selected = selectors.map(|queue_selector| Config { queue_selector, ..Config::default() });
    let configs = selected.into_iter().chain([Config { dequeue_period_ms: 5, ..Config::default() }]);
    let mut facts: Vec<ClusterFact> = configs.map(|config| ClusterFact::Configured(Box::new(config))).collect();
    facts.extend([
        ClusterFact::Quota(Box::new(quota())),
        ClusterFact::Quota(Box::new(QuotaFact { hard: BTreeMap::new(), used: BTreeMap::new(), ..quota() })),
        ClusterFact::QuotaGone { namespace: "ns".into(), name: "q".into() },
        ClusterFact::Relisted { kind: Kind::Quota, of: None, rv: ResourceVersion(3) },
    ]);
    facts
}

/// Events each of which needs format 5.
pub(super) fn events() -> Vec<JobEvent> {
    vec![JobEvent::UsersCounted(COUNTS), JobEvent::UsersCounted(UserCounts::default())]
}

/// Events of the queues, each of which needs format 5.
pub(super) fn queue_events() -> Vec<QueueEvent> {
    vec![
        QueueEvent::Dequeued { job: key(), turns: "{}".into() },
        QueueEvent::Reported { queues: vec![(key(), report())] },
    ]
}

/// All of them.
pub(super) fn contents() -> Contents {
    Contents { facts: facts(), events: events(), cluster: cluster_facts(), queues: (Vec::new(), queue_events()) }
}

/// A state with every member that format 5 adds.
pub(crate) fn state() -> State {
    let demand = Demand { category: Some("c".into()), units: Some(60), level: 1, ..demand() };
    let [coordinated, _] = coordinated();
    let job = Job {
        users: COUNTS,
        dequeued_at: Some(Timestamp(8)),
        valid: Some(Arc::new(spec_fact(JobSpec { demand: Some(demand), ..coordinated }))),
        progress: Some(Box::new(progress())),
        speed_samples: vec![sample()],
        ..Job::default()
    };
    let mut state =
        State { stamp: stamp(21), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 5, ..State::default() };
    let mut turns = Turns::new(QueueSelector::SmoothWeightedRoundRobin);
    turns.take(&["a", "b"].map(|name| QueueLoad { name: name.into(), weight: 2 }));
    let coordinator = &mut state.queues.coordinator;
    coordinator.set_quota(quota());
    (coordinator.turns, coordinator.dequeued_at) = (Some(turns), Some(Timestamp(9)));
    state
}
