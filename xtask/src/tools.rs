//! Tools from crates.io, installed below the target directory when they are first needed.
//!
//! Owns how a version is found and installed. Which tools there are is said where they are used: the same version makes the same files.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Problem, output, succeed, target, text};

/// A program of a package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Further options of `cargo install`.
    pub(crate) options: &'static [&'static str],
}

impl Tool {
    /// Returns the program, which has the name of its package.
    pub(crate) fn installed(self) -> Result<PathBuf, Problem> {
        let Self { package, version, options } = self;
        let tools = target().join("tools");
        let program = tools.join("bin").join(package);
        let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let is_listed = || -> Result<bool, Problem> {
            let list = output(cargo().args(["install", "--list", "--root"]).arg(&tools))?;
            Ok(text(&list).lines().any(|line| line.starts_with(&format!("{package} v{version}:"))))
        };
        if program.exists() && is_listed()? {
            return Ok(program);
        }
        println!("installing {package} {version} from crates.io into {}", tools.display());
        let mut install = cargo();
        install.args(["install", "--quiet", "--locked", "--force", "--root"]).arg(&tools);
        succeed(install.args([package, "--version", version]).args(options))?;
        Ok(program)
    }
}
