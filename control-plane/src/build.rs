//! Building Go modules, once per content, into a cache.
//!
//! Owns where the cache is, the lock on it and how `go build` is called. What is built is the module's to say: the programs of the
//! control plane (`binaries`), the MPI operator (`mpi_operator`).

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, io, last_lines};
use crate::keeper::Keeper;

const CACHE: &str = "TRAINYARD_CONTROL_PLANE_CACHE";

/// A Go module, and the program that it makes.
#[derive(Debug)]
pub(crate) struct Module {
    /// Words for it, in messages.
    pub(crate) what: &'static str,
    /// Names and contents of its files, as they were when this crate was built: what is built is what this crate was written for.
    pub(crate) sources: &'static [(&'static str, &'static str)],
    /// Flags of the linker.
    pub(crate) link: &'static str,
    /// The package that is built.
    pub(crate) package: &'static str,
    /// Name of the program.
    pub(crate) program: &'static str,
    /// A file of a required module that is kept beside the program: path of the module, path in it.
    pub(crate) beside: Option<(&'static str, &'static str)>,
}

impl Module {
    /// The program, built if it is not in the cache.
    pub(crate) fn ensure(&self) -> Result<PathBuf, Error> {
        let directory = cache().join(self.key());
        let program = directory.join(self.program);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&directory).map_err(io(directory.display()))?;
        let path = directory.join("lock");
        let lock = File::create(&path).map_err(io(path.display()))?;
        lock.lock().map_err(io(path.display()))?;
        // The previous holder of the lock may have built it.
        if !program.exists() {
            self.build(&directory, &program)?;
        }
        Ok(program)
    }

    fn build(&self, directory: &Path, program: &Path) -> Result<(), Error> {
        let source = directory.join("source");
        fs::create_dir_all(&source).map_err(io(source.display()))?;
        for (name, text) in self.sources {
            let path = source.join(name);
            fs::write(&path, text).map_err(io(path.display()))?;
        }
        eprintln!("control-plane: building {} with Go; this takes some minutes, once", self.what);
        // Renamed into place when it is whole: a build that was interrupted leaves nothing that looks like one.
        let unfinished = directory.join("unfinished");
        let words = ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", self.link, "-o"];
        self.go(&source, go(&source).args(words).arg(&unfinished).arg(self.package))?;
        if let Some((module, file)) = self.beside {
            let listed =
                self.go(&source, go(&source).args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]))?;
            let from = Path::new(listed.trim()).join(file);
            let bytes = fs::read(&from).map_err(io(from.display()))?;
            let to = directory.join(from.file_name().unwrap_or_default());
            fs::write(&to, bytes).map_err(io(to.display()))?;
        }
        fs::rename(&unfinished, program).map_err(io(program.display()))
    }

    /// Runs a command of Go, and returns what it prints.
    fn go(&self, source: &Path, command: &mut Command) -> Result<String, Error> {
        // A build without a waiter ends.
        let keeper = Keeper::start()?;
        keeper.adopt(command);
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoGo),
            Err(error) => return Err(io("running go")(error)),
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Build {
            what: self.what,
            directory: source.to_owned(),
            status: output.status.to_string(),
            output: last_lines(&String::from_utf8_lossy(&output.stderr), 30),
        })
    }

    /// Distinguishes contents. Not a digest for security: a process that can write to the cache can change the file in it.
    fn key(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (self.sources, self.link).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

fn go(source: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(source).stdin(Stdio::null());
    // A workspace file or flags of the caller must not change what is built; nor must the caller's cross-compiling.
    command.env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0").env_remove("GOOS").env_remove("GOARCH");
    command
}

fn cache() -> PathBuf {
    set(CACHE).unwrap_or_else(|| target_directory().join("control-plane"))
}

/// Returns cargo's output directory: `CARGO_TARGET_DIR`, or `target` in the workspace this crate was built in.
pub fn target_directory() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
    // A relative one is taken from the workspace's root, from where cargo is mostly called.
    set("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |directory| root.join(directory))
}

fn set(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
