//! Voda's metrics, under its names: `GET /metrics` on each port of `voda serve`.
//!
//! Owns the names and what they count. Times are histograms without buckets: Voda's summaries had no quantiles, and the sums and counts have
//! the same names. Counters begin at 0 with this process. It must not decide: figures of jobs are read of their objects at each request.
//! Tests: at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use apis::mpijob;
use apis::objects::{annotation, at, label, text_at};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::Value;

/// Beginning of every name.
const PREFIX: &str = "voda_scheduler";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    version: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SchedulerInfo {
    version: String,
    namespace: String,
    scheduler: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAlgorithm {
    algorithm: String,
}

/// Times or amounts, of which the sum and the number are reported.
fn summary() -> Histogram {
    Histogram::new([])
}

type Summaries = Family<OfAlgorithm, Histogram, fn() -> Histogram>;

/// Requests of one kind: those that were carried out, and how long they took.
#[derive(Debug, Clone)]
struct Requests {
    done: Counter,
    took: Histogram,
    took_done: Histogram,
}

impl Default for Requests {
    fn default() -> Self {
        Self { done: Counter::default(), took: summary(), took_done: summary() }
    }
}

impl Requests {
    fn add(&self, took: Duration, is_done: bool) {
        self.took.observe(took.as_secs_f64());
        if is_done {
            self.done.inc();
            self.took_done.observe(took.as_secs_f64());
        }
    }

    fn register(&self, registry: &mut Registry, verb: &str) {
        registry.register(format!("jobs_{verb}d"), format!("Jobs that were {verb}d"), self.done.clone());
        let (name, all) = (format!("{verb}_job_duration_seconds"), self.took.clone());
        registry.register(name, format!("Time that requests to {verb} a job took"), all);
        let (name, done) = (format!("{verb}_job_success_duration_seconds"), self.took_done.clone());
        registry.register(name, format!("Time that successful requests to {verb} a job took"), done);
    }
}

/// Jobs that were seen, by uid.
#[derive(Debug, Default)]
struct Seen {
    all: BTreeSet<String>,
    present: BTreeSet<String>,
    completed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// Figures of this process.
#[derive(Debug)]
pub(super) struct Metrics {
    namespace: String,
    created: Requests,
    deleted: Requests,
    /// Jobs and GPUs of the requests to the allocator, and the seconds that the algorithm took.
    asked: [Histogram; 3],
    asked_of: [Summaries; 3],
    /// By type of GPU.
    seen: Mutex<BTreeMap<String, Seen>>,
}

impl Metrics {
    pub(super) fn new(namespace: &str) -> Self {
        let labelled = || Summaries::new_with_constructor(summary as fn() -> Histogram);
        Self {
            namespace: namespace.to_owned(),
            created: Requests::default(),
            deleted: Requests::default(),
            asked: [summary(), summary(), summary()],
            asked_of: [labelled(), labelled(), labelled()],
            seen: Mutex::default(),
        }
    }

    /// Notes a request to create a job.
    pub(super) fn create(&self, took: Duration, is_done: bool) {
        self.created.add(took, is_done);
    }

    /// Notes a request to delete a job.
    pub(super) fn delete(&self, took: Duration, is_done: bool) {
        self.deleted.add(took, is_done);
    }

    /// Notes an allocation.
    pub(super) fn allocate(&self, algorithm: &str, jobs: u32, gpus: u32, took: Duration) {
        let of = OfAlgorithm { algorithm: algorithm.to_owned() };
        let figures = [f64::from(jobs), f64::from(gpus), took.as_secs_f64()];
        for ((all, labelled), figure) in self.asked.iter().zip(&self.asked_of).zip(figures) {
            all.observe(figure);
            labelled.get_or_create(&of).observe(figure);
        }
    }

    fn info(&self, registry: &mut Registry, what: &str) {
        let info: Family<Info, Gauge> = Family::default();
        let labels = Info { version: env!("CARGO_PKG_VERSION").to_owned(), namespace: self.namespace.clone() };
        info.get_or_create(&labels).set(1);
        registry.register(format!("{what}_info"), "Version and namespace", info);
    }

    /// Returns the figures of the training service.
    pub(super) fn training(&self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        self.info(&mut registry, "training_service");
        let service = registry.sub_registry_with_prefix("training_service");
        self.created.register(service, "create");
        self.deleted.register(service, "delete");
        text(&registry)
    }

    /// Returns the figures of the resource allocator.
    pub(super) fn allocator(&self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        self.info(&mut registry, "resource_allocator");
        let allocator = registry.sub_registry_with_prefix("resource_allocator");
        let names = ["num_ready_jobs", "num_gpus", "scheduling_algorithm_duration_seconds"];
        let helps = ["Jobs of a request", "GPUs of a request", "Time that an algorithm took"];
        for (((name, help), all), of) in names.into_iter().zip(helps).zip(&self.asked).zip(&self.asked_of) {
            allocator.register(name, help, all.clone());
            allocator.register(format!("labeled_{name}"), help, of.clone());
        }
        text(&registry)
    }

    /// Returns the figures of the schedulers, one for each type of GPU that jobs name. `queue`: the object of the queue, if one is named.
    pub(super) fn scheduler(&self, jobs: &[Value], queue: Option<&Value>) -> String {
        let mut of_type: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for job in jobs {
            if let Some(gpus) = label(job, mpijob::ACCELERATOR) {
                of_type.entry(gpus.to_owned()).or_default().push(job);
            }
        }
        let mut registry = Registry::with_prefix(PREFIX);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (gpus, seen) in seen.iter_mut() {
            seen.note(of_type.get(gpus).map_or(&[][..], Vec::as_slice));
        }
        for (gpus, jobs) in &of_type {
            seen.entry(gpus.clone()).or_default().note(jobs);
        }
        for (gpus, seen) in seen.iter() {
            let jobs = of_type.get(gpus).map_or(&[][..], Vec::as_slice);
            let scheduler = registry.sub_registry_with_prefix(format!("{}_scheduler", gpus.replace(['-', '.'], "_")));
            let info: Family<SchedulerInfo, Gauge> = Family::default();
            let (version, namespace) = (env!("CARGO_PKG_VERSION").to_owned(), self.namespace.clone());
            info.get_or_create(&SchedulerInfo { version, namespace, scheduler: gpus.clone() }).set(1);
            scheduler.register("info", "Version, namespace and type of GPU", info);
            let mut count = |name: &str, help: &str, count: usize| {
                let counter: Counter = Counter::default();
                counter.inc_by(count as u64);
                scheduler.register(name, help, counter);
            };
            count("jobs_created", "Jobs that were seen", seen.all.len());
            count("jobs_deleted", "Jobs that were seen and are gone", seen.all.len() - seen.present.len());
            count("jobs_completed", "Jobs that were seen to complete", seen.completed.len());
            count("jobs_failed", "Jobs that were seen to fail", seen.failed.len());
            let in_phase = |phases: &[&str]| jobs.iter().filter(|job| phases.contains(&phase(job))).count();
            let (waiting, running) = (in_phase(&["Waiting", "Suspended", ""]), in_phase(&["Running"]));
            let mut show = |name: &str, help: &str, figure: u64| {
                let gauge: Gauge = Gauge::default();
                gauge.set(i64::try_from(figure).unwrap_or(i64::MAX));
                scheduler.register(name, help, gauge);
            };
            show("jobs_ready", "Jobs that wait or run", (waiting + running) as u64);
            show("jobs_waiting", "Jobs that wait", waiting as u64);
            show("jobs_running", "Jobs that run", running as u64);
            if let Some(queue) = queue {
                show(
                    "gpus",
                    "GPUs of the queue's quota",
                    sum(at(queue, &["spec", "quota"]), |quota| quota.get("nominal")),
                );
                show("gpus_inuse", "GPUs that jobs of the queue hold", sum(at(queue, &["status", "usage"]), Some));
            }
        }
        text(&registry)
    }
}

impl Seen {
    fn note(&mut self, jobs: &[&Value]) {
        let uid = |job: &&&Value| text_at(job, &["metadata", "uid"]).unwrap_or_default().to_owned();
        self.present = jobs.iter().map(|job| uid(&job)).collect();
        self.all.extend(self.present.iter().cloned());
        let ended = |word: &str| jobs.iter().filter(|job| phase(job) == word).map(|job| uid(&job)).collect::<Vec<_>>();
        self.completed.extend(ended("Completed"));
        self.failed.extend(ended("Failed"));
    }
}

fn phase(job: &Value) -> &str {
    annotation(job, mpijob::PHASE).unwrap_or_default()
}

/// Adds up the numbers of GPUs in the members of an object.
fn sum<'a>(members: Option<&'a Value>, number: impl Fn(&'a Value) -> Option<&'a Value>) -> u64 {
    let members = members.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(_, member)| number(member)?.as_u64()).sum()
}

/// Returns figures in the text format of Prometheus.
fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(uid: &str, gpus: &str, phase: &str) -> Value {
        json!({"metadata": {
            "uid": uid,
            "labels": {"vodascheduler/accelerator": gpus},
            "annotations": {"trainyard.dev/phase": phase},
        }})
    }

    /// Returns the lines with figures, without the prefix.
    fn figures(text: &str) -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_info{"));
        lines.map(|line| line.trim_start_matches("voda_scheduler_").to_owned()).collect()
    }

    #[test]
    fn the_scheduler_counts_jobs_by_type_of_gpu() {
        let metrics = Metrics::new("ns");
        let jobs = [
            job("1", "tesla-v100", "Running"),
            job("2", "tesla-v100", "Waiting"),
            job("3", "tesla-v100", "Completed"),
            json!({"metadata": {"uid": "4"}}),
        ];
        let queue =
            json!({"spec": {"quota": {"nvidia.com/gpu": {"nominal": 8}}}, "status": {"usage": {"nvidia.com/gpu": 3}}});
        let want = |deleted: u32, ready: u32, waiting: u32, running: u32| {
            let of = |name: &str, figure: u32| format!("tesla_v100_scheduler_{name} {figure}");
            vec![
                of("jobs_created_total", 3),
                of("jobs_deleted_total", deleted),
                of("jobs_completed_total", 1),
                of("jobs_failed_total", 0),
                of("jobs_ready", ready),
                of("jobs_waiting", waiting),
                of("jobs_running", running),
                of("gpus", 8),
                of("gpus_inuse", 3),
            ]
        };
        assert_eq!(figures(&metrics.scheduler(&jobs, Some(&queue))), want(0, 2, 1, 1));
        assert_eq!(figures(&metrics.scheduler(&jobs[..1], Some(&queue))), want(2, 1, 0, 1));
        assert_eq!(figures(&metrics.scheduler(&[], Some(&queue))), want(3, 0, 0, 0), "counters do not go back");
        let text = metrics.scheduler(&jobs, None);
        assert!(text.contains("# TYPE voda_scheduler_tesla_v100_scheduler_jobs_created counter"), "{text}");
        let info = "voda_scheduler_tesla_v100_scheduler_info{version=";
        assert!(text.contains(info) && text.contains(r#"namespace="ns",scheduler="tesla-v100"} 1"#), "{text}");
    }

    #[test]
    fn the_services_count_requests() {
        let metrics = Metrics::new("ns");
        metrics.create(Duration::from_millis(500), true);
        metrics.create(Duration::from_millis(250), false);
        let all = figures(&metrics.training());
        for want in [
            "training_service_jobs_created_total 1",
            "training_service_jobs_deleted_total 0",
            "training_service_create_job_duration_seconds_sum 0.75",
            "training_service_create_job_duration_seconds_count 2",
            "training_service_create_job_success_duration_seconds_sum 0.5",
        ] {
            assert!(all.iter().any(|line| line == want), "{want} in {all:#?}");
        }
        metrics.allocate("FIFO", 3, 8, Duration::from_millis(2));
        let all = figures(&metrics.allocator());
        for want in [
            "resource_allocator_num_ready_jobs_sum 3.0",
            "resource_allocator_labeled_num_gpus_sum{algorithm=\"FIFO\"} 8.0",
            "resource_allocator_scheduling_algorithm_duration_seconds_count 1",
        ] {
            assert!(all.iter().any(|line| line == want), "{want} in {all:#?}");
        }
    }
}
