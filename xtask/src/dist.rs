//! `cargo xtask dist`: the binary that is shipped, static and stripped, with its line tables in a file beside it.
//!
//! Owns which build is shipped and how it is stripped. It must not package: `release` and the image take the files from here.
//! The binary is linked with musl, so that it runs on every distribution and in an image without files. `objcopy` comes with the C
//! compiler. For another processor than this machine's, both are those of `cross`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::cross::Cross;
use crate::run::{Problem, cargo, has_target, io, is_there, succeed, target};

/// Memory that was free for one second goes back to the system.
const MALLOC: (&str, &str) = ("JEMALLOC_SYS_WITH_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0");

/// The shipped binary, and what it was built for.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) arch: Arch,
    pub(crate) binary: PathBuf,
    pub(crate) tables: PathBuf,
}

/// Builds, strips, and prints what it made; `flags` go to `cargo build`.
pub(crate) fn run(flags: &[String]) -> Result<(), Problem> {
    let built = Toolchain::of(Arch::OWN)?.build(flags)?;
    for path in [&built.binary, &built.tables] {
        println!("{} {}", path.display(), megabytes(path)?);
    }
    Ok(())
}

/// What a processor's binary is built with.
#[derive(Debug)]
pub(crate) struct Toolchain {
    arch: Arch,
    /// Those of the machine, or these for another processor.
    cross: Option<Cross>,
}

impl Toolchain {
    /// Looks for it. What can be installed is installed; what cannot is named.
    pub(crate) fn of(arch: Arch) -> Result<Self, Problem> {
        let triple = arch.triple();
        if !has_target(&triple) {
            return Err(Problem::Missing(format!(
                "the target {triple} is not installed: `rustup target add {triple}`"
            )));
        }
        if arch != Arch::OWN {
            return Ok(Self { arch, cross: Some(Cross::installed()?) });
        }
        // Where the system's own C library is musl, its compiler is `cc`.
        if cfg!(target_env = "musl") || is_there("musl-gcc") {
            return Ok(Self { arch, cross: None });
        }
        Err(Problem::Missing(
            "the C compiler `musl-gcc` is not installed (Debian and Ubuntu: package musl-tools)".to_owned(),
        ))
    }

    /// Builds and strips.
    pub(crate) fn build(&self, flags: &[String]) -> Result<Built, Problem> {
        let triple = self.arch.triple();
        let mut build = self.cross.as_ref().map_or_else(|| cargo(&["build"]), Cross::cargo_build);
        build.args(["--profile", "dist", "--locked", "--package", "trainyard", "--target", &triple]);
        succeed(build.args(flags).env(MALLOC.0, MALLOC.1))?;
        let directory = directory(self.arch);
        fs::create_dir_all(&directory).map_err(io(directory.display()))?;
        let compiled = target().join(&triple).join("dist/trainyard");
        let (binary, tables) = ("trainyard", "trainyard.debug");
        let objcopy = |args: &[&str]| {
            let mut objcopy = self.cross.as_ref().map_or_else(|| Command::new("objcopy"), Cross::objcopy);
            // Named without their directory, because the link in the binary holds the name as it is given.
            succeed(objcopy.current_dir(&directory).args(args))
        };
        objcopy(&["--only-keep-debug", &compiled.to_string_lossy(), tables])?;
        objcopy(&["--strip-all", "--add-gnu-debuglink=trainyard.debug", &compiled.to_string_lossy(), binary])?;
        Ok(Built { arch: self.arch, binary: directory.join(binary), tables: directory.join(tables) })
    }
}

/// Where the binary of a processor stands. `deploy/Containerfile` takes that of its own machine from `dist/`.
fn directory(arch: Arch) -> PathBuf {
    let dist = target().join("dist");
    if arch == Arch::OWN { dist } else { dist.join(arch.to_string()) }
}

/// Size of a file, in megabytes, as text.
#[allow(clippy::cast_precision_loss)] // a file of one program is far below 2^52 bytes
pub(crate) fn megabytes(path: &Path) -> Result<String, Problem> {
    Ok(format!("{:.1} MB", path.metadata().map_err(io(path.display()))?.len() as f64 / 1e6))
}
