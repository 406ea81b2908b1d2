//! The time since each watch was last heard of. Tests: `metrics/tests.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use model::Text;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::Word;

/// A watch: the kind of its objects, and their labels where several APIs have objects of that kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(crate) struct WatchName {
    kind: Word,
    selector: Word,
}

impl WatchName {
    /// Names the watch of a kind; `selector` is empty where the kind has one watch.
    pub(crate) fn new(kind: &Text, selector: &str) -> Self {
        Self { kind: Word(kind.clone()), selector: Word(Text::from(selector)) }
    }

    /// The kind as a label.
    pub(super) fn kind(&self) -> Word {
        self.kind.clone()
    }
}

/// Time of each watch's last message.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<WatchName, Instant>>);

impl Watches {
    pub(super) fn heard(&self, watch: &WatchName) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match heard.get_mut(watch) {
            Some(at) => *at = Instant::now(),
            None => drop(heard.insert(watch.clone(), Instant::now())),
        }
    }
}

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = ConstGauge::new(0f64).metric_type();
        let help = "Time since the API server last sent anything about these objects, bookmarks included";
        let mut family = encoder.encode_descriptor("trainyard_watch_silence_seconds", help, None, kind)?;
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (watch, at) in heard.iter() {
            ConstGauge::new(at.elapsed().as_secs_f64()).encode(family.encode_family(watch)?)?;
        }
        Ok(())
    }
}
