//! Is our own policy ahead of another on every set of traces, at several restart costs, with perfect and imperfect knowledge?
//!
//! `cargo run --release -p studies --example gain_study -- --traces DIR [--ours gain] [--theirs AFS-L] [--seeds 3] [--round S]
//! [--threads N] [--only NAME]`
//!
//! Prints Markdown: mean completion times of both policies on each set, and per cell the ratio ours / theirs (below 1 is
//! ahead), averaged over the set's traces, with the worst of them. Imperfect knowledge: sizes off by a log-normal factor of
//! sigma 1, speeds unknown and learnt while jobs run. Sets say which were used to tune. Exits with 1 when behind on a set.
//!
//! On clusters of several GPU types the other policy is `sia`, as AFS-L knows one type only. No public trace has such speeds
//! for its own jobs at all sizes, so they are joined, see [`Types`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use scheduler::Micros;
use studies::compare;
use studies::input::{Cluster, OnBadRow, Profile, Trace, Workload};
use studies::lineup::Candidate;
use studies::sim::{Knowledge, Settings, SizeKnowledge, SpeedKnowledge, run};
use studies::summary::Summary;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Traces that are looked at together.
#[derive(Clone, Copy)]
struct Set {
    name: &'static str,
    traces: &'static [&'static str],
    profile: Option<&'static str>,
    cluster: &'static str,
    types: Types,
    /// True if the policy's settings were chosen on it.
    tuned: bool,
}

/// Source of the speeds on several GPU types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Types {
    /// There is one type.
    One,
    /// The profile has them; jobs, rigid in their trace, may run on 1 to 8 GPUs of any type they were measured on.
    Measured,
    /// The profile's, times what the type makes of one GPU for the model of [`LIKE`] in [`TYPED`].
    Scaled,
}

/// The profile with several types.
const TYPED: &str = "profiles/gavel_throughputs.csv";
/// Models of the Pollux workloads, and the model and batch size in [`TYPED`] that is nearest to each in kind.
const LIKE: &[(&str, &str, &str)] = &[
    ("cifar10", "ResNet-18", "128"),
    ("imagenet", "ResNet-50", "64"),
    ("yolov3", "ResNet-50", "64"),
    ("bert", "Transformer", "64"),
    ("deepspeech2", "LM", "20"),
    ("ncf", "Recommendation", "2048"),
];
/// The types, the one that durations are of first.
const TYPES: [&str; 3] = ["v100", "p100", "k80"];

const FIXED: Option<&str> = Some("profiles/pollux_t4_fixed_batch.csv");
const ADAPTIVE: Option<&str> = Some("profiles/pollux_t4_adaptive_batch.csv");
const AFS: Option<&str> = Some("profiles/afs_models.csv");
const A100: Option<&str> = Some("profiles/elasticflow_a100.csv");
const TACC: Option<&str> = Some("profiles/shockwave_tacc_throughputs.csv");
const SHOCKWAVE: &[&str] = &["shockwave/shockwave_tacc120.csv"];
const MIXED: &str = "v100:12x4,p100:6x4,k80:6x4";
const SMALL: &str = "v100:4x4,p100:4x4,k80:4x4";
const ODD: &[&str] = &["pollux/pollux_w1.csv", "pollux/pollux_w3.csv", "pollux/pollux_w5.csv", "pollux/pollux_w7.csv"];
const EVEN: &[&str] = &["pollux/pollux_w2.csv", "pollux/pollux_w4.csv", "pollux/pollux_w6.csv", "pollux/pollux_w8.csv"];

const fn set(
    name: &'static str,
    traces: &'static [&'static str],
    profile: Option<&'static str>,
    cluster: &'static str,
    tuned: bool,
) -> Set {
    Set { name, traces, profile, cluster, types: Types::One, tuned }
}

const fn typed(set: Set, types: Types) -> Set {
    Set { types, ..set }
}

const SETS: &[Set] = &[
    set("Pollux w1,3,5,7, fixed batch", ODD, FIXED, "16x4", true),
    set("Pollux w2,4,6,8, fixed batch", EVEN, FIXED, "16x4", false),
    set("Pollux w1,3,5,7, adaptive batch", ODD, ADAPTIVE, "16x4", true),
    set("Pollux w2,4,6,8, adaptive batch", EVEN, ADAPTIVE, "16x4", false),
    set(
        "Pollux w6 at loads 0.5, 1.5, 2.0, fixed batch",
        &["pollux/pollux_w6_load0.5.csv", "pollux/pollux_w6_load1.5.csv", "pollux/pollux_w6_load2.0.csv"],
        FIXED,
        "16x4",
        false,
    ),
    set("Pollux w6, users' own sizes, fixed batch", &["pollux/pollux_w6_realistic.csv"], FIXED, "16x4", false),
    set("Philly 2869ce", &["philly_vc/philly_2869ce.csv"], AFS, "16x4", true),
    set(
        "Philly, five other clusters",
        &[
            "philly_vc/philly_0e4a51.csv",
            "philly_vc/philly_103959.csv",
            "philly_vc/philly_7f04ca.csv",
            "philly_vc/philly_e13805.csv",
            "philly_vc/philly_ed69ec.csv",
        ],
        AFS,
        "16x4",
        false,
    ),
    set(
        "ElasticFlow 195job and cluster 10",
        &["elasticflow/elasticflow_195job.csv", "elasticflow/elasticflow_cluster10.csv"],
        A100,
        "8x8",
        true,
    ),
    set(
        "ElasticFlow clusters 01, 03, 06",
        &[
            "elasticflow/elasticflow_cluster01.csv",
            "elasticflow/elasticflow_cluster03.csv",
            "elasticflow/elasticflow_cluster06.csv",
        ],
        A100,
        "8x8",
        false,
    ),
    set(
        "Muri, rigid",
        &["muri/muri_testbed.csv", "muri/muri_trace1.csv", "muri/muri_trace3.csv", "muri/muri_trace3_pr.csv"],
        None,
        "8x8",
        false,
    ),
    typed(set("Pollux w1,3,5,7, three GPU types", ODD, FIXED, MIXED, true), Types::Scaled),
    typed(set("Pollux w2,4,6,8, three GPU types", EVEN, FIXED, MIXED, false), Types::Scaled),
    typed(set("Shockwave, three GPU types, 96 GPUs", SHOCKWAVE, TACC, MIXED, false), Types::Measured),
    typed(set("Shockwave, three GPU types, 48 GPUs", SHOCKWAVE, TACC, SMALL, false), Types::Measured),
    set("Shockwave, rigid", &["shockwave/shockwave_tacc120.csv"], None, "8x4", false),
    set("Tiresias 60, rigid", &["tiresias_60.csv"], None, "2x4", false),
];

/// Policy compared with on several GPU types.
const SEVERAL: &str = "sia";
/// Ratios are shown with three digits: one that shows as 1.000 is level.
const LEVEL: f64 = 1.0005;
const COSTS: [u64; 3] = [0, 30, 90];

struct Options {
    traces: PathBuf,
    ours: String,
    theirs: String,
    seeds: u64,
    round: Option<Micros>,
    threads: usize,
    only: String,
}

fn options() -> Result<Options, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (ours, theirs) = ("gain".to_owned(), "AFS-L".to_owned());
    let mut options =
        Options { traces: PathBuf::new(), ours, theirs, seeds: 3, round: None, threads, only: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--traces" => options.traces = value.into(),
            "--ours" => options.ours = value,
            "--theirs" => options.theirs = value,
            "--seeds" => options.seeds = value.parse()?,
            "--round" => options.round = Some(Micros::from_secs(value.parse()?)).filter(|round| round.0 > 0),
            "--threads" => options.threads = value.parse()?,
            "--only" => options.only = value,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    if options.traces.as_os_str().is_empty() || options.seeds == 0 {
        return Err("--traces DIR is needed, and at least one seed".into());
    }
    Ok(options)
}

fn workload(root: &Path, set: &Set, trace: &str) -> Result<Workload, Failure> {
    let open = |path: &str| File::open(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let profile = match (set.profile, set.types) {
        (Some(path), Types::Scaled) => {
            let text = scaled(open(path)?, open(TYPED)?)?;
            Some(Profile::read(path, text.as_bytes(), OnBadRow::Refuse)?)
        }
        // Some sizes were not measured, and stand there as 0.
        (Some(path), Types::Measured) => Some(Profile::read(path, open(path)?, OnBadRow::Skip)?),
        (Some(path), Types::One) => Some(Profile::read(path, open(path)?, OnBadRow::Refuse)?),
        (None, _) => None,
    };
    let trace = match set.types {
        Types::Measured => Trace::read(trace, elastic(open(trace)?)?.as_bytes(), OnBadRow::Refuse)?,
        Types::One | Types::Scaled => Trace::read(trace, open(trace)?, OnBadRow::Refuse)?,
    };
    Ok(Workload::join(trace, profile.as_ref(), Cluster::parse(set.cluster)?, OnBadRow::Refuse)?)
}

/// The rows of a file as maps from its header.
fn rows(file: File) -> Result<Vec<BTreeMap<String, String>>, Failure> {
    Ok(csv::Reader::from_reader(file).deserialize().collect::<Result<_, _>>()?)
}

/// The trace with jobs that may run on 1 to 8 GPUs.
fn elastic(trace: File) -> Result<String, Failure> {
    let mut text = "job_id,submit_time_s,gpus_requested,duration_s,min_gpus,max_gpus,model,batch_size\n".to_owned();
    for row in rows(trace)? {
        let [id, submit, gpus, duration, model, batch] =
            ["job_id", "submit_time_s", "gpus_requested", "duration_s", "model", "batch_size"].map(|key| &row[key]);
        writeln!(text, "{id},{submit},{gpus},{duration},1,8,{model},{batch}")?;
    }
    Ok(text)
}

/// The profile on all types, by what they make of one GPU.
fn scaled(profile: File, typed: File) -> Result<String, Failure> {
    let mut ones: BTreeMap<(String, String, String), f64> = BTreeMap::new();
    for row in rows(typed)?.iter().filter(|row| row["gpus"] == "1") {
        let key = ["gpu_type", "model", "batch_size"].map(|key| row[key].clone());
        ones.insert(key.into(), row["steps_per_s"].parse()?);
    }
    let mut text = "gpu_type,model,batch_size,gpus,speedup\n".to_owned();
    for row in rows(profile)? {
        let (model, batch, gpus) = (&row["model"], &row["batch_size"], &row["gpus"]);
        let like = LIKE.iter().find(|like| like.0 == model).ok_or_else(|| format!("nothing is like {model}"))?;
        let speedup: f64 = row["speedup_vs_min"].parse()?;
        let one = |gpu_type: &str| {
            let key = (gpu_type.to_owned(), like.1.to_owned(), like.2.to_owned());
            ones.get(&key).copied().ok_or_else(|| format!("{TYPED} has no {key:?} on one GPU"))
        };
        for gpu_type in TYPES {
            let speed = speedup * one(gpu_type)? / one(TYPES[0])?;
            writeln!(text, "{gpu_type},{model},{batch},{gpus},{speed:.6}")?;
        }
    }
    Ok(text)
}

/// One trace under one condition, by both policies.
struct Cell<'a> {
    workload: &'a Workload,
    cost: u64,
    imperfect: bool,
}

/// Mean completion time in seconds, over the seeds where there is something to draw.
fn mean(cell: &Cell<'_>, policy: &str, options: &Options) -> Result<f64, Failure> {
    let candidate = Candidate::find(policy)?;
    let seeds: Vec<u64> = if cell.imperfect { (1..=options.seeds).collect() } else { vec![0] };
    let mut sum = 0.0;
    for &seed in &seeds {
        let knowledge = if cell.imperfect {
            Knowledge { sizes: SizeKnowledge::Noisy { sigma_milli: 1000, seed }, speeds: SpeedKnowledge::Learnt }
        } else {
            Knowledge::default()
        };
        let settings = Settings {
            restart_cost: Micros::from_secs(cell.cost),
            round: options.round,
            knowledge,
            ..Settings::default()
        };
        let outcome = run(cell.workload, candidate.policy.as_ref(), &settings)?;
        sum += Summary::of(cell.workload, &outcome).average_completion();
    }
    #[expect(clippy::cast_precision_loss, reason = "a few seeds")]
    let seeds = seeds.len() as f64;
    Ok(sum / seeds)
}

fn all() -> Result<bool, Failure> {
    let options = options()?;
    let (ours, theirs) = (&options.ours, options.theirs.as_str());
    println!(
        "Mean completion time, seconds: {ours} / {theirs} ({SEVERAL} where there are several GPU types); ratio, and the worst \
         trace's where there are several.\n"
    );
    print!("| traces | tuned on |");
    for knowledge in ["perfect", "imperfect"] {
        for cost in COSTS {
            print!(" {knowledge}, {cost} s |");
        }
    }
    println!("\n|---|---|{}", "---|".repeat(2 * COSTS.len()));
    let mut ahead = true;
    for set in SETS.iter().filter(|set| set.name.contains(&options.only)) {
        let workloads: Vec<Workload> =
            set.traces.iter().map(|trace| workload(&options.traces, set, trace)).collect::<Result<_, _>>()?;
        let cells: Vec<Cell<'_>> = [false, true]
            .into_iter()
            .flat_map(|imperfect| COSTS.map(|cost| (imperfect, cost)))
            .flat_map(|(imperfect, cost)| workloads.iter().map(move |workload| Cell { workload, cost, imperfect }))
            .collect();
        let theirs = if set.types == Types::One { theirs } else { SEVERAL };
        let play = |cell: &Cell<'_>| Ok((mean(cell, ours, &options)?, mean(cell, theirs, &options)?));
        let results: Vec<(f64, f64)> =
            compare::each(&cells, options.threads, play, |_| {}).into_iter().collect::<Result<_, Failure>>()?;
        print!("| {} | {} |", set.name, if set.tuned { "yes" } else { "no" });
        for group in results.chunks(workloads.len()) {
            #[expect(clippy::cast_precision_loss, reason = "a few traces")]
            let count = group.len() as f64;
            let average = |of: fn(&(f64, f64)) -> f64| group.iter().map(of).sum::<f64>() / count;
            let (own, other) = (average(|r| r.0), average(|r| r.1));
            let ratio = average(|r| r.0 / r.1);
            let worst = group.iter().map(|r| r.0 / r.1).fold(0.0, f64::max);
            ahead &= ratio < LEVEL;
            print!(" {own:.0} / {other:.0}: {ratio:.3}");
            if group.len() > 1 {
                print!(" ({worst:.3})");
            }
            print!(" |");
        }
        println!();
    }
    Ok(ahead)
}

fn main() -> ExitCode {
    match all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gain_study: {error}");
            ExitCode::from(2)
        }
    }
}
