//! The directory in which the commands of a document run.
//!
//! Owns what is in it and on `PATH`: copies of what documents name of a clone, and the programs. Nothing outside of it is written to, so
//! `HOME` is in it as well. Processes that are left in it are ended.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::plane::Plane;
use crate::run::{Problem, Scratch, built, io, output, root, succeed};

/// What documents name by its path in a clone.
const COPIED: [&str; 5] = ["deploy", "docs", "fixtures", "LICENSE", "README.md"];
/// Names of the binary.
const NAMES: [&str; 4] = ["trainyard", "kubectl-trainyard", "kubectl-torchrun", "voda"];
/// Stands for cargo: what it would build for minutes is there already, and the control plane is up.
const CARGO: &str = r#"#!/usr/bin/env bash
case "$*" in
"run --release -- "*) shift 3; exec trainyard "$@" ;;
"xtask kubectl -- "*) shift 3; exec kubectl "$@" ;;
"xtask cluster up"* | "xtask cluster down") echo "cargo $*: the control plane of the test is used" ;;
"xtask test") echo "cargo $*: this is a part of it" ;;
*) echo "cargo $*: not run in tests of documents; mark its block by-hand" >&2; exit 2 ;;
esac
"#;
/// Time that processes have to end by themselves.
const GRACE: Duration = Duration::from_secs(5);

/// A new directory with all of it.
#[derive(Debug)]
pub(super) struct Place {
    scratch: Scratch,
}

impl Place {
    /// Makes it, with the programs and the kubeconfig of a control plane if there is one.
    pub(super) fn new(python: &Path, plane: Option<&Plane>) -> Result<Self, Problem> {
        let place = Self::bare()?;
        let (work, programs) = (place.work(), place.programs());
        // What stands in them is linked to within, and not to what lies outside.
        succeed(Command::new("cp").arg("-a").args(COPIED.map(|name| root().join(name))).arg(&work))?;
        for name in NAMES {
            link(&built("trainyard"), &programs.join(name))?;
        }
        for name in ["python", "python3"] {
            link(python, &programs.join(name))?;
        }
        write_program(&programs.join("cargo"), CARGO)?;
        if let Some(plane) = plane {
            for name in ["kubectl", "helm"] {
                let Some(words) = plane.program(name) else { continue };
                let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                write_program(&programs.join(name), &format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
            }
            link(plane.directory(), &work.join("target/cluster"))?;
        }
        Ok(place)
    }

    /// Makes its directories, without anything in them.
    pub(super) fn bare() -> Result<Self, Problem> {
        let place = Self { scratch: Scratch::new("document")? };
        for directory in [place.work().join("target"), place.programs(), place.home()] {
            fs::create_dir_all(&directory).map_err(io(directory.display()))?;
        }
        Ok(place)
    }

    /// The directory in which commands begin.
    pub(super) fn work(&self) -> PathBuf {
        self.scratch.join("trainyard")
    }

    /// A file beside it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn programs(&self) -> PathBuf {
        self.scratch.join("bin")
    }

    fn home(&self) -> PathBuf {
        self.scratch.join("home")
    }

    /// What commands see besides the environment of this process.
    pub(super) fn environment(&self) -> Result<Vec<(&'static str, OsString)>, Problem> {
        let known = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.programs()).chain(env::split_paths(&known));
        let path = env::join_paths(all).map_err(|error| io("PATH")(std::io::Error::other(error)))?;
        Ok(vec![("PATH", path), ("HOME", self.home().into())])
    }

    /// Ends the processes that work in it: operators, and runs in the background.
    pub(super) fn end_processes(&self) -> Result<(), Problem> {
        let begin = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            let is_late = begin.elapsed() > GRACE;
            if is_late && begin.elapsed() > GRACE * 2 {
                return Err(Problem::failed(format!("processes {} do not end", left.join(", "))));
            }
            // One that has ended meanwhile does not exist any more.
            output(Command::new("kill").arg(if is_late { "-KILL" } else { "-TERM" }).args(&left))?;
            sleep(Duration::from_millis(50));
        }
    }

    /// Processes whose working directory is in it.
    fn processes(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let own = self.file("");
        let works_here = |path: &Path| {
            let is_zombie = || {
                let status = fs::read_to_string(path.join("stat")).unwrap_or_default();
                status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
            };
            fs::read_link(path.join("cwd")).is_ok_and(|directory| directory.starts_with(&own)) && !is_zombie()
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let names =
            paths.filter(|path| works_here(path)).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        names.collect()
    }
}

/// The Python that programs of documents run with; none if there is none.
pub(super) fn python() -> Option<PathBuf> {
    // What is found on `PATH` may look for the program by `HOME`, which is another one here.
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    path.is_file().then_some(path)
}

fn link(to: &Path, path: &Path) -> Result<(), Problem> {
    symlink(to, path).map_err(io(path.display()))
}

fn write_program(path: &Path, text: &str) -> Result<(), Problem> {
    fs::write(path, text).map_err(io(path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(io(path.display()))
}
