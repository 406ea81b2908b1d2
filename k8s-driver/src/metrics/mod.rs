//! Counters and timings, in the Prometheus text format.
//!
//! Owns the names (`trainyard_*`, base units, `_total` for counters) and the buckets. It decides nothing, and recording costs a
//! map lookup and an atomic addition. Figures that are cheaper to look up than to keep (jobs by phase, the size of the log)
//! are set at each request for the metrics. Tests: `metrics/tests.rs`.

mod originals;
mod process;
mod summary;
mod training_queues;
mod watches;

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apis::{Course, Series, Verb};
use model::{Term, Text};
use operator::Launch;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _, LabelValueEncoder, text,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub(crate) use self::originals::Figures;
use self::originals::Originals;
pub(crate) use self::summary::Summary;
use self::training_queues::TrainingQueues;
pub(crate) use self::watches::WatchName;
use self::watches::Watches;

/// Everything that is counted. Cheap to clone; every clone counts into the same figures.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    leader: Gauge,
    ready: Gauge,
    served: Family<Api, Gauge>,
    term: Gauge<u64, AtomicU64>,
    jobs: Arc<Jobs>,
    originals: Arc<Originals>,
    transitions: Family<Transition, Counter>,
    calls: Family<Call, Counter>,
    call_seconds: Family<Target, Histogram, fn() -> Histogram>,
    calls_under_way: Gauge,
    queues: Family<Queue, Gauge>,
    queue_wait: Family<Queue, Histogram, fn() -> Histogram>,
    training_queues: TrainingQueues,
    turns: Counter,
    events_dropped: Counter,
    turn_seconds: Histogram,
    append_seconds: Histogram,
    log_first: Gauge<u64, AtomicU64>,
    log_head: Gauge<u64, AtomicU64>,
    log_body_bytes: Gauge<u64, AtomicU64>,
    log_disk_bytes: Gauge<u64, AtomicU64>,
    watches: Arc<Watches>,
    watch_restarts: Family<Restart, Counter>,
    lease: Family<LeaseLabel, Counter>,
    log_requests: Family<Code, Counter>,
    follow_position: Gauge<u64, AtomicU64>,
    follow_behind: Gauge<u64, AtomicU64>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Result of an attempt to write the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseOutcome {
    /// This process leads now.
    Acquired,
    /// It keeps leading.
    Renewed,
    /// The Lease had changed meanwhile.
    Conflict,
    /// It was refused, or there was no answer.
    Failed,
    /// Another process holds the Lease.
    Lost,
}

/// A name as a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Word(Text);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Api {
    kind: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transition {
    kind: Word,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    kind: Word,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Target {
    verb: &'static str,
    kind: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Restart {
    kind: Word,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    behaviour: u32,
    record_format: u16,
}

/// Jobs by kind and phase, replaced as a whole.
#[derive(Debug, Default)]
struct Jobs(Mutex<Vec<(Transition, u64)>>);

impl Collector for Jobs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = ConstGauge::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("trainyard_jobs", "Jobs by kind and phase", None, kind)?;
        for (labels, count) in jobs.iter() {
            ConstGauge::new(*count).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

const fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Delete => "delete",
        Verb::Patch => "patch",
        Verb::PatchStatus => "patch_status",
        Verb::ApplyStatus => "apply_status",
        Verb::Get => "get",
        Verb::Log => "get_log",
        Verb::List => "list",
    }
}

/// From half a millisecond to half a minute: a call to an API server.
fn call_buckets() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

/// From ten microseconds to a second: work of this process and its disk.
fn work_buckets() -> Histogram {
    Histogram::new([0.00001, 0.000_05, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            leader: Gauge::default(),
            ready: Gauge::default(),
            served: Family::default(),
            term: Gauge::default(),
            jobs: Arc::default(),
            originals: Arc::default(),
            transitions: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(call_buckets),
            calls_under_way: Gauge::default(),
            queues: Family::default(),
            queue_wait: Family::new_with_constructor(call_buckets),
            training_queues: TrainingQueues::new(),
            turns: Counter::default(),
            events_dropped: Counter::default(),
            turn_seconds: work_buckets(),
            append_seconds: work_buckets(),
            log_first: Gauge::default(),
            log_head: Gauge::default(),
            log_body_bytes: Gauge::default(),
            log_disk_bytes: Gauge::default(),
            watches: Arc::default(),
            watch_restarts: Family::default(),
            lease: Family::default(),
            log_requests: Family::default(),
            follow_position: Gauge::default(),
            follow_behind: Gauge::default(),
        };
        inner.register();
        Self(Arc::new(inner))
    }

    /// All figures in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(16 << 10);
        // Writing to a string does not fail; should an encoder fail, what is written so far is still worth having.
        if text::encode(&mut out, &self.0.registry).is_err() {
            let _ = writeln!(out, "# EOF");
        }
        out
    }

    /// Sets whether this process leads, and its term.
    pub fn leads(&self, term: Option<Term>) {
        self.0.leader.set(i64::from(term.is_some()));
        if let Some(term) = term {
            self.0.term.set(term.0);
        }
    }

    /// Sets whether this process is ready.
    pub fn ready(&self, ready: bool) {
        self.0.ready.set(i64::from(ready));
    }

    /// Sets whether the term serves an API.
    pub fn serves(&self, kind: &Text, served: bool) {
        self.0.served.get_or_create(&Api { kind: Word(kind.clone()) }).set(i64::from(served));
    }

    /// A job reached a phase; `phase` is its API's word for it.
    pub fn transition(&self, kind: &Text, phase: &'static str) {
        self.0.transitions.get_or_create(&Transition { kind: Word(kind.clone()), phase }).inc();
    }

    /// Counts a record under the names of an original operator.
    pub fn original(&self, series: &Series, course: Course) {
        for name in series.counted(course) {
            self.0.originals.count(name, series.kind);
        }
    }

    /// Adds the delays of a job's launch under the names of an original operator.
    pub fn launched(&self, series: &Series, launch: Launch) {
        for (name, delay) in
            [(series.first_pod_delay, launch.first_pod_ms), (series.all_pods_delay, launch.all_pods_ms)]
        {
            if let Some(delay) = delay {
                self.0.originals.observe(name, series.delays_kind, Duration::from_millis(delay).as_secs_f64());
            }
        }
    }

    /// A call was answered with this HTTP code (0: no answer) after this time.
    pub fn call_done(&self, verb: Verb, kind: &Text, code: u16, took: Duration) {
        let (verb, kind) = (verb_word(verb), Word(kind.clone()));
        self.0.call_seconds.get_or_create(&Target { verb, kind: kind.clone() }).observe(took.as_secs_f64());
        self.0.calls.get_or_create(&Call { verb, kind, code }).inc();
    }

    /// Counts a Kubernetes Event that the limiter dropped.
    pub fn event_dropped(&self) {
        self.0.events_dropped.inc();
    }

    /// Sets the length of a queue.
    pub fn queue_depth(&self, queue: &'static str, depth: usize) {
        self.0.queues.get_or_create(&Queue { queue }).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Adds the time that an item waited in a queue.
    pub fn queue_waited(&self, queue: &'static str, waited: Duration) {
        self.0.queue_wait.get_or_create(&Queue { queue }).observe(waited.as_secs_f64());
    }

    /// The queues changed the places of a job.
    pub fn share_changed(&self, step: &operator::ShareStep) {
        self.0.training_queues.count(step);
    }

    /// A turn was done, its append included.
    pub fn turn_done(&self, took: Duration) {
        self.0.turns.inc();
        self.0.turn_seconds.observe(took.as_secs_f64());
    }

    /// Records were made durable.
    pub fn appended(&self, took: Duration) {
        self.0.append_seconds.observe(took.as_secs_f64());
    }

    /// Records that the API server sent something on a watch, be it a bookmark.
    pub(crate) fn watch_heard(&self, watch: &WatchName) {
        self.0.watches.heard(watch);
    }

    /// Counts a watch that was begun again; `reason` in one word: `closed`, `expired`, `silent`, `failed`.
    pub(crate) fn watch_restarted(&self, watch: &WatchName, reason: &'static str) {
        self.0.watch_restarts.get_or_create(&Restart { kind: watch.kind(), reason }).inc();
    }

    /// An attempt to write the Lease was made.
    pub fn lease_attempt(&self, outcome: LeaseOutcome) {
        let outcome = match outcome {
            LeaseOutcome::Acquired => "acquired",
            LeaseOutcome::Renewed => "renewed",
            LeaseOutcome::Conflict => "conflict",
            LeaseOutcome::Failed => "failed",
            LeaseOutcome::Lost => "lost",
        };
        self.0.lease.get_or_create(&LeaseLabel { outcome }).inc();
    }

    /// A request for the log was answered with this code.
    pub fn log_request(&self, code: u16) {
        self.0.log_requests.get_or_create(&Code { code }).inc();
    }

    /// A standby's log holds the leader's up to `position`, and the leader's goes to `head`.
    pub fn followed(&self, position: model::Position, head: model::Position) {
        self.0.follow_position.set(position.0);
        self.0.follow_behind.set(head.0.saturating_sub(position.0));
    }

    /// Figures that the owner of the log looked up.
    pub fn summary(&self, summary: &Summary) {
        let inner = &*self.0;
        inner.log_first.set(summary.log.first.0);
        inner.log_head.set(summary.log.head.position.0);
        inner.log_body_bytes.set(summary.log.body_bytes);
        inner.log_disk_bytes.set(summary.log.disk_bytes);
        inner.originals.set_present(&summary.originals);
        inner.calls_under_way.set(i64::try_from(summary.calls_under_way).unwrap_or(i64::MAX));
        let jobs = summary.phases.iter().map(|((kind, phase), count)| {
            let phase = if phase.is_empty() { "new" } else { *phase };
            (Transition { kind: Word(kind.clone()), phase }, *count)
        });
        inner.training_queues.set(summary.queues.clone());
        *inner.jobs.0.lock().unwrap_or_else(PoisonError::into_inner) = jobs.collect();
    }
}

impl Inner {
    fn register(&mut self) {
        let build = Build {
            version: env!("CARGO_PKG_VERSION"),
            behaviour: engine::wire::BEHAVIOUR,
            record_format: engine::wire::VERSION,
        };
        let r = &mut self.registry;
        r.register("trainyard_build", "The build", Info::new(build));
        r.register("trainyard_leader", "1 while this process leads", self.leader.clone());
        r.register("trainyard_ready", "1 while this process is ready", self.ready.clone());
        r.register(
            "trainyard_api_served",
            "1 while this process serves the API, 0 while its definition is missing or a list of its objects fails",
            self.served.clone(),
        );
        r.register("trainyard_term", "The last term this process began", self.term.clone());
        r.register_collector(Box::new(self.jobs.clone()));
        r.register_collector(Box::new(self.originals.clone()));
        let help = "Phases that jobs reached";
        r.register("trainyard_job_transitions", help, self.transitions.clone());
        r.register("trainyard_calls", "Calls to the API server by answer; code 0: none", self.calls.clone());
        let help = "Time from sending a call to its answer";
        r.register("trainyard_call_duration_seconds", help, self.call_seconds.clone());
        r.register("trainyard_calls_under_way", "Calls handed out and not yet answered", self.calls_under_way.clone());
        r.register("trainyard_queue_depth", "What waits in a queue", self.queues.clone());
        let help = "Time that something waited in a queue before it was taken";
        r.register("trainyard_queue_wait_seconds", help, self.queue_wait.clone());
        self.training_queues.register(r);
        r.register("trainyard_turns", "Turns done", self.turns.clone());
        r.register(
            "trainyard_events_dropped",
            "Kubernetes Events not sent, by their limits",
            self.events_dropped.clone(),
        );
        r.register("trainyard_turn_duration_seconds", "Time of a turn, its append included", self.turn_seconds.clone());
        let help = "Time to make the records of a turn durable";
        r.register("trainyard_log_append_duration_seconds", help, self.append_seconds.clone());
        r.register("trainyard_log_first_position", "First readable position of the log", self.log_first.clone());
        r.register("trainyard_log_head_position", "Last position of the log", self.log_head.clone());
        r.register("trainyard_log_body_bytes", "Bytes of the readable records", self.log_body_bytes.clone());
        r.register("trainyard_log_disk_bytes", "Bytes the log occupies", self.log_disk_bytes.clone());
        r.register_collector(Box::new(self.watches.clone()));
        r.register("trainyard_watch_restarts", "Watches begun again", self.watch_restarts.clone());
        r.register("trainyard_lease_attempts", "Attempts to write the Lease by outcome", self.lease.clone());
        r.register("trainyard_log_requests", "Requests for the log by answer", self.log_requests.clone());
        let help = "Up to where this standby's log holds the leader's";
        r.register("trainyard_follow_position", help, self.follow_position.clone());
        let help = "Records of the leader's log that this standby lacks";
        r.register("trainyard_follow_behind_records", help, self.follow_behind.clone());
        r.register_collector(Box::new(process::Process));
    }
}

#[cfg(test)]
mod tests;
