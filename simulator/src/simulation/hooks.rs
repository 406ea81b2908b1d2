//! The simulation's part in the loop: crashes, claimed terms, and the trace of calls and phases.
//!
//! Owns what is recorded of a call. What a crash leaves behind is the simulation's.

use std::collections::BTreeMap;

use apis::{ApiAnswer, ApiCall, Verb};
use embedded::Hooks;
use model::{Term, Timestamp};
use operator::Operator;

use super::{ExecutedCall, Trace};
use crate::audit::Audit;
use crate::backend::ClusterBackend;
use crate::crash::{CrashOutcome, SharedCrashPlan};
use crate::scenario::Boundary;

/// Parts of a simulation that the loop changes.
pub(super) struct SimulationHooks<'a> {
    pub(super) crash_plan: &'a SharedCrashPlan,
    pub(super) last_term: &'a mut Term,
    pub(super) caches_state: bool,
    /// Attempts of calls that did not succeed yet, by call.
    pub(super) attempts: &'a mut BTreeMap<String, u32>,
    pub(super) trace: &'a mut Trace,
    pub(super) audit: Option<&'a mut Audit>,
}

impl<B: ClusterBackend> Hooks<B> for SimulationHooks<'_> {
    fn before_turn(&mut self, operator: &mut Operator, now: Timestamp) {
        self.crash_plan.lock().separate();
        if let Some(term) = operator.proposed_term(now) {
            *self.last_term = term;
            operator.grant_term(term);
        }
    }

    fn after_turn(&mut self, operator: &mut Operator) -> Result<(), operator::Error> {
        if self.caches_state {
            operator.cache_state()?;
            self.crash_plan.lock().separate();
        }
        self.trace.take_phases(operator);
        Ok(())
    }

    fn execute(&mut self, backend: &mut B, call: &ApiCall) -> Option<ApiAnswer> {
        // The answer to a Kubernetes Event changes no job: a crash at one is no case of its own.
        let outcome =
            if call.object.is_some() { self.crash_plan.lock().next(Boundary::Call) } else { CrashOutcome::Completes };
        match outcome {
            CrashOutcome::Completes => Some(self.record(backend, call)),
            CrashOutcome::CrashedBefore => None,
            CrashOutcome::CrashesAfter => {
                let _lost_answer = self.record(backend, call);
                None
            }
        }
    }
}

impl SimulationHooks<'_> {
    /// Executes one call, and records it if it changed something.
    fn record(&mut self, backend: &mut impl ClusterBackend, call: &ApiCall) -> ApiAnswer {
        let executed = backend.execute(call);
        self.trace.called.insert((call.resource.clone(), call.verb));
        if let Some(audit) = self.audit.as_mut().filter(|_| executed.changed.is_some()) {
            self.trace.violations.extend(audit.check(backend.cluster()));
        }
        if call.verb == Verb::Get || call.object.is_none() {
            return executed.answer;
        }
        let uid = call.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        let address = format!("{:?} {} {}/{} {uid}", call.verb, call.resource.kind, call.namespace, call.name);
        let count = self.attempts.entry(address.clone()).or_default();
        *count = count.saturating_add(1);
        let attempts = *count;
        if executed.answer.is_ok() {
            self.attempts.remove(&address);
        }
        if let Some(uid) = executed.changed {
            self.trace.done.push(ExecutedCall { call: call.clone(), uid, attempts });
        }
        executed.answer
    }
}

impl Trace {
    /// Takes the phases of the operator's turns since the last call.
    pub(super) fn take_phases(&mut self, operator: &mut Operator) {
        self.phases.extend(operator.take_steps().into_iter().map(|step| (step.job, step.phase)));
    }
}
