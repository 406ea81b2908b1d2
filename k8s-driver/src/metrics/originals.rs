//! Metrics of original operators, under their own names. `apis::series` says what they count. Tests: `metrics/tests.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Figures by name and by the value of their label.
pub(crate) type Figures = BTreeMap<(&'static str, &'static str), u64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// What was counted, and what is there now.
#[derive(Debug, Default)]
pub(super) struct Originals(Mutex<(Figures, Figures)>);

impl Originals {
    /// Adds one to a counter.
    pub(super) fn count(&self, name: &'static str, kind: &'static str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = held.0.entry((name, kind)).or_default();
        *figure = figure.saturating_add(1);
    }

    /// Sets what is there now.
    pub(super) fn set_present(&self, present: &Figures) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone_from(present);
    }
}

impl Collector for Originals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = ConstGauge::new(0u64).metric_type();
        // A counter's name would end in `_total`, which the originals' do not.
        for (figures, kind) in [(&held.0, MetricType::Unknown), (&held.1, gauge)] {
            for ((name, label), figure) in figures {
                let mut family = encoder.encode_descriptor(name, "As the original operator had it", None, kind)?;
                ConstGauge::new(*figure).encode(family.encode_family(&Kind { kind: label })?)?;
            }
        }
        Ok(())
    }
}
