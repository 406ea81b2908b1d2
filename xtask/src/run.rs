//! Running other programs: the workspace's root, cargo, what they print, how long they take, and temporary directories.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Why a command of this crate did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Problem {
    /// It was called wrongly.
    Usage(String),
    /// Something that it needs is not on this machine.
    Missing(String),
    /// A check failed.
    Failed(String),
    /// A program could not be run, or a file not be read.
    Io(String, io::Error),
}

impl Problem {
    /// The exit code that reports it.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Missing(_) | Self::Io(..) => 2,
        }
    }

    /// A failed check.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Missing(text) | Self::Failed(text) => f.write_str(text),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

/// Names what could not be done with a file or a program.
pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Problem {
    let what = what.to_string();
    move |error| Problem::Io(what, error)
}

/// Version of all packages.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// `cargo` in the root of the workspace: the one that runs this.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Arguments of `cargo` that compile all tests, and the programs that they run. The programs are there as [`built`] names them.
pub(crate) const TEST_PROGRAMS: [&str; 4] = ["test", "--workspace", "--quiet", "--no-run"];

/// `cargo build` of programs of this workspace into the debug profile, without the features that only tests need. After
/// [`TEST_PROGRAMS`] it would compile much of the workspace again.
pub(crate) fn cargo_build(programs: &[&str]) -> Command {
    let mut command = cargo(&["build", "--workspace"]);
    command.args(programs.iter().flat_map(|name| ["--bin", name]));
    command
}

/// Does so, and prints nothing unless it fails.
pub(crate) fn build_quietly(programs: &[&str]) -> Result<(), Problem> {
    succeed(cargo_build(programs).arg("--quiet"))
}

/// A program of this workspace, as [`cargo_build`] leaves it.
pub(crate) fn built(program: &str) -> PathBuf {
    target().join("debug").join(program)
}

/// Directory of the standard library of a target, or of this machine. It need not be there.
pub(crate) fn library(target: Option<&str>) -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir"]).args(target.map(|target| ["--target", target]).iter().flatten());
    let printed = rustc.output().ok().filter(|out| out.status.success())?;
    Some(PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim()))
}

/// Whether cargo can build for this target: its standard library is installed, by `rustup` if it was not.
pub(crate) fn has_target(target: &str) -> bool {
    let is_installed = || library(Some(target)).is_some_and(|library| library.is_dir());
    let add = || Command::new("rustup").args(["target", "add", target]).output().is_ok_and(|out| out.status.success());
    is_installed() || (add() && is_installed())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// A path as an argument: those made here are plain text.
pub(crate) fn argument(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Runs a command and lets it print; gives how it ended.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Problem> {
    command.status().map_err(io(shown(command)))
}

/// Runs a command, lets it print, and makes anything but success a problem.
pub(crate) fn succeed(command: &mut Command) -> Result<(), Problem> {
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(Problem::failed(format!("`{}` failed ({status})", shown(command)))) }
}

/// Runs a command and takes what it prints.
pub(crate) fn output(command: &mut Command) -> Result<Output, Problem> {
    command.output().map_err(io(shown(command)))
}

/// What a command prints, both streams, as text.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether a program can be started.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// How a process ended, when it was watched over.
#[derive(Debug)]
pub(crate) enum Watched {
    /// By itself.
    Ended(ExitStatus),
    /// It took too long and was killed.
    TooLong,
}

/// A process that is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a process, looking every `every`; kills it after `limit`.
pub(crate) fn watch(
    child: &mut Child,
    every: Duration,
    limit: Duration,
    look: &mut dyn FnMut(&Child),
) -> Result<Watched, Problem> {
    let start = Instant::now();
    loop {
        look(child);
        if let Some(status) = child.try_wait().map_err(io("waiting for a process"))? {
            return Ok(Watched::Ended(status));
        }
        if start.elapsed() > limit {
            // A process that is already gone cannot be killed, and need not be.
            let _ = child.kill();
            child.wait().map_err(io("waiting for a process"))?;
            return Ok(Watched::TooLong);
        }
        std::thread::sleep(every);
    }
}

/// Set: what tests leave stays. The control planes that tests start have it too.
const KEEP: &str = "TRAINYARD_CONTROL_PLANE_KEEP";

/// A directory that goes away with this value.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty directory.
    pub(crate) fn new(name: &str) -> Result<Self, Problem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trainyard-{name}-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).map_err(io(path.display()))?;
        Ok(Self(path))
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os(KEEP).is_some_and(|value| !value.is_empty()) {
            println!("kept: {}", self.0.display());
            return;
        }
        // What cannot be removed stays in the directory for temporary files, where it is cleared away some day.
        let _ = fs::remove_dir_all(&self.0);
    }
}
