//! The world a scenario runs in: a cluster (the embedded one, if nothing else is said), the operator's process, its logs,
//! and virtual time.
//!
//! Owns settling (watch, turn, call, answer until nothing moves), the passing of time, and what a death of the process
//! does. It must not know scenario verbs (those are `runner`'s). Tests: `tests/world.rs`, and every scenario.

use std::collections::BTreeMap;

use apis::{ApiAnswer, ApiCall, Registry, Verb};
use cluster::Cluster;
use engine::{Record, Scope, State};
use event_log::{EventLog, MemoryDisk, MemoryLog};
use model::{Config, Event, Fact, JobKey, Phase, Position, Term, Timestamp};
use operator::{Operator, Options};

use crate::faults::{Aftermath, MortalLog, SharedFate, Verdict};
use crate::ground::{Embedded, Ground};
use crate::runner::Transition;
use crate::scenario::{Boundary, NodeSpec};

/// Maximum number of rounds until the operator is idle.
const MAX_ROUNDS: u32 = 20_000;
/// Maximum number of deadlines in one `advance`.
const MAX_STOPS: u32 = 200_000;

/// What keeps a world from going on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator stopped, and not because it was made to.
    #[error("the operator stopped: {0}")]
    Operator(#[from] operator::Error),
    /// A log could not be opened.
    #[error("the log cannot be opened: {0}")]
    Log(#[from] event_log::Error),
    /// The operator never comes to rest.
    #[error("no rest after {rounds} rounds at {at}: the last calls were {calls}")]
    NoRest {
        /// How many rounds were made.
        rounds: u32,
        /// Virtual time.
        at: String,
        /// The last calls.
        calls: String,
    },
    /// A CRD of this build does not register.
    #[error("a custom resource definition cannot be served: {0}")]
    Definition(#[from] cluster::DefinitionError),
}

/// An API call that changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The call.
    pub call: ApiCall,
    /// Uid of the object it was about.
    pub uid: String,
    /// How many times it had been tried, this one included.
    pub attempts: u32,
}

/// What happened since it was last asked.
#[derive(Debug, Clone, Default)]
pub struct Happened {
    /// Calls that changed something, in order.
    pub done: Vec<Done>,
    /// Phases that jobs passed through, in order.
    pub phases: Vec<(JobKey, Phase)>,
    /// How many times time stopped for somebody.
    pub stops: usize,
}

/// One replica of the operator: the disk its log is on.
#[derive(Debug, Clone, Default)]
struct Replica {
    disk: MemoryDisk,
}

/// Cluster, operator, logs and time.
pub struct World<G = Embedded> {
    /// What it takes place on.
    pub ground: G,
    registry: Registry,
    config: Config,
    replicas: Vec<Replica>,
    leader: usize,
    operator: Option<Operator>,
    fate: SharedFate,
    last_term: Term,
    room: usize,
    status_pace_ms: u64,
    keeps_state: bool,
    tries: BTreeMap<String, u32>,
    happened: Happened,
}

impl World {
    /// The embedded cluster with these nodes, and an operator on an empty log.
    ///
    /// # Errors
    /// When a served API's definition does not register.
    pub fn new(nodes: &[NodeSpec], config: Config) -> Result<Self, Error> {
        let nodes = nodes.iter().map(|node| {
            let spec = cluster::NodeSpec::named(&node.name);
            if node.gpus > 0 { spec.with("nvidia.com/gpu", &node.gpus.to_string()) } else { spec }
        });
        let mut cluster = Cluster::new(&cluster::Options { nodes: nodes.collect(), ..cluster::Options::default() });
        for api in Registry::all().iter() {
            cluster.register(&api.crd())?;
        }
        Self::on(Embedded::new(cluster, &Registry::all()), config)
    }
}

impl<G: Ground> World<G> {
    /// An operator on an empty log, on a cluster that serves every API already.
    ///
    /// # Errors
    /// When the operator cannot be opened.
    pub fn on(ground: G, config: Config) -> Result<Self, Error> {
        let mut world = Self {
            ground,
            registry: Registry::all(),
            config,
            replicas: vec![Replica::default(), Replica::default()],
            leader: 0,
            operator: None,
            fate: SharedFate::default(),
            last_term: Term(0),
            room: usize::MAX,
            status_pace_ms: 0,
            keeps_state: false,
            tries: BTreeMap::new(),
            happened: Happened::default(),
        };
        world.open()?;
        Ok(world)
    }

    /// The served APIs.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// When the operator's process dies.
    pub const fn fate(&self) -> &SharedFate {
        &self.fate
    }

    /// What happened since the last call.
    pub fn take_happened(&mut self) -> Happened {
        std::mem::take(&mut self.happened)
    }

    /// Number of records of the log in use, and its digest.
    pub fn log_summary(&self) -> (u64, String) {
        self.operator.as_ref().map_or_else(Default::default, |operator| {
            let log = operator.log();
            (log.stats().records, log.head().digest.to_string())
        })
    }

    /// Every record of a job in the log in use, folded anew.
    ///
    /// # Errors
    /// When the log cannot be read or does not fold.
    pub fn transitions(&self) -> Result<Vec<Transition>, Error> {
        let Some(operator) = self.operator.as_ref() else { return Ok(Vec::new()) };
        let log = operator.log();
        let mut state = State::default();
        let mut transitions = Vec::new();
        for frame in log.read(log.first())? {
            let frame = frame?;
            let record = Record::decode(frame.position, frame.term, &frame.body)
                .map_err(|source| operator::Error::Record { at: frame.position, source })?;
            let phase = |state: &State| match &record.scope {
                Scope::Job(key) => state.job(key).map_or(Phase::New, |job| job.phase),
                Scope::Cluster => Phase::New,
            };
            let before = phase(&state);
            state.fold(&record).map_err(operator::Error::Fold)?;
            if let Scope::Job(_) = record.scope {
                transitions.push(Transition {
                    before,
                    facts: record.facts.iter().map(Fact::name).collect(),
                    after: phase(&state),
                    events: record.events.iter().map(Event::name).collect(),
                });
            }
        }
        Ok(transitions)
    }

    /// The operator, for looking at its state.
    pub const fn operator(&self) -> Option<&Operator> {
        self.operator.as_ref()
    }

    fn open(&mut self) -> Result<(), Error> {
        let replica = self.replicas.get(self.leader).cloned().unwrap_or_default();
        let log = MortalLog::new(replica.disk.open()?, self.fate.clone());
        let options = Options {
            config: self.config.clone(),
            last_term: self.last_term,
            claims_terms: true,
            status_pace_ms: self.status_pace_ms,
        };
        let mut operator = Operator::open(Box::new(log), self.registry.clone(), options)?;
        operator.set_room(self.room);
        self.operator = Some(operator);
        Ok(())
    }

    /// No more than so many calls are under way at once, also after a restart.
    pub fn set_room(&mut self, calls: usize) {
        self.room = calls;
        if let Some(operator) = &mut self.operator {
            operator.set_room(calls);
        }
    }

    /// Writes of a job's status that only tell of progress are at least so far apart. The operator is opened anew if that is news.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn set_status_pace(&mut self, every_ms: u64) -> Result<(), Error> {
        if std::mem::replace(&mut self.status_pace_ms, every_ms) == every_ms {
            return Ok(());
        }
        self.operator = None;
        self.open()
    }

    /// Whether the operator keeps its state beside the log after every turn.
    pub const fn set_keeps_state(&mut self, keeps: bool) {
        self.keeps_state = keeps;
    }

    /// Lets as much time pass as paced writes wait; none without a pace.
    ///
    /// # Errors
    /// As for [`World::settle`].
    pub fn write_what_waits(&mut self) -> Result<(), Error> {
        if self.status_pace_ms > 0 { self.advance(self.status_pace_ms) } else { Ok(()) }
    }

    /// The process dies here and now, and the next one starts.
    ///
    /// # Errors
    /// When the next one cannot be opened.
    pub fn restart(&mut self, aftermath: Aftermath) -> Result<(), Error> {
        // The handle goes first: a log is open once.
        self.operator = None;
        match aftermath {
            Aftermath::SameLog => {}
            Aftermath::NoLog => self.set_disk(MemoryDisk::default()),
            Aftermath::OldLog(position) => {
                let replica = self.replicas.get(self.leader).cloned().unwrap_or_default();
                let log = replica.disk.open()?;
                let position =
                    Position(position).min(log.head().position).max(Position(log.first().0.saturating_sub(1)));
                let old: MemoryLog = log.truncated(position)?;
                self.set_disk(old.disk());
            }
            Aftermath::OtherReplica => {
                self.leader = self.leader.saturating_add(1).checked_rem(self.replicas.len()).unwrap_or_default();
            }
        }
        self.tries.clear();
        self.ground.watch_anew();
        self.open()
    }

    fn set_disk(&mut self, disk: MemoryDisk) {
        if let Some(replica) = self.replicas.get_mut(self.leader) {
            replica.disk = disk;
        }
    }

    /// Lets everything that is waiting take its course, without time passing.
    ///
    /// # Errors
    /// When the operator stops or never comes to rest.
    pub fn settle(&mut self) -> Result<(), Error> {
        let mut last = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let news = self.ground.news(&self.registry);
            let Some(operator) = self.operator.as_mut() else { return Ok(()) };
            let quiet = news.is_empty();
            for observation in news {
                operator.offer_read(observation);
            }
            if let Some(term) = operator.proposed_term(self.ground.now()) {
                self.last_term = term;
                operator.grant_term(term);
            }
            let calls = match operator.turn(self.ground.now()) {
                Ok(calls) => {
                    if self.keeps_state {
                        operator.cache_state()?;
                    }
                    self.take_phases();
                    calls
                }
                Err(error) => {
                    self.died_in_turn(error)?;
                    continue;
                }
            };
            if quiet && calls.is_empty() {
                let rested =
                    self.operator.as_ref().and_then(Operator::next_wake).is_none_or(|at| at > self.ground.now());
                if rested {
                    return Ok(());
                }
                last.clear();
            }
            if !calls.is_empty() {
                last =
                    calls.iter().map(|call| format!("{:?} {} {}", call.verb, call.resource.kind, call.name)).collect();
            }
            self.execute(calls)?;
        }
        Err(Error::NoRest { rounds: MAX_ROUNDS, at: self.ground.now().to_rfc3339(), calls: last.join(", ") })
    }

    fn take_phases(&mut self) {
        if let Some(operator) = self.operator.as_mut() {
            self.happened.phases.extend(operator.take_steps().into_iter().map(|step| (step.job, step.phase)));
        }
    }

    /// A turn ended in an error: a death that was to come, another leader's trace, or a fault of ours.
    fn died_in_turn(&mut self, error: operator::Error) -> Result<(), Error> {
        let met = self.fate.lock().take();
        match (met, error) {
            (Some((aftermath, stored)), _) => {
                if stored {
                    // What was appended is the log's, although this process did not live to see it.
                    self.take_phases();
                }
                self.restart(aftermath)
            }
            // As a supervisor would: the operator asks for a fresh start.
            (None, operator::Error::Superseded { .. }) => self.restart(Aftermath::SameLog),
            (None, error) => Err(error.into()),
        }
    }

    fn execute(&mut self, calls: Vec<ApiCall>) -> Result<(), Error> {
        for call in calls {
            // Kubernetes Events are answered by nobody and change no job: a death at one of them is no case of its own.
            let verdict = if call.object.is_some() { self.fate.lock().next(Boundary::Call) } else { Verdict::Goes };
            if verdict != Verdict::DiedBefore {
                let answer = self.make(&call);
                if verdict == Verdict::Goes
                    && let Some(operator) = self.operator.as_mut()
                {
                    operator.answered(call.id, answer);
                }
            }
            if verdict != Verdict::Goes {
                let met = self.fate.lock().take();
                let aftermath = met.map_or(Aftermath::SameLog, |(aftermath, _)| aftermath);
                return self.restart(aftermath);
            }
        }
        Ok(())
    }

    /// Makes one call and notes it if it changed something.
    fn make(&mut self, call: &ApiCall) -> ApiAnswer {
        let made = self.ground.make(call);
        if call.verb == Verb::Get || call.object.is_none() {
            return made.answer;
        }
        let uid = call.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        let address = format!("{:?} {} {}/{} {uid}", call.verb, call.resource.kind, call.namespace, call.name);
        let tries = self.tries.entry(address.clone()).or_default();
        *tries = tries.saturating_add(1);
        let attempts = *tries;
        if made.answer.is_ok() {
            self.tries.remove(&address);
        }
        if let Some(uid) = made.changed {
            self.happened.done.push(Done { call: call.clone(), uid, attempts });
        }
        made.answer
    }

    /// Moves the clock without anybody looking.
    pub fn skip(&mut self, by_ms: u64) {
        self.ground.set_now(self.ground.now().plus_ms(by_ms));
    }

    /// Lets time pass, stopping whenever somebody waits for that very moment.
    ///
    /// # Errors
    /// As for [`World::settle`].
    pub fn advance(&mut self, by_ms: u64) -> Result<(), Error> {
        let target = self.ground.now().plus_ms(by_ms);
        for _ in 0..MAX_STOPS {
            let Some(next) = self.next_wake().filter(|at| *at < target) else {
                self.ground.set_now(target);
                return self.settle();
            };
            self.ground.set_now(next.max(self.ground.now()));
            self.happened.stops = self.happened.stops.saturating_add(1);
            self.settle()?;
        }
        Err(Error::NoRest { rounds: MAX_STOPS, at: self.ground.now().to_rfc3339(), calls: String::new() })
    }

    /// When somebody wants to look again.
    fn next_wake(&self) -> Option<Timestamp> {
        let operator = self.operator.as_ref().and_then(Operator::next_wake);
        [operator, self.ground.next_wake()].into_iter().flatten().min()
    }
}
