//! Checks the text of the metrics page.

use std::collections::BTreeMap;

use engine::queues::report::Counts;
use event_log::{Head, Stats};
use model::{LossKind, Position, QuotaSpec};
use operator::ShareStep;

use super::*;

#[test]
fn what_was_counted_is_in_the_text() {
    let metrics = Metrics::new();
    let kind = Text::from("AITrainingJob");
    metrics.leads(Some(Term(7)));
    metrics.ready(true);
    metrics.transition(&kind, "Running");
    metrics.transition(&kind, "Running");
    metrics.call_done(Verb::Create, &Text::from("Pod"), 201, Duration::from_millis(7));
    metrics.call_done(Verb::Create, &Text::from("Pod"), 429, Duration::from_millis(1));
    metrics.queue_depth("news", 3);
    metrics.queue_waited("calls", Duration::from_millis(3));
    metrics.turn_done(Duration::from_millis(2));
    metrics.appended(Duration::from_millis(1));
    metrics.lease_attempt(LeaseOutcome::Renewed);
    let pods = WatchName::new(&Text::from("Pod"), "team=a");
    metrics.watch_restarted(&pods, "expired");
    metrics.watch_heard(&pods);
    let stats = Stats {
        first: Position(5),
        head: Head { position: Position(9), ..Head::default() },
        disk_bytes: 4096,
        ..Stats::default()
    };
    let phases = BTreeMap::from([((kind, "Running"), 4), ((Text::from("AITrainingJob"), ""), 1)]);
    let series = apis::torchjob::DESCRIPTOR.series.copied().unwrap();
    let course = Course { from: model::Phase::Running, to: model::Phase::Succeeded, adopted: false, gone: false };
    metrics.original(&series, course);
    metrics.launched(&series, Launch { first_pod_ms: Some(700), all_pods_ms: None });
    metrics.launched(&series, Launch { first_pod_ms: Some(20_000), all_pods_ms: Some(40_000) });
    let originals = Figures::from([((series.running, series.kind), 3)]);
    metrics.summary(&Summary { log: stats, phases, calls_under_way: 2, originals, ..Summary::default() });
    let text = metrics.text();
    for line in [
        r#"trainyard_job_transitions_total{kind="AITrainingJob",phase="Running"} 2"#,
        r#"trainyard_calls_total{verb="create",kind="Pod",code="201"} 1"#,
        r#"trainyard_calls_total{verb="create",kind="Pod",code="429"} 1"#,
        r#"trainyard_call_duration_seconds_count{verb="create",kind="Pod"} 2"#,
        r#"trainyard_queue_depth{queue="news"} 3"#,
        r#"trainyard_queue_wait_seconds_count{queue="calls"} 1"#,
        "trainyard_turns_total 1",
        "trainyard_turn_duration_seconds_count 1",
        "trainyard_log_append_duration_seconds_count 1",
        r#"trainyard_lease_attempts_total{outcome="renewed"} 1"#,
        r#"trainyard_watch_restarts_total{kind="Pod",reason="expired"} 1"#,
        r#"trainyard_jobs{kind="AITrainingJob",phase="Running"} 4"#,
        r#"trainyard_jobs{kind="AITrainingJob",phase="new"} 1"#,
        r#"torch_on_k8s_jobs_successful{kind="torchjob"} 1"#,
        r#"torch_on_k8s_jobs_running{kind="torchjob"} 3"#,
        r#"torch_on_k8s_jobs_first_pod_launch_delay_seconds_bucket{le="1.0",kind="TorchJob"} 1"#,
        r#"torch_on_k8s_jobs_first_pod_launch_delay_seconds_count{kind="TorchJob"} 2"#,
        r#"torch_on_k8s_jobs_all_pods_launch_delay_seconds_bucket{le="10.0",kind="TorchJob"} 0"#,
        r#"torch_on_k8s_jobs_all_pods_launch_delay_seconds_sum{kind="TorchJob"} 40.0"#,
        "trainyard_calls_under_way 2",
        "trainyard_log_first_position 5",
        "trainyard_log_head_position 9",
        "trainyard_log_disk_bytes 4096",
        "trainyard_leader 1",
        "trainyard_term 7",
        "trainyard_ready 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.contains(r#"trainyard_watch_silence_seconds{kind="Pod",selector="team=a"} 0."#), "{text}");
    assert_eq!(text.matches("trainyard_watch_silence_seconds{").count(), 1, "no watch else was heard of: {text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn queues_report_jobs_and_gpus_by_name() {
    let metrics = Metrics::new();
    let (queue, gpu) = (Text::from("research"), Text::from("nvidia.com/gpu"));
    metrics.share_changed(&ShareStep::Admitted { queue: queue.clone(), waited_ms: Some(90_000) });
    metrics.share_changed(&ShareStep::Admitted { queue: queue.clone(), waited_ms: None });
    metrics.share_changed(&ShareStep::Lost { queue: queue.clone(), kind: LossKind::Reclaimed });
    let quota = QuotaSpec { nominal: 8, borrowing: 8, lending: None };
    let counts = Counts { admitted: 2, pending: 3, usage: [(gpu.clone(), 12)].into(), quota: [(gpu, quota)].into() };
    let root = Counts { pending: 1, ..Counts::default() };
    metrics.summary(&Summary { queues: [(queue, counts), (Text::from(""), root)].into(), ..Summary::default() });
    let text = metrics.text();
    for line in [
        r#"trainyard_training_queue_pending_jobs{queue="research"} 3"#,
        r#"trainyard_training_queue_pending_jobs{queue=""} 1"#,
        r#"trainyard_training_queue_admitted_jobs{queue="research"} 2"#,
        r#"trainyard_training_queue_gpus_used{queue="research",resource="nvidia.com/gpu"} 12"#,
        r#"trainyard_training_queue_gpus_nominal{queue="research",resource="nvidia.com/gpu"} 8"#,
        r#"trainyard_training_queue_gpus_borrowed{queue="research",resource="nvidia.com/gpu"} 4"#,
        r#"trainyard_training_queue_admissions_total{queue="research"} 2"#,
        r#"trainyard_training_queue_losses_total{queue="research",reason="reclaimed"} 1"#,
        r#"trainyard_training_queue_admission_wait_seconds_count{queue="research"} 1"#,
        r#"trainyard_training_queue_admission_wait_seconds_bucket{le="60.0",queue="research"} 0"#,
        r#"trainyard_training_queue_admission_wait_seconds_bucket{le="300.0",queue="research"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn the_process_reports_its_cpu_time_and_memory() {
    let text = Metrics::new().text();
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.trim().parse::<f64>().unwrap()
    };
    assert!(value("process_resident_memory_bytes ") > 1e6);
    assert!(value("process_cpu_seconds_total ") >= 0.0);
    assert!(value("process_threads ") >= 1.0);
}
