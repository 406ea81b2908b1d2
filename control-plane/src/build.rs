//! Building the Go module in `go/`, once per content, into a cache.
//!
//! Owns where the cache is, the lock on it and how `go build` is called. What is built is the module's to say.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, io, last_lines};
use crate::keeper::Keeper;

/// The sources, as they were when this crate was built: what is built is what this crate was written for.
const SOURCES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../go/go.mod")),
    ("go.sum", include_str!("../go/go.sum")),
    ("main.go", include_str!("../go/main.go")),
];
/// So that the programs say their version, as released ones do.
const LINK: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
                    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3 \
                    -X helm.sh/helm/v4/internal/version.version=v4.2.4";
const CACHE: &str = "TRAINYARD_CONTROL_PLANE_CACHE";

/// The file that holds all programs, built if it is not in the cache.
pub(crate) fn ensure() -> Result<PathBuf, Error> {
    let directory = cache().join(key());
    let program = directory.join("control-plane");
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&directory).map_err(io(directory.display()))?;
    let path = directory.join("lock");
    let lock = File::create(&path).map_err(io(path.display()))?;
    lock.lock().map_err(io(path.display()))?;
    // The previous holder of the lock may have built it.
    if !program.exists() {
        build(&directory, &program)?;
    }
    Ok(program)
}

fn build(directory: &Path, program: &Path) -> Result<(), Error> {
    let source = directory.join("source");
    fs::create_dir_all(&source).map_err(io(source.display()))?;
    for (name, text) in SOURCES {
        let path = source.join(name);
        fs::write(&path, text).map_err(io(path.display()))?;
    }
    eprintln!("control-plane: building etcd, Kubernetes, kwok and Helm with Go; this takes some minutes, once");
    // Renamed into place when it is whole: a build that was interrupted leaves nothing that looks like one.
    let unfinished = directory.join("unfinished");
    let mut command = Command::new("go");
    command.current_dir(&source).stdin(Stdio::null());
    command
        .args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", LINK, "-o"])
        .arg(&unfinished)
        .arg(".");
    // A workspace file or flags of the caller must not change what is built; nor must the caller's cross-compiling.
    command.env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0").env_remove("GOOS").env_remove("GOARCH");
    // A build without a waiter ends.
    let keeper = Keeper::start()?;
    keeper.adopt(&mut command);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoGo),
        Err(error) => return Err(io("running go")(error)),
    };
    if !output.status.success() {
        let output_tail = last_lines(&String::from_utf8_lossy(&output.stderr), 30);
        return Err(Error::Build { directory: source, status: output.status.to_string(), output: output_tail });
    }
    fs::rename(&unfinished, program).map_err(io(program.display()))
}

/// Distinguishes contents. Not a digest for security: a process that can write to the cache can change the file in it.
fn key() -> String {
    let mut hasher = DefaultHasher::new();
    (SOURCES, LINK).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
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
