//! Classifies pods: their outcome, and whether the restart policy answers it.
//!
//! Rules: `AITrainingJob` specification, sections 3.1, 4.2 and 4.3, with its corrections: a pod that ended keeps its result
//! even if its node is lost later, and a pod that is being deleted has none.

use model::{
    CauseKind, Config, ContainerEnd, ContainerState, GroupSpec, Phase, PodPhase, RestartPolicy, Retryable, Timestamp,
};

use crate::job::{Job, Pod};
use crate::nodes::{NodeTrouble, NodeView};
use crate::slots::{creation_error, has_gpu_condition};

/// Outcome of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodOutcome {
    /// Nothing to act on (yet).
    Fine,
    /// It failed.
    Failed {
        /// The phase a group takes that it fails.
        phase: Phase,
        /// Kind of the failure.
        kind: CauseKind,
        /// Set if the restart policy answers it with a restart.
        restartable: bool,
    },
    /// Its containers cannot be created, and it may be tried again.
    Retry,
}

/// Holds the point in time, the settings and the nodes that a job is decided by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) config: &'a Config,
    pub(crate) node_view: NodeView<'a>,
}

impl DecisionContext<'_> {
    /// Returns the outcome of one pod of a group.
    pub(crate) fn classify(&self, job: &Job, group: &GroupSpec, pod: &Pod) -> PodOutcome {
        if pod.is_leaving() || pod.fact.phase == PodPhase::Succeeded {
            return PodOutcome::Fine;
        }
        if let Some(outcome) = self.classify_creation(job, pod) {
            return outcome;
        }
        if pod.fact.phase == PodPhase::Failed {
            return self.classify_failed(job, group, pod);
        }
        if ended_beside_others(job, group, pod) {
            return PodOutcome::Failed { phase: Phase::Failed, kind: CauseKind::Exited, restartable: true };
        }
        match self.lost(group, pod) {
            Some(kind) => {
                let restartable = on_node_fail(job, group.restart, kind);
                PodOutcome::Failed { phase: Phase::NodeFailed, kind, restartable }
            }
            None => PodOutcome::Fine,
        }
    }

    fn classify_failed(&self, job: &Job, group: &GroupSpec, pod: &Pod) -> PodOutcome {
        let by_code = ended_with_listed_code(job, pod);
        let gpu = self.gpu_message(pod) || has_gpu_condition(pod, &self.node_view);
        let disrupted = pod.fact.is_disrupted();
        let restartable = match group.restart {
            RestartPolicy::Always | RestartPolicy::OnFailure => true,
            RestartPolicy::OnNodeFail => gpu || disrupted,
            RestartPolicy::Never => false,
            RestartPolicy::OnNodeLost => gpu,
            RestartPolicy::ExitCode => by_code,
            RestartPolicy::OnNodeFailWithExitCode => by_code || gpu || disrupted,
            RestartPolicy::Listed => {
                by_code
                    || retryable(job).is_some_and(|listed| is_listed(listed, pod, gpu) || (listed.node && disrupted))
            }
        };
        let kind = if gpu {
            CauseKind::GpuFault
        } else if disrupted {
            // Its containers were stopped: what they exited with is no result.
            CauseKind::PodFailed
        } else if pod.fact.containers.iter().any(|c| matches!(c.state, ContainerState::Terminated(_))) {
            CauseKind::Exited
        } else {
            CauseKind::PodFailed
        };
        PodOutcome::Failed { phase: Phase::Failed, kind, restartable }
    }

    /// A container's last words that name a device failure.
    fn gpu_message(&self, pod: &Pod) -> bool {
        pod.fact.containers.iter().any(|c| match &c.state {
            ContainerState::Terminated(ContainerEnd { message: Some(message), code, .. }) => {
                *code != 0 && self.config.gpu_faults.iter().any(|fault| message.contains(fault.as_str()))
            }
            ContainerState::Terminated(_) | ContainerState::Waiting { .. } | ContainerState::Running => false,
        })
    }

    /// Returns why the pod's node counts as lost for it.
    pub(crate) fn lost(&self, group: &GroupSpec, pod: &Pod) -> Option<CauseKind> {
        let node = pod.fact.node.as_ref()?;
        if self.node_view.trouble(node, self.now) == Some(NodeTrouble::Lost) {
            return Some(CauseKind::NodeLost);
        }
        let faulty = group.gpus && self.node_view.gpu_fault(node).is_some() || has_gpu_condition(pod, &self.node_view);
        faulty.then_some(CauseKind::GpuFault)
    }

    /// Returns the outcome of a pod whose container cannot be created; only while all pods are placed and the job has shown so.
    fn classify_creation(&self, job: &Job, pod: &Pod) -> Option<PodOutcome> {
        if pod.fact.phase != PodPhase::Pending {
            return None;
        }
        creation_error(&pod.fact)?;
        let age = self.now.since_ms(job.creating_at?);
        if age < self.config.creating_restart_ms {
            let stuck = pod.fact.started.map_or(0, |started| self.now.since_ms(started));
            return (stuck >= self.config.creating_timeout_ms).then_some(PodOutcome::Retry);
        }
        self.config.creating_failed.then_some(PodOutcome::Failed {
            phase: Phase::Failed,
            kind: CauseKind::CreationFailed,
            restartable: false,
        })
    }
}

/// Returns true if every main container of a pod that ended did so with a listed exit code, and one did.
fn ended_with_listed_code(job: &Job, pod: &Pod) -> bool {
    let mut codes = pod.fact.containers.iter().filter_map(|c| match &c.state {
        ContainerState::Terminated(end) if c.main => Some(end.code),
        ContainerState::Terminated(_) | ContainerState::Waiting { .. } | ContainerState::Running => None,
    });
    let listed = |code: i32| job.spec().is_some_and(|s| s.restartable_codes.binary_search(&code).is_ok());
    codes.next().is_some_and(listed) && codes.all(listed)
}

/// Returns true if the main container of a pod failed in a way that is restarted, while others of the pod still run.
fn ended_beside_others(job: &Job, group: &GroupSpec, pod: &Pod) -> bool {
    group.restart == RestartPolicy::Listed
        && retryable(job).is_some_and(|listed| listed.main_ended)
        && ended_with_listed_code(job, pod)
}

fn retryable(job: &Job) -> Option<&Retryable> {
    job.spec().and_then(|spec| spec.retryable.as_ref())
}

/// Returns true if a failure is listed by something else than its exit code.
fn is_listed(listed: &Retryable, pod: &Pod, gpu: bool) -> bool {
    pod.fact.reason.as_ref().is_some_and(|reason| listed.reasons.contains(reason))
        || (listed.disrupted && pod.fact.has_disruption())
        || (listed.gpu && gpu)
}

/// Returns true if the policy answers the failure of a node, or of a device on it, by a restart.
fn on_node_fail(job: &Job, policy: RestartPolicy, kind: CauseKind) -> bool {
    match policy {
        RestartPolicy::Listed => {
            retryable(job).is_some_and(|listed| if kind == CauseKind::GpuFault { listed.gpu } else { listed.node })
        }
        RestartPolicy::Always
        | RestartPolicy::OnNodeFail
        | RestartPolicy::OnNodeLost
        | RestartPolicy::OnNodeFailWithExitCode => true,
        RestartPolicy::OnFailure | RestartPolicy::Never | RestartPolicy::ExitCode => false,
    }
}
