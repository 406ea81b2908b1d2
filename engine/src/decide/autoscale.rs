//! Resizes a group by the time that a step of its training takes: twice the pods while that time less than doubles.
//!
//! Source: the autoscaler of torch-on-k8s for TorchElastic. Every 30 s it takes one measurement, from the last line of a pod's log, or
//! from the progress that the job's program reports. After five of them it judges the present number of pods. A number of pods that
//! does not start within a minute, or does not pay, is taken back, and that is the end of it. It must not write the spec: the number
//! is a note on the job's object ([`crate::notes`]).

use model::{
    Autoscaled, Autoscaler, JobEvent, JobSpec, Phase, Scaling, ScalingCondition, ScalingStep, Text, Timestamp,
};

use crate::autoscaler::{JobAutoscaler, MEASUREMENTS, PERIOD_MS, settings};
use crate::classify::DecisionContext;
use crate::job::Job;

/// Upper bound of the wait for pending pods, in milliseconds.
const PODS_TIMEOUT_MS: u64 = 60_000;
/// Number of edits that take the autoscaler's number back, after which it gives up.
const MAX_REVERTS: u32 = 2;

/// Returns the next step of the job's autoscaler; `None` while there is none.
pub(super) fn next_step(context: &DecisionContext<'_>, job: &Job, spec: &JobSpec) -> Option<JobEvent> {
    let (settings, replicas) = settings(spec)?;
    let look = Look { now: context.now, job, settings, replicas };
    let step = match job.autoscaler.as_deref() {
        None => look.resized(ScalingCondition::Start, replicas, 0, ""),
        // The number of pods is written first.
        Some(own) if own.resizes => return None,
        Some(own) => look.step_of(own)?,
    };
    Some(JobEvent::Autoscaled(Box::new(step)))
}

/// A look at a job.
struct Look<'a> {
    now: Timestamp,
    job: &'a Job,
    settings: &'a Autoscaler,
    /// Number of pods that the spec asks for.
    replicas: u32,
}

impl Look<'_> {
    fn step_of(&self, own: &JobAutoscaler) -> Option<Autoscaled> {
        match own.next {
            ScalingStep::Look { at } => (at <= self.now).then(|| self.look(own, true)),
            ScalingStep::AwaitPods { until } => {
                let is_over = until <= self.now || !self.has_pending_pods();
                is_over.then(|| self.look(own, false))
            }
            ScalingStep::ReadLog => (!self.has_log()).then(|| self.later()),
            ScalingStep::Judge { latency_us } => Some(self.judge(own, latency_us)),
            ScalingStep::RestartPods => {
                let is_noted = self.job.noted().is_none_or(|noted| noted.restarts == Some(false));
                (is_noted && self.job.is_of_one_size()).then(|| {
                    let Scaling { replicas, last, .. } = own.scaling;
                    self.resized(ScalingCondition::Stop, replicas, last, "")
                })
            }
            ScalingStep::Rest => {
                let Scaling { condition, last, .. } = own.scaling;
                let may_shrink = condition == ScalingCondition::ReachMaxReplicas && self.smaller(last) < self.replicas;
                (may_shrink && self.has_pending_pods()).then(|| self.await_pods())
            }
        }
    }

    /// Looks at the pods, and measures where all of them run.
    fn look(&self, own: &JobAutoscaler, may_wait: bool) -> Autoscaled {
        let Scaling { condition, continues, last, replicas: set, .. } = own.scaling;
        if continues && own.reverts >= MAX_REVERTS {
            let message = "the number of pods that it wrote was taken back twice";
            return self.resized(ScalingCondition::Stop, self.replicas, last, message);
        }
        let is_pending = self.has_pending_pods();
        if is_pending && may_wait {
            return self.await_pods();
        }
        if is_pending && self.replicas > self.settings.min {
            let smaller = self.smaller(last);
            let message = format!("of {} pods some are pending for a minute: back to {smaller}", self.replicas);
            return self.resized(ScalingCondition::Stop, smaller, set, &message);
        }
        if is_pending || self.has_failed_pods() {
            let what = if is_pending { "pending" } else { "failed" };
            let scaling = Scaling {
                continues: false,
                replicas: self.replicas,
                message: Text::from(format!("the number of pods stays: a pod is {what}")),
                ..own.scaling.clone()
            };
            return Autoscaled { scaling: Some(scaling), ..next(ScalingStep::Rest) };
        }
        if !continues {
            let restarts = condition == ScalingCondition::ReachMaxMetric;
            return next(if restarts { ScalingStep::RestartPods } else { ScalingStep::Rest });
        }
        if self.job.progress.is_some() {
            return self.judge(own, self.latency_of_progress(own));
        }
        if self.has_log() { next(ScalingStep::ReadLog) } else { self.later() }
    }

    /// Judges the present number of pods, once there are measurements enough.
    fn judge(&self, own: &JobAutoscaler, measured: Option<u64>) -> Autoscaled {
        let Some(measured) = measured else { return self.later() };
        let (now, Autoscaler { min, max, .. }) = (self.replicas, self.settings);
        let known = own.latencies_us.get(&now).map_or(&[][..], Vec::as_slice);
        let latest = known.get(MEASUREMENTS.saturating_sub(1)).copied();
        let is_enough = known.len() >= MEASUREMENTS.saturating_sub(1);
        let step = if !is_enough || now < *min || now > *max {
            self.later()
        } else if now > *min && !self.pays(own, latest.unwrap_or(measured)) {
            let message = format!("a step takes longer with {now} pods: back to {}", own.scaling.last);
            self.resized(ScalingCondition::ReachMaxMetric, own.scaling.last, now, &message)
        } else if now == *max {
            self.resized(ScalingCondition::ReachMaxReplicas, now, own.scaling.last, "")
        } else {
            self.resized(ScalingCondition::Continue, now.saturating_mul(2).min(*max), now, "")
        };
        Autoscaled { latency_us: Some(measured), ..step }
    }

    /// Returns true if a step takes less time for each pod than with the number of pods before. What was not measured pays.
    fn pays(&self, own: &JobAutoscaler, latency_us: u64) -> bool {
        let last = own.scaling.last;
        let before = own.latencies_us.get(&last).and_then(|all| all.get(MEASUREMENTS.saturating_sub(1)));
        let (Some(before), true) = (before, last > 0) else { return true };
        let product = |latency: u64, pods: u32| u128::from(latency).saturating_mul(u128::from(pods));
        product(*before, self.replicas) > product(latency_us, last)
    }

    /// Returns the mean time in microseconds that a unit of the job's work took since the last look.
    fn latency_of_progress(&self, own: &JobAutoscaler) -> Option<u64> {
        let done = self.job.work_done();
        let took_us = done.took_ms.saturating_sub(own.measured.took_ms).saturating_mul(1000);
        took_us.checked_div(done.units.saturating_sub(own.measured.units))
    }

    /// Returns true if pods are pending, or pods of the group are missing while the job runs.
    fn has_pending_pods(&self) -> bool {
        let is_running = self.job.phase == Phase::Running;
        self.job.spec_groups().any(|(spec, group)| {
            let is_missing = is_running && spec.name == self.settings.group && !group.missing.is_empty();
            is_missing || group.counters.pending > 0 || group.counters.scheduled > 0
        })
    }

    fn has_failed_pods(&self) -> bool {
        self.job.spec_groups().any(|(_, group)| group.counters.failed > 0)
    }

    /// Returns true if the pod whose log is read runs.
    fn has_log(&self) -> bool {
        self.job.measured_pod().is_some()
    }

    /// Returns the number of pods that the group goes back to, where it cannot have what it asks for.
    fn smaller(&self, last: u32) -> u32 {
        last.max(self.settings.min).min(self.replicas)
    }

    const fn await_pods(&self) -> Autoscaled {
        next(ScalingStep::AwaitPods { until: self.now.plus_ms(PODS_TIMEOUT_MS) })
    }

    /// Returns the step to the next look.
    const fn later(&self) -> Autoscaled {
        next(ScalingStep::Look { at: self.now.plus_ms(PERIOD_MS) })
    }

    /// Returns a step to a new state.
    fn resized(&self, condition: ScalingCondition, replicas: u32, last: u32, message: &str) -> Autoscaled {
        let continues = matches!(condition, ScalingCondition::Start | ScalingCondition::Continue);
        let scaling = Scaling { condition, continues, replicas, last, at: self.now, message: Text::from(message) };
        Autoscaled { scaling: Some(scaling), ..self.later() }
    }
}

/// Returns a step that changes nothing but the next one.
const fn next(next: ScalingStep) -> Autoscaled {
    Autoscaled { scaling: None, latency_us: None, next }
}
