//! Holds the autoscaler of a job: what it measured, its next step, and the number of pods that it writes into the spec.
//!
//! Its rule is [`crate::decide`]'s. A state taken from the job's object has no measurements: they are made again. Tests: the
//! scenarios `autoscaler-*` of TorchJob.

use std::collections::BTreeMap;

use model::{Autoscaled, Autoscaler, JobSpec, Measurement, PodPhase, Scaling, ScalingStep, Timestamp};

use crate::job::{Job, Pod};

/// Time in milliseconds between two measurements.
pub(crate) const PERIOD_MS: u64 = 30_000;
/// Number of measurements after which a number of pods is judged.
pub(crate) const MEASUREMENTS: usize = 5;

/// The autoscaler of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAutoscaler {
    /// Its state, as the status shows it.
    pub scaling: Scaling,
    /// Its next step.
    pub next: ScalingStep,
    /// Measurements by the number of pods: microseconds for one step of the training.
    pub latencies_us: BTreeMap<u32, Vec<u64>>,
    /// Work of the job that was measured last, where its program reports progress.
    pub measured: Measurement,
    /// Set while the number of pods is to be written into the job's spec.
    pub resizes: bool,
    /// Number of times that another client wrote the number before.
    pub reverts: u32,
}

impl JobAutoscaler {
    /// Returns an autoscaler that looks at its job after a period.
    pub(crate) fn new(scaling: Scaling, now: Timestamp) -> Self {
        let next = ScalingStep::Look { at: now.plus_ms(PERIOD_MS) };
        let (measured, latencies_us) = (Measurement::default(), BTreeMap::new());
        Self { scaling, next, latencies_us, measured, resizes: false, reverts: 0 }
    }

    /// Returns the number of pods that is to be written into the spec.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.resizes.then_some(self.scaling.replicas)
    }

    /// Returns the time at which it does something by itself.
    pub(crate) const fn wakes_at(&self) -> Option<Timestamp> {
        match self.next {
            ScalingStep::Look { at } | ScalingStep::AwaitPods { until: at } => Some(at),
            ScalingStep::ReadLog | ScalingStep::Judge { .. } | ScalingStep::RestartPods | ScalingStep::Rest => None,
        }
    }
}

/// Returns the settings of a job's autoscaler, and the number of pods that its spec asks for.
pub(crate) fn settings(spec: &JobSpec) -> Option<(&Autoscaler, u32)> {
    let settings = spec.autoscaler.as_deref()?;
    Some((settings, spec.group(&settings.group)?.replicas))
}

impl Job {
    /// Returns true while the pods that were started for another number of pods may be replaced.
    pub(crate) fn restarts_for_size(&self) -> bool {
        let is_due = self.autoscaler.as_ref().is_some_and(|own| own.next == ScalingStep::RestartPods);
        is_due && self.noted().is_none_or(|noted| noted.restarts != Some(false))
    }

    /// Returns true if none of the resized pods was started for another number of pods. Pods that are of no generation never are.
    pub(crate) fn is_of_one_size(&self) -> bool {
        let Some((settings, _)) = self.spec().and_then(settings) else { return true };
        self.elastic().is_none() || self.groups.get(&settings.group).is_none_or(|group| self.is_current(group))
    }

    /// Returns the pod whose log shows how long a step takes: the first one of the group, while it runs.
    pub(crate) fn measured_pod(&self) -> Option<&Pod> {
        let (settings, _) = settings(self.spec()?)?;
        let pod = self.pods.get(self.groups.get(&settings.group)?.slot(0)?.pod.as_ref()?)?;
        Some(&**pod).filter(|pod| pod.fact.phase == PodPhase::Running && !pod.is_leaving())
    }

    /// Takes a step of the autoscaler in.
    pub(crate) fn autoscale(&mut self, step: &Autoscaled, now: Timestamp) {
        let Some((_, replicas)) = self.spec().and_then(settings) else { return };
        let done = self.work_done();
        let Some(own) = &mut self.autoscaler else {
            let new = step.scaling.clone().map(|scaling| JobAutoscaler::new(scaling, now));
            self.autoscaler = new.map(|own| Box::new(JobAutoscaler { next: step.next, measured: done, ..own }));
            return;
        };
        let own = &mut **own;
        own.next = step.next;
        own.measured = done;
        let measurements = own.latencies_us.entry(replicas).or_default();
        measurements.extend(step.latency_us.filter(|_| measurements.len() < MEASUREMENTS));
        if let Some(scaling) = &step.scaling {
            own.scaling.clone_from(scaling);
            own.resizes = scaling.replicas != replicas;
        }
        if !own.scaling.continues {
            own.latencies_us.clear();
        }
    }

    /// Compares an edit of the spec with what the autoscaler wrote. `before` is the number of pods that the spec asked for.
    pub(crate) fn follow_edit(&mut self, before: Option<u32>) {
        let Some((_, replicas)) = self.spec().and_then(settings) else { return };
        let Some(own) = &mut self.autoscaler else { return };
        let own = &mut **own;
        let is_back = replicas == own.scaling.last && replicas != own.scaling.replicas;
        match before {
            // Taken from the object: the status shows a number that the spec does not have yet.
            None => own.resizes = is_back && own.scaling.last > 0,
            Some(before) if before == replicas => {}
            Some(_) => {
                own.reverts = own.reverts.saturating_add(u32::from(is_back && !own.resizes));
                own.resizes = false;
            }
        }
    }

    /// Returns the work that the job's program reports, of all sizes together.
    pub(crate) fn work_done(&self) -> Measurement {
        let mut sum = Measurement::default();
        self.progress.iter().flat_map(|progress| progress.sizes.values()).for_each(|each| sum.add(*each));
        sum
    }
}

/// Returns a new state in words, for the trail of a job.
pub fn words(scaling: &Scaling) -> String {
    let Scaling { condition, replicas, message, .. } = scaling;
    let why = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("autoscaler: {condition:?} with {replicas} pods{why}")
}
