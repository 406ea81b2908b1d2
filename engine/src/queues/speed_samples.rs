//! Keeps speed samples: those that live jobs report, and those of ended jobs, which their queue keeps.
//!
//! Owns the category of a job, how much a queue keeps, and the estimates that follow for a job. A live job's report stands on its
//! object. It becomes a sample on the queue's object when the job ends, so that each counts once. Must not decide. Tests: at the end of
//! this file, and the scenarios `progress-*`.

use std::collections::BTreeMap;

use model::{JobKey, Measurements, Progress, SpeedSample, Text, Timestamp, Uid};
use scheduler::learning::{Measured, Report};
use scheduler::scheduling::{SpeedEstimate, SpeedSamples};
use scheduler::{GpuType, Micros, Speeds};

use super::ROOT;
use super::candidate::Candidate;
use crate::job::Job;
use crate::state::State;

/// Number of samples that a queue keeps; the oldest is dropped first.
const MAX_SAMPLES: usize = 64;
/// Numbers of GPUs that a sample keeps; the one with the fewest units is dropped first.
const MAX_SIZES: usize = 8;
/// Number of jobs that a sample names.
const MAX_JOBS: usize = 8;

/// Key of samples: queue, category and resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    queue: Text,
    category: Text,
    resource: Text,
}

/// Report of a live job, with the key of the sample that it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reported {
    subject: Subject,
    progress: Progress,
}

/// Reports of live jobs, and pending samples: those that no record has added to a queue yet. Derived from jobs. Pending samples last
/// until the end of a turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learning {
    reports: BTreeMap<JobKey, Reported>,
    pending: Vec<(Uid, Reported)>,
}

/// Consequence of a change of a job for decisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Set if targets may follow from it: a number of GPUs was measured first, or the work in all became another.
    pub(super) speeds: bool,
    /// Set if a sample is pending for a queue.
    pub(super) sample: bool,
}

impl Reported {
    fn of(key: &JobKey, job: &Job) -> Option<Self> {
        let progress = job.progress.as_deref()?.clone();
        let spec = job.spec()?;
        let named = spec.demand.as_ref()?.category.as_ref();
        let (_, request) = spec.gpu_groups().next()?;
        let subject = Subject {
            queue: job.queue().cloned().unwrap_or_else(|| Text::from(ROOT)),
            category: category(key, named),
            resource: request.resource.clone(),
        };
        Some(Self { subject, progress })
    }

    fn speeds_like(&self, other: &Self) -> bool {
        let known = |reported: &Self| (reported.subject.clone(), reported.progress.total);
        known(self) == known(other) && self.progress.sizes.keys().eq(other.progress.sizes.keys())
    }
}

/// Returns the category of a job: the one that it names, or else its name without the time that Voda adds to it.
pub(super) fn category(key: &JobKey, named: Option<&Text>) -> Text {
    let name = named.map_or_else(|| without_time(&key.name), |named| &**named);
    Text::from(format!("{}/{name}", key.namespace))
}

/// Returns a name without `-YYYYMMDD-hhmmss` at its end.
fn without_time(name: &str) -> &str {
    let part = |name: &'_ str, digits: usize| -> Option<usize> {
        let (rest, last) = name.rsplit_once('-')?;
        (last.len() == digits && last.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest.len())
    };
    let date = part(name, 6).and_then(|end| part(name.get(..end)?, 8)).and_then(|end| name.get(..end));
    date.filter(|rest| !rest.is_empty()).unwrap_or(name)
}

impl Learning {
    /// Notes what a record changed of a job; `None` when it is forgotten. `is_queue`: whether a queue of that name has an object.
    pub(super) fn note(&mut self, key: &JobKey, job: Option<&Job>, is_queue: impl Fn(&str) -> bool) -> News {
        let has_ended = job.is_none_or(|job| job.object.is_gone() || job.phase.is_terminal());
        let new = job.and_then(|job| Reported::of(key, job));
        if has_ended {
            let last = self.reports.remove(key).map(|before| new.unwrap_or(before));
            let sample = last.filter(|last| is_queue(&last.subject.queue) && !last.progress.sizes.is_empty());
            let is_sample = sample.is_some();
            self.pending.extend(sample.map(|sample| (key.uid.clone(), sample)));
            return News { speeds: false, sample: is_sample };
        }
        let Some(new) = new.filter(|new| self.reports.get(key) != Some(new)) else { return News::default() };
        let speeds = self.reports.get(key).is_none_or(|before| !before.speeds_like(&new));
        self.reports.insert(key.clone(), new);
        News { speeds, sample: false }
    }

    /// Returns the pending samples of a queue.
    pub(super) fn pending_samples(&self, queue: &str, at: Timestamp) -> Vec<SpeedSample> {
        let of_queue = self.pending.iter().filter(|(_, reported)| &*reported.subject.queue == queue);
        let sample = |(job, Reported { subject, progress }): &(Uid, Reported)| {
            let Subject { category, resource, .. } = subject.clone();
            SpeedSample { category, resource, jobs: vec![job.clone()], at, sizes: progress.sizes.clone() }
        };
        of_queue.map(sample).collect()
    }

    /// Drops the pending samples: a record holds them.
    pub(super) fn mark_reported(&mut self) {
        self.pending.clear();
    }
}

/// Adds samples to those of a queue.
pub(crate) fn add_all(samples: &mut Vec<SpeedSample>, new: &[SpeedSample]) {
    for sample in new {
        add(samples, sample);
    }
    while samples.len() > MAX_SAMPLES {
        let oldest = (0..samples.len()).min_by_key(|n| samples.get(*n).map(|sample| sample.at)).unwrap_or_default();
        samples.remove(oldest);
    }
}

/// Adds a sample, in the order of categories and resources.
fn add(samples: &mut Vec<SpeedSample>, sample: &SpeedSample) {
    let subject = |sample: &SpeedSample| (sample.category.clone(), sample.resource.clone());
    match samples.binary_search_by_key(&subject(sample), subject) {
        Ok(n) => {
            let Some(known) = samples.get_mut(n) else { return };
            if sample.jobs.iter().any(|job| known.jobs.contains(job)) {
                return;
            }
            known.jobs.extend(sample.jobs.iter().cloned());
            let old = known.jobs.len().saturating_sub(MAX_JOBS);
            known.jobs.drain(..old);
            known.at = known.at.max(sample.at);
            for (gpus, measurement) in &sample.sizes {
                known.sizes.entry(*gpus).or_default().add(*measurement);
            }
            shorten(&mut known.sizes);
        }
        Err(n) => {
            let mut new = sample.clone();
            shorten(&mut new.sizes);
            samples.insert(n, new);
        }
    }
}

fn shorten(sizes: &mut Measurements) {
    while sizes.len() > MAX_SIZES {
        let fewest = sizes.iter().min_by_key(|(_, measurement)| measurement.units).map(|(gpus, _)| *gpus);
        let Some(fewest) = fewest else { return };
        sizes.remove(&fewest);
    }
}

/// All that is known of the speeds of jobs.
pub(super) struct Known<'a> {
    reports: &'a BTreeMap<JobKey, Reported>,
    subjects: BTreeMap<Subject, Measured>,
}

impl<'a> Known<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        let queues = &state.queues;
        let reports = &queues.learning.reports;
        let mut subjects: BTreeMap<Subject, Measured> = BTreeMap::new();
        let mut record = |subject: Subject, sizes: &Measurements| {
            let gpu_type = queues.gpu_type(&subject.resource);
            record(subjects.entry(subject).or_default(), gpu_type, sizes);
        };
        for (name, (key, _)) in &queues.objects {
            for sample in state.jobs.live(key).into_iter().flat_map(|job| &job.speed_samples) {
                let SpeedSample { category, resource, jobs: _, at: _, sizes } = sample.clone();
                record(Subject { queue: name.clone(), category, resource }, &sizes);
            }
        }
        for reported in reports.values() {
            record(reported.subject.clone(), &reported.progress.sizes);
        }
        Self { reports, subjects }
    }

    /// Returns the estimates of a job. Where nothing was measured they are those of a job of which nothing is known.
    pub(super) fn estimate(
        &self,
        key: &JobKey,
        candidate: &Candidate,
        gpu_type: GpuType,
        prior: Speeds,
    ) -> SpeedEstimate {
        let subject = Subject {
            queue: Text::from(candidate.queue()),
            category: candidate.category.clone(),
            resource: candidate.resource.clone(),
        };
        let measured = self.subjects.get(&subject).filter(|measured| !measured.is_empty());
        let Some(measured) = measured else { return SpeedEstimate { speeds: prior, ..SpeedEstimate::default() } };
        let progress = self.reports.get(key).map(|reported| &reported.progress);
        let total = progress.and_then(|progress| progress.total);
        let mut samples = SpeedSamples::new(prior, candidate.units.or(total));
        if let Some(progress) = progress {
            samples.progress.total = total.or(candidate.units);
            samples.progress.done = progress.done;
            record(&mut samples.progress.measured, gpu_type, &progress.sizes);
        }
        samples.correct_total();
        samples.estimate(measured, None)
    }
}

fn record(measured: &mut Measured, gpu_type: GpuType, sizes: &Measurements) {
    for (gpus, measurement) in sizes {
        let took = Micros::from_millis(measurement.took_ms);
        measured.record(Report { gpu_type, gpus: *gpus, units: measurement.units, took });
    }
}

#[cfg(test)]
mod tests {
    use model::Measurement;

    use super::*;

    /// Returns a sample of a job whose uid is the time.
    fn sample(category: &str, at: u64, sizes: &[(u32, u64)]) -> SpeedSample {
        let sizes = sizes.iter().map(|(gpus, units)| (*gpus, Measurement { units: *units, took_ms: *units }));
        SpeedSample {
            category: category.into(),
            resource: "nvidia.com/gpu".into(),
            jobs: vec![Uid::from(&*at.to_string())],
            at: Timestamp(at),
            sizes: sizes.collect(),
        }
    }

    #[test]
    fn the_category_is_the_name_without_the_time_that_voda_adds() {
        let of = |name: &str, named: Option<&str>| {
            let key = JobKey { namespace: "ns".into(), name: name.into(), kind: "K".into(), uid: "u".into() };
            category(&key, named.map(Text::from).as_ref()).to_string()
        };
        for (name, want) in [
            ("vgg16-20220117-045648", "ns/vgg16"),
            ("vgg16", "ns/vgg16"),
            ("vgg-16-20220117-0456480", "ns/vgg-16-20220117-0456480"),
            ("vgg-2022011-045648", "ns/vgg-2022011-045648"),
            ("vgg-20220117x045648", "ns/vgg-20220117x045648"),
            ("-20220117-045648", "ns/-20220117-045648"),
        ] {
            assert_eq!(of(name, None), want);
        }
        assert_eq!(of("a-20220117-045648", Some("bert")), "ns/bert");
    }

    #[test]
    fn samples_of_a_category_add_up() {
        let mut samples = Vec::new();
        add_all(&mut samples, &[sample("b", 5, &[(2, 3)]), sample("a", 4, &[(1, 1)])]);
        add_all(&mut samples, &[sample("b", 2, &[(2, 4), (4, 1)])]);
        let jobs = vec!["5".into(), "2".into()];
        let both = SpeedSample { jobs, ..sample("b", 5, &[(2, 7), (4, 1)]) };
        assert_eq!(samples, [sample("a", 4, &[(1, 1)]), both.clone()]);
        add_all(&mut samples, &[sample("b", 2, &[(2, 4)])]);
        assert_eq!(samples[1], both, "a job counts once");
    }

    #[test]
    fn a_queue_keeps_the_newest_samples_and_the_sizes_with_most_units() {
        let mut samples = Vec::new();
        for n in 0..70 {
            add_all(&mut samples, &[sample(&format!("c{n:02}"), n, &[(1, 1)])]);
        }
        assert_eq!((samples.len(), &*samples[0].category), (MAX_SAMPLES, "c06"));
        let sizes: Vec<(u32, u64)> = (1..=10).map(|gpus| (gpus, u64::from(20_u32.saturating_sub(gpus)))).collect();
        add_all(&mut samples, &[sample("c06", 99, &sizes)]);
        assert_eq!(samples[0].sizes.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
