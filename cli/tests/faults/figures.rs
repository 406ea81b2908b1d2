//! What `/metrics` reports of a life of a few jobs: every figure moves that ought to. Counters may show more than the life asks for:
//! a lease that is lost on a busy machine is acquired again.

use std::collections::BTreeMap;

use control_plane::until;

use crate::jobs::{JobKind, Jobs};
use crate::operator::Operator;
use crate::shared;

/// Series and what must hold of them in the end.
enum Must {
    /// It is this.
    Be(f64),
    /// It is at least this.
    Reach(f64),
    /// It is more than before the jobs.
    Grow,
    /// It is reported.
    Exist,
}
use Must::{Be, Exist, Grow, Reach};

const ROWS: [(&str, Must); 42] = [
    ("trainyard_leader", Be(1.0)),
    ("trainyard_ready", Be(1.0)),
    ("trainyard_term", Reach(1.0)),
    (r#"trainyard_api_served{kind="AITrainingJob"}"#, Be(1.0)),
    (r#"trainyard_api_served{kind="ElasticJob"}"#, Be(1.0)),
    (r#"trainyard_jobs{kind="AITrainingJob",phase="Running"}"#, Be(1.0)),
    (r#"trainyard_jobs{kind="AITrainingJob",phase="Succeed"}"#, Be(1.0)),
    (r#"trainyard_jobs{kind="AITrainingJob",phase="Failed"}"#, Be(1.0)),
    (r#"trainyard_job_transitions_total{kind="AITrainingJob",phase="Running"}"#, Reach(5.0)),
    (r#"trainyard_job_transitions_total{kind="AITrainingJob",phase="Succeed"}"#, Reach(1.0)),
    (r#"trainyard_job_transitions_total{kind="AITrainingJob",phase="Restarting"}"#, Reach(2.0)),
    (r#"trainyard_calls_total{verb="create",kind="Pod",code="200"}"#, Reach(10.0)),
    (r#"trainyard_calls_total{verb="delete",kind="Pod",code="200"}"#, Reach(8.0)),
    (r#"trainyard_calls_total{verb="apply_status",kind="AITrainingJob",code="200"}"#, Reach(9.0)),
    (r#"trainyard_call_duration_seconds_count{verb="create",kind="Pod"}"#, Reach(10.0)),
    (r#"trainyard_call_duration_seconds_sum{verb="create",kind="Pod"}"#, Grow),
    ("trainyard_calls_under_way", Be(0.0)),
    (r#"trainyard_queue_depth{queue="calls"}"#, Be(0.0)),
    (r#"trainyard_queue_depth{queue="events"}"#, Exist),
    (r#"trainyard_queue_depth{queue="news"}"#, Exist),
    (r#"trainyard_queue_depth{queue="answers"}"#, Exist),
    (r#"trainyard_queue_wait_seconds_count{queue="calls"}"#, Reach(27.0)),
    ("trainyard_turns_total", Grow),
    ("trainyard_turn_duration_seconds_count", Grow),
    ("trainyard_turn_duration_seconds_sum", Grow),
    ("trainyard_log_append_duration_seconds_count", Grow),
    ("trainyard_log_append_duration_seconds_sum", Grow),
    ("trainyard_log_first_position", Be(1.0)),
    ("trainyard_log_head_position", Grow),
    ("trainyard_log_body_bytes", Grow),
    ("trainyard_log_disk_bytes", Reach(1.0)),
    (r#"trainyard_watch_silence_seconds{kind="AITrainingJob",selector=""}"#, Exist),
    (r#"trainyard_watch_silence_seconds{kind="Pod",selector="GroupName=elasticdeeplearning.ai"}"#, Exist),
    (r#"trainyard_watch_silence_seconds{kind="Service",selector="group-name=elastic.pytorch.org"}"#, Exist),
    (r#"trainyard_watch_silence_seconds{kind="Node",selector=""}"#, Exist),
    (r#"trainyard_lease_attempts_total{outcome="acquired"}"#, Reach(1.0)),
    (r#"trainyard_lease_attempts_total{outcome="renewed"}"#, Grow),
    ("trainyard_follow_position", Exist),
    ("trainyard_follow_behind_records", Be(0.0)),
    ("process_cpu_seconds_total", Reach(0.0)),
    ("process_resident_memory_bytes", Reach(1e6)),
    ("process_threads", Reach(2.0)),
];

fn figures(operator: &Operator<'_>) -> BTreeMap<String, f64> {
    let text = operator.says("/metrics");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    series.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

fn holds(must: &Must, before: Option<f64>, now: Option<f64>) -> bool {
    match (must, now) {
        (_, None) => false,
        (Be(value), Some(now)) => (now - value).abs() < 1e-9,
        (Reach(value), Some(now)) => now >= *value,
        (Grow, Some(now)) => now > before.unwrap_or_default(),
        (Exist, Some(now)) => now >= 0.0,
    }
}

#[test]
fn every_figure_moves() {
    let cluster = shared();
    let mut jobs = Jobs::new(cluster, "figures");
    let operator = Operator::start(cluster, jobs.namespace, true);
    operator.until_leading();
    let before = figures(&operator);
    jobs.create(&[(JobKind::Healthy, 1), (JobKind::Succeeds, 1), (JobKind::Restarts, 1)]);
    jobs.until_ended();
    until("every figure is as it must be", || {
        let now = figures(&operator);
        let of = |name: &str| (before.get(name).copied(), now.get(name).copied());
        let wrong = ROWS.iter().filter(|(name, must)| {
            let (before, now) = of(name);
            !holds(must, before, now)
        });
        let reported: Vec<String> = wrong.map(|(name, _)| format!("{name}: {:?}", of(name))).collect();
        if reported.is_empty() { Ok(()) } else { Err(reported.join("\n")) }
    });
}
