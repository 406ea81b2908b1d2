//! Building for another processor than this machine's: `cargo-zigbuild`, with the C compiler and the musl of Zig.
//!
//! Owns which tools do so, in which version, and how they are called. It must not say what is built: `dist` does. Tools and caches stay
//! below the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Problem, library, output, root, target, text};
use crate::tools::Tool;
use crate::venv;

/// Without its feature for macOS.
const ZIGBUILD: Tool = Tool { package: "cargo-zigbuild", version: "0.24.1", options: &["--no-default-features"] };
/// Zig as a package of `PyPI`, with its version.
const ZIG: (&str, &str) = ("ziglang", "0.17.1");

/// The tools, installed.
#[derive(Debug)]
pub(crate) struct Cross {
    zigbuild: PathBuf,
    /// The Python that has Zig.
    python: PathBuf,
    /// `objcopy` of LLVM, which reads programs of every processor. That of binutils reads those of its own.
    objcopy: PathBuf,
    /// The libraries that it is linked with.
    libraries: PathBuf,
}

impl Cross {
    /// Looks for the tools, and installs those that are installed below the target directory.
    pub(crate) fn installed() -> Result<Self, Problem> {
        let (objcopy, libraries) = objcopy()?;
        let python = venv::pinned("zig", &[ZIG])?.join("python3");
        Ok(Self { zigbuild: ZIGBUILD.installed()?, python, objcopy, libraries })
    }

    /// `cargo build` in the root of the workspace, with Zig for what is in C and for linking.
    pub(crate) fn cargo_build(&self) -> Command {
        let cache = target().join("zig-cache");
        let mut command = Command::new(&self.zigbuild);
        command.arg("zigbuild").current_dir(root()).env("CARGO_ZIGBUILD_PYTHON_PATH", &self.python);
        command.env("CARGO_ZIGBUILD_CACHE_DIR", &cache).env("ZIG_GLOBAL_CACHE_DIR", &cache);
        command
    }

    /// `objcopy`, with the options of GNU.
    pub(crate) fn objcopy(&self) -> Command {
        let mut command = Command::new(&self.objcopy);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command
    }
}

/// The program of the Rust toolchain, and the directory of its libraries. It is there wherever rustup installed `rustc`.
fn objcopy() -> Result<(PathBuf, PathBuf), Problem> {
    let library = library(None).unwrap_or_default();
    let program = library.with_file_name("bin").join("rust-objcopy");
    // The library's directory is `lib/rustlib/HOST/lib` in that of the toolchain.
    let libraries = library.ancestors().nth(3).map(Path::to_path_buf).unwrap_or_default();
    let version = output(Command::new(&program).arg("--version").env("LD_LIBRARY_PATH", &libraries));
    match version {
        Ok(version) if version.status.success() => Ok((program, libraries)),
        Ok(version) => Err(Problem::Missing(format!("{} does not run here: {}", program.display(), text(&version)))),
        Err(_) => Err(Problem::Missing(format!(
            "{} is not there: it strips programs of other processors and comes with the toolchains of rustup \
             (`rustup toolchain install stable`)",
            program.display()
        ))),
    }
}
