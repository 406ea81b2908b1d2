//! Jobs in Voda's columns.
//!
//! Owns the columns, and durations as Go prints them. It must not read a clock. Tests: at the end.

use std::fmt::Write as _;

use apis::mpijob;
use apis::objects::{STATE, annotated_mirror, annotation, at, label, text_at, time_at};
use model::Timestamp;
use serde_json::Value;

const COLUMNS: [(&str, usize); 7] =
    [("NAME", 60), ("STATUS", 10), ("WORKERS", 10), ("SCHEDULER", 25), ("WAITING", 10), ("RUNNING", 10), ("TOTAL", 10)];

/// Returns the table of jobs: those that are scheduled, by name.
pub(super) fn table(jobs: &[Value], now: Timestamp) -> String {
    let header = COLUMNS.map(|(name, _)| name.to_owned());
    let mut lines: Vec<String> = jobs.iter().filter_map(|job| Some(line(&row(job, now)?))).collect();
    lines.sort_unstable();
    lines.insert(0, line(&header));
    lines.concat()
}

fn line(fields: &[String; 7]) -> String {
    let mut text = String::new();
    for (n, (field, (_, width))) in fields.iter().zip(COLUMNS).enumerate() {
        let _ = write!(text, "{}{field:<width$}", if n > 0 { " " } else { "" });
    }
    text + "\n"
}

/// Returns the fields of a job; `None` for one that is not scheduled here.
fn row(job: &Value, now: Timestamp) -> Option<[String; 7]> {
    let scheduler = label(job, mpijob::ACCELERATOR).or_else(|| label(job, apis::demand::QUEUE))?;
    let status = annotation(job, mpijob::PHASE).filter(|phase| !phase.is_empty()).unwrap_or("Submitted");
    let replicas = at(job, &["spec", "mpiReplicaSpecs", "Worker", "replicas"]).and_then(Value::as_u64);
    let workers = if status == "Running" { replicas.unwrap_or_default() } else { 0 };
    let created = time_at(job, &["metadata", "creationTimestamp"]).unwrap_or(now);
    let ended = time_at(job, &["status", "completionTime"]);
    let total = ended.unwrap_or(now).since_ms(created);
    let running = running(job, now).min(total);
    let seconds = |ms: u64| duration(ms.saturating_add(500) / 1000);
    Some([
        text_at(job, &["metadata", "name"])?.to_owned(),
        status.to_owned(),
        workers.to_string(),
        scheduler.to_owned(),
        seconds(total.saturating_sub(running)),
        seconds(running),
        seconds(total),
    ])
}

/// Returns the milliseconds for which a job has held GPUs.
fn running(job: &Value, now: Timestamp) -> u64 {
    if let (Some(started), Some(ended)) =
        (time_at(job, &["status", "startTime"]), time_at(job, &["status", "completionTime"]))
    {
        return ended.since_ms(started);
    }
    let mirror = annotated_mirror(job).and_then(|value| engine::wire::mirror_from_value(&value));
    let Some(mirror) = mirror.filter(|_| annotation(job, STATE).is_some()) else { return 0 };
    let present = mirror.share_at.filter(|_| !mirror.share.is_empty()).map_or(0, |since| now.since_ms(since));
    mirror.usage.held_ms.saturating_add(present)
}

/// Returns whole seconds as Go prints a duration: `0s`, `1m30s`, `2h0m5s`.
fn duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (seconds, want) in [(0, "0s"), (28, "28s"), (90, "1m30s"), (7205, "2h0m5s"), (60, "1m0s")] {
            assert_eq!(duration(seconds), want);
        }
    }

    #[test]
    fn jobs_stand_in_columns_by_name() {
        let now = Timestamp::parse_rfc3339("2026-01-01T12:02:00Z").unwrap();
        let job = |name: &str, labels: Value, phase: Option<&str>| {
            json!({
                "metadata": {"name": name, "creationTimestamp": "2026-01-01T12:00:00Z", "labels": labels,
                    "annotations": {"trainyard.dev/phase": phase}},
                "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}},
            })
        };
        let gtx = json!({"vodascheduler/accelerator": "gtx"});
        let mut running = job("b", gtx.clone(), Some("Running"));
        let share = now.0 - 30_400;
        running["metadata"]["annotations"]["trainyard.dev/state"] = json!(
            json!({
                "term": 1, "position": 2, "phase": "Running", "share": {"worker": [["n1", 3]]}, "shareAt": share,
                "usage": {"heldMs": 20_000},
            })
            .to_string()
        );
        let mut done = job("c", gtx.clone(), Some("Completed"));
        done["status"] = json!({"startTime": "2026-01-01T12:00:10Z", "completionTime": "2026-01-01T12:01:10Z"});
        let others = [job("a", gtx, None), running, done, job("foreign", json!({}), Some("Running"))];
        let text = table(&others, now);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL"]);
        assert_eq!(words[1], ["a", "Submitted", "0", "gtx", "2m0s", "0s", "2m0s"]);
        assert_eq!(words[2], ["b", "Running", "3", "gtx", "1m10s", "50s", "2m0s"]);
        assert_eq!(words[3], ["c", "Completed", "0", "gtx", "10s", "1m0s", "1m10s"]);
        assert_eq!(words.len(), 4);
        assert!(text.lines().all(|line| line.chars().count() == 60 + 10 + 10 + 25 + 10 + 10 + 10 + 6), "{text}");
    }
}
