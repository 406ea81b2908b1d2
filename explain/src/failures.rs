//! The failed tries of a job, from its records: which container failed first, how, and whether every try ended alike.
//!
//! Reads records; decides nothing. For the end of a run and for `logs`. Tests: at the end.

use std::collections::BTreeMap;

use engine::Record;
use model::fact::EndRequest;
use model::{
    CauseKind, ContainerEnd, ContainerState, Decision, Incarnation, JobEvent, JobFact, PodFact, PodPhase, SlotId, Text,
    Timestamp,
};

/// Pods remembered between two decisions: enough for every slot that is ever named in one.
const MAX_PODS: usize = 4096;

/// The failure that ended one try of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Time of the decision that answered it.
    pub at: Timestamp,
    /// Kind of the failure.
    pub kind: CauseKind,
    /// The decision's own words.
    pub words: Text,
    /// The pod that failed first; `None` where the cause is none of a pod's, or its record is gone.
    pub pod: Option<FailedPod>,
}

/// A pod that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedPod {
    /// Its name.
    pub name: Text,
    /// Which creation of its slot it was.
    pub incarnation: Incarnation,
    /// Its container that failed first, if one did.
    pub container: Option<FailedContainer>,
}

/// A container that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedContainer {
    /// Its name.
    pub name: Text,
    /// How it ended.
    pub end: ContainerEnd,
    /// Number of restarts in its pod since; its log is that of as many runs before the last one.
    pub runs_since: u32,
}

/// The failed tries of one job.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    pods: BTreeMap<SlotId, PodFact>,
    /// End of the last try, a failure or not.
    last: Option<Failure>,
    /// End of the last try that failed.
    last_failed: Option<Failure>,
    count: u32,
    differ: bool,
}

impl Failures {
    /// Adds the next record of the job.
    pub fn take(&mut self, record: &Record) {
        for fact in record.job_facts() {
            if let JobFact::Pod(pod) = fact
                && let Some(slot) = &pod.slot
                && (has_failed(pod) || self.pods.contains_key(slot))
                && (self.pods.len() < MAX_PODS || self.pods.contains_key(slot))
            {
                self.pods.insert(slot.clone(), (**pod).clone());
            }
        }
        for event in record.job_events() {
            if let JobEvent::Decided(decision) = event
                && decision.cause().kind != CauseKind::Completed
            {
                self.push(record.at, decision);
            }
        }
    }

    fn push(&mut self, at: Timestamp, decision: &Decision) {
        let cause = decision.cause();
        let pod = cause.slots.first().and_then(|slot| self.pods.get(slot)).map(|pod| FailedPod {
            name: pod.name.clone(),
            incarnation: pod.incarnation,
            container: failed_container(pod),
        });
        let failure = Failure { at, kind: cause.kind, words: cause.message.clone(), pod };
        if is_failure(decision) {
            self.differ |= self.last_failed.as_ref().is_some_and(|last| !alike(last, &failure));
            self.count = self.count.saturating_add(1);
            self.last_failed = Some(failure.clone());
        }
        self.last = Some(failure);
        self.pods.clear();
    }

    /// Returns what ended the last try: a failure, a halt, or the request to end the job.
    pub fn last(&self) -> Option<&Failure> {
        self.last.as_ref()
    }

    /// Returns the number of tries that failed.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether there were several failed tries, and all ended with the same error.
    pub fn all_alike(&self) -> bool {
        self.count > 1 && !self.differ
    }
}

/// Returns true if a decision answers a failure. A halt and a resize do not, nor does the end of a job that its user or a scheduler asked for.
fn is_failure(decision: &Decision) -> bool {
    let by_request = |kind| matches!(kind, CauseKind::EndRequested(EndRequest::Stopped | EndRequest::Preempted));
    match decision {
        Decision::Halt { .. } => false,
        Decision::Restart { cause, .. } => cause.kind != CauseKind::Resized,
        Decision::End { cause, .. } => !by_request(cause.kind),
    }
}

/// Returns true if a pod failed, or a container of it did and was started again.
fn has_failed(pod: &PodFact) -> bool {
    matches!(pod.phase, PodPhase::Failed | PodPhase::Unknown) || !pod.failures().is_empty()
}

/// The container whose end failed a pod: one whose result counts before one of a side car.
fn failed_container(pod: &PodFact) -> Option<FailedContainer> {
    let (container, end) = pod.failures().into_iter().next()?;
    // One that waits to be started again has no log of another run yet.
    let runs_since = u32::from(matches!(container.state, ContainerState::Running));
    Some(FailedContainer { name: container.name.clone(), end: end.clone(), runs_since })
}

/// Returns true if two failures are the same error. Ranks and numbers (ports, times, addresses) are not compared.
fn alike(one: &Failure, other: &Failure) -> bool {
    let error = |failure: &Failure| {
        let FailedContainer { name, end, .. } = failure.pod.as_ref().and_then(|pod| pod.container.as_ref())?;
        let line = end.message.as_deref().and_then(model::last_words::error_line).map(masked);
        Some((name.clone(), end.code, end.reason.clone(), line))
    };
    one.kind == other.kind && error(one) == error(other)
}

/// A line with its numbers left out.
fn masked(line: &str) -> String {
    let mut out: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    while out.contains("00") {
        out = out.replace("00", "0");
    }
    out
}

#[cfg(test)]
mod tests {
    use engine::{Body, wire};
    use model::{Cause, ContainerFact, JobKey, Phase, Position, ResourceVersion, RestartScope, Term};

    use super::*;

    fn failed(index: u32, code: i32, message: &str) -> JobFact {
        let container = |name: &str, main, code, message: Option<&str>| ContainerFact {
            name: name.into(),
            main,
            state: ContainerState::Terminated(ContainerEnd {
                code,
                message: message.map(Into::into),
                ..ContainerEnd::default()
            }),
            last: None,
        };
        let name = Text::from(format!("j-w-{index}"));
        let slot = SlotId { group: "w".into(), index };
        JobFact::Pod(Box::new(PodFact {
            incarnation: Incarnation(2),
            phase: PodPhase::Failed,
            containers: vec![container("side", false, 9, None), container("main", true, code, Some(message))],
            ..PodFact::accepted(format!("u{index}").as_str().into(), name, Some(slot), ResourceVersion(7))
        }))
    }

    fn restart(index: u32) -> JobEvent {
        let slot = SlotId { group: "w".into(), index };
        let cause = Cause { kind: CauseKind::Exited, slots: vec![slot.clone()], message: "why".into() };
        let scope = RestartScope::All;
        JobEvent::Decided(Box::new(Decision::Restart {
            group: "w".into(),
            scope,
            slot,
            cause,
            failures: 1,
            retry_at: None,
        }))
    }

    fn record(facts: Vec<JobFact>, events: Vec<JobEvent>) -> Record {
        let key = JobKey { namespace: "ns".into(), name: "j".into(), kind: "AITrainingJob".into(), uid: "u".into() };
        Record {
            position: Position(1),
            term: Term(1),
            at: Timestamp(5),
            behaviour: wire::BEHAVIOUR,
            causes: Vec::new(),
            body: Body::Job { key, facts, events },
        }
    }

    #[test]
    fn the_failure_is_that_of_the_pod_the_decision_names() {
        let mut failures = Failures::default();
        assert_eq!((failures.last(), failures.count()), (None, 0));
        failures
            .take(&record(vec![failed(0, 1, "reset by peer"), failed(1, 3, "x\nNo module named 'torch'\n")], vec![]));
        failures.take(&record(vec![], vec![restart(1)]));
        let failure = failures.last().unwrap();
        let pod = failure.pod.as_ref().unwrap();
        assert_eq!((&*pod.name, pod.incarnation, failure.at), ("j-w-1", Incarnation(2), Timestamp(5)));
        assert_eq!(&*pod.container.as_ref().unwrap().name, "main");
        assert!(!failures.all_alike(), "one try is alike to nothing");
    }

    #[test]
    fn tries_are_alike_when_only_ranks_and_numbers_differ() {
        let tries = |ends: &[(u32, i32, &str)]| {
            let mut failures = Failures::default();
            for (index, code, message) in ends {
                failures.take(&record(vec![failed(*index, *code, message)], vec![restart(*index)]));
            }
            (failures.count(), failures.all_alike())
        };
        assert_eq!(
            tries(&[(0, 1, "a\nport 1234 in use"), (1, 1, "b\nport 99 in use"), (0, 1, "port 5 in use")]),
            (3, true)
        );
        assert_eq!(tries(&[(0, 1, "x"), (0, 1, "y"), (0, 1, "x")]), (3, false));
        assert_eq!(tries(&[(0, 1, "x"), (0, 2, "x")]), (2, false));
        // Decisions whose pods no record names any more.
        let mut failures = Failures::default();
        failures.take(&record(vec![], vec![restart(0)]));
        failures.take(&record(vec![], vec![restart(0)]));
        assert_eq!((failures.count(), failures.all_alike(), &failures.last().unwrap().pod), (2, true, &None));
    }

    #[test]
    fn a_halt_a_resize_and_a_stop_are_no_failed_tries() {
        let cause = |kind| Cause { kind, slots: Vec::new(), message: "why".into() };
        let decided = |decision| record(vec![], vec![JobEvent::Decided(Box::new(decision))]);
        let stopped = CauseKind::EndRequested(EndRequest::Stopped);
        let end = Decision::End { phase: Phase::Failed, cause: cause(stopped), clean: true, live_only: true };
        let resize = Decision::Restart {
            group: "w".into(),
            scope: RestartScope::All,
            slot: SlotId { group: "w".into(), index: 0 },
            cause: cause(CauseKind::Resized),
            failures: 0,
            retry_at: None,
        };
        let mut failures = Failures::default();
        for each in [
            record(vec![failed(0, 1, "x")], vec![restart(0)]),
            decided(Decision::Halt { cause: cause(CauseKind::Suspended) }),
            decided(resize),
            record(vec![failed(1, 1, "x")], vec![restart(1)]),
            decided(end),
        ] {
            failures.take(&each);
        }
        assert_eq!((failures.count(), failures.all_alike()), (2, true));
        assert_eq!(failures.last().unwrap().kind, stopped, "why the job ended is still known");
    }
}
