//! A record with every word and member that format 5 adds, and a state with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fact::Adopted;
use model::{
    Config, Coordination, Event, Fact, JobSpec, Kind, Mirror, QueueSelector, QuotaFact, ResourceVersion, Timestamp,
    UserCounts,
};
use scheduler::queues::{QueueLoad, Selector, Turns};

use super::values::{self, key, spec_fact, stamp};
use crate::job::Job;
use crate::state::State;
use crate::wire::Record;

const COUNTS: UserCounts = UserCounts { pending: 1, running: 2, finished: 3, gpus: 4 };

fn coordination() -> Coordination {
    Coordination {
        tenant: "q".into(),
        priority: Some(-5),
        class: Some("high".into()),
        tasks: 3,
        request: BTreeMap::from([("cpu".into(), 1500)]),
        submitted: Timestamp(7),
    }
}

fn coordinated() -> Vec<JobSpec> {
    let bare = Coordination { priority: None, class: None, tasks: 0, request: BTreeMap::new(), ..coordination() };
    let of = |coordination| JobSpec { coordination: Some(Box::new(coordination)), ..JobSpec::default() };
    vec![of(coordination()), of(bare)]
}

fn quota() -> QuotaFact {
    let amounts = |amount| BTreeMap::from([("cpu".into(), amount)]);
    QuotaFact {
        namespace: "ns".into(),
        name: "q".into(),
        rv: ResourceVersion(9),
        hard: amounts(2000),
        used: amounts(500),
    }
}

fn adopted() -> Adopted {
    Adopted {
        mirror: Mirror { dequeued_at: Some(Timestamp(8)), ..Mirror::default() },
        restarts: BTreeMap::new(),
        milestones: Vec::new(),
        started_at: None,
        running_at: None,
        ended_at: None,
        finals: BTreeMap::new(),
        remarks: false,
    }
}

/// Facts about a job or the queues each of which needs format 5.
pub(super) fn facts() -> Vec<Fact> {
    let counting = JobSpec { counts_users: true, ..JobSpec::default() };
    let specs = coordinated().into_iter().chain([counting]);
    let mut facts: Vec<Fact> = specs.map(|spec| Fact::Spec(Box::new(spec_fact(spec)))).collect();
    facts.extend([Fact::Adopted(Box::new(adopted())), Fact::Dequeued]);
    facts
}

/// Facts about the cluster each of which needs format 5.
pub(super) fn cluster_facts() -> Vec<Fact> {
    let selectors = [QueueSelector::WeightedRoundRobin, QueueSelector::SmoothWeightedRoundRobin];
    let selected = selectors.map(|queue_selector| Config { queue_selector, ..Config::default() });
    let configs = selected.into_iter().chain([Config { turn_ms: 5, ..Config::default() }]);
    let mut facts: Vec<Fact> = configs.map(|config| Fact::Configured(Box::new(config))).collect();
    facts.extend([
        Fact::Quota(Box::new(quota())),
        Fact::Quota(Box::new(QuotaFact { hard: BTreeMap::new(), used: BTreeMap::new(), ..quota() })),
        Fact::QuotaGone { namespace: "ns".into(), name: "q".into() },
        Fact::Relisted { kind: Kind::Quota, of: None, rv: ResourceVersion(3) },
    ]);
    facts
}

/// Events each of which needs format 5.
pub(super) fn events() -> Vec<Event> {
    vec![
        Event::UsersCounted(COUNTS),
        Event::UsersCounted(UserCounts::default()),
        Event::Dequeued { job: key(), turns: "{}".into() },
    ]
}

/// A record of all of them.
pub(super) fn record() -> Record {
    let facts = facts().into_iter().chain(cluster_facts()).collect();
    Record { facts, events: events(), ..values::record() }
}

fn turns(selector: &str) -> Option<Turns> {
    let mut turns = Turns::new(Selector::by_name(selector).ok()?);
    let loads = ["a", "b"].map(|name| QueueLoad { name: name.into(), weight: 2 });
    turns.take(&loads).map(|_| turns)
}

/// A state with every member that format 5 adds.
pub(crate) fn state() -> State {
    let spec = coordinated().remove(0);
    let job = Job {
        users: COUNTS,
        dequeued_at: Some(Timestamp(8)),
        valid: Some(Arc::new(spec_fact(spec))),
        ..Job::default()
    };
    let mut state =
        State { stamp: stamp(19), jobs: [(key(), Box::new(job))].into_iter().collect(), format: 5, ..State::default() };
    let coordinator = &mut state.queues.coordinator;
    coordinator.quotas.insert(("ns".into(), "q".into()), quota());
    (coordinator.turns, coordinator.turn_at) = (turns("SmoothWeightedRoundRobin"), Some(Timestamp(9)));
    state
}
