//! `cargo xtask test`: everything a change has to pass, in the order in which faults show soonest. `cargo xtask check`: what of it needs
//! no test program.

use std::time::Instant;

use crate::cluster::{self, Building};
use crate::run::{Problem, TEST_PROGRAMS, cargo, shown, succeed};
use crate::{dependencies, documents, purity, smoke, words};

/// How one step went.
struct Done {
    name: &'static str,
    seconds: f64,
    remark: String,
}

/// A step's remark, or why it failed.
type Step = fn(&mut Option<Building>) -> Result<String, Problem>;

/// Checks that need no test program.
const CHECKS: [(&str, Step); 6] = [
    ("format", |_| quiet(&["fmt", "--all", "--check"])),
    ("words", |_| words::check()),
    ("lints", |_| lints()),
    ("purity", |_| purity::dependencies()),
    ("dependencies", |_| dependencies::check()),
    ("wasm", |_| purity::wasm()),
];

/// The Go build of the control plane runs beside the steps between its two: compilers wait for each other often enough to leave
/// a core idle, more so with two kinds of them.
const STEPS: [(&str, Step); 12] = [
    CHECKS[0],
    CHECKS[1],
    ("control plane", |building| {
        *building = Some(cluster::begin_build()?);
        Ok("its build has begun".to_owned())
    }),
    CHECKS[2],
    CHECKS[3],
    CHECKS[4],
    CHECKS[5],
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

fn lints() -> Result<String, Problem> {
    quiet(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    // The operator's image is built without features.
    quiet(&["clippy", "--workspace", "--no-default-features", "--quiet", "--", "-D", "warnings"])
}

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

/// `cargo xtask check`: what shows without running a test.
pub(crate) fn check() -> Result<(), Problem> {
    run("check", &CHECKS)
}

/// `cargo xtask test`: everything.
pub(crate) fn test() -> Result<(), Problem> {
    run("test", &STEPS)
}

/// Runs the steps of a command and stops at the first that fails.
fn run(command: &str, steps: &[(&'static str, Step)]) -> Result<(), Problem> {
    let start = Instant::now();
    let mut building = None;
    let mut done: Vec<Done> = Vec::new();
    for &(name, step) in steps {
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
                println!("\nxtask {command}: FAILED at {name} after {:.0} s", start.elapsed().as_secs_f64());
                return Err(problem);
            }
        }
    }
    summary(&done);
    let skipped = done.iter().filter(|step| step.remark.starts_with("SKIPPED")).count();
    let note = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("\nxtask {command}: ok, {} steps{note}, {:.0} s", done.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn summary(done: &[Done]) {
    println!("\n== summary");
    for Done { name, seconds, remark } in done {
        println!("  {name:<13} {seconds:>6.1} s  {remark}");
    }
}
