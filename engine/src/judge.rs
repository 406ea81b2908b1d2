//! What a pod's state means: its outcome, and whether the restart policy answers it.
//!
//! Rules: `AITrainingJob` specification, sections 3.1, 4.2 and 4.3, with its corrections: a pod that ended keeps its result
//! whatever becomes of its node, and a pod on its way out is not judged.

use model::{CauseKind, Config, ContainerState, GroupSpec, Phase, PodPhase, RestartPolicy, Timestamp};

use crate::job::{Job, Pod};
use crate::slots::{creation_error, has_gpu_condition};
use crate::state::{NodeTrouble, Surroundings};

/// What became of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing to act on (yet).
    Fine,
    /// It failed.
    Failed {
        /// The phase a group takes that it fails.
        phase: Phase,
        /// What happened.
        kind: CauseKind,
        /// Whether the restart policy answers it with a restart.
        restartable: bool,
    },
    /// Its containers cannot be created, and it may be tried again.
    Retry,
}

/// The point in time and the settings a job is judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) now: Timestamp,
    pub(crate) config: &'a Config,
    pub(crate) around: Surroundings<'a>,
}

impl Bench<'_> {
    /// Judges one pod of a group.
    pub(crate) fn judge(&self, job: &Job, group: &GroupSpec, pod: &Pod) -> Judgement {
        if pod.is_leaving() || pod.fact.phase == PodPhase::Succeeded {
            return Judgement::Fine;
        }
        if let Some(judgement) = self.judge_creation(job, pod) {
            return judgement;
        }
        if pod.fact.phase == PodPhase::Failed {
            return self.judge_failed(job, group, pod);
        }
        match self.lost(group, pod) {
            Some(kind) => {
                Judgement::Failed { phase: Phase::NodeFailed, kind, restartable: on_node_fail(group.restart) }
            }
            None => Judgement::Fine,
        }
    }

    fn judge_failed(&self, job: &Job, group: &GroupSpec, pod: &Pod) -> Judgement {
        let mut codes = pod.fact.containers.iter().filter_map(|c| match &c.state {
            ContainerState::Terminated { code, .. } if c.main => Some(*code),
            ContainerState::Terminated { .. } | ContainerState::Waiting { .. } | ContainerState::Running => None,
        });
        let listed = |code: i32| job.spec().is_some_and(|s| s.restartable_codes.binary_search(&code).is_ok());
        let by_code = codes.next().is_some_and(listed) && codes.all(listed);
        let gpu = self.gpu_message(pod) || has_gpu_condition(pod, &self.around);
        let restartable = match group.restart {
            RestartPolicy::Always | RestartPolicy::OnFailure => true,
            RestartPolicy::OnNodeFail => gpu,
            RestartPolicy::Never => false,
            RestartPolicy::ExitCode => by_code,
            RestartPolicy::OnNodeFailWithExitCode => by_code || gpu,
        };
        let kind = if gpu {
            CauseKind::GpuFault
        } else if pod.fact.containers.iter().any(|c| matches!(c.state, ContainerState::Terminated { .. })) {
            CauseKind::Exited
        } else {
            CauseKind::PodFailed
        };
        Judgement::Failed { phase: Phase::Failed, kind, restartable }
    }

    /// A container's last words that name a device failure.
    fn gpu_message(&self, pod: &Pod) -> bool {
        pod.fact.containers.iter().any(|c| match &c.state {
            ContainerState::Terminated { message: Some(message), code, .. } => {
                *code != 0 && self.config.gpu_faults.iter().any(|fault| message.contains(fault.as_str()))
            }
            ContainerState::Terminated { .. } | ContainerState::Waiting { .. } | ContainerState::Running => false,
        })
    }

    /// Why the pod's node counts as lost for it.
    pub(crate) fn lost(&self, group: &GroupSpec, pod: &Pod) -> Option<CauseKind> {
        let node = pod.fact.node.as_ref()?;
        if self.around.trouble(node, self.now) == Some(NodeTrouble::Lost) {
            return Some(CauseKind::NodeLost);
        }
        let faulty = group.gpus && self.around.gpu_fault(node).is_some() || has_gpu_condition(pod, &self.around);
        faulty.then_some(CauseKind::GpuFault)
    }

    /// Judges a pod whose container cannot be created; only while all pods are placed and the job has shown so.
    fn judge_creation(&self, job: &Job, pod: &Pod) -> Option<Judgement> {
        if pod.fact.phase != PodPhase::Pending || !matches!(job.phase, Phase::Creating | Phase::Restarting) {
            return None;
        }
        creation_error(pod)?;
        let age = self.now.since_ms(job.creating_at?);
        if age < self.config.creating_restart_ms {
            let stuck = pod.fact.started.map_or(0, |started| self.now.since_ms(started));
            return (stuck >= self.config.creating_patience_ms).then_some(Judgement::Retry);
        }
        self.config.creating_failed.then_some(Judgement::Failed {
            phase: Phase::Failed,
            kind: CauseKind::CreationFailed,
            restartable: false,
        })
    }
}

/// Whether the failure of a node is answered by a restart.
const fn on_node_fail(policy: RestartPolicy) -> bool {
    match policy {
        RestartPolicy::Always | RestartPolicy::OnNodeFail | RestartPolicy::OnNodeFailWithExitCode => true,
        RestartPolicy::OnFailure | RestartPolicy::Never | RestartPolicy::ExitCode => false,
    }
}
