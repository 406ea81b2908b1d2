//! Selects the queue that is served next, and which of its jobs.
//!
//! Three ways to take turns: round robin, weighted round robin as Linux Virtual Server has it, and the smooth weighted
//! round robin of nginx. State is explicit and serialisable. The caller lists queues in the order they were created, with
//! weight 0 for those that have nothing to do: they are never picked. What makes a job eligible (quota, gang) is not
//! decided here. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{QueueSelector, Text};
use serde::{Deserialize, Serialize};

use crate::units::Micros;

/// A queue as a selector sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLoad {
    /// Its name, unique in the list.
    pub name: Text,
    /// What waits in it: usually the number of tasks of its waiting jobs.
    pub weight: u64,
}

/// Takes turns between queues, and remembers whose turn it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selector {
    /// Each queue in turn, whatever its weight.
    RoundRobin(RoundRobin),
    /// Turns by weight, a heavy queue's in a row.
    WeightedRoundRobin(Weighted),
    /// Turns by weight, spread evenly.
    SmoothWeightedRoundRobin(Smooth),
}

/// Whose turn it was in a round robin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRobin {
    /// The queue picked last, and where it stood, in case it is gone.
    last: Option<(Text, usize)>,
}

/// State of a weighted round robin: the place in the list, and the weight that counts in this pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighted {
    /// The place looked at last.
    at: Option<usize>,
    /// Queues of at least this weight are picked in the present pass.
    threshold: u64,
}

/// State of a smooth weighted round robin: what each queue has saved up. The sum is 0 after each pick.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smooth {
    current: BTreeMap<Text, i128>,
}

impl Selector {
    /// Returns a selector of a rule, in its initial state.
    pub fn new(rule: QueueSelector) -> Self {
        match rule {
            QueueSelector::RoundRobin => Self::RoundRobin(RoundRobin::default()),
            QueueSelector::WeightedRoundRobin => Self::WeightedRoundRobin(Weighted::default()),
            QueueSelector::SmoothWeightedRoundRobin => Self::SmoothWeightedRoundRobin(Smooth::default()),
        }
    }

    /// The place in the list of the queue to serve next; `None` when all weights are 0.
    pub fn pick(&mut self, queues: &[QueueLoad]) -> Option<usize> {
        match self {
            Self::RoundRobin(state) => state.pick(queues),
            Self::WeightedRoundRobin(state) => state.pick(queues),
            Self::SmoothWeightedRoundRobin(state) => state.pick(queues),
        }
    }
}

/// Queues in the order of their first use, and whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    queues: Vec<Text>,
    selector: Selector,
}

/// Queues that are kept in order; of more, those where nothing waits are left out.
const MAX_QUEUES: usize = 100;

impl Turns {
    /// Returns turns by a rule, of which none was taken.
    pub fn new(rule: QueueSelector) -> Self {
        Self { queues: Vec::new(), selector: Selector::new(rule) }
    }

    /// Returns true if turns are taken by a rule.
    pub fn is_by(&self, rule: QueueSelector) -> bool {
        std::mem::discriminant(&self.selector) == std::mem::discriminant(&Selector::new(rule))
    }

    /// Takes a turn: returns the queue to serve; `None` when all weights are 0. Queues that are not known yet come last, in the
    /// order in which they are given.
    pub fn take(&mut self, waiting: &[QueueLoad]) -> Option<Text> {
        let load = |name: &Text| waiting.iter().find(|load| load.name == *name);
        if self.queues.len() > MAX_QUEUES {
            self.queues.retain(|name| load(name).is_some());
        }
        let new: Vec<Text> = waiting.iter().map(|load| load.name.clone()).collect();
        self.queues.extend(new.into_iter().filter(|name| !self.queues.contains(name)).collect::<Vec<_>>());
        let weight = |name: &Text| load(name).map_or(0, |load| load.weight);
        let loads: Vec<QueueLoad> =
            self.queues.iter().map(|name| QueueLoad { name: name.clone(), weight: weight(name) }).collect();
        self.selector.pick(&loads).and_then(|place| self.queues.get(place).cloned())
    }
}

impl RoundRobin {
    fn pick(&mut self, queues: &[QueueLoad]) -> Option<usize> {
        let first = self.last.as_ref().map_or(0, |(name, place)| {
            // After the last one; where it is gone, the one that took its place is next.
            queues.iter().position(|q| q.name == *name).map_or(*place, |at| at.saturating_add(1))
        });
        let turn = |at: &(usize, &QueueLoad)| at.1.weight > 0;
        let places = || queues.iter().enumerate();
        let (place, queue) = places().skip(first).find(turn).or_else(|| places().find(turn))?;
        self.last = Some((queue.name.clone(), place));
        Some(place)
    }
}

impl Weighted {
    fn pick(&mut self, queues: &[QueueLoad]) -> Option<usize> {
        let most = queues.iter().map(|q| q.weight).max().filter(|&most| most > 0)?;
        let step = queues.iter().fold(0, |g, q| gcd(g, q.weight));
        let mut at = self.at.filter(|&at| at < queues.len());
        // At most one pass finds nothing: the next one starts at a threshold that some queue reaches.
        loop {
            let next = at.map_or(0, |at| at.saturating_add(1));
            let place = if next < queues.len() { next } else { 0 };
            if place == 0 {
                self.threshold = next_threshold(self.threshold, step, most);
            }
            at = Some(place);
            if queues.get(place).is_some_and(|q| q.weight >= self.threshold) {
                self.at = at;
                return at;
            }
        }
    }
}

/// One `step` less, or the largest weight when that leaves nothing. Weights may have fallen since: passes that no queue
/// could win are skipped.
fn next_threshold(threshold: u64, step: u64, most: u64) -> u64 {
    let lowered = threshold.saturating_sub(step);
    let excess = lowered.saturating_sub(most);
    let skipped = excess.div_ceil(step.max(1)).saturating_mul(step);
    match lowered.saturating_sub(skipped) {
        0 => most,
        threshold => threshold,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}

impl Smooth {
    fn pick(&mut self, queues: &[QueueLoad]) -> Option<usize> {
        let known = |name: &str| queues.iter().any(|q| &*q.name == name);
        if !self.current.keys().all(|name| known(name)) {
            self.current.clear(); // a queue is gone: start again, so that the sum is 0 again
        }
        let mut total = 0_i128;
        let mut best: Option<(i128, usize)> = None;
        for (place, queue) in queues.iter().enumerate().filter(|(_, q)| q.weight > 0) {
            let weight = i128::from(queue.weight);
            let current = self.current.entry(queue.name.clone()).or_default();
            *current = current.saturating_add(weight);
            total = total.saturating_add(weight);
            if best.is_none_or(|(most, _)| *current > most) {
                best = Some((*current, place));
            }
        }
        let place = best?.1;
        if let Some(current) = queues.get(place).and_then(|q| self.current.get_mut(&q.name)) {
            *current = current.saturating_sub(total);
        }
        Some(place)
    }
}

/// A job that waits in a queue and may be served now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its name or uid.
    pub id: Text,
    /// Higher first; may be negative.
    pub priority: i64,
    /// When it entered the queue.
    pub enqueued: Micros,
}

/// The place of the job to serve: highest priority, then the longest wait, then the smallest id.
pub fn first_in_line(jobs: &[Waiting]) -> Option<usize> {
    let key = |job: &Waiting| (std::cmp::Reverse(job.priority), job.enqueued);
    let ranked = jobs.iter().enumerate().min_by(|(_, a), (_, b)| key(a).cmp(&key(b)).then(a.id.cmp(&b.id)));
    ranked.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(weights: &[u64]) -> Vec<QueueLoad> {
        let load = |(&weight, name): (&u64, char)| QueueLoad { name: name.to_string().into(), weight };
        weights.iter().zip('A'..).map(load).collect()
    }

    fn picks(selector: &mut Selector, weights: &[u64], times: usize) -> String {
        let queues = loads(weights);
        (0..times).map(|_| selector.pick(&queues).map_or_else(|| "-".into(), |i| queues[i].name.to_string())).collect()
    }

    fn cycle(rule: QueueSelector, weights: &[u64], times: usize) -> String {
        picks(&mut Selector::new(rule), weights, times)
    }

    #[test]
    fn round_robin_skips_empty_queues() {
        assert_eq!(cycle(QueueSelector::RoundRobin, &[1, 5, 1], 7), "ABCABCA");
        assert_eq!(cycle(QueueSelector::RoundRobin, &[1, 0, 1], 5), "ACACA");
        assert_eq!(cycle(QueueSelector::RoundRobin, &[0, 0], 2), "--");
        assert_eq!(cycle(QueueSelector::RoundRobin, &[], 1), "-");
    }

    #[test]
    fn round_robin_goes_on_when_queues_come_and_go() {
        let mut selector = Selector::new(QueueSelector::RoundRobin);
        assert_eq!(picks(&mut selector, &[1, 1], 1), "A");
        assert_eq!(picks(&mut selector, &[1, 1, 1], 3), "BCA");
        let without_a = &loads(&[1, 1, 1])[1..];
        assert_eq!(selector.pick(without_a).map(|i| &*without_a[i].name), Some("B"));
    }

    #[test]
    fn weighted_cycles() {
        for (weights, cycle_of) in [
            (&[4, 3, 2][..], "AABABCABC"),
            (&[5, 1, 1], "AAAAABC"),
            (&[3, 0, 1], "AAAC"),
            (&[6, 4], "AABAB"),
            (&[2, 2], "AB"),
        ] {
            let twice = cycle(QueueSelector::WeightedRoundRobin, weights, cycle_of.len() * 2);
            assert_eq!(twice, cycle_of.repeat(2), "{weights:?}");
        }
    }

    #[test]
    fn weighted_survives_weights_that_fall() {
        let mut selector = Selector::new(QueueSelector::WeightedRoundRobin);
        assert_eq!(picks(&mut selector, &[u64::MAX - 1, 1], 1), "A");
        assert_eq!(picks(&mut selector, &[0, 0], 1), "-");
        assert_eq!(picks(&mut selector, &[1, 1], 4), "ABAB"); // at once, not after 2^64 passes
    }

    #[test]
    fn smooth_cycles_return_to_zero() {
        for (weights, cycle_of) in
            [(&[5, 1, 1][..], "AABACAA"), (&[4, 3, 2], "ABCABACBA"), (&[3, 0, 1], "AACA"), (&[6, 4], "ABABAABABA")]
        {
            let mut selector = Selector::new(QueueSelector::SmoothWeightedRoundRobin);
            assert_eq!(picks(&mut selector, weights, cycle_of.len()), cycle_of, "{weights:?}");
            let Selector::SmoothWeightedRoundRobin(state) = &selector else { panic!() };
            assert!(state.current.values().all(|&c| c == 0), "{weights:?}");
        }
    }

    #[test]
    fn smooth_starts_again_when_a_queue_is_gone() {
        let mut selector = Selector::new(QueueSelector::SmoothWeightedRoundRobin);
        picks(&mut selector, &[5, 1, 1], 3);
        assert_eq!(picks(&mut selector, &[5, 1], 6), cycle(QueueSelector::SmoothWeightedRoundRobin, &[5, 1], 6));
    }

    #[test]
    fn turns_keep_the_order_in_which_queues_came() {
        let mut turns = Turns::new(QueueSelector::RoundRobin);
        let waiting = |names: &str| -> Vec<QueueLoad> {
            names.chars().map(|name| QueueLoad { name: name.to_string().into(), weight: 1 }).collect()
        };
        let all: String = ["B", "AB", "AB", "ABC", "AC", "AC", ""]
            .map(|names| turns.take(&waiting(names)).map_or_else(|| "-".to_owned(), |name| name.to_string()))
            .concat();
        assert_eq!(all, "BABACA-");
    }

    #[test]
    fn highest_priority_then_longest_wait() {
        let job = |id: &str, priority, secs| Waiting { id: id.into(), priority, enqueued: Micros::from_secs(secs) };
        assert_eq!(first_in_line(&[job("a", -1, 0), job("c", 3, 9), job("b", 3, 9), job("d", 3, 10)]), Some(2));
        assert_eq!(first_in_line(&[]), None);
    }
}
