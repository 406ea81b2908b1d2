//! Figures that are looked up on the operator's thread at each request for the metrics.

use std::collections::BTreeMap;

use engine::queues::report::{self, Counts};
use event_log::Stats;
use model::Text;
use operator::Operator;

use super::Figures;

/// Figures about the log and its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Numbers about the log.
    pub log: Stats,
    /// Jobs by kind and their API's word for the phase.
    pub phases: BTreeMap<(Text, &'static str), u64>,
    /// Figures of the queues, by name; of those that do not exist together.
    pub queues: BTreeMap<Text, Counts>,
    /// Calls handed out and not yet answered.
    pub calls_under_way: usize,
    /// Jobs that are there now, under the names of original operators.
    pub originals: Figures,
}

impl Summary {
    /// Looks the figures up: one walk over the jobs.
    pub fn of(operator: &Operator) -> Self {
        let registry = operator.registry();
        let mut phases: BTreeMap<(Text, &'static str), u64> = BTreeMap::new();
        // What nothing counts in is 0, not absent.
        let names = registry.iter().filter_map(|api| api.descriptor().series);
        let mut originals: Figures =
            names.flat_map(|series| [series.running, series.pending].map(|name| ((name, series.kind), 0))).collect();
        for (key, job) in operator.state().jobs.summaries().filter(|(_, job)| job.known && !job.gone) {
            let api = registry.api_of(key);
            let word = api.map_or("", |api| api.phase_word(job.phase));
            if let Some(series) = api.and_then(|api| api.descriptor().series)
                && let Some(name) = series.present(job.phase)
            {
                *originals.entry((name, series.kind)).or_default() += 1;
            }
            *phases.entry((key.kind.clone(), word)).or_default() += 1;
        }
        let queues = report::bounded_counts(operator.state());
        Self { log: operator.log().stats(), phases, queues, calls_under_way: operator.calls_in_flight(), originals }
    }
}
