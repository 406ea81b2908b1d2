//! `cargo xtask bench`: what is promised against what is measured, one table per topic, from one release build.
//!
//! Owns the order of the topics and what needs a process to be looked at from outside: memory of a replay, instructions,
//! simulated jobs. The rest is measured by `simulator/examples/bench` and `event-log/examples/append_bench.rs`. A missed
//! aim is printed, not an error: numbers of a busy machine decide nothing.
//!
//! `cluster` and `schedule` stand apart: they build other things, take words of their own, and are not part of "all".

mod cluster;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Problem, Scratch, Watched, cargo, io, is_there, output, succeed, target, text, watch};

const TOPICS: [&str; 12] = [
    "fold",
    "replay",
    "ask",
    "append",
    "transition",
    "instructions",
    "memory",
    "over",
    "queues",
    "mpi",
    "size",
    "simulate",
];
/// Records of the log that is folded.
const RECORDS: u64 = 1_000_000;
/// Records of its beginning, whose replay may take no less memory than that of the whole.
const FEW_RECORDS: usize = 100_000;
/// Maximum time of an answer about a job, in milliseconds.
const ASK_AIM_MS: f64 = 50.0;
/// Runs of which the fastest counts.
const TRIES: u32 = 3;
const LIMIT: Duration = Duration::from_secs(1800);

/// Measures the topics named, or all but those that stand apart.
pub(crate) fn run(topics: &[String]) -> Result<(), Problem> {
    if let Some((first, words)) = topics.split_first() {
        match first.as_str() {
            "cluster" => return cluster::run(words),
            "schedule" => return schedule(words),
            _ => {}
        }
    }
    if let Some(unknown) = topics.iter().find(|topic| !TOPICS.contains(&topic.as_str())) {
        return Err(Problem::Usage(format!(
            "no topic `{unknown}`; there are: {}, and cluster or schedule alone",
            TOPICS.join(", ")
        )));
    }
    println!("building");
    succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "trainyard"]))?;
    succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "simulator", "--example", "bench"]))?;
    succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "event-log", "--example", "append_bench"]))?;
    let bench = Bench { release: target().join("release"), scratch: Scratch::new("bench")?, log: None };
    bench.topics(topics)
}

/// How long each policy takes to decide, by jobs and GPUs; all policies, or those named.
fn schedule(policies: &[String]) -> Result<(), Problem> {
    let mut bench =
        cargo(&["run", "--quiet", "--release", "--package", "scheduler", "--example", "decision_bench", "--"]);
    succeed(bench.args(policies))
}

struct Bench {
    release: PathBuf,
    scratch: Scratch,
    /// The large log, once it was made.
    log: Option<PathBuf>,
}

/// What a process took.
struct Taken {
    seconds: f64,
    peak_kib: u64,
}

impl Bench {
    fn topics(mut self, wanted: &[String]) -> Result<(), Problem> {
        for topic in TOPICS.into_iter().filter(|topic| wanted.is_empty() || wanted.iter().any(|name| name == topic)) {
            match topic {
                "fold" => {
                    let log = self.log()?;
                    succeed(self.example().arg("fold").arg("--file").arg(log))?;
                }
                "replay" => self.replay()?,
                "ask" => self.ask()?,
                "append" => {
                    println!();
                    let mut append = Command::new(self.release.join("examples").join("append_bench"));
                    succeed(append.args(["--read", "200000"]))?;
                }
                "instructions" => self.instructions()?,
                "simulate" => self.simulate()?,
                topic => succeed(self.example().arg(topic))?,
            }
        }
        Ok(())
    }

    fn example(&self) -> Command {
        Command::new(self.release.join("examples").join("bench"))
    }

    /// The large log, made at its first use.
    fn log(&mut self) -> Result<PathBuf, Problem> {
        if let Some(log) = &self.log {
            return Ok(log.clone());
        }
        let path = self.scratch.join("large.jsonl");
        print!("\nmaking a log: ");
        std::io::stdout().flush().map_err(io("standard output"))?;
        succeed(self.example().args(["log", "--records", &RECORDS.to_string(), "--to"]).arg(&path))?;
        self.log = Some(path.clone());
        Ok(path)
    }

    /// Replaying holds the live jobs and one record, however long the log is.
    fn replay(&mut self) -> Result<(), Problem> {
        let log = self.log()?;
        let beginning = self.scratch.join("beginning.jsonl");
        head(&log, &beginning, FEW_RECORDS)?;
        let short = self.measure(&["replay", path(&beginning)])?;
        let long = self.measure(&["replay", path(&log)])?;
        heading("replay: `trainyard replay` of an export");
        row(&format!("peak memory, {FEW_RECORDS} records, MiB"), &mib(short.peak_kib), "", None);
        row(&format!("peak memory, {RECORDS} records, MiB"), &mib(long.peak_kib), "", None);
        // What it prints at the end names every job, so a little growth with the number of jobs is its own report's.
        let growth = ratio(long.peak_kib, short.peak_kib);
        row("growth for ten times the records", &format!("{growth:.2}"), "<= 1.50", Some(growth <= 1.5));
        row("seconds for the longer one", &format!("{:.1}", long.seconds), "", None);
        Ok(())
    }

    /// A question about a job must not take longer than a prompt: on the whole log with its state cached beside it, and on one that begins
    /// with its present state.
    fn ask(&mut self) -> Result<(), Problem> {
        let export = self.log()?;
        let log = self.scratch.join("log");
        self.measure(&["log", "import", path(&export), "--to", path(&log)])?;
        heading(&format!(
            "ask: `trainyard ps` and `explain` of a log directory with {RECORDS} records, best of {TRIES}"
        ));
        for place in ["the whole log", "compacted"] {
            if place == "compacted" {
                self.measure(&["log", "compact", path(&log)])?;
            }
            let listed =
                output(Command::new(self.release.join("trainyard")).args(["ps", "-o", "name", "--log"]).arg(&log))?;
            let names = text(&listed);
            let job = names.lines().next().ok_or_else(|| Problem::failed("the log has no live job".to_owned()))?;
            for words in [vec!["ps"], vec!["explain", job]] {
                let question: Vec<&str> = words.iter().copied().chain(["--log", path(&log)]).collect();
                let mut best = f64::INFINITY;
                for _ in 0..TRIES {
                    best = best.min(self.measure(&question)?.seconds);
                }
                let verb = words.first().copied().unwrap_or_default();
                let met = best * 1000.0 < ASK_AIM_MS;
                let aim = format!("< {ASK_AIM_MS:.0}");
                row(&format!("{verb}, {place}, milliseconds"), &format!("{:.0}", best * 1000.0), &aim, Some(met));
            }
        }
        Ok(())
    }

    /// The difference of two runs that differ in nothing but the number of transitions.
    fn instructions(&self) -> Result<(), Problem> {
        heading("instructions: one transition, counted by callgrind");
        if !is_there("valgrind") {
            println!("  SKIPPED: valgrind is not installed");
            return Ok(());
        }
        for jobs in ["1", "1000"] {
            let (few, many) = (self.counted(jobs, 2000)?, self.counted(jobs, 6000)?);
            let each = many.saturating_sub(few) / 4000;
            row(&format!("{jobs} jobs known, instructions"), &each.to_string(), "", None);
        }
        Ok(())
    }

    fn counted(&self, jobs: &str, transitions: u32) -> Result<u64, Problem> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(self.release.join("examples").join("bench"));
        valgrind.args(["instructions", "--jobs", jobs, "--transitions", &transitions.to_string()]);
        let out = output(&mut valgrind)?;
        let report = text(&out);
        let collected = report.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
        collected
            .filter(|_| out.status.success())
            .ok_or_else(|| Problem::failed(format!("callgrind failed:\n{report}")))
    }

    fn simulate(&self) -> Result<(), Problem> {
        heading("simulate: one job from its creation until it succeeded and was cleaned up, `trainyard simulate`");
        for (pods, aim_seconds) in [(1000, Some(2.0)), (10_000, None)] {
            let manifest = self.scratch.join("large.yaml");
            fs::write(&manifest, large_job(pods)).map_err(io(manifest.display()))?;
            let taken = self.measure(&["simulate", "--quiet", path(&manifest)])?;
            let name = format!("{pods} pods, seconds");
            let aim = aim_seconds.map_or_else(String::new, |aim: f64| format!("< {aim:.1}"));
            row(&name, &format!("{:.2}", taken.seconds), &aim, aim_seconds.map(|aim| taken.seconds < aim));
            row(&format!("{pods} pods, peak memory, MiB"), &mib(taken.peak_kib), "", None);
        }
        Ok(())
    }

    /// Runs the product and looks at its memory while it runs.
    fn measure(&self, args: &[&str]) -> Result<Taken, Problem> {
        let path = self.scratch.join("output");
        let file = File::create(&path).map_err(io(path.display()))?;
        let shown = format!("trainyard {}", args.join(" "));
        let start = Instant::now();
        let mut child = Command::new(self.release.join("trainyard"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(io(path.display()))?)
            .stderr(file)
            .spawn()
            .map_err(io(&shown))?;
        let mut peak_kib = 0;
        let ended = watch(&mut child, Duration::from_millis(5), LIMIT, &mut |child| {
            peak_kib = peak_kib.max(peak_of(child));
        })?;
        let seconds = start.elapsed().as_secs_f64();
        match ended {
            Watched::Ended(status) if status.success() => Ok(Taken { seconds, peak_kib }),
            Watched::Ended(_) | Watched::TooLong => {
                let output = fs::read_to_string(&path).map_err(io(path.display()))?;
                Err(Problem::failed(format!("`{shown}` did not succeed:\n{output}")))
            }
        }
    }
}

/// The most memory a running process has held, in KiB; 0 when that is not known (any more).
fn peak_of(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// Copies the first lines of a file: every line of an export carries its digest, so its beginning is a log as well.
fn head(from: &Path, to: &Path, lines: usize) -> Result<(), Problem> {
    let input = BufReader::new(File::open(from).map_err(io(from.display()))?);
    let mut out = BufWriter::new(File::create(to).map_err(io(to.display()))?);
    for line in input.lines().take(lines) {
        writeln!(out, "{}", line.map_err(io(from.display()))?).map_err(io(to.display()))?;
    }
    out.flush().map_err(io(to.display()))
}

fn large_job(pods: u32) -> String {
    format!(
        "apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {{name: large}}
spec:
  replicaSpecs:
    trainer:
      replicas: {pods}
      restartPolicy: OnFailure
      restartScope: All
      restartLimit: 3
      template:
        spec:
          containers:
            - {{name: aitj-main, image: pytorch, command: [python3, train.py]}}
"
    )
}

fn heading(title: &str) {
    println!("\n{title}");
    println!("  {:<58} {:>16}  {:>16}", "", "measured", "aim");
}

fn row(what: &str, measured: &str, aim: &str, met: Option<bool>) {
    let verdict = met.map_or("", |met| if met { "met" } else { "missed" });
    println!("{}", format!("  {what:<58} {measured:>16}  {aim:>16}  {verdict}").trim_end());
}

fn mib(kib: u64) -> String {
    (kib / 1024).to_string()
}

#[allow(clippy::cast_precision_loss)] // memory of one machine is far below 2^52 KiB
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / (other.max(1)) as f64
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
