//! `cargo xtask dist`: the binary that is shipped, static and stripped, with its line tables in a file beside it.
//!
//! Owns which build is shipped and how it is stripped. It must not package: `release` and the image take the files from here.
//! The binary is linked with musl, so that it runs on every distribution and in an image without files. `objcopy` comes with the C
//! compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, cargo, has_target, io, is_there, succeed, target};

/// Memory that was free for one second goes back to the system.
const MALLOC: (&str, &str) = ("JEMALLOC_SYS_WITH_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0");

/// The shipped binary, and what it was built for.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) binary: PathBuf,
    pub(crate) tables: PathBuf,
    pub(crate) target: String,
}

/// Builds, strips, and prints what it made; `flags` go to `cargo build`.
pub(crate) fn run(flags: &[String]) -> Result<(), Problem> {
    let built = build(flags)?;
    for path in [&built.binary, &built.tables] {
        println!("{} {}", path.display(), megabytes(path)?);
    }
    Ok(())
}

/// Builds and strips.
pub(crate) fn build(flags: &[String]) -> Result<Built, Problem> {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    require(&triple)?;
    let mut build = cargo(&["build", "--profile", "dist", "--locked", "--package", "trainyard", "--target", &triple]);
    succeed(build.args(flags).env(MALLOC.0, MALLOC.1))?;
    let directory = target().join("dist");
    fs::create_dir_all(&directory).map_err(io(directory.display()))?;
    let compiled = target().join(&triple).join("dist/trainyard");
    let (binary, tables) = ("trainyard", "trainyard.debug");
    // Named without their directory, because the link in the binary holds the name as it is given.
    let objcopy = |args: &[&str]| succeed(Command::new("objcopy").current_dir(&directory).args(args));
    objcopy(&["--only-keep-debug", &compiled.to_string_lossy(), tables])?;
    objcopy(&["--strip-all", "--add-gnu-debuglink=trainyard.debug", &compiled.to_string_lossy(), binary])?;
    Ok(Built { binary: directory.join(binary), tables: directory.join(tables), target: triple })
}

/// The standard library and the C compiler for the target.
fn require(triple: &str) -> Result<(), Problem> {
    if !has_target(triple) {
        return Err(Problem::Missing(format!("the target {triple} is not installed: `rustup target add {triple}`")));
    }
    // Where the system's own C library is musl, its compiler is `cc`.
    if cfg!(target_env = "musl") || is_there("musl-gcc") {
        return Ok(());
    }
    Err(Problem::Missing(
        "the C compiler `musl-gcc` is not installed (Debian and Ubuntu: package musl-tools)".to_owned(),
    ))
}

/// Size of a file, in megabytes, as text.
#[allow(clippy::cast_precision_loss)] // a file of one program is far below 2^52 bytes
pub(crate) fn megabytes(path: &Path) -> Result<String, Problem> {
    Ok(format!("{:.1} MB", path.metadata().map_err(io(path.display()))?.len() as f64 / 1e6))
}
