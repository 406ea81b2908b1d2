//! The simulation a scenario runs in: a cluster (the embedded one by default), the operator's process, its logs, and
//! virtual time.
//!
//! Owns the passing of time, and what a crash of the process does to the operator and its log. The loop itself is
//! [`embedded::settle`]; `hooks` makes crashes and records calls in it. It must not know scenario verbs (those are
//! `runner`'s). Tests: `tests/runner.rs`, and every scenario.

mod hooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use apis::{ApiCall, Registry, Resource, Verb};
use cluster::{Cluster, ServedKinds};
use embedded::{EmbeddedCluster, Settled, settle};
use engine::{Record, State};
use event_log::{EventLog, HookedLog, MemoryDisk, MemoryLog};
use model::{Config, JobKey, Phase, Position, Term, Timestamp};
use operator::{Operator, Options};

use self::hooks::SimulationHooks;
use crate::audit::Audit;
use crate::backend::ClusterBackend;
use crate::crash::{LogAfterCrash, SharedCrashPlan};
use crate::runner::Transition;
use crate::scenario::NodeSpec;

/// Maximum number of deadlines in one `advance`; an operator that wakes more often is a defect.
const MAX_WAKES: u32 = 10_000;
/// Maximum number of restarts of the operator until nothing moves. A crash plan has few crashes; an operator that asks
/// for a restart again and again is a defect.
const MAX_RESTARTS: u32 = 1000;

/// Error that ends a simulation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session ended, and not by a planned crash.
    #[error(transparent)]
    Session(#[from] embedded::Error),
    /// The operator cannot be opened, or its log does not fold.
    #[error(transparent)]
    Operator(#[from] operator::Error),
    /// A log cannot be opened.
    #[error("the log cannot be opened: {0}")]
    Log(#[from] event_log::Error),
    /// Deadlines never end.
    #[error("{wakes} deadlines did not bring the time past {at}")]
    TooManyDeadlines {
        /// Number of deadlines.
        wakes: u32,
        /// Virtual time.
        at: String,
    },
    /// The operator asks for a restart again and again.
    #[error("the operator was restarted {MAX_RESTARTS} times at {at} without becoming idle")]
    TooManyRestarts {
        /// Virtual time.
        at: String,
    },
}

/// An API call that changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutedCall {
    /// The call.
    pub call: ApiCall,
    /// Uid of its object.
    pub uid: String,
    /// Number of attempts so far, this one included.
    pub attempts: u32,
}

/// Calls, phases and wakes since the trace was taken last.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Calls that changed something, in order.
    pub done: Vec<ExecutedCall>,
    /// Phases that jobs passed through, in order.
    pub phases: Vec<(JobKey, Phase)>,
    /// Number of deadlines at which time stopped.
    pub wakes: usize,
    /// Limits of nodes and queues that were exceeded, in words.
    pub violations: Vec<String>,
    /// What was called, whatever came of it.
    pub called: BTreeSet<(Resource, Verb)>,
}

/// One replica of the operator: the disk its log is on.
#[derive(Debug, Clone, Default)]
struct Replica {
    disk: MemoryDisk,
}

/// Cluster, operator, logs and time.
pub struct Simulation<B = EmbeddedCluster> {
    /// The cluster.
    pub backend: B,
    registry: Registry,
    config: Config,
    replicas: Vec<Replica>,
    leader: usize,
    operator: Option<Operator>,
    crash_plan: SharedCrashPlan,
    last_term: Term,
    max_in_flight: usize,
    status_interval_ms: u64,
    caches_state: bool,
    attempts: BTreeMap<String, u32>,
    trace: Trace,
    /// Present where nodes have GPUs.
    audit: Option<Audit>,
}

impl Simulation {
    /// Creates the embedded cluster with these nodes, and an operator on an empty log.
    ///
    /// # Errors
    /// When a served API's definition does not register.
    pub fn new(nodes: &[NodeSpec], config: Config) -> Result<Self, Error> {
        Self::with_kinds(nodes, config, &Self::served_kinds()?)
    }

    /// Returns the kinds that a cluster with every API serves.
    ///
    /// # Errors
    /// When the definition of an API does not register.
    pub fn served_kinds() -> Result<ServedKinds, Error> {
        // Definitions are part of the build, so what is compiled of them is the same for every cluster.
        static KINDS: OnceLock<ServedKinds> = OnceLock::new();
        if let Some(kinds) = KINDS.get() {
            return Ok(kinds.clone());
        }
        let kinds = Self::kinds_of(&Registry::all())?;
        Ok(KINDS.get_or_init(|| kinds).clone())
    }

    /// Returns the kinds that a cluster with these APIs serves.
    ///
    /// # Errors
    /// When the definition of an API does not register.
    pub fn kinds_of(registry: &Registry) -> Result<ServedKinds, Error> {
        let backend = EmbeddedCluster::serving(Cluster::default(), registry).map_err(embedded::Error::from)?;
        Ok(backend.cluster.kinds())
    }

    /// Creates the same with kinds that were registered before.
    ///
    /// # Errors
    /// When the operator cannot be opened.
    pub fn with_kinds(nodes: &[NodeSpec], config: Config, kinds: &ServedKinds) -> Result<Self, Error> {
        Self::serving(nodes, config, Registry::all(), kinds)
    }

    /// Creates the same with APIs of the caller's, whose kinds were registered before.
    ///
    /// # Errors
    /// When the operator cannot be opened.
    pub fn serving(nodes: &[NodeSpec], config: Config, registry: Registry, kinds: &ServedKinds) -> Result<Self, Error> {
        let specs = nodes.iter().map(cluster::NodeSpec::from).collect();
        let mut cluster = Cluster::new(&cluster::Options { nodes: specs, ..cluster::Options::default() });
        cluster.set_kinds(kinds);
        let backend = EmbeddedCluster::new(cluster, &registry);
        let has_gpus = nodes.iter().any(|node| node.gpus > 0);
        let audit = if config.ignores_capacity { Audit::of_ignored_capacity() } else { Audit::default() };
        Ok(Self { audit: has_gpus.then_some(audit), ..Self::with(backend, registry, config)? })
    }
}

impl<B: ClusterBackend> Simulation<B> {
    /// Creates an operator on an empty log, on a cluster that serves every API already.
    ///
    /// # Errors
    /// When the operator cannot be opened.
    pub fn on(backend: B, config: Config) -> Result<Self, Error> {
        Self::with(backend, Registry::all(), config)
    }

    fn with(backend: B, registry: Registry, config: Config) -> Result<Self, Error> {
        let mut simulation = Self {
            backend,
            registry,
            config,
            replicas: vec![Replica::default(), Replica::default()],
            leader: 0,
            operator: None,
            crash_plan: SharedCrashPlan::default(),
            last_term: Term(0),
            max_in_flight: usize::MAX,
            status_interval_ms: 0,
            caches_state: false,
            attempts: BTreeMap::new(),
            trace: Trace::default(),
            audit: None,
        };
        simulation.open()?;
        Ok(simulation)
    }

    /// The served APIs.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The crashes of the operator's process to come.
    pub const fn crash_plan(&self) -> &SharedCrashPlan {
        &self.crash_plan
    }

    /// Compares the GPUs in use with the limits, after a step of a user.
    pub fn audit(&mut self) {
        if let Some(audit) = &mut self.audit {
            self.trace.violations.extend(audit.check(self.backend.cluster()));
        }
    }

    /// Takes the calls, phases and wakes since the last call.
    pub fn take_trace(&mut self) -> Trace {
        std::mem::take(&mut self.trace)
    }

    /// Returns the number of records of the log in use, and its digest.
    pub fn log_summary(&self) -> (u64, String) {
        self.operator.as_ref().map_or_else(Default::default, |operator| {
            let log = operator.log();
            (log.stats().records, log.head().digest.to_string())
        })
    }

    /// Returns the disk of the log in use. It can be opened once the simulation is over.
    pub fn disk(&self) -> MemoryDisk {
        self.replicas.get(self.leader).cloned().unwrap_or_default().disk
    }

    /// Returns every record of a job in the log in use, folded again.
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
            let phase = |state: &State| {
                let job = record.job().and_then(|key| state.job(key));
                job.map_or(Phase::New, |job| job.phase)
            };
            let before = phase(&state);
            state.replay(&record).map_err(operator::Error::Replay)?;
            if record.job().is_some() {
                transitions.push(Transition {
                    before,
                    facts: record.fact_names(),
                    after: phase(&state),
                    events: record.event_names(),
                });
            }
        }
        Ok(transitions)
    }

    /// The operator.
    pub const fn operator(&self) -> Option<&Operator> {
        self.operator.as_ref()
    }

    fn open(&mut self) -> Result<(), Error> {
        let replica = self.replicas.get(self.leader).cloned().unwrap_or_default();
        let log = HookedLog::with_hook(replica.disk.open()?, self.crash_plan.clone());
        let options = Options {
            config: self.config.clone(),
            last_term: self.last_term,
            claims_terms: true,
            status_interval_ms: self.status_interval_ms,
        };
        let mut operator = Operator::open(Box::new(log), self.registry.clone(), options)?;
        operator.set_in_flight_limit(self.max_in_flight);
        self.operator = Some(operator);
        Ok(())
    }

    /// Limits the number of calls in flight, also after a restart.
    pub fn set_max_in_flight(&mut self, calls: usize) {
        self.max_in_flight = calls;
        if let Some(operator) = &mut self.operator {
            operator.set_in_flight_limit(calls);
        }
    }

    /// Sets the minimum interval between status writes that only report progress. Reopens the operator if that is a change.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn set_status_interval(&mut self, every_ms: u64) -> Result<(), Error> {
        if std::mem::replace(&mut self.status_interval_ms, every_ms) == every_ms {
            return Ok(());
        }
        self.operator = None;
        self.open()
    }

    /// Serves the same APIs with other settings.
    ///
    /// # Errors
    /// When the operator cannot be opened.
    pub fn set_registry(&mut self, registry: Registry) -> Result<(), Error> {
        self.registry = registry;
        self.operator = None;
        self.open()
    }

    /// Sets whether the operator caches its state beside the log after every turn.
    pub const fn set_caches_state(&mut self, caches: bool) {
        self.caches_state = caches;
    }

    /// Lets time pass until the throttled status writes are made.
    ///
    /// # Errors
    /// As for [`Self::settle`].
    pub fn flush_status_writes(&mut self) -> Result<(), Error> {
        if self.status_interval_ms > 0 { self.advance(self.status_interval_ms) } else { Ok(()) }
    }

    /// Crashes the process now, and starts the next one.
    ///
    /// # Errors
    /// When the next one cannot be opened.
    pub fn restart(&mut self, log_after: LogAfterCrash) -> Result<(), Error> {
        // The handle is dropped first: a log is open once.
        self.operator = None;
        match log_after {
            LogAfterCrash::SameLog => {}
            LogAfterCrash::NoLog => self.set_disk(MemoryDisk::default()),
            LogAfterCrash::OldLog(position) => {
                let replica = self.replicas.get(self.leader).cloned().unwrap_or_default();
                let log = replica.disk.open()?;
                let position =
                    Position(position).min(log.head().position).max(Position(log.first().0.saturating_sub(1)));
                let old: MemoryLog = log.truncated(position)?;
                self.set_disk(old.disk());
            }
            LogAfterCrash::OtherReplica => {
                self.leader = self.leader.saturating_add(1).checked_rem(self.replicas.len()).unwrap_or_default();
            }
        }
        self.attempts.clear();
        self.backend.watch_again();
        self.open()
    }

    fn set_disk(&mut self, disk: MemoryDisk) {
        if let Some(replica) = self.replicas.get_mut(self.leader) {
            replica.disk = disk;
        }
    }

    /// Runs cluster and operator until nothing moves, without time passing. Restarts the operator where a crash was planned.
    ///
    /// # Errors
    /// When the operator stops otherwise or is never idle.
    pub fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_RESTARTS {
            let Some(operator) = self.operator.as_mut() else { return Ok(()) };
            let now = self.backend.now();
            let mut hooks = SimulationHooks {
                crash_plan: &self.crash_plan,
                last_term: &mut self.last_term,
                caches_state: self.caches_state,
                attempts: &mut self.attempts,
                trace: &mut self.trace,
                audit: self.audit.as_mut(),
            };
            match settle(&mut self.backend, operator, &self.registry, &mut || now, &mut hooks) {
                Ok(Settled::Idle) => return Ok(()),
                Ok(Settled::Crashed) => {
                    let crash = self.crash_plan.lock().take();
                    self.restart(crash.map_or(LogAfterCrash::SameLog, |(log_after, _)| log_after))?;
                }
                Err(embedded::Error::Operator(error)) => self.stopped_in_turn(error)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::TooManyRestarts { at: self.backend.now().to_rfc3339() })
    }

    /// Restarts the operator after a turn that ended in an error: a planned crash, or another leader's write. Other errors
    /// are the operator's own.
    fn stopped_in_turn(&mut self, error: operator::Error) -> Result<(), Error> {
        let crash = self.crash_plan.lock().take();
        match (crash, error) {
            (Some((log_after, stored)), _) => {
                if stored && let Some(operator) = self.operator.as_mut() {
                    // The log has what was appended, although this process crashed before it knew.
                    self.trace.take_phases(operator);
                }
                self.restart(log_after)
            }
            // As a supervisor would: the operator asks for a restart.
            (None, operator::Error::Superseded { .. }) => self.restart(LogAfterCrash::SameLog),
            (None, error) => Err(error.into()),
        }
    }

    /// Moves the clock without running the operator.
    pub fn skip(&mut self, by_ms: u64) {
        self.backend.set_now(self.backend.now().plus_ms(by_ms));
    }

    /// Lets time pass, and stops at every deadline of cluster or operator.
    ///
    /// # Errors
    /// As for [`Self::settle`].
    pub fn advance(&mut self, by_ms: u64) -> Result<(), Error> {
        let target = self.backend.now().plus_ms(by_ms);
        for _ in 0..MAX_WAKES {
            let Some(next) = self.next_wake().filter(|at| *at < target) else {
                self.backend.set_now(target);
                return self.settle();
            };
            self.backend.set_now(next.max(self.backend.now()));
            self.trace.wakes = self.trace.wakes.saturating_add(1);
            self.settle()?;
        }
        Err(Error::TooManyDeadlines { wakes: MAX_WAKES, at: self.backend.now().to_rfc3339() })
    }

    /// Returns the next deadline.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let operator = self.operator.as_ref().and_then(Operator::next_wake);
        [operator, self.backend.next_wake()].into_iter().flatten().min()
    }
}
