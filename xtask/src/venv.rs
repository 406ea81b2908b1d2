//! Virtual environments of Python below the target directory, with packages of `PyPI`.
//!
//! Owns how one is made and how its programs come first on `PATH`. Packages that a distribution installed are never used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, io, output, succeed, target};

/// Returns the directory of the environment's programs. The first time it is made, with these packages. `check` is a Python program that
/// fails where they are incomplete.
pub(crate) fn programs(name: &str, packages: &[&str], check: &str) -> Result<PathBuf, Problem> {
    let venv = target().join(name);
    let programs = venv.join("bin");
    let python = || Command::new(programs.join("python3"));
    if python().args(["-c", check]).output().is_ok_and(|output| output.status.success()) {
        return Ok(programs);
    }
    println!("installing {} from PyPI into {}", packages.join(", "), venv.display());
    create(&venv)?;
    pip_install(&programs, packages)?;
    let checked = output(python().args(["-c", check]))?;
    if checked.status.success() {
        return Ok(programs);
    }
    let stderr = String::from_utf8_lossy(&checked.stderr);
    Err(Problem::Missing(format!("{} of PyPI do not work here: {stderr}", packages.join(", "))))
}

/// Does so for packages with their versions: it is made again when another version is asked for.
pub(crate) fn pinned(name: &str, packages: &[(&str, &str)]) -> Result<PathBuf, Problem> {
    let wanted: Vec<_> = packages.iter().map(|(package, version)| format!("{package}=={version}")).collect();
    let checks = packages.iter().map(|(package, version)| format!("assert version('{package}') == '{version}'\n"));
    let check = format!("from importlib.metadata import version\n{}", checks.collect::<String>());
    programs(name, &wanted.iter().map(String::as_str).collect::<Vec<_>>(), &check)
}

/// Creates an empty environment.
pub(crate) fn create(venv: &Path) -> Result<(), Problem> {
    succeed(Command::new("python3").args(["-m", "venv"]).arg(venv))
}

/// Installs into the environment with these programs.
pub(crate) fn pip_install(programs: &Path, words: &[&str]) -> Result<(), Problem> {
    let mut pip = Command::new(programs.join("python3"));
    succeed(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(words))
}

/// Returns a `PATH` in which these programs come first.
pub(crate) fn path(programs: &Path) -> Result<OsString, Problem> {
    let known = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(programs.to_path_buf()).chain(std::env::split_paths(&known));
    std::env::join_paths(all).map_err(|error| io("PATH")(std::io::Error::other(error)))
}
