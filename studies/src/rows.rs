//! Results as CSV: one row per study in the columns of published results, and one row per job.
//!
//! Tests: at the end of this file.

use std::io::{self, Write};

use super::input::Workload;
use super::lineup::Counting;
use super::sim::StudyOutcome;
use super::summary::{Summary, seconds};

/// Columns of a row of results, in order.
pub const COLUMNS: &[&str] = &[
    "simulator",
    "trace",
    "gpus",
    "policy",
    "config",
    "jobs",
    "avg_jct_s",
    "median_jct_s",
    "p90_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "max_jct_s",
    "makespan_s",
    "gpu_util",
    "mean_first_wait_s",
    "mean_total_queue_s",
    "preemptions_or_reallocs",
    "source",
];

/// Key of a row of results.
#[derive(Debug, Clone, Copy)]
pub struct RowHead<'a> {
    /// Name of the trace.
    pub trace: &'a str,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Name of the policy.
    pub policy: &'a str,
    /// Configuration of the run.
    pub config: &'a str,
    /// Event that counts as a preemption.
    pub counting: Counting,
}

/// Fields of a row of results.
pub fn row(head: RowHead<'_>, summary: &Summary) -> Vec<String> {
    let p = &summary.completion;
    let count = match head.counting {
        Counting::Changes => summary.changes,
        Counting::Halts => summary.halts,
    };
    vec![
        "trainyard".to_owned(),
        head.trace.to_owned(),
        head.gpus.to_string(),
        head.policy.to_owned(),
        head.config.to_owned(),
        summary.jobs.to_string(),
        format!("{:.2}", summary.average_completion()),
        format!("{:.1}", seconds(p.median)),
        format!("{:.1}", seconds(p.p90)),
        format!("{:.1}", seconds(p.p95)),
        format!("{:.2}", seconds(p.p99)),
        seconds(p.max).to_string(),
        seconds(summary.makespan).to_string(),
        format!("{:.4}", summary.utilisation()),
        format!("{:.2}", summary.average_first_wait()),
        format!("{:.2}", summary.average_queued()),
        count.to_string(),
        "simulated".to_owned(),
    ]
}

/// Writes rows of results with their header.
///
/// # Errors
/// The writer failed.
pub fn write_results(out: impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    for row in rows {
        csv.write_record(row)?;
    }
    csv.flush()
}

/// Writes one row per job, in the order of the trace.
///
/// # Errors
/// The writer failed.
pub fn write_jobs(out: impl Write, workload: &Workload, outcome: &StudyOutcome) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "job_id",
        "submit_time_s",
        "start_time_s",
        "finish_time_s",
        "jct_s",
        "first_wait_s",
        "queue_s",
        "held_s",
        "progress_s",
        "gpu_seconds",
        "gpus_requested",
        "duration_s",
        "changes",
        "preemptions",
        "restarts",
        "category",
        "vc",
    ])?;
    for record in &outcome.jobs {
        let job = &workload.jobs[record.place];
        let time = |t| seconds(t).to_string();
        csv.write_record([
            record.name.to_string(),
            time(record.submitted),
            time(record.first_start),
            time(record.finished),
            time(record.completion()),
            time(record.first_wait()),
            time(record.queued()),
            time(record.ran),
            time(record.progressed),
            time(scheduler::Micros(record.attained.0)),
            job.requested.to_string(),
            time(job.duration),
            record.changes.to_string(),
            record.halts.to_string(),
            record.restarts.to_string(),
            job.category.to_string(),
            job.tenant.to_string(),
        ])?;
    }
    csv.flush()
}
