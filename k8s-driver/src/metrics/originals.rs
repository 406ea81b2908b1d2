//! Metrics of original operators, under their own names. `apis::series` says what they count. Tests: `metrics/tests.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

/// Figures by name and by the value of their label.
pub(crate) type Figures = BTreeMap<(&'static str, &'static str), u64>;

const HELP: &str = "As the original operator had it";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// The originals' buckets, and some beyond: their last one ends at ten seconds.
const DELAY_BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// What was counted and measured, and what is there now.
#[derive(Debug, Default)]
pub(super) struct Originals(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    counted: Figures,
    present: Figures,
    /// By name and by the value of the label.
    delays: BTreeMap<(&'static str, &'static str), Histogram>,
}

impl Originals {
    /// Adds one to a counter.
    pub(super) fn count(&self, name: &'static str, kind: &'static str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = held.counted.entry((name, kind)).or_default();
        *figure = figure.saturating_add(1);
    }

    /// Adds a time to a histogram.
    pub(super) fn observe(&self, name: &'static str, kind: &'static str, seconds: f64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.delays.entry((name, kind)).or_insert_with(|| Histogram::new(DELAY_BUCKETS)).observe(seconds);
    }

    /// Sets what is there now.
    pub(super) fn set_present(&self, present: &Figures) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).present.clone_from(present);
    }
}

impl Collector for Originals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = ConstGauge::new(0u64).metric_type();
        // A counter's name would end in `_total`, which the originals' do not.
        for (figures, kind) in [(&held.counted, MetricType::Unknown), (&held.present, gauge)] {
            for ((name, label), figure) in figures {
                let mut family = encoder.encode_descriptor(name, HELP, None, kind)?;
                ConstGauge::new(*figure).encode(family.encode_family(&Kind { kind: label })?)?;
            }
        }
        for ((name, label), delays) in &held.delays {
            let mut family = encoder.encode_descriptor(name, HELP, None, MetricType::Histogram)?;
            delays.encode(family.encode_family(&Kind { kind: label })?)?;
        }
        Ok(())
    }
}
