//! Figures that are looked up on the operator's thread at each request for the metrics.

use std::collections::BTreeMap;

use engine::queues::report::{self, Counts};
use event_log::Stats;
use model::Text;
use operator::Operator;

/// Figures about the log and its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Numbers about the log.
    pub log: Stats,
    /// Jobs by kind and their API's word for the phase.
    pub phases: BTreeMap<(Text, &'static str), u64>,
    /// Figures of the queues, by name.
    pub queues: BTreeMap<Text, Counts>,
    /// Calls handed out and not yet answered.
    pub calls_under_way: usize,
}

impl Summary {
    /// Looks the figures up: one walk over the jobs.
    pub fn of(operator: &Operator) -> Self {
        let registry = operator.registry();
        let mut phases: BTreeMap<(Text, &'static str), u64> = BTreeMap::new();
        for (key, job) in operator.state().jobs.summaries().filter(|(_, job)| job.known && !job.gone) {
            let word = registry.api_of(key).map_or("", |api| api.phase_word(job.phase));
            *phases.entry((key.kind.clone(), word)).or_default() += 1;
        }
        let queues = report::counts(operator.state());
        Self { log: operator.log().stats(), phases, queues, calls_under_way: operator.calls_in_flight() }
    }
}
