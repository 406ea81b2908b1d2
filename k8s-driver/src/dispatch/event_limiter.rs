//! Limits the Kubernetes Events that are sent, as client-go's event spam filter does.
//!
//! Owns the queue of Events and the choice of those that are dropped. Each job has a token bucket, and its warnings have another, so
//! that a job of a thousand pods does not double the writes of the API server. An Event is sent once. Pure: time is an
//! argument. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use apis::{ApiCall, objects};
use tokio::time::Instant;

use crate::hash::hash;

/// Maximum number of queued Events.
const MAX_QUEUED: usize = 256;
/// Burst of one job, in Events.
const BURST_PER_JOB: u32 = 25;
/// Time after which a job may send one more Event.
const REFILL_INTERVAL_PER_JOB: Duration = Duration::from_secs(20);
/// Burst of all jobs together, in Events; warnings are not counted.
const BURST: u32 = 100;
/// Time after which all jobs together may send one more Event.
const REFILL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of names of sent Events, and of jobs, that are remembered.
const MAX_SENT_NAMES: usize = 4096;

/// A token bucket.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    tokens: u32,
    refilled_at: Instant,
}

impl TokenBucket {
    const fn full(size: u32, now: Instant) -> Self {
        Self { tokens: size, refilled_at: now }
    }

    fn take(&mut self, size: u32, refill: Duration, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled_at).as_millis() / refill.as_millis().max(1);
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more > 0 {
            self.tokens = self.tokens.saturating_add(more).min(size);
            self.refilled_at += refill * more.min(size);
            if self.tokens == size {
                self.refilled_at = now;
            }
        }
        let taken = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        taken
    }
}

/// The queued Events, and what was sent.
#[derive(Debug)]
pub(super) struct EventLimiter {
    queue: VecDeque<ApiCall>,
    /// By hash of the job's uid and the type, Normal or Warning.
    jobs: BTreeMap<u64, TokenBucket>,
    all: TokenBucket,
    /// Hashes of the names of sent Events.
    sent: BTreeSet<u64>,
    sent_order: VecDeque<u64>,
}

impl EventLimiter {
    /// Returns an empty queue with full buckets.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            queue: VecDeque::new(),
            jobs: BTreeMap::new(),
            all: TokenBucket::full(BURST, now),
            sent: BTreeSet::new(),
            sent_order: VecDeque::new(),
        }
    }

    /// Queues an Event. Returns false if a limit dropped it.
    pub(super) fn add(&mut self, call: ApiCall, now: Instant) -> bool {
        let is_warning = call.body.as_ref().and_then(|body| objects::text_at(body, &["type"])) == Some("Warning");
        let name = hash(&(&call.namespace, &call.name));
        if self.sent.contains(&name) {
            return true;
        }
        if self.queue.len() >= MAX_QUEUED || !self.is_allowed(hash(&(&call.job.uid, is_warning)), is_warning, now) {
            return false;
        }
        self.sent.insert(name);
        self.sent_order.push_back(name);
        if self.sent_order.len() > MAX_SENT_NAMES
            && let Some(oldest) = self.sent_order.pop_front()
        {
            self.sent.remove(&oldest);
        }
        self.queue.push_back(call);
        true
    }

    /// Takes the next Event to send.
    pub(super) fn take(&mut self) -> Option<ApiCall> {
        self.queue.pop_front()
    }

    /// Returns the number of queued Events.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    fn is_allowed(&mut self, job: u64, is_warning: bool, now: Instant) -> bool {
        if self.jobs.len() >= MAX_SENT_NAMES {
            // A full bucket need not be remembered.
            let quiet = REFILL_INTERVAL_PER_JOB * BURST_PER_JOB;
            self.jobs.retain(|_, bucket| now.saturating_duration_since(bucket.refilled_at) < quiet);
            if self.jobs.len() >= MAX_SENT_NAMES {
                self.jobs.clear();
            }
        }
        let bucket = self.jobs.entry(job).or_insert_with(|| TokenBucket::full(BURST_PER_JOB, now));
        // Warnings do not count against the other jobs.
        bucket.take(BURST_PER_JOB, REFILL_INTERVAL_PER_JOB, now)
            && (is_warning || self.all.take(BURST, REFILL_INTERVAL, now))
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

    fn names(limiter: &mut EventLimiter) -> Vec<String> {
        std::iter::from_fn(|| limiter.take()).map(|call| call.name.to_string()).collect()
    }

    #[test]
    fn a_repeated_event_is_sent_once() {
        let now = Instant::now();
        let mut limiter = EventLimiter::new(now);
        for name in ["a", "b", "a"] {
            assert!(limiter.add(event(1, name, "Normal"), now));
        }
        assert_eq!(names(&mut limiter), ["a", "b"]);
        assert!(limiter.add(event(1, "b", "Normal"), now), "a repetition is not dropped by a limit");
        assert_eq!(limiter.len(), 0);
    }

    #[test]
    fn a_job_is_limited_to_its_burst_and_refills() {
        let now = Instant::now();
        let mut limiter = EventLimiter::new(now);
        let dropped = (0..1_000).filter(|n| !limiter.add(event(1, &format!("n{n}"), "Normal"), now)).count();
        assert_eq!(dropped, 975);
        limiter.add(event(1, "w", "Warning"), now);
        limiter.add(event(2, "other", "Normal"), now);
        let sent = names(&mut limiter);
        assert_eq!(sent.len(), 27);
        assert_eq!(sent[25..], ["w", "other"]);
        for n in 0..10 {
            limiter.add(event(1, &format!("later{n}"), "Normal"), now + REFILL_INTERVAL_PER_JOB * 3);
        }
        assert_eq!(limiter.len(), 3);
    }

    #[test]
    fn all_jobs_are_limited_together_but_for_warnings() {
        let now = Instant::now();
        let mut limiter = EventLimiter::new(now);
        for job in 0..200 {
            limiter.add(event(job, &format!("n{job}"), "Normal"), now);
        }
        assert_eq!(names(&mut limiter).len(), 100);
        for job in 0..200 {
            limiter.add(event(job, &format!("w{job}"), "Warning"), now);
        }
        assert_eq!(names(&mut limiter).len(), 200);
        for job in 0..50_000 {
            limiter.add(event(job, &format!("x{job}"), "Warning"), now + REFILL_INTERVAL_PER_JOB * BURST_PER_JOB * 2);
            limiter.take();
        }
        assert!(limiter.jobs.len() <= MAX_SENT_NAMES && limiter.sent.len() <= MAX_SENT_NAMES);
    }
}
