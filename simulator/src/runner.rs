//! Doing a scenario's steps, one after the other.
//!
//! Owns the order of changes, turns and crashes, and the record of each step. What a verb does to the
//! [`Simulation`] is `verbs`'; judging the outcome is `check`'s.
//! Tests: `tests/runner.rs`, and every scenario of `fixtures`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::{ApiError, Resource, Verb};
use cluster::ServedKinds;
use event_log::MemoryDisk;
use model::{JobKey, Phase, Text};
use serde_json::Value;

use crate::backend::ClusterBackend;
use crate::controllers::{Controller, mpi_operator};
use crate::crash::{Crash, LogAfterCrash};
use crate::scenario::{Action, CrashPoint, RestoreLog, Scenario};
use crate::simulation::{self, ExecutedCall, Simulation};
use crate::trainer::Trainer;

/// Rounds of the operator and the controllers beside it until nothing moves. Reaching it is a defect: they undo each other's work.
const MAX_ROUNDS: u32 = 1000;

/// A scenario that cannot be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step cannot be done.
    #[error("{origin}: step {step} ({verb}): {reason}")]
    Step {
        /// File and line.
        origin: String,
        /// Number of the step.
        step: usize,
        /// Its verb.
        verb: &'static str,
        /// Why not.
        reason: Box<Reason>,
    },
    /// The simulation cannot be set up.
    #[error(transparent)]
    Simulation(#[from] simulation::Error),
    /// A flag cannot be accepted.
    #[error(transparent)]
    Flags(#[from] settings::flags::Error),
}

/// Why a step cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The cluster has no such thing, or it is not in a state for this.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The API server refuses it.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The operator stopped or never came to rest.
    #[error(transparent)]
    Simulation(#[from] simulation::Error),
    /// No kind of that name is served.
    #[error("no kind {0} is served")]
    NoSuchKind(String),
    /// No object of that name exists.
    #[error("{kind} {name} does not exist")]
    NoSuchObject {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Objects of that name exist in several namespaces.
    #[error("{kind} {name} exists in several namespaces: write namespace/name")]
    Ambiguous {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Nothing watches that kind.
    #[error("nothing watches objects of kind {0}")]
    NotWatched(String),
    /// The step itself makes no sense.
    #[error("{0}")]
    Meaning(String),
}

/// Outcome of a step.
#[derive(Debug, Clone, Default)]
pub struct StepOutcome {
    /// Phases entered, by job.
    pub phases: BTreeMap<String, Vec<String>>,
    /// Calls of the operator that changed something, in order.
    pub commands: Vec<ExecutedCall>,
    /// Kubernetes Events written.
    pub events: Vec<Arc<Value>>,
    /// Every object as it stands after the step.
    pub objects: Vec<Arc<Value>>,
    /// Number of deadlines at which time stopped.
    pub wakes: usize,
}

/// A record of one job, as the log at the end of the run has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The job's phase before it.
    pub before: Phase,
    /// Kinds of the facts it holds.
    pub facts: Vec<&'static str>,
    /// The job's phase after it.
    pub after: Phase,
    /// Kinds of the events decided.
    pub events: Vec<&'static str>,
}

/// Outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct ScenarioOutcome {
    /// Each step's.
    pub steps: Vec<StepOutcome>,
    /// Every object as it stands at the end.
    pub objects: Vec<Arc<Value>>,
    /// Consecutive distinct phases of each job.
    pub phases: BTreeMap<String, Vec<String>>,
    /// Records in the log at the end.
    pub log_records: u64,
    /// Digest of the log's last record.
    pub log_digest: String,
    /// Disk of that log.
    pub log: MemoryDisk,
    /// Appends and calls that took place after the operator's start.
    pub counted: (u32, u32),
    /// Numbers of the calls before which a crash leaves what one after the append or call before them leaves.
    pub following_calls: BTreeSet<u32>,
    /// Every record of a job in the log, oldest first; only of a run without an extra crash.
    pub transitions: Vec<Transition>,
    /// State of the operator at the end.
    pub state: engine::State,
    /// Limits of nodes and queues that were exceeded at some call or step, in words.
    pub violations: Vec<String>,
    /// What the operator called, whatever came of it.
    pub called: BTreeSet<(Resource, Verb)>,
}

/// Conditions of a run that its scenario does not set.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// One more crash of the operator's process than the scenario has, counted over the whole run.
    pub crash: Option<Crash>,
    /// Maximum number of calls in flight.
    pub max_in_flight: usize,
    /// Minimum interval between status writes ([`operator::Options::status_interval_ms`]). At the end this time passes once more,
    /// for the last of them.
    pub status_interval_ms: u64,
    /// True if the operator caches its state beside the log after every turn, so that the next one begins there.
    pub caches_state: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { crash: None, max_in_flight: usize::MAX, status_interval_ms: 0, caches_state: false }
    }
}

/// Runs a scenario.
///
/// # Errors
/// When a step cannot be done; the error names it.
pub fn run(scenario: &Scenario) -> Result<ScenarioOutcome, Error> {
    run_under(scenario, Conditions::default())
}

/// Runs a scenario under other conditions than the usual ones.
///
/// # Errors
/// As for [`run`].
pub fn run_under(scenario: &Scenario, conditions: Conditions) -> Result<ScenarioOutcome, Error> {
    run_with(scenario, conditions, &Simulation::served_kinds()?)
}

/// Runs a scenario as [`run_under`] does, with kinds that were [registered](Simulation::served_kinds) before: many runs share them.
///
/// # Errors
/// As for [`run`].
pub fn run_with(scenario: &Scenario, conditions: Conditions, kinds: &ServedKinds) -> Result<ScenarioOutcome, Error> {
    let config = settings::flags::config(&scenario.flags)?;
    let mut simulation = Simulation::with_kinds(&scenario.nodes, config, kinds)?;
    translate_by_flags(&mut simulation, scenario)?;
    simulation.set_max_in_flight(conditions.max_in_flight);
    simulation.set_status_interval(conditions.status_interval_ms)?;
    simulation.set_caches_state(conditions.caches_state);
    run_in(simulation, scenario, conditions.crash)
}

/// Runs a scenario with APIs of the caller's, in place of those of this build, whose kinds were
/// [registered](Simulation::kinds_of) before. Its flags do not change their settings.
///
/// # Errors
/// As for [`run`].
pub fn run_serving(
    scenario: &Scenario,
    registry: &apis::Registry,
    kinds: &ServedKinds,
) -> Result<ScenarioOutcome, Error> {
    let config = settings::flags::config(&scenario.flags)?;
    run_in(Simulation::serving(&scenario.nodes, config, registry.clone(), kinds)?, scenario, None)
}

/// Runs a scenario on a cluster of the caller's, which serves every API whose objects have a namespace, has the scenario's nodes, and
/// nothing else.
///
/// # Errors
/// As for [`run`].
pub fn run_on<G: ClusterBackend>(backend: G, scenario: &Scenario) -> Result<ScenarioOutcome, Error> {
    let mut simulation = Simulation::on(backend, settings::flags::config(&scenario.flags)?)?;
    // An operator waits for the first list of each API that it serves.
    simulation.set_registry(registry(scenario)?.namespaced())?;
    run_in(simulation, scenario, None)
}

/// Has specs translated with the settings that a scenario's flags name.
fn translate_by_flags(simulation: &mut Simulation, scenario: &Scenario) -> Result<(), Error> {
    if !scenario.flags.is_empty() {
        simulation.set_registry(registry(scenario)?)?;
    }
    Ok(())
}

/// Returns every API with the settings that a scenario's flags name.
fn registry(scenario: &Scenario) -> Result<apis::Registry, Error> {
    Ok(apis::Registry::with(&settings::ApiSettings::read(&scenario.flags)?))
}

fn run_in<G: ClusterBackend>(
    mut simulation: Simulation<G>,
    scenario: &Scenario,
    crash: Option<Crash>,
) -> Result<ScenarioOutcome, Error> {
    // The operator is up before anything happens.
    simulation.settle()?;
    simulation.crash_plan().lock().count_again();
    if let Some(crash) = crash {
        simulation.crash_plan().lock().add(crash);
    }
    let traced = crash.is_none();
    Runner { simulation, scenario, trainer: Trainer::default(), traced, armed: Vec::new(), names: BTreeMap::new() }
        .play()
}

/// A scenario under way.
pub(crate) struct Runner<'a, G> {
    pub(crate) simulation: Simulation<G>,
    pub(crate) scenario: &'a Scenario,
    /// The programs of jobs; none where the scenario does not name it.
    trainer: Trainer,
    /// True if the records of the log are wanted.
    traced: bool,
    /// Crashes inside the next step.
    armed: Vec<Crash>,
    /// Name of each job in the report.
    names: BTreeMap<JobKey, String>,
}

impl<G: ClusterBackend> Runner<'_, G> {
    fn play(&mut self) -> Result<ScenarioOutcome, Error> {
        let mut outcome = ScenarioOutcome::default();
        let mut shown: Vec<(JobKey, Phase)> = Vec::new();
        let scenario = self.scenario;
        let mut per_step = Vec::new();
        for (number, step) in scenario.steps.iter().enumerate() {
            let revision = self.simulation.backend.revision();
            self.step(&step.action).map_err(|reason| {
                let file = if scenario.origin.is_empty() { "scenario" } else { &scenario.origin };
                let origin = if step.line > 0 { format!("{file}:{}", step.line) } else { file.to_owned() };
                Error::Step { origin, step: number, verb: step.action.verb(), reason: Box::new(reason) }
            })?;
            self.simulation.audit();
            let trace = self.simulation.take_trace();
            outcome.violations.extend(trace.violations);
            outcome.called.extend(trace.called);
            shown.extend(trace.phases.iter().cloned());
            per_step.push(trace.phases);
            outcome.steps.push(StepOutcome {
                commands: trace.done,
                events: self.simulation.backend.kubernetes_events_since(revision),
                objects: self.simulation.backend.cluster().objects(),
                wakes: trace.wakes,
                ..StepOutcome::default()
            });
        }
        self.simulation.flush_status_writes()?;
        self.name_jobs(shown.iter().map(|(job, _)| job));
        for (step, phases) in outcome.steps.iter_mut().zip(per_step) {
            for (job, phase) in phases {
                let word = self.word(&job, phase);
                let name = self.names.get(&job).cloned().unwrap_or_default();
                let all = outcome.phases.entry(name.clone()).or_default();
                if !word.is_empty() && all.last() != Some(&word) {
                    all.push(word.clone());
                    step.phases.entry(name).or_default().push(word);
                }
            }
        }
        outcome.phases.retain(|_, phases| !phases.is_empty());
        outcome.objects = self.simulation.backend.cluster().objects();
        (outcome.log_records, outcome.log_digest) = self.simulation.log_summary();
        outcome.log = self.simulation.disk();
        {
            let crash_plan = self.simulation.crash_plan().lock();
            outcome.counted = crash_plan.counted();
            outcome.following_calls.clone_from(crash_plan.following_calls());
        }
        if self.traced {
            outcome.transitions = self.simulation.transitions()?;
            outcome.state = self.simulation.operator().map(|operator| operator.state().clone()).unwrap_or_default();
        }
        Ok(outcome)
    }

    fn word(&self, job: &JobKey, phase: Phase) -> String {
        self.simulation.registry().api_of(job).map(|api| api.phase_word(phase).to_owned()).unwrap_or_default()
    }

    /// `namespace/name`, with the kind in front where that alone would be two jobs.
    fn name_jobs<'k>(&mut self, jobs: impl Iterator<Item = &'k JobKey>) {
        let mut kinds: BTreeMap<String, BTreeMap<Text, Vec<JobKey>>> = BTreeMap::new();
        for job in jobs {
            kinds.entry(job.to_string()).or_default().entry(job.kind.clone()).or_default().push(job.clone());
        }
        for (name, by_kind) in kinds {
            let clash = by_kind.len() > 1;
            for (kind, jobs) in by_kind {
                let shown = if clash { format!("{kind}/{name}") } else { name.clone() };
                self.names.extend(jobs.into_iter().map(|job| (job, shown.clone())));
            }
        }
    }

    fn step(&mut self, action: &Action) -> Result<(), Reason> {
        let armed = std::mem::take(&mut self.armed);
        let deadly = !armed.is_empty();
        for crash in armed {
            self.simulation.crash_plan().lock().add(crash);
        }
        let result = self.do_step(action);
        if deadly {
            // A crash planned inside this step happens in it or not at all.
            self.simulation.crash_plan().lock().disarm();
        }
        result
    }

    fn do_step(&mut self, action: &Action) -> Result<(), Reason> {
        match action {
            Action::Advance(by) => self.advance(by.0)?,
            Action::Crash(point) => self.crash(*point, LogAfterCrash::SameLog)?,
            Action::LoseLog(point) => self.crash(*point, LogAfterCrash::NoLog)?,
            Action::SwapLeader(point) => self.crash(*point, LogAfterCrash::OtherReplica)?,
            Action::RestoreLog(RestoreLog { position, before, after, nth }) => {
                let point = CrashPoint { before: *before, after: *after, nth: *nth };
                self.crash(point, LogAfterCrash::OldLog(*position))?;
            }
            Action::Together(actions) => {
                for action in actions {
                    self.act(action)?;
                }
                self.simulation.settle()?;
            }
            _ => {
                self.act(action)?;
                self.simulation.settle()?;
            }
        }
        self.controllers()
    }

    /// Lets time pass, and stops whenever a program has something to report.
    fn advance(&mut self, by_ms: u64) -> Result<(), Reason> {
        let mut left = by_ms;
        loop {
            let now = self.simulation.backend.now();
            let stop = self.trainer.next_report();
            let until_stop = stop.map_or(left, |at| at.0.saturating_sub(now.0).max(1)).min(left);
            self.simulation.advance(until_stop)?;
            left = left.saturating_sub(until_stop);
            if left == 0 {
                return Ok(());
            }
            self.controllers()?;
        }
    }

    /// Has the controllers of other projects act, and the operator after them, until nothing moves.
    fn controllers(&mut self) -> Result<(), Reason> {
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for controller in &self.scenario.with {
                let backend = &mut self.simulation.backend;
                changed |= match controller {
                    Controller::MpiOperator => mpi_operator::reconcile(backend)?,
                    Controller::Trainer => self.trainer.reconcile(backend)?,
                };
            }
            if !changed {
                return Ok(());
            }
            self.simulation.audit();
            self.simulation.settle()?;
        }
        Err(Reason::Meaning(format!("operator and controllers are still busy after {MAX_ROUNDS} rounds")))
    }

    fn crash(&mut self, point: CrashPoint, log_after: LogAfterCrash) -> Result<(), Reason> {
        let boundary = match (point.before, point.after) {
            (None, None) => {
                self.simulation.restart(log_after)?;
                return Ok(self.simulation.settle()?);
            }
            (Some(boundary), _) | (None, Some(boundary)) => boundary,
        };
        self.armed.push(Crash { boundary, after: point.after.is_some(), nth: point.nth, log_after, anywhere: false });
        Ok(())
    }
}
