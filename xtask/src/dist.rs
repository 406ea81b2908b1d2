//! `cargo xtask dist`: the binary that is shipped, stripped, with its line tables in a file beside it.
//!
//! Owns which build is shipped and how it is stripped. It must not package: an image or archive takes the files from here.
//! `objcopy` comes with the C compiler that the build needs anyway.

use std::path::Path;
use std::process::Command;

use crate::run::{Problem, cargo, io, succeed, target};

/// Builds and strips; `flags` go to `cargo build`.
pub(crate) fn run(flags: &[String]) -> Result<(), Problem> {
    let mut build = cargo(&["build", "--profile", "dist", "--locked", "--package", "trainyard"]);
    succeed(build.args(flags))?;
    let directory = target().join("dist");
    let (binary, tables) = ("trainyard", "trainyard.debug");
    // Named without their directory, because the link in the binary holds the name as it is given.
    let objcopy = |args: &[&str]| succeed(Command::new("objcopy").current_dir(&directory).args(args));
    objcopy(&["--only-keep-debug", binary, tables])?;
    objcopy(&["--strip-all", "--add-gnu-debuglink=trainyard.debug", binary])?;
    for name in [binary, tables] {
        let path = directory.join(name);
        println!("{} {:.1} MB", path.display(), megabytes(&path)?);
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // a file of one program is far below 2^52 bytes
fn megabytes(path: &Path) -> Result<f64, Problem> {
    Ok(path.metadata().map_err(io(path.display()))?.len() as f64 / 1e6)
}
