//! `cargo xtask bench cluster`: the operator on a real control plane beside a bare client.
//!
//! Owns what has to be built and made before: the programs of the control plane, the log for the cold start. What is
//! measured, and what may be asked for, is the bench's own (`cli/benches/cluster`); words are passed on to it as they are.

use crate::run::{Problem, Scratch, cargo, succeed, target};

/// Records of the log that is started on.
const RECORDS: &str = "1000000";
/// With `--quick`.
const FEW_RECORDS: &str = "100000";

/// Builds, and measures what the words ask for.
pub(crate) fn run(words: &[String]) -> Result<(), Problem> {
    let asked = |flag: &str| words.iter().any(|word| word == flag);
    let mut bench = cargo(&["bench", "--quiet", "--package", "trainyard", "--bench", "cluster", "--"]);
    bench.args(words);
    if asked("--help") || asked("-h") {
        return succeed(&mut bench);
    }
    println!("building");
    crate::cluster::build()?;
    succeed(&mut cargo(&["bench", "--quiet", "--package", "trainyard", "--bench", "cluster", "--no-run"]))?;
    let scratch = Scratch::new("bench-cluster")?;
    if wants_cold_start(words) {
        succeed(&mut cargo(&["build", "--quiet", "--release", "--package", "simulator", "--example", "bench"]))?;
        let log = scratch.join("cold.jsonl");
        let records = if asked("--quick") { FEW_RECORDS } else { RECORDS };
        let mut example = std::process::Command::new(target().join("release/examples/bench"));
        succeed(example.args(["log", "--records", records, "--to"]).arg(&log))?;
        bench.arg("--cold-log").arg(&log);
    }
    succeed(&mut bench)
}

/// Whether the cold start is measured and no log was given for it.
fn wants_cold_start(words: &[String]) -> bool {
    let given = |flag: &str| {
        let with_value = format!("{flag}=");
        words.iter().any(|word| word == flag || word.starts_with(&with_value))
    };
    let only = words.iter().position(|word| word == "--only").and_then(|at| words.get(at + 1)).cloned();
    let only = only.or_else(|| words.iter().find_map(|word| word.strip_prefix("--only=").map(str::to_owned)));
    let chosen = only.is_none_or(|topics| topics.split(',').any(|topic| topic == "cold"));
    chosen && !given("--cold-log") && !given("--peer-label")
}
