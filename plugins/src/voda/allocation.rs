//! Voda's resource allocator: one request with all jobs, one answer with their GPUs. Nothing else is looked at.
//!
//! Owns the form of the request: the job records of Voda's database. A job that cannot be used gets nothing; the others are not
//! affected. Tests: at the end.

use std::collections::BTreeMap;

use model::{Text, Timestamp};
use scheduler::{Curve, GpuType, JobView, Memory, Micros, PolicyInput, Speed, Speeds, allocate, by_name};
use serde::Deserialize;
use serde_json::Value;
use settings::decimal::fixed;

use super::jobs::Refusal;

/// Sizes of Voda's tables of speeds.
const MAX_GPUS: u32 = 100_000;
/// Year from which a time stands for never.
const NEVER: &str = "9999";

/// A request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    #[serde(rename = "NumGpu")]
    gpus: i64,
    #[serde(rename = "AlgorithmName")]
    algorithm: String,
    #[serde(default)]
    ready_jobs: Vec<Job>,
}

/// A job record, as far as it is read.
#[derive(Debug, Deserialize)]
struct Job {
    #[serde(rename = "job_name")]
    name: String,
    #[serde(default)]
    priority: u32,
    #[serde(default)]
    submit_timestamp: Option<String>,
    #[serde(default)]
    config: Sizes,
    #[serde(default)]
    time_metrics: Times,
    #[serde(default)]
    info: Option<Info>,
}

#[derive(Debug, Default, Deserialize)]
struct Sizes {
    #[serde(default)]
    num_proc: u32,
    #[serde(default)]
    min_num_proc: u32,
    #[serde(default)]
    max_num_proc: u32,
    #[serde(default)]
    epochs: u32,
}

#[derive(Debug, Default, Deserialize)]
struct Times {
    #[serde(default)]
    first_start_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Info {
    #[serde(rename = "estimate_remainning_time_seconds", default)]
    remaining: Option<Value>,
    #[serde(default)]
    speedup: BTreeMap<String, Value>,
}

impl Job {
    fn view(&self) -> JobView {
        let Sizes { num_proc, min_num_proc: min, max_num_proc: max, epochs } = self.config;
        let num = if num_proc == 0 { min } else { num_proc };
        let time = |text: &Option<String>| {
            text.as_deref().and_then(Timestamp::parse_rfc3339).map(|at| Micros::from_millis(at.0))
        };
        let first = time(&self.time_metrics.first_start_timestamp);
        let is_never = |text: &String| text.as_str() >= NEVER;
        let seconds = |value: &Value| fixed(&value.to_string(), 6).map(Micros);
        let remaining = self.info.as_ref().and_then(|info| info.remaining.as_ref()).and_then(seconds);
        let speeds = match &self.info {
            Some(info) if !info.speedup.is_empty() => info.curve(max),
            Some(_) | None => Curve::linear(max.min(MAX_GPUS)),
        };
        JobView {
            level: self.priority,
            first_start: first.filter(|_| !self.time_metrics.first_start_timestamp.as_ref().is_some_and(is_never)),
            // Voda assumes one second for an epoch of which nothing is known.
            remaining: Some(remaining.unwrap_or_else(|| Micros::from_secs(epochs.into()))),
            speeds: Speeds::single(speeds),
            ..JobView::waiting(
                Text::from(self.name.as_str()),
                min,
                num,
                max,
                time(&self.submit_timestamp).unwrap_or_default(),
            )
        }
    }
}

impl Info {
    fn curve(&self, max: u32) -> Curve {
        let speed = |gpus: u32| self.speedup.get(&gpus.to_string()).and_then(|value| fixed(&value.to_string(), 9));
        Curve::new((0..=max.min(MAX_GPUS)).map(|gpus| Speed(speed(gpus).unwrap_or_default())))
    }
}

/// The answer to a request, and what it was about.
#[derive(Debug)]
pub(super) struct GivenGpus {
    pub(super) algorithm: String,
    /// Number of jobs.
    pub(super) jobs: u32,
    /// GPUs to be given.
    pub(super) gpus: u32,
    /// GPUs by the name of the job.
    pub(super) given: BTreeMap<String, u32>,
}

/// Answers a request.
pub(super) fn answer(body: &[u8]) -> Result<GivenGpus, Refusal> {
    let request: Request = serde_json::from_slice(body).map_err(|error| Refusal::new(400, error.to_string()))?;
    let policy = by_name(&request.algorithm).map_err(|error| Refusal::new(400, error.to_string()))?;
    let gpus = u32::try_from(request.gpus)
        .map_err(|_| Refusal::new(400, format!("NumGpu: {}: must be a number of GPUs", request.gpus)))?;
    let jobs: Vec<JobView> = request.ready_jobs.iter().map(Job::view).collect();
    let input = PolicyInput { now: Micros::ZERO, capacity: &[(GpuType(0), gpus)], jobs: &jobs };
    let allocation = allocate(&*policy, input, &mut Memory::default());
    let allocation = allocation.map_err(|error| Refusal::new(500, error.to_string()))?;
    let mut given = BTreeMap::new();
    for (job, grant) in jobs.iter().zip(&allocation.grants) {
        let gpus: &mut u32 = given.entry(job.id.to_string()).or_default();
        *gpus = (*gpus).max(grant.gpus);
    }
    Ok(GivenGpus { algorithm: request.algorithm, jobs: u32::try_from(jobs.len()).unwrap_or(u32::MAX), gpus, given })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, sizes: (u32, u32, u32), submit: u32, info: &Value) -> Value {
        let (min, num, max) = sizes;
        json!({
            "job_name": name, "job_category": name, "user": "x", "kind": "MPIJob", "spec": {"a": [1]}, "gpu_type": "gtx",
            "priority": 0, "status": "Waiting", "submit_timestamp": format!("2022-01-17T16:56:{submit:02}.5+08:00"),
            "config": {"num_proc": num, "min_num_proc": min, "max_num_proc": max, "epochs": 60},
            "time_metrics": {"running_time": 5, "first_start_timestamp": "9999-01-01T00:00:00Z"}, "info": info,
        })
    }

    fn asked(algorithm: &str, gpus: i64, jobs: &[Value]) -> Result<Value, u16> {
        let request = json!({"SchedulerID": "gtx", "NumGpu": gpus, "AlgorithmName": algorithm, "ReadyJobs": jobs});
        answer(request.to_string().as_bytes()).map(|answer| json!(answer.given)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn the_answer_is_that_of_the_policy() {
        let jobs = [
            job("b", (1, 1, 4), 2, &Value::Null),
            job("a", (1, 1, 4), 1, &Value::Null),
            job("c", (1, 1, 2), 3, &Value::Null),
        ];
        assert_eq!(asked("FIFO", 8, &jobs), Ok(json!({"a": 1, "b": 1, "c": 1})));
        assert_eq!(asked("ElasticFIFO", 8, &jobs), Ok(json!({"a": 3, "b": 3, "c": 2})));
        assert_eq!(asked("ElasticFIFO", 0, &jobs), Ok(json!({"a": 0, "b": 0, "c": 0})));
    }

    #[test]
    fn what_is_known_of_a_job_counts() {
        let info =
            |remaining: f64| json!({"estimate_remainning_time_seconds": remaining, "speedup": {"1": 1, "2": 1.9}});
        let jobs = [job("a", (2, 2, 2), 1, &info(300.0)), job("b", (2, 2, 2), 2, &info(100.5))];
        assert_eq!(asked("SRJF", 2, &jobs), Ok(json!({"a": 0, "b": 2})));
        assert_eq!(asked("FIFO", 2, &jobs), Ok(json!({"a": 2, "b": 0})));
    }

    #[test]
    fn a_job_that_cannot_be_used_gets_nothing_and_nonsense_is_refused() {
        let jobs = [job("a", (1, 1, 0), 1, &Value::Null), job("b", (1, 1, 2), 2, &Value::Null)];
        assert_eq!(asked("ElasticFIFO", 4, &jobs), Ok(json!({"a": 0, "b": 2})));
        assert_eq!(asked("Nothing", 4, &jobs), Err(400));
        assert_eq!(asked("FIFO", -1, &jobs), Err(400));
        for body in ["", "[]", "{\"NumGpu\": \"4\"}"] {
            assert_eq!(answer(body.as_bytes()).unwrap_err().code, 400, "{body}");
        }
    }
}
