//! `cargo xtask test`: everything a change has to pass, in the order in which faults show soonest.

use std::time::Instant;

use crate::cluster::{self, Building};
use crate::run::{Problem, TEST_PROGRAMS, cargo, shown, succeed};
use crate::{dependencies, documents, purity, smoke};

/// How one step went.
struct Done {
    name: &'static str,
    seconds: f64,
    remark: String,
}

/// A step's remark, or why it failed.
type Step = fn(&mut Option<Building>) -> Result<String, Problem>;

/// The Go build of the control plane runs beside the steps between its two: compilers wait for each other often enough to leave
/// a core idle, more so with two kinds of them.
const STEPS: [(&str, Step); 11] = [
    ("format", |_| quiet(&["fmt", "--all", "--check"])),
    ("control plane", |building| {
        *building = Some(cluster::begin_build()?);
        Ok("its build has begun".to_owned())
    }),
    ("lints", |_| {
        quiet(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
        // The operator's image is built without features.
        quiet(&["clippy", "--workspace", "--no-default-features", "--quiet", "--", "-D", "warnings"])
    }),
    ("purity", |_| purity::dependencies()),
    ("dependencies", |_| dependencies::check()),
    ("wasm", |_| purity::wasm()),
    ("test programs", |_| quiet(&TEST_PROGRAMS)),
    // What the tests run against. Before them, so that what is missing is said on its own.
    ("control plane", |building| {
        building.take().map_or(Ok(()), Building::finish)?;
        Ok("built".to_owned())
    }),
    ("tests", |_| tests()),
    ("as a user", |_| smoke::run()),
    // With the programs of the steps before.
    ("documents", |_| documents::check(&[])),
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
    let mut building = None;
    let mut done: Vec<Done> = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let begun = Instant::now();
        match step(&mut building) {
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
