//! Developer commands: `cargo xtask test`, `cargo xtask check`, `cargo xtask bench`, `cargo xtask cluster`, `cargo xtask kubectl`,
//! `cargo xtask dist`, `cargo xtask documents`, `cargo xtask release`, `cargo xtask site`, `cargo xtask torch-tests`.
//!
//! Owns what is run to check and to measure the workspace, and in which order. It must not hold product logic, and it has
//! no dependencies, so that it builds at once. Exit codes: 0 fine, 1 a check failed, 2 usage or something is missing here.

mod arch;
mod bench;
mod check;
mod cluster;
mod cross;
mod dependencies;
mod dist;
mod documents;
mod krew;
mod purity;
mod release;
mod run;
mod sbom;
mod site;
mod smoke;
mod tools;
mod torch;
mod venv;
mod wheel;
mod words;

use std::process::ExitCode;

use run::Problem;

const USAGE: &str = "usage: cargo xtask COMMAND

  test              everything a change has to pass: format, words, lints, purity, wasm build, tests, a run as a user, the documents
  check             what of it needs no test program: format, words, lints, purity, dependencies, wasm build
  bench [TOPIC]...  what is promised against what is measured, one table per topic (all: fold replay ask append
                    transition instructions memory over queues size simulate)
  bench cluster     the operator on a real control plane beside a bare client (--quick, --large; --help says more)
  bench schedule    how long each policy takes to decide, by jobs and GPUs (or those named: gain AFS-L ...)
  cluster up        a real Kubernetes control plane on this machine (--nodes 20 --gpus 8 --process-nodes 0)
  cluster down      ends it
  cluster status    prints what of it runs
  kubectl -- ...    kubectl on that control plane
  dist [FLAG]...    the binary that is shipped, static and stripped, with its line tables beside it; flags go to `cargo build`
  release           what is published, in target/packages: archive, Helm chart, Python wheel, SBOM, their checksums, context of the image
                    (--arch x86_64 --arch aarch64: for these processors instead of this machine's own; --url URL: also the manifest
                    for Krew of archives that are published there)
  documents [FILE]...  runs every command in README.md, CONTRIBUTING.md and docs/, and checks their links (--built: with the programs that are
                    there already)
  site              these documents as a site with a search, in target/site (installs mdBook the first time)
  dependencies      writes the dependency table of docs/ARCHITECTURE.md
  torch-tests [PART]...  (ddp elastic many mpijob plane plugin torchjob torchjob-plane) the PyTorch samples undisturbed, with faults and while
                    they are scaled: the results must be the same (installs PyTorch the first time, about 5 GB). mpijob: MPIJobs with
                    the genuine MPI operator, built with Go; needs no PyTorch";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let outcome = match (command.as_str(), rest.as_slice()) {
        ("test", []) => check::test(),
        ("check", []) => check::check(),
        ("bench", topics) => bench::run(topics),
        ("cluster", words) => cluster::run(words),
        ("kubectl", words) => cluster::kubectl(words),
        ("torch-tests", parts) => torch::run(parts),
        ("dist", flags) => dist::run(flags),
        ("documents", words) => documents::run(words),
        ("release", words) => release::run(words),
        ("site", []) => site::run(),
        ("dependencies", []) => dependencies::write(),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        ("", _) => Err(Problem::Usage(USAGE.to_owned())),
        ("test" | "check" | "dependencies" | "site", _) => {
            Err(Problem::Usage(format!("`{command}` takes no arguments\n{USAGE}")))
        }
        _ => Err(Problem::Usage(format!("no command `{command}`\n{USAGE}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\nxtask {command}: {problem}");
            ExitCode::from(problem.exit_code())
        }
    }
}
