//! Kubernetes Events wait here: they may be dropped, and never keep a call that matters from leaving.
//!
//! Owns which of them are told. As client libraries do, a job has a small stock that refills slowly, so that a job of a
//! thousand pods does not double what the API server has to write; warnings have a stock of their own. What was told is not
//! told again. Pure: time is an argument. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use apis::{ApiCall, objects};
use tokio::time::Instant;

use crate::hash::hash;

/// Events that wait at most.
const MOST_WAITING: usize = 256;
/// Events of one job in quick succession.
const STOCK: u32 = 25;
/// After this a job may tell one more.
const REFILL: Duration = Duration::from_secs(20);
/// Events of all jobs in quick succession, and after which time one more.
const STOCK_OF_ALL: u32 = 100;
const REFILL_OF_ALL: Duration = Duration::from_millis(100);
/// Names of Events that are remembered as told.
const MOST_TOLD: usize = 4096;

/// A stock that refills.
#[derive(Debug, Clone, Copy)]
struct Stock {
    left: u32,
    refilled: Instant,
}

impl Stock {
    const fn full(size: u32, now: Instant) -> Self {
        Self { left: size, refilled: now }
    }

    fn take(&mut self, size: u32, refill: Duration, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled).as_millis() / refill.as_millis().max(1);
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(size);
            self.refilled += refill * more.min(size);
            if self.left == size {
                self.refilled = now;
            }
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

/// The Events that wait.
#[derive(Debug)]
pub struct Chatter {
    waiting: VecDeque<ApiCall>,
    /// By uid of the job and whether it warns, as a hash.
    jobs: BTreeMap<u64, Stock>,
    all: Stock,
    /// Names of Events, as hashes.
    told: BTreeSet<u64>,
    told_order: VecDeque<u64>,
    dropped: u64,
}

impl Chatter {
    /// Nothing waits.
    pub fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            jobs: BTreeMap::new(),
            all: Stock::full(STOCK_OF_ALL, now),
            told: BTreeSet::new(),
            told_order: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Takes an Event, or drops it.
    pub fn add(&mut self, call: ApiCall, now: Instant) {
        let warns = call.body.as_ref().and_then(|body| objects::text_at(body, &["type"])) == Some("Warning");
        let name = hash(&(&call.namespace, &call.name));
        if self.told.contains(&name) {
            return;
        }
        if self.waiting.len() >= MOST_WAITING || !self.may_tell(hash(&(&call.job.uid, warns)), warns, now) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.told.insert(name);
        self.told_order.push_back(name);
        if self.told_order.len() > MOST_TOLD
            && let Some(oldest) = self.told_order.pop_front()
        {
            self.told.remove(&oldest);
        }
        self.waiting.push_back(call);
    }

    /// The next one to tell.
    pub fn take(&mut self) -> Option<ApiCall> {
        self.waiting.pop_front()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn may_tell(&mut self, job: u64, warns: bool, now: Instant) -> bool {
        if self.jobs.len() >= MOST_TOLD {
            // A job that has been quiet long enough has a full stock; it need not be remembered.
            let quiet = REFILL * STOCK;
            self.jobs.retain(|_, stock| now.saturating_duration_since(stock.refilled) < quiet);
            if self.jobs.len() >= MOST_TOLD {
                self.jobs.clear();
            }
        }
        let stock = self.jobs.entry(job).or_insert_with(|| Stock::full(STOCK, now));
        // Warnings do not go short because of the others.
        stock.take(STOCK, REFILL, now) && (warns || self.all.take(STOCK_OF_ALL, REFILL_OF_ALL, now))
    }
}

#[cfg(test)]
mod tests {
    use apis::{Resource, Verb};
    use model::{JobKey, Stamp};
    use serde_json::json;

    use super::*;

    fn event(job: u32, name: &str, kind: &str) -> ApiCall {
        ApiCall {
            id: 0,
            job: JobKey {
                namespace: "ns".into(),
                name: "j".into(),
                kind: "AITrainingJob".into(),
                uid: job.to_string().as_str().into(),
            },
            object: None,
            cause: Stamp::default(),
            verb: Verb::Create,
            resource: Resource::new("v1", "Event"),
            namespace: "ns".into(),
            name: name.into(),
            body: Some(json!({"type": kind})),
            uid: None,
            rv: None,
            grace_seconds: None,
        }
    }

    fn names(chatter: &mut Chatter) -> Vec<String> {
        std::iter::from_fn(|| chatter.take()).map(|call| call.name.to_string()).collect()
    }

    #[test]
    fn one_told_twice_is_told_once() {
        let now = Instant::now();
        let mut chatter = Chatter::new(now);
        for name in ["a", "b", "a"] {
            chatter.add(event(1, name, "Normal"), now);
        }
        assert_eq!(names(&mut chatter), ["a", "b"]);
        chatter.add(event(1, "b", "Normal"), now);
        assert!(chatter.is_empty());
        assert_eq!(chatter.dropped(), 0);
    }

    #[test]
    fn a_loud_job_is_cut_short_and_may_tell_more_later() {
        let now = Instant::now();
        let mut chatter = Chatter::new(now);
        for n in 0..1_000 {
            chatter.add(event(1, &format!("n{n}"), "Normal"), now);
        }
        chatter.add(event(1, "w", "Warning"), now);
        chatter.add(event(2, "other", "Normal"), now);
        let told = names(&mut chatter);
        assert_eq!(told.len(), 27);
        assert_eq!(told[25..], ["w", "other"]);
        assert_eq!(chatter.dropped(), 975);
        for n in 0..10 {
            chatter.add(event(1, &format!("later{n}"), "Normal"), now + REFILL * 3);
        }
        assert_eq!(chatter.len(), 3);
    }

    #[test]
    fn many_jobs_together_are_cut_short_but_for_their_warnings() {
        let now = Instant::now();
        let mut chatter = Chatter::new(now);
        for job in 0..200 {
            chatter.add(event(job, &format!("n{job}"), "Normal"), now);
        }
        assert_eq!(names(&mut chatter).len(), 100);
        for job in 0..200 {
            chatter.add(event(job, &format!("w{job}"), "Warning"), now);
        }
        assert_eq!(names(&mut chatter).len(), 200);
        for job in 0..50_000 {
            chatter.add(event(job, &format!("x{job}"), "Warning"), now + REFILL * STOCK * 2);
            chatter.take();
        }
        assert!(chatter.jobs.len() <= MOST_TOLD && chatter.told.len() <= MOST_TOLD);
    }
}
