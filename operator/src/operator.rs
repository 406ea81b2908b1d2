//! The type `Operator`: its parts, and what callers do with it.

use std::collections::{BTreeMap, BTreeSet};

use apis::{ApiAnswer, ApiCall, CallId, Observation, ObservedObject, Registry};
use engine::State;
use event_log::EventLog;
use model::{Config, JobKey, Kind, Position, Term, Text, Timestamp};

use crate::authorize::Reads;
use crate::backlog::Backlog;
use crate::error::Error;
use crate::foreign::ForeignPods;
use crate::in_flight::InFlight;
use crate::inbox::Inbox;
use crate::launch::Launches;
use crate::manifests::{Manifests, TranslatedSpecs};
use crate::queue_events::QueueState;
use crate::recent::RecentEnds;
use crate::references::References;
use crate::sources::Sources;
use crate::step::Step;
use crate::terms::Terms;
use crate::throttle::StatusThrottle;

/// Settings of an operator.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Settings that decisions depend on.
    pub config: Config,
    /// Newest term that a Lease names. The next one is greater.
    pub last_term: Term,
    /// Terms are claimed elsewhere ([`Operator::proposed_term`], [`Operator::grant_term`]) before they begin. Otherwise a turn
    /// begins the next term by itself.
    pub claims_terms: bool,
    /// Minimum interval in milliseconds between two writes of a job's status that report nothing but progress: neither a phase
    /// nor anything that decisions wait for. Ten times longer while jobs wait to be dispatched. Zero writes every change.
    pub status_interval_ms: u64,
}

/// Runs the decisions of one process: observations and answers come in, records go to the log, calls come out.
///
/// It has no thread, clock or network: the caller watches the cluster, passes the time and makes the calls.
///
/// # Methods
/// * The log: [`open`](Self::open), [`follow`](Self::follow) and [`follow_from`](Self::follow_from) for a standby,
///   [`compact`](Self::compact) and [`cache_state`](Self::cache_state) for a long log, [`checkpoint`](Self::checkpoint) for a
///   reader of the state, [`into_log`](Self::into_log).
/// * Input: [`handle_event`](Self::handle_event) or [`handle_observed`](Self::handle_observed),
///   [`handle_answer`](Self::handle_answer). They store what the next turn takes in, and never fail.
/// * Decisions: [`turn`](Self::turn), due when something came in or [`next_wake`](Self::next_wake) has passed.
/// * Terms: [`proposed_term`](Self::proposed_term), [`grant_term`](Self::grant_term), [`disable_kinds`](Self::disable_kinds).
/// * Flow control: [`set_in_flight_limit`](Self::set_in_flight_limit), [`calls_in_flight`](Self::calls_in_flight).
///
/// # Order of calls
/// 1. `open`, on the log of an earlier operator or an empty one. A standby follows the leader's log until it leads.
/// 2. Hand in a list of every source, then watch events as they come. Until all lists are in, `turn` does nothing.
/// 3. Where terms are claimed: once `proposed_term` returns one, claim it where all operators see it, and `grant_term`.
/// 4. `turn`. The first one begins the term and takes up what an earlier operator left undone.
/// 5. Make the calls it returns, in any order and at the same time, and hand in each answer. Then again from 4.
///
/// Kubernetes Events (calls without [`ApiCall::object`]) need no answer. An answer that never comes keeps its object busy:
/// hand in an error with code 0 instead.
///
/// # Durability
/// When `turn` returns calls, the records they follow from are synced to the log. A call that is lost, or made by an operator
/// that dies, is derived again from the state. Nothing that `turn` has not returned needs to be kept.
///
/// # Errors
/// After an error of `turn`, state and log may differ. No call of that turn exists. Drop the operator, open another on
/// [`into_log`](Self::into_log) or on the files, and list every source again. `compact` and `cache_state` fail without harm.
pub struct Operator {
    pub(crate) log: Box<dyn EventLog>,
    /// Position of the newest state a start can begin with: the cached one, or the log's checkpoint.
    pub(crate) cached: Position,
    pub(crate) registry: Registry,
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) terms: Terms,
    pub(crate) sources: Sources,
    pub(crate) inbox: Inbox,
    pub(crate) in_flight: InFlight,
    pub(crate) backlog: Backlog,
    pub(crate) throttle: StatusThrottle,
    pub(crate) specs: TranslatedSpecs,
    pub(crate) references: References,
    pub(crate) foreign: ForeignPods,
    pub(crate) manifests: Manifests,
    /// Objects that were read before writes.
    pub(crate) reads: Reads,
    pub(crate) recent_ends: RecentEnds,
    pub(crate) launches: Launches,
    /// Records of the turns since [`Operator::take_steps`].
    pub(crate) steps: Vec<Step>,
    /// Kubernetes Events to create with this turn's calls.
    pub(crate) events: Vec<ApiCall>,
    /// Jobs that this turn concerns, each as it stood with its queue before.
    pub(crate) queue_states: BTreeMap<JobKey, QueueState>,
}

impl Operator {
    /// Opens an operator on a log: reads its cached state or checkpoint and folds the records after it.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read or does not fold.
    pub fn open(log: Box<dyn EventLog>, registry: Registry, options: Options) -> Result<Self, Error> {
        let (state, cached) = crate::log::read(&*log)?;
        Ok(Self {
            log,
            cached,
            sources: Sources::new(&registry),
            registry,
            config: options.config,
            state,
            terms: Terms::new(options.last_term, options.claims_terms),
            inbox: Inbox::default(),
            in_flight: InFlight::default(),
            backlog: Backlog::default(),
            throttle: StatusThrottle::new(options.status_interval_ms),
            specs: TranslatedSpecs::default(),
            references: References::default(),
            foreign: ForeignPods::default(),
            manifests: Manifests::default(),
            reads: Reads::default(),
            recent_ends: RecentEnds::default(),
            launches: Launches::default(),
            steps: Vec::new(),
            events: Vec::new(),
            queue_states: BTreeMap::new(),
        })
    }

    /// Stores a watch event or a list for the next turn. Objects of no served API are dropped.
    pub fn handle_event(&mut self, observation: Observation) {
        if let Some(read) = observation.read(&self.registry) {
            self.handle_observed(read);
        }
    }

    /// Stores a watch event or a list whose objects were read with the same registry.
    pub fn handle_observed(&mut self, observation: Observation<ObservedObject>) {
        self.inbox.observe(observation);
    }

    /// Stores the answer to a call for the next turn. The answer to a call of an earlier process is ignored.
    pub fn handle_answer(&mut self, call: CallId, answer: ApiAnswer) {
        self.inbox.answer(call, answer);
    }

    /// Limits the calls in flight: dispatched and not yet answered, Kubernetes Events apart. Commands above the limit are
    /// dispatched by later turns, one job after the other. The default is no limit.
    pub const fn set_in_flight_limit(&mut self, calls: usize) {
        self.in_flight.set_limit(calls);
    }

    /// Returns the number of calls in flight.
    pub fn calls_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the time at which the next turn is due though nothing comes in; zero when something waits already.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let dispatches = !self.backlog.is_empty() && self.in_flight.free() > 0;
        let reports = self.is_ready() && self.foreign.is_due(&self.state);
        if dispatches || reports || self.inbox.has_answers() || (self.is_ready() && self.inbox.has_observations()) {
            return Some(Timestamp(0));
        }
        let deadline = self.state.deadlines().find(|(_, job)| self.sources.serves(job)).map(|(at, _)| at);
        let due = [deadline, self.throttle.next_due(), self.state.queues_wake()];
        due.into_iter().flatten().min().filter(|_| self.is_ready())
    }

    /// Returns the served APIs.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Leaves out the APIs of these kinds in the next term, because one of their sources cannot be listed. Their lists are not
    /// waited for, and what other sources show of their jobs is ignored: without its job's list a pod would look like an
    /// orphan. No deadline of such a job is due and no call is made for it. A later term that serves the API again lists
    /// everything of it. Returns false, with nothing changed, once a term has begun.
    pub fn disable_kinds(&mut self, kinds: BTreeSet<Text>) -> bool {
        if self.is_ready() {
            return false;
        }
        self.sources.disable_kinds(&self.registry, kinds);
        true
    }

    /// Returns true if objects of a kind of [`Kind::ON_DEMAND`] are to be watched, because a queue reads them. The watch begins with a
    /// list.
    pub fn watches(&self, kind: Kind) -> bool {
        self.state.watches(kind)
    }

    /// Returns true if a list of every source waits for the next turn, or was taken in.
    pub fn has_listed_all(&self) -> bool {
        self.is_ready() || self.sources.targets().iter().all(|target| self.inbox.holds_list_of(target))
    }

    /// Returns the term to claim, once every source was listed and before a term has begun.
    pub fn proposed_term(&self, now: Timestamp) -> Option<Term> {
        let proposes = !self.is_ready() && self.has_listed_all();
        proposes.then(|| self.terms.proposal(self.newest_term(), now.max(self.state.at)))
    }

    /// Has the next turn begin this term, which was claimed where all operators of the cluster see it. A term that is not
    /// new by then does not begin: propose again.
    pub const fn grant_term(&mut self, term: Term) {
        self.terms.grant(term);
    }

    /// Returns true once a term has begun.
    pub const fn is_ready(&self) -> bool {
        self.terms.has_begun()
    }

    /// Returns the newest term in the log and in the mirrors just listed.
    pub(crate) fn newest_term(&self) -> Term {
        let logged = self.state.terms.last().map(|(term, _)| *term);
        self.inbox.newest_mirrored_term(&self.registry).max(logged.unwrap_or_default())
    }

    /// Returns the state that decisions are made from.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the log.
    pub fn log(&self) -> &dyn EventLog {
        &*self.log
    }

    /// Returns the log, for example to open the next operator on it.
    pub fn into_log(self) -> Box<dyn EventLog> {
        self.log
    }

    /// Takes the records of the turns since the last call, each with the phase of its job afterwards.
    pub fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Forgets what is held of a job besides its state: the job is gone, or finished.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.specs.forget(key);
        self.references.forget(key);
        self.throttle.forget(key);
        self.manifests.forget(key);
        self.reads.remove(key);
    }
}
