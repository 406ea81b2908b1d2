//! Decision time of each policy by number of jobs and GPUs, with the growth exponent in jobs and GPUs together, the time
//! of a placement, and the time of a whole scheduling decision. Run it optimised: `cargo run --release -p scheduler --example decision_bench [-- POLICY...]`.
//!
//! Inputs are made by a fixed linear congruence, so that every run decides the same. One type of GPU; 64 GPUs at most a job;
//! sub-linear speeds with a dent where a job crosses a node of 8.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Text;
use scheduler::placement::{Demand, Node, Packing, Placement, Prices, repack, settle};
use scheduler::scheduling::{
    Claim, Fixed, History, QueueSettings, QueueSnapshot, Quota, Sizes, Snapshot, SpeedEstimate, Usage, decide,
};
use scheduler::{
    Curve, GpuMicros, GpuType, Grant, JobView, Memory, Micros, NAMES, PolicyInput, Speed, Speeds, allocate, by_name,
};

const JOBS: [u32; 3] = [100, 1_000, 10_000];
const GPUS: [u32; 3] = [64, 1_000, 10_000];

/// Numbers that look random (Knuth's MMIX constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn curve(efficiency: u64) -> Curve {
    // Each GPU adds a little less than the one before; the first beyond a node adds nothing.
    let speed = |k: u64| {
        Speed::from_milli(
            (0..k).map(|i| if i > 0 && i % 8 == 0 { 0 } else { 1000 * efficiency / (efficiency + i) }).sum(),
        )
    };
    Curve::new((0..=64).map(speed))
}

fn jobs(count: u32) -> Vec<JobView> {
    let mut numbers = Numbers(42);
    let curves: Vec<Curve> = (1..=10).map(|n| curve(n * 8)).collect();
    (0..count)
        .map(|n| {
            let num = 1 << numbers.below(4);
            let submitted = Micros::from_secs(numbers.below(100_000));
            let held = if numbers.below(2) == 0 { Grant::NONE } else { Grant::of(GpuType(0), num) };
            let ran = Micros::from_secs(numbers.below(5_000));
            let choice = usize::try_from(numbers.below(10)).unwrap_or_default();
            JobView {
                remaining: Some(Micros::from_secs(60 + numbers.below(200_000))),
                first_start: (held != Grant::NONE).then_some(submitted),
                attained: GpuMicros::of(num, ran),
                ran,
                spell: ran,
                restart_cost: Micros::from_secs(30),
                held,
                speeds: Speeds::single(curves[choice].clone()),
                ..JobView::waiting(format!("job-{n:05}"), 1, num, 64, submitted)
            }
        })
        .collect()
}

/// The shortest of a few runs, as long as these take less than a second in all.
fn time(mut run: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let begin = Instant::now();
    for _ in 0..5 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
        if begin.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    best
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The same jobs, of whose work there are only estimates, often twice or half of the truth.
fn doubted(jobs: &[JobView]) -> Vec<JobView> {
    let doubted = |job: &JobView| {
        let done = Micros(job.attained.0);
        JobView { doubt: 1000, expected: job.remaining.map(|left| left.plus(done)), done, ..job.clone() }
    };
    jobs.iter().map(doubted).collect()
}

fn policies() {
    print!("{:<16}", "ms per decision");
    for jobs in JOBS {
        for gpus in GPUS {
            print!("{:>13}", format!("{jobs}x{gpus}"));
        }
    }
    println!("{:>10}{:>10}", "exp jobs", "exp GPUs");
    let sure: Vec<Vec<JobView>> = JOBS.iter().map(|&count| jobs(count)).collect();
    let unsure: Vec<Vec<JobView>> = sure.iter().map(|jobs| doubted(jobs)).collect();
    let only: Vec<String> = std::env::args().skip(1).collect();
    let rows = NAMES.iter().flat_map(|&name| {
        // Our own policy alone looks at how far estimates are to be trusted.
        let doubted = (name == "gain").then_some(("gain, doubted", &unsure));
        [Some((name, &sure)), doubted].into_iter().flatten().map(move |(label, sets)| (name, label, sets))
    });
    for (name, label, sets) in rows.filter(|(name, ..)| only.is_empty() || only.iter().any(|o| o == name)) {
        let policy = by_name(name).expect("NAMES are known");
        print!("{label:<16}");
        let mut table = Vec::new();
        for jobs in sets {
            for gpus in GPUS {
                let capacity = [(GpuType(0), gpus)];
                let taken = time(|| {
                    let input = PolicyInput { now: Micros::from_secs(200_000), capacity: &capacity, jobs };
                    allocate(&*policy, input, &mut Memory::default()).expect("policies keep within bounds");
                });
                print!("{:>13.3}", ms(taken));
                table.push(ms(taken));
            }
        }
        // From 1,000 to 10,000 jobs at 1,000 GPUs, and from 1,000 to 10,000 GPUs at 1,000 jobs.
        println!("{:>10.2}{:>10.2}", (table[7] / table[4]).log10(), (table[5] / table[4]).log10());
    }
}

fn placements() {
    println!("\n{:<34}{:>10}{:>10}{:>10}", "ms per placement, nodes of 8", 100, 1_000, 4_000);
    for (name, way) in [("repack", 0), ("settle", 1)] {
        for full in [60_u32, 99] {
            print!("{:<34}", format!("{name}, {full} % full, a fifth changes"));
            for count in [100_u32, 1_000, 4_000] {
                let nodes: Vec<Node> = (0..count)
                    .map(|n| Node {
                        rack: format!("r{}", n / 16).into(),
                        block: format!("b{}", n / 128).into(),
                        ..Node::new(format!("n{n:05}"), 8)
                    })
                    .collect();
                let mut numbers = Numbers(7);
                let mut demands: Vec<Demand> = Vec::new();
                let mut total = 0;
                while total < count * 8 * full / 100 {
                    let workers = [1, 1, 2, 3, 4, 5, 8, 12, 16][usize::try_from(numbers.below(9)).unwrap_or_default()];
                    demands.push(Demand::new(format!("job-{:05}", demands.len()), workers));
                    total += workers;
                }
                let plan = |demands: &[Demand], before: &Placement| match way {
                    0 => repack(&nodes, demands, before, Packing::Pack),
                    _ => settle(&nodes, demands, before, Packing::Pack, &Prices::default()),
                };
                let before = plan(&demands, &Placement::new()).expect("names differ").placement;
                for demand in demands.iter_mut().step_by(5) {
                    demand.workers = (demand.workers + 2) % 9 + 1;
                }
                let taken = time(|| {
                    plan(&demands, &before).expect("names differ");
                });
                print!("{:>10.2}", ms(taken));
            }
            println!();
        }
    }
}

/// Returns ten queues in a cohort, or one.
fn snapshots(policy: &str, queues: usize, gpus: u32) -> Vec<QueueSnapshot> {
    let queue = QueueSettings::new(Arc::from(by_name(policy).expect("NAMES are known")));
    if queues == 1 {
        return vec![QueueSnapshot::root("all", queue)];
    }
    let nominal = gpus / u32::try_from(queues).unwrap_or(1);
    let quota = Quota { nominal, borrowing: nominal, lending: None };
    let member = |n: usize| QueueSnapshot {
        parent: Some(queues),
        quota: Some([(GpuType(0), quota)].into()),
        ..QueueSnapshot::root(format!("queue-{n}"), queue.clone())
    };
    let cohort =
        QueueSnapshot { quota: Some(BTreeMap::new()), settings: None, ..QueueSnapshot::root("pool", queue.clone()) };
    (0..queues).map(member).chain([cohort]).collect()
}

/// A whole round: when nothing has changed, and when a twentieth of the jobs that ran have ended.
fn rounds() {
    println!("\n{:<34}{:>14}{:>14}{:>14}", "ms per decision", "jobs x GPUs", "no news", "5 % ended");
    for (count, gpus) in [(1_000_u32, 1_000_u32), (10_000, 10_000)] {
        let nodes: Vec<Node> = (0..gpus / 8).map(|n| Node::new(format!("n{n:05}"), 8)).collect();
        for queues in [1, 10] {
            for policy in ["fifo-backfill", "gain", "AFS-L", "max-min"] {
                let snapshots = snapshots(policy, queues, gpus);
                let history = History::default();
                let mut jobs = jobs(count);
                let estimates: Vec<SpeedEstimate> = jobs.iter().map(estimate).collect();
                let mut held: Vec<Vec<Text>> = vec![Vec::new(); jobs.len()];
                let mut changed: Vec<Option<Micros>> = vec![None; jobs.len()];
                let mut gone: Vec<bool> = vec![false; jobs.len()];
                for job in &mut jobs {
                    (job.held, job.first_start) = (Grant::NONE, None);
                }
                let ask = |now: u64, held: &[Vec<Text>], changed: &[Option<Micros>], gone: &[bool]| {
                    let claim = |(place, job)| claim((place, job), &estimates, held, changed, queues);
                    let places = jobs.iter().enumerate().filter(|(place, _)| !gone[*place]);
                    let claims: Vec<Claim<'_>> = places.map(claim).collect();
                    let snapshot = Snapshot {
                        now: Micros::from_secs(now),
                        nodes: &nodes,
                        closed: &BTreeSet::new(),
                        queues: &snapshots,
                        taken: &BTreeMap::new(),
                        claims: &claims,
                        packing: Packing::Pack,
                        wake: None,
                    };
                    decide(&history, &snapshot).expect("names differ").targets
                };
                for (place, target) in ask(200_000, &held, &changed, &gone).into_iter().enumerate() {
                    changed[place] = target.change.map(|_| Micros::from_secs(200_000));
                    held[place] = target.on;
                }
                let quiet = time(|| {
                    ask(200_200, &held, &changed, &gone);
                });
                let running: Vec<usize> = (0..jobs.len()).filter(|&place| !held[place].is_empty()).collect();
                running.iter().step_by(20).for_each(|&place| gone[place] = true);
                let news = time(|| {
                    ask(200_200, &held, &changed, &gone);
                });
                let label = format!("{policy}, {queues} queue{}", if queues == 1 { "" } else { "s" });
                println!("{label:<34}{:>14}{:>14.1}{:>14.1}", format!("{count}x{gpus}"), ms(quiet), ms(news));
            }
        }
    }
}

fn estimate(job: &JobView) -> SpeedEstimate {
    let (speeds, remaining) = (job.speeds.clone(), job.remaining);
    SpeedEstimate { speeds, remaining, restart_cost: job.restart_cost, ..SpeedEstimate::default() }
}

fn claim<'a>(
    (place, job): (usize, &'a JobView),
    estimates: &'a [SpeedEstimate],
    held: &'a [Vec<Text>],
    changed: &[Option<Micros>],
    queues: usize,
) -> Claim<'a> {
    Claim {
        id: &job.id,
        queue: Some(place % queues),
        sizes: Sizes { min: job.min, num: job.num, max: job.max },
        width: 1,
        priority: 0,
        level: 0,
        submitted: job.submitted,
        usage: Usage { since: job.submitted, changed: changed[place], ..Usage::default() },
        estimate: &estimates[place],
        held: &held[place],
        fixed: Fixed::No,
        avoid: &[],
        fits: None,
        needs: &[],
        not_before: Micros::ZERO,
    }
}

fn main() {
    policies();
    placements();
    rounds();
}
