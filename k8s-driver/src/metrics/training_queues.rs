//! Queues of jobs: who waits and runs, GPUs against quotas, admissions and losses.
//!
//! Gauges are set at each request for the metrics. Counters are of this process: another leader begins at 0. The root queue has
//! the empty name. Tests: `metrics/tests.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::queues::report::Counts;
use model::{LossKind, Text};
use operator::ShareStep;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Word;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    queue: Word,
    resource: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Loss {
    queue: Word,
    reason: &'static str,
}

/// From a second to a week: what a job may have to wait.
fn wait_buckets() -> Histogram {
    Histogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0])
}

const fn reason(kind: LossKind) -> &'static str {
    match kind {
        LossKind::Preempted => "preempted",
        LossKind::Reclaimed => "reclaimed",
        LossKind::Moved => "moved",
        LossKind::Resized => "resized",
        LossKind::NodesLost => "nodes_lost",
    }
}

/// Figures of the queues.
pub(super) struct TrainingQueues {
    gauges: Arc<Gauges>,
    admissions: Family<OfQueue, Counter>,
    losses: Family<Loss, Counter>,
    wait: Family<OfQueue, Histogram, fn() -> Histogram>,
}

impl TrainingQueues {
    pub(super) fn new() -> Self {
        Self {
            gauges: Arc::default(),
            admissions: Family::default(),
            losses: Family::default(),
            wait: Family::new_with_constructor(wait_buckets),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.gauges.clone()));
        let help = "Jobs that held no places and were granted some";
        registry.register("trainyard_training_queue_admissions", help, self.admissions.clone());
        let help = "Jobs from which the queues took places away, by reason";
        registry.register("trainyard_training_queue_losses", help, self.losses.clone());
        let help = "Time from the creation of a job to its first admission";
        registry.register("trainyard_training_queue_admission_wait_seconds", help, self.wait.clone());
    }

    /// Sets the gauges.
    pub(super) fn set(&self, counts: BTreeMap<Text, Counts>) {
        *self.gauges.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Counts a change of the places of a job.
    pub(super) fn count(&self, step: &ShareStep) {
        match step {
            ShareStep::Admitted { queue, waited_ms } => {
                let labels = OfQueue { queue: Word(queue.clone()) };
                if let Some(waited) = waited_ms {
                    let waited = std::time::Duration::from_millis(*waited);
                    self.wait.get_or_create(&labels).observe(waited.as_secs_f64());
                }
                self.admissions.get_or_create(&labels).inc();
            }
            ShareStep::Lost { queue, kind } => {
                let labels = Loss { queue: Word(queue.clone()), reason: reason(*kind) };
                self.losses.get_or_create(&labels).inc();
            }
        }
    }
}

/// Name, help and value of a gauge of each queue.
type JobsOf = (&'static str, &'static str, fn(&Counts) -> u32);

/// The same by resource.
type GpusOf = (&'static str, &'static str, fn(&Counts) -> Vec<(&Text, u32)>);

const JOBS: [JobsOf; 2] = [
    ("trainyard_training_queue_pending_jobs", "Jobs that want places and hold none", |counts| counts.pending),
    ("trainyard_training_queue_admitted_jobs", "Jobs that hold places", |counts| counts.admitted),
];

const GPUS: [GpusOf; 3] = [
    (
        "trainyard_training_queue_gpus_used",
        "GPUs that count for the queue, those of pods that are being deleted included",
        |counts| counts.usage.iter().map(|(resource, gpus)| (resource, *gpus)).collect(),
    ),
    ("trainyard_training_queue_gpus_nominal", "GPUs of the queue's own quota", |counts| {
        counts.quota.iter().map(|(resource, quota)| (resource, quota.nominal)).collect()
    }),
    ("trainyard_training_queue_gpus_borrowed", "GPUs that count for the queue beyond its own quota", |counts| {
        counts.borrowed().collect()
    }),
];

/// Gauges by queue, replaced as a whole.
#[derive(Debug, Default)]
struct Gauges(Mutex<BTreeMap<Text, Counts>>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = ConstGauge::new(0u64).metric_type();
        for (name, help, count) in JOBS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (queue, counts) in all.iter() {
                let labels = OfQueue { queue: Word(queue.clone()) };
                ConstGauge::new(u64::from(count(counts))).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, by_resource) in GPUS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (queue, counts) in all.iter() {
                for (resource, gpus) in by_resource(counts) {
                    let labels = OfResource { queue: Word(queue.clone()), resource: Word(resource.clone()) };
                    ConstGauge::new(u64::from(gpus)).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
