//! A study predicts the operator: the same workload through a study, and as `MPIJob`s through the operator on the embedded cluster.
//!
//! The jobs make progress by their measured speeds, and report it. Where pods start and go at once, both decide the same sizes at the same
//! times. With the times that pods take, and with nodes that bind pods otherwise than decided, the mean completion time stays near the
//! study's. `cargo test -p studies --test operator -- --nocapture` prints the figures.

mod session;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use scheduler::placement::{Node, Packing};
use scheduler::scheduling::{self, QueueSnapshot};
use scheduler::{GpuType, Micros};
use session::{Binding, Latencies, Played, Queue, Resized, play};
use studies::input::{Cluster, OnBadRow, Profile, Trace, Workload};
use studies::lineup::Candidate;
use studies::sim::{ClusterSetup, Knowledge, Settings, SpeedKnowledge, StudyOutcome, run};

/// Elastic policies of Voda.
const POLICIES: [&str; 5] = ["ElasticFIFO", "ElasticSRJF", "ElasticTiresias", "FfDLOptimizer", "AFS-L"];
/// Nodes, and the GPUs of each: as many as the operator assumes of a node before anything is measured.
const CLUSTER: (u32, u32) = (8, 8);
/// Largest difference of mean completion times.
const TOLERANCE: f64 = 0.05;
/// Times that pods and programs take.
const LATE: Latencies = Latencies { start: 10_000, stop: 10_000, restart: 20_000 };

fn file(path: &str) -> File {
    let path = format!("{}/../fixtures/traces/{path}", env!("CARGO_MANIFEST_DIR"));
    File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first jobs of `pollux_w1`.
fn pollux(jobs: usize) -> Workload {
    let mut trace = Trace::read("pollux_w1.csv", file("pollux/pollux_w1.csv"), OnBadRow::Refuse).unwrap();
    trace.jobs.truncate(jobs);
    let profile = Profile::read("profile", file("profiles/pollux_t4_fixed_batch.csv"), OnBadRow::Refuse).unwrap();
    let cluster = Cluster::parse(&format!("{}x{}", CLUSTER.0, CLUSTER.1)).unwrap();
    Workload::join(trace, Some(&profile), cluster, OnBadRow::Refuse).unwrap()
}

fn queue(policy: &str) -> Queue {
    Queue { nodes: CLUSTER.0, gpus: CLUSTER.1, policy: policy.to_owned() }
}

/// Returns a cluster with this queue alone.
fn setup(queue: &Queue) -> ClusterSetup {
    let rules = scheduling::QueueSettings {
        within: scheduling::WithinQueue::Any,
        min_run: Micros::ZERO,
        backfill: scheduling::Backfill::Policy,
        ..scheduling::QueueSettings::new(Arc::from(scheduler::by_name(&queue.policy).unwrap()))
    };
    let node = |n: u32| Node { gpu_type: GpuType(0), ..Node::new(format!("n{n:02}"), queue.gpus) };
    ClusterSetup {
        queues: vec![QueueSnapshot::root("voda", rules)],
        nodes: (0..queue.nodes).map(node).collect(),
        packing: Packing::Pack,
        workers: BTreeMap::new(),
    }
}

/// Plays the study with speeds as jobs report them: by the policy alone, as `trainyard schedule study` does with a trace, or on a cluster.
fn study(workload: &Workload, policy: &str, restart_ms: u64, setup: Option<ClusterSetup>) -> StudyOutcome {
    let settings = Settings {
        tick: Micros::from_millis(1),
        restart_cost: Micros::from_millis(restart_ms),
        knowledge: Knowledge { speeds: SpeedKnowledge::Learnt, ..Knowledge::default() },
        keep_changes: true,
        setup: setup.map(Box::new),
        ..Settings::default()
    };
    run(workload, Candidate::find(policy).unwrap().policy.as_ref(), &settings).unwrap()
}

/// Changes of sizes in a study, by time and job.
fn changes(outcome: &StudyOutcome) -> Vec<Resized> {
    // Of several at one time the last counts.
    let last: BTreeMap<(Micros, usize), u32> =
        outcome.changes.iter().map(|change| ((change.at, change.job), change.grant.gpus)).collect();
    let mut sizes: BTreeMap<usize, u32> = BTreeMap::new();
    let is_other = |((at, job), gpus): ((Micros, usize), u32)| {
        (sizes.insert(job, gpus).unwrap_or_default() != gpus).then_some((at.0 / 1000, job, gpus))
    };
    last.into_iter().filter_map(is_other).collect()
}

/// Mean of completion times, in seconds.
fn mean(completions: impl ExactSizeIterator<Item = u64>) -> f64 {
    let jobs = u32::try_from(completions.len()).unwrap();
    Duration::from_millis(completions.sum()).as_secs_f64() / f64::from(jobs)
}

fn mean_of_study(outcome: &StudyOutcome) -> f64 {
    mean(outcome.jobs.iter().map(|job| job.completion().0 / 1000))
}

fn mean_of_operator(workload: &Workload, played: &Played) -> f64 {
    mean(workload.jobs.iter().enumerate().map(|(place, job)| played.ended[&place] - job.submitted.0 / 1000))
}

/// `ElasticTiresias` is left out: asked alone it grants GPUs that speed no job up. The scheduler and the operator do not.
#[test]
fn a_small_workload_has_the_same_sizes_at_the_same_times() {
    let workload = pollux(6);
    for policy in POLICIES.into_iter().filter(|policy| *policy != "ElasticTiresias") {
        let alone = study(&workload, policy, 0, None);
        let played = play(&workload, &queue(policy), Latencies::default(), Binding::AsDecided);
        assert_eq!(played.changes, changes(&alone), "{policy}");
        assert_eq!(played.unbound, 0, "{policy}");
    }
}

#[test]
fn the_operator_decides_the_sizes_that_a_study_decides() {
    let workload = pollux(20);
    for policy in POLICIES {
        let queue = queue(policy);
        let studied = study(&workload, policy, 0, Some(setup(&queue)));
        let played = play(&workload, &queue, Latencies::default(), Binding::AsDecided);
        assert_eq!(played.changes, changes(&studied), "{policy}");
        let (study, operator) = (mean_of_study(&studied), mean_of_operator(&workload, &played));
        println!("{policy}: {} changes, mean completion {study:.1} s, {operator:.1} s", played.changes.len());
        assert!((study - operator).abs() < 0.001, "{policy}: {operator} s, not {study} s");
    }
}

#[test]
fn the_mean_completion_time_is_near_that_of_the_study() {
    let workload = pollux(20);
    println!("policy: mean completion in seconds of the study; of the operator, and pods that waited for a node");
    let mut wrong = Vec::new();
    for policy in POLICIES {
        let alone = mean_of_study(&study(&workload, policy, LATE.start + LATE.restart, None));
        let mut line = vec![format!("{policy}: {alone:.1}")];
        for binding in [Binding::AsDecided, Binding::FirstFit] {
            let played = play(&workload, &queue(policy), LATE, binding);
            let ratio = mean_of_operator(&workload, &played) / alone;
            line.push(format!("{binding:?} {:.1} ({ratio:.3}), {}", ratio * alone, played.unbound));
            if (ratio - 1.0).abs() > TOLERANCE {
                wrong.push(format!("{policy}, {binding:?}: {ratio:.3}"));
            }
        }
        println!("{}", line.join("; "));
    }
    assert_eq!(wrong, Vec::<String>::new());
}
