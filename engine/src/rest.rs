//! Packing: a job at rest as its JSON, compressed (LZ4) with the text of a job like it as dictionary.
//!
//! Jobs of one user differ in little but names and times, so each takes a few hundred bytes where its text has thousands.
//! A text that served once is kept for as long as any job needs it. Tests: at the end of this file.

use std::sync::Arc;

use lz4_flex::block::{compress_prepend_size, compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use crate::job::Job;
use crate::jobs::JobSummary;

/// Maximum number of compression dictionaries kept.
const MOST_TEMPLATES: usize = 4;
/// LZ4 does not look further back.
const WINDOW_BYTES: usize = 1 << 16;
/// Minimum ratio of a job's text to its packed form for a dictionary to fit.
const POOR: usize = 4;
/// Number of jobs in a row without a fitting dictionary after which the least recently used one is replaced by the last job's text.
const PATIENCE: u32 = 16;

/// A finished job, packed.
#[derive(Debug, Clone)]
pub(crate) struct FinishedJob {
    packed: Box<[u8]>,
    template: Arc<Vec<u8>>,
    summary: JobSummary,
}

impl FinishedJob {
    /// What can be said of it as it is.
    pub(crate) const fn summary(&self) -> JobSummary {
        self.summary
    }

    /// The job.
    pub(crate) fn open(&self) -> Box<Job> {
        let text = decompress_size_prepended_with_dict(&self.packed, &self.template).map_err(|error| error.to_string());
        let read = text.and_then(|text| crate::wire::job_from_text(&text).map_err(|error| error.to_string()));
        let mut job: Box<Job> = read.unwrap_or_else(|why| {
            // Not seen in any test; nothing is done about a job that is not understood, and its users are told.
            let JobSummary { known, gone, phase, rv, acked_stamp } = self.summary;
            let quarantine = Some(format!("what was kept of it cannot be read: {why}").into());
            Box::new(Job { known, gone, rv, phase, acked_stamp, quarantine, ..Job::default() })
        });
        job.share_specs();
        job
    }
}

/// Texts of jobs that were packed before, the one that served last first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Templates {
    known: Vec<Arc<Vec<u8>>>,
    misfits: u32,
}

impl Templates {
    /// Packs a job; `None` when it cannot be.
    pub(crate) fn pack(&mut self, job: &Job) -> Option<FinishedJob> {
        let text = crate::wire::job_text(job).ok()?;
        let mut best = self.best(&text);
        let fits = |(_, packed): &(usize, Vec<u8>)| packed.len() <= text.len() / POOR;
        if !best.as_ref().is_some_and(fits) && text.len() <= WINDOW_BYTES && self.take_up(&text) {
            best = self.best(&text);
        }
        let (template, packed) = match best {
            Some((n, packed)) => {
                self.known.get_mut(..=n)?.rotate_right(1);
                (Arc::clone(self.known.first()?), packed)
            }
            None => (Arc::default(), compress_prepend_size(&text)),
        };
        Some(FinishedJob { packed: packed.into(), template, summary: JobSummary::of(job) })
    }

    /// The text packed with the template that serves best, and which that is.
    fn best(&self, text: &[u8]) -> Option<(usize, Vec<u8>)> {
        let packed = self.known.iter().map(|template| compress_prepend_size_with_dict(text, template));
        packed.enumerate().min_by_key(|(_, packed)| packed.len())
    }

    /// Makes a text that no template fits one itself, unless there are enough and it may be the only one of its sort.
    fn take_up(&mut self, text: &[u8]) -> bool {
        self.misfits = self.misfits.saturating_add(1);
        let is_due = self.known.len() < MOST_TEMPLATES || self.misfits >= PATIENCE;
        if is_due {
            self.misfits = 0;
            self.known.truncate(MOST_TEMPLATES - 1);
            self.known.insert(0, Arc::new(text.to_vec()));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use model::fact::Milestone;
    use model::{Phase, SpecFact, Timestamp, Uid};

    use super::*;
    use crate::group::{Group, Slot};

    /// Words that do not repeat.
    fn words(seed: u64, count: u64) -> String {
        let mix = |n: u64| (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = |n: u64| format!("{:016x} ", mix(mix(mix(seed << 32 | n))));
        (0..count).map(word).collect()
    }

    /// A job that is over, of a sort that has words of its own.
    fn job(number: u64, sort: u64, slots: u32) -> Job {
        let errors = Err(Vec::new());
        let spec = Some(Arc::new(SpecFact { spec: errors, warnings: Vec::new(), manifest: words(sort, 100).into() }));
        let uid = |n: u32| Uid::from(&*format!("{n}-{}", words(number, 2)));
        let slot = |n| Slot { done: true, last_gone: Some(uid(n)), ..Slot::default() };
        let group = Group { slots: (0..slots).map(slot).collect(), replicas: slots, ..Group::default() };
        let message = format!("completed: pod job-{number}-w-0 succeeded").into();
        Job {
            known: true,
            phase: Phase::Succeeded,
            rv: model::ResourceVersion(number),
            spec: spec.clone(),
            valid: spec,
            groups: [("w".into(), Box::new(group))].into(),
            milestones: [Milestone { phase: Phase::Succeeded, at: Timestamp(number), message }].into(),
            ..Job::default()
        }
    }

    fn text(job: &Job) -> String {
        crate::wire::job_value(job).to_string()
    }

    #[test]
    fn an_opened_job_is_the_one_that_was_packed() {
        let mut templates = Templates::default();
        // The last two are longer than LZ4 looks back.
        for (number, (sort, slots)) in
            [(0, 4), (0, 4), (1, 0), (0, 9), (7, 1), (0, 900), (0, 900), (1, 2)].into_iter().enumerate()
        {
            let job = job(number as u64, sort, slots);
            let resting = templates.pack(&job).unwrap();
            assert_eq!(resting.summary(), JobSummary::of(&job));
            let opened = resting.open();
            assert_eq!(text(&opened), text(&job));
            assert!(Arc::ptr_eq(opened.spec.as_ref().unwrap(), opened.valid.as_ref().unwrap()));
            assert_eq!(text(&resting.clone().open()), text(&job));
        }
    }

    #[test]
    fn a_long_job_without_any_before_it_is_packed_alone() {
        let (mut templates, long) = (Templates::default(), job(0, 0, 900));
        let resting = templates.pack(&long).unwrap();
        assert_eq!(text(&resting.open()), text(&long));
        assert!(templates.known.is_empty() && resting.packed.len() < text(&long).len() / POOR);
    }

    #[test]
    fn jobs_of_one_sort_take_little_and_share_one_template() {
        let mut templates = Templates::default();
        let packed: Vec<FinishedJob> = (0..50).map(|n| templates.pack(&job(n, 0, 8)).unwrap()).collect();
        let first = text(&job(0, 0, 8)).len();
        assert!(packed.iter().all(|job| job.packed.len() < first / 8), "{first}");
        assert!(packed.iter().all(|job| Arc::ptr_eq(&job.template, &packed[0].template)));
        assert_eq!(templates.known.len(), 1);
    }

    #[test]
    fn jobs_of_some_sorts_take_little_and_those_of_too_many_not_more_than_alone() {
        for (sorts, most) in [(MOST_TEMPLATES as u64, 1), (100, 2)] {
            let mut templates = Templates::default();
            let packed: Vec<FinishedJob> = (0..200).map(|n| templates.pack(&job(n, n % sorts, 2)).unwrap()).collect();
            assert_eq!(templates.known.len(), MOST_TEMPLATES);
            let mut held: Vec<&Arc<Vec<u8>>> = packed.iter().map(|job| &job.template).collect();
            held.sort_by_key(|template| Arc::as_ptr(template));
            held.dedup_by_key(|template| Arc::as_ptr(template));
            let templates: usize = held.iter().map(|template| template.len()).sum();
            let all: usize = packed.iter().map(|job| job.packed.len()).sum::<usize>() + templates;
            let plain: usize = (0..200).map(|n| text(&job(n, n % sorts, 2)).len()).sum();
            let alone: usize =
                (0..200).map(|n| lz4_flex::block::compress(text(&job(n, n % sorts, 2)).as_bytes()).len()).sum();
            println!("{sorts}: plain {plain}, alone {alone}, {all} of which {templates} in {}", held.len());
            assert!(all <= if most == 1 { alone / 2 } else { alone * 11 / 10 });
        }
    }

    #[test]
    fn what_cannot_be_read_is_quarantined_and_told() {
        let mut resting = Templates::default().pack(&job(3, 0, 2)).unwrap();
        resting.packed = Box::from(&resting.packed[..resting.packed.len() / 2]);
        let job = resting.open();
        assert!(job.quarantine.as_ref().unwrap().contains("cannot be read"), "{:?}", job.quarantine);
        assert_eq!(JobSummary::of(&job), resting.summary());
    }
}
