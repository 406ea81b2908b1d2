//! The interpreter of the PyTorch tests: a virtual environment below the target directory, with PyTorch from `PyPI`.
//!
//! PyTorch of a distribution may lack a `torchrun` that works, so none of this machine is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, io, output, succeed, target};

/// Packages of the environment; PyTorch hands tensors to programs as arrays of numpy.
const PACKAGES: [&str; 2] = ["torch", "numpy"];

/// Returns the directory of its programs. It is made the first time: minutes, and about 5 GB.
pub(super) fn programs() -> Result<PathBuf, Problem> {
    let venv = target().join("torch");
    let programs = venv.join("bin");
    if is_complete(&programs) {
        return Ok(programs);
    }
    println!("installing PyTorch into {}: about 5 GB, the first time", venv.display());
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut install = Command::new(programs.join("python3"));
    succeed(install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES))?;
    if is_complete(&programs) {
        return Ok(programs);
    }
    let import = output(Command::new(programs.join("python3")).args(["-c", IMPORT]))?;
    Err(Problem::Missing(format!("PyTorch of PyPI does not work here: {}", String::from_utf8_lossy(&import.stderr))))
}

const IMPORT: &str = "import torch, torch.distributed.run, numpy";

fn is_complete(programs: &Path) -> bool {
    let imports = Command::new(programs.join("python3")).args(["-c", IMPORT]).output();
    programs.join("torchrun").is_file() && imports.is_ok_and(|output| output.status.success())
}

/// Returns a `PATH` in which these programs come first.
pub(super) fn path(programs: &Path) -> Result<std::ffi::OsString, Problem> {
    let known = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(programs.to_path_buf()).chain(std::env::split_paths(&known));
    std::env::join_paths(all).map_err(|error| io("PATH")(std::io::Error::other(error)))
}
