//! `cargo xtask test`: everything a change has to pass, in the order in which faults show soonest.

use std::time::Instant;

use crate::run::{Problem, cargo, shown, succeed};
use crate::{cluster, purity, smoke};

/// How one step went.
struct Done {
    name: &'static str,
    seconds: f64,
    remark: String,
}

/// A step's remark, or why it failed.
type Step = fn() -> Result<String, Problem>;

const STEPS: [(&str, Step); 7] = [
    ("format", || quiet(&["fmt", "--all", "--check"])),
    ("lints", || quiet(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])),
    ("purity", purity::dependencies),
    ("wasm", || {
        let skipped = "SKIPPED: the target wasm32-unknown-unknown is not installed (rustup target add it)";
        Ok(purity::wasm()?.unwrap_or_else(|| skipped.to_owned()))
    }),
    // What the tests run against; minutes the first time. Before them, so that what is missing is said on its own.
    ("control plane", || {
        cluster::build()?;
        Ok("built".to_owned())
    }),
    ("tests", tests),
    ("as a user", smoke::run),
];

fn quiet(args: &[&str]) -> Result<String, Problem> {
    let mut command = cargo(args);
    println!("$ {}", shown(&command));
    succeed(&mut command)?;
    Ok("clean".to_owned())
}

fn tests() -> Result<String, Problem> {
    let mut command = cargo(&["test", "--workspace", "--quiet"]);
    // New snapshots are reviewed, never taken over by a test run.
    command.env("INSTA_UPDATE", "no");
    println!("$ {}", shown(&command));
    succeed(&mut command)?;
    Ok("all passed".to_owned())
}

/// Runs every step and stops at the first that fails.
pub(crate) fn run() -> Result<(), Problem> {
    let start = Instant::now();
    let mut done: Vec<Done> = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let begun = Instant::now();
        match step() {
            Ok(remark) => {
                println!("{remark}");
                done.push(Done { name, seconds: begun.elapsed().as_secs_f64(), remark });
            }
            Err(problem) => {
                summary(&done);
                println!("  {name:<13} FAILED");
                println!("\nxtask test: FAILED at {name} after {:.0} s", start.elapsed().as_secs_f64());
                return Err(problem);
            }
        }
    }
    summary(&done);
    let skipped = done.iter().filter(|step| step.remark.starts_with("SKIPPED")).count();
    let note = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("\nxtask test: ok, {} steps{note}, {:.0} s", done.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn summary(done: &[Done]) {
    println!("\n== summary");
    for Done { name, seconds, remark } in done {
        println!("  {name:<13} {seconds:>6.1} s  {remark}");
    }
}
