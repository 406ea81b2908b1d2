//! The loop of an operator on a cluster without a network: observe, turn, execute, answer, until nothing moves.
//!
//! Owns its order, its limit and its error. Faults and crashes come in through [`Hooks`]; time is the caller's.

use apis::{ApiAnswer, ApiCall, Registry};
use cluster::{DefinitionError, FileError};
use model::{Kind, Timestamp};
use operator::Operator;

use crate::backend::Backend;

/// Maximum number of rounds until the operator is idle. Reaching it is a defect: two rules undo each other's work.
pub const MAX_ROUNDS: u32 = 100_000;

/// Error that ends a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator stopped.
    #[error(transparent)]
    Operator(#[from] operator::Error),
    /// The cluster's objects cannot be stored.
    #[error(transparent)]
    File(#[from] FileError),
    /// A CRD of this build does not register.
    #[error("a custom resource definition cannot be served: {0}")]
    Definition(#[from] DefinitionError),
    /// The operator never becomes idle.
    #[error(
        "the operator is still busy at {at} after {rounds} rounds; its last calls: {calls}. Please report this with the log"
    )]
    NotIdle {
        /// Number of rounds.
        rounds: u32,
        /// Time of the last round.
        at: String,
        /// The last calls.
        calls: String,
    },
}

/// Result of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Nothing is left to do before the next deadline.
    Idle,
    /// The operator's process crashed at a call ([`Hooks::execute`]).
    Crashed,
}

/// Actions of a caller at each point of the loop.
pub trait Hooks<B> {
    /// Called before each turn, when the operator has got every observation.
    fn before_turn(&mut self, _operator: &mut Operator, _now: Timestamp) {}

    /// Called after each turn, before its calls are executed.
    ///
    /// # Errors
    /// When the operator must stop.
    fn after_turn(&mut self, _operator: &mut Operator) -> Result<(), operator::Error> {
        Ok(())
    }

    /// Executes a call. Returns `None` if the operator's process crashed before it got the answer.
    fn execute(&mut self, backend: &mut B, call: &ApiCall) -> Option<ApiAnswer>;
}

/// Runs cluster and operator until nothing moves at the time `clock` gives.
///
/// # Errors
/// When the operator stops, the cluster cannot be stored, or the operator is not idle after [`MAX_ROUNDS`].
pub fn settle<B: Backend>(
    backend: &mut B,
    operator: &mut Operator,
    registry: &Registry,
    clock: &mut dyn FnMut() -> Timestamp,
    hooks: &mut dyn Hooks<B>,
) -> Result<Settled, Error> {
    let mut last_calls = Vec::new();
    let mut now = clock();
    for _ in 0..MAX_ROUNDS {
        let moved = backend.advance_to(now);
        backend.sync()?;
        let watches = Kind::ON_DEMAND.into_iter().filter(|kind| operator.watches(*kind));
        let observations = backend.observe(registry, &watches.collect::<Vec<_>>());
        let quiet = !moved && observations.is_empty();
        for observation in observations {
            operator.handle_observed(observation);
        }
        hooks.before_turn(operator, now);
        let calls = operator.turn(now)?;
        hooks.after_turn(operator)?;
        if quiet && calls.is_empty() && operator.next_wake().is_none_or(|at| at > now) {
            return Ok(Settled::Idle);
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in &calls {
            let Some(answer) = hooks.execute(backend, call) else { return Ok(Settled::Crashed) };
            answers.push(answer);
        }
        // An API server stores a write before it answers: a crash must not undo what the operator was answered.
        backend.sync()?;
        for (call, answer) in calls.iter().zip(answers) {
            operator.handle_answer(call.id, answer);
        }
        if !calls.is_empty() {
            last_calls = calls;
        }
        now = clock();
    }
    Err(Error::NotIdle { rounds: MAX_ROUNDS, at: now.to_rfc3339(), calls: describe(&last_calls) })
}

fn describe(calls: &[ApiCall]) -> String {
    let calls: Vec<String> =
        calls.iter().map(|call| format!("{:?} {} {}", call.verb, call.resource.kind, call.name)).collect();
    calls.join(", ")
}
