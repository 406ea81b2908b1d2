//! Studies against published results on the traces of `fixtures/traces`, and properties every study must have.

use std::fs::File;
use std::path::PathBuf;

use scheduler::{Micros, Policy};
use studies::input::{Cluster, OnBadRow, Profile, Trace, Workload};
use studies::lineup::Candidate;
use studies::published::{Plan, Published, times};
use studies::sim::{Knowledge, Settings, SizeKnowledge, StudyOutcome, run};
use studies::summary::Summary;
use studies::{compare, rows};

const FIXED_BATCH: &str = "profiles/pollux_t4_fixed_batch.csv";

fn file(path: &str) -> (PathBuf, File) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/traces")).join(path);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, file)
}

fn workload(trace: &str, profile: Option<&str>, cluster: &str) -> Workload {
    let trace = Trace::read(trace, file(trace).1, OnBadRow::Refuse).unwrap();
    let profile = profile.map(|p| Profile::read(p, file(p).1, OnBadRow::Refuse).unwrap());
    Workload::join(trace, profile.as_ref(), Cluster::parse(cluster).unwrap(), OnBadRow::Refuse).unwrap()
}

fn policy(name: &str) -> Box<dyn Policy> {
    Candidate::find(name).unwrap().policy
}

fn play(workload: &Workload, name: &str, settings: &Settings) -> StudyOutcome {
    run(workload, policy(name).as_ref(), settings).unwrap()
}

/// Every row of the published results whose trace is here: rigid ones to the second, the others to their tolerance.
#[test]
fn published_results_are_reproduced() {
    let rows = Published::read("reference_results.csv", file("reference_results.csv").1).unwrap();
    let here = |row: &&Published| {
        row.trace.starts_with("pollux/") || row.trace == "tiresias_60.csv" || row.trace == "philly_vc/philly_2869ce.csv"
    };
    let played: Vec<(Published, _)> = (rows.into_iter().filter(|row| here(&row)))
        .filter_map(|row| match row.plan() {
            // The many small restarts of this one take seconds on that trace; the bench plays it.
            Plan::Play(play) if row.trace.starts_with("philly") && play.policy == "voda-tiresias" => None,
            Plan::Play(play) => Some((row, play)),
            Plan::Skip(_) => None,
        })
        .collect();
    let ours = compare::each(
        &played,
        std::thread::available_parallelism().map_or(1, usize::from),
        |(row, plan)| {
            let workload = workload(&row.trace, plan.profile, &row.gpus.to_string());
            let outcome = play(&workload, &plan.policy, &plan.settings);
            times(&Summary::of(&workload, &outcome))
        },
        |_| {},
    );
    let mut wrong = Vec::new();
    for ((row, plan), ours) in played.iter().zip(&ours) {
        if !plan.tolerance.holds(ours, &row.times) {
            wrong.push(format!("{} {} {}: {ours:?}, not {:?}", row.simulator, row.trace, row.policy, row.times));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), played.len(), wrong.join("\n"));
    assert!(played.len() > 150, "only {} rows were played", played.len());
}

/// The mean of the Pollux artifact's Tiresias over its eight workloads, 4,038 s, within 5 %.
#[test]
fn rounds_and_restarts_reproduce_the_pollux_artifact() {
    let settings =
        Settings { round: Some(Micros::from_secs(60)), restart_cost: Micros::from_secs(30), ..Settings::default() };
    let total: f64 = (1..=8)
        .map(|w| {
            let workload = workload(&format!("pollux/pollux_w{w}.csv"), Some(FIXED_BATCH), "16x4");
            Summary::of(&workload, &play(&workload, "tiresias", &settings)).average_completion()
        })
        .sum();
    let mean = total / 8.0;
    assert!((mean / 4038.0 - 1.0).abs() < 0.05, "{mean}");
}

#[test]
fn a_study_is_the_same_again_and_on_any_number_of_threads() {
    let workload = workload("pollux/pollux_w6.csv", Some(FIXED_BATCH), "16x4");
    let knowledge = Knowledge { sizes: SizeKnowledge::Noisy { sigma_milli: 1000, seed: 3 }, ..Knowledge::default() };
    let settings = Settings { knowledge, restart_cost: Micros::from_secs(30), ..Settings::default() };
    let names = ["fifo-backfill", "srtf", "max-min", "AFS-L", "Tiresias", "ElasticTiresias", "gain"];
    let study = |threads| compare::each(&names, threads, |name| play(&workload, name, &settings), |_| {});
    let alone = study(1);
    assert_eq!(alone, study(3));
    assert_eq!(alone, study(7));
}

/// Checks what holds for every policy: all jobs ended, none before its work could be done, capacity kept.
#[test]
fn every_study_adds_up() {
    let workload = workload("pollux/pollux_w3.csv", Some(FIXED_BATCH), "64");
    let sizes = SizeKnowledge::Noisy { sigma_milli: 1000, seed: 1 };
    let noisy = Knowledge { sizes, ..Knowledge::default() };
    let unknown = Knowledge { sizes: SizeKnowledge::Unknown, ..Knowledge::default() };
    for name in Candidate::names() {
        for (knowledge, restart) in [(Knowledge::default(), 0), (noisy, 30), (unknown, 90)] {
            let restart_cost = Micros::from_secs(restart);
            let settings = Settings { knowledge, restart_cost, keep_changes: true, ..Settings::default() };
            let outcome = run(&workload, policy(&name).as_ref(), &settings)
                .unwrap_or_else(|error| panic!("{name} with {knowledge:?}: {error}"));
            assert_eq!(outcome.jobs.len(), workload.jobs.len(), "{name}");
            for record in &outcome.jobs {
                let job = &workload.jobs[record.place];
                let fastest = job.speeds.home().map(|(_, c)| (0..=c.reach()).map(|k| c.at(k)).max()).unwrap().unwrap();
                assert!(record.progressed >= job.work.time_at(fastest), "{name}: {record:?}");
                assert!(record.ran >= record.progressed && record.completion() >= record.ran, "{name}: {record:?}");
            }
            assert!(outcome.samples.iter().all(|s| s.gpus <= 64), "{name}");
            let held: u128 = outcome.jobs.iter().map(|r| u128::from(r.attained.0)).sum();
            let integral: u128 = (outcome.samples.windows(2))
                .map(|w| u128::from(w[1].at.since(w[0].at).0) * u128::from(w[0].gpus))
                .sum();
            assert_eq!(held, integral, "{name}: GPU time by job and by time");
            let mut counted = vec![0_i64; workload.jobs.len()];
            outcome.changes.iter().for_each(|c| counted[c.job] += 1);
            let wanted = outcome.jobs.iter().map(|r| i64::from(r.changes) + 2); // first start and end
            assert!(counted.into_iter().eq(wanted), "{name}: changes");
        }
    }
}

#[test]
fn results_and_jobs_are_written_as_csv() {
    let workload = workload("tiresias_60.csv", None, "8");
    let outcome = play(&workload, "tiresias-sim:fifo", &Settings::default());
    let summary = Summary::of(&workload, &outcome);
    let counting = Candidate::find("tiresias-sim:fifo").unwrap().counting;
    let head =
        rows::RowHead { trace: "tiresias_60.csv", gpus: 8, policy: "tiresias-sim:fifo", config: "tick 1 s", counting };
    let mut results = Vec::new();
    rows::write_results(&mut results, &[rows::row(head, &summary)]).unwrap();
    let wanted = format!(
        "{}\ntrainyard,tiresias_60.csv,8,tiresias-sim:fifo,tick 1 s,60,1556.48,1415.5,2484.5,3897.7,3979.89,3997,5747,0.5791,1378.07,1378.07,0,simulated\n",
        rows::COLUMNS.join(",")
    );
    assert_eq!(String::from_utf8(results).unwrap(), wanted);
    let mut jobs = Vec::new();
    rows::write_jobs(&mut jobs, &workload, &outcome).unwrap();
    let text = String::from_utf8(jobs).unwrap();
    assert_eq!(text.lines().count(), 61);
    assert!(text.contains("\n1,30,164,311,281,134,134,147,147,1176,8,147,0,0,0,vgg11,\n"), "{text}");
}
