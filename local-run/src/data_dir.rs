//! The data directory of a run: its marker, its lock, and what may be removed from it.
//!
//! The marker (`trainyard.json`) says that the directory is ours and identifies it. Nothing is written into or removed from a
//! directory that holds files and has none. The lock (`trainyard.lock`) is held for the whole run and names its process.
//! Knows nothing of what stands in the log, the cluster file or the claims. Tests: `cli/tests/local/data_dir.rs`.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use event_log::disk;
use serde::{Deserialize, Serialize};
use terminal::out::Failure;
use terminal::shell::quoted;

const MARKER: &str = "trainyard.json";
const MARKER_NEW: &str = "trainyard.json.new";
const LOCK: &str = "trainyard.lock";
/// Format of the marker; a later one is refused.
const FORMAT: u64 = 1;
/// Names of a run's own files, but for the volume claims.
const RUN_FILES: [&str; 8] = [
    "log",
    "cluster.json",
    "cluster.json.new",
    "cluster.journal",
    "logs",
    "pods",
    crate::detached::OUTPUT,
    crate::detached::EXIT,
];
/// Name of the directory of volume claims.
const CLAIMS: &str = "claims";
/// Attempts to take the lock before another run is taken to hold it.
const LOCK_ATTEMPTS: u32 = 3;
/// Time between two of them.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum length of the command line in the lock file, in characters.
const MAX_COMMAND_LENGTH: usize = 300;

/// Contents of the marker file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Marker {
    format: u64,
    /// Identifies the directory: 32 hexadecimal digits.
    id: String,
    /// Version of the build that marked the directory.
    version: String,
    /// Names that are being removed. A run that finds some here finishes an interrupted `--again`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    clearing: Vec<String>,
}

/// Relation of a directory to this program.
enum DirState {
    /// There is no directory, or nothing in it.
    Unused,
    /// It carries a marker.
    Marked(Marker),
    /// A build without markers made it: it holds a sound log and a cluster file.
    Older,
    /// It holds something else.
    Foreign(String),
}

/// A data directory, locked for this process until it is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    marker: Marker,
    /// Time before which other processes asked another run.
    opened: SystemTime,
    /// Holds the lock while it is open.
    _lock: File,
}

impl DataDir {
    /// Locks a data directory, making and marking it where nothing is there yet.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if let DirState::Foreign(why) = state_of(path)? {
            return Err(foreign(path, &why));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed(path, &e))?;
        let opened = SystemTime::now();
        let lock = lock(path)?;
        // Only what is seen under the lock counts: another run may have come and gone since.
        let marker = match state_of(path)? {
            DirState::Marked(marker) => marker,
            DirState::Foreign(why) => return Err(foreign(path, &why)),
            found @ (DirState::Unused | DirState::Older) => {
                let marker = Marker {
                    format: FORMAT,
                    id: random_id().map_err(|e| failed(path, &e))?,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    clearing: Vec::new(),
                };
                write_marker(path, &marker)?;
                // Logs, objects and output belong in no repository. A directory that was there before is left as it is.
                if matches!(found, DirState::Unused) {
                    fs::write(path.join(".gitignore"), "*\n").map_err(|e| failed(path, &e))?;
                }
                marker
            }
        };
        check_older_run(path)?;
        let mut dir = Self { path: path.to_owned(), marker, opened, _lock: lock };
        dir.finish_clearing()?;
        Ok(dir)
    }

    /// Returns the time before which other processes asked another run.
    pub(crate) fn opened(&self) -> SystemTime {
        self.opened
    }

    /// Identifies the directory, independently of its path: 32 hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.marker.id
    }

    /// Removes what earlier runs left; volume claims only with `claims`. An interrupted removal is finished by the next run.
    pub(crate) fn clear(&mut self, claims: bool) -> Result<(), Failure> {
        self.marker.clearing = RUN_FILES.into_iter().chain(claims.then_some(CLAIMS)).map(str::to_owned).collect();
        write_marker(&self.path, &self.marker)?;
        self.finish_clearing()
    }

    fn finish_clearing(&mut self) -> Result<(), Failure> {
        if self.marker.clearing.is_empty() {
            return Ok(());
        }
        for name in std::mem::take(&mut self.marker.clearing) {
            // The marker may have been edited: nothing but our own names is removed.
            if RUN_FILES.contains(&&*name) || name == CLAIMS {
                let path = self.path.join(name);
                remove(&path).map_err(|e| failed(&path, &e))?;
            }
        }
        write_marker(&self.path, &self.marker)
    }
}

/// Removes a file, a link, or a directory with what it holds.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn state_of(path: &Path) -> Result<DirState, Failure> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(DirState::Unused),
        Err(error) => return Err(failed(path, &error)),
    };
    let marker = path.join(MARKER);
    match fs::read(&marker) {
        Ok(bytes) => {
            let Ok(found) = serde_json::from_slice::<Marker>(&bytes) else {
                return Ok(DirState::Foreign(format!("its {MARKER} does not identify a data directory")));
            };
            if found.format > FORMAT {
                let (found, shown) = (found.format, marker.display());
                return Err(Failure::new(format!(
                    "{shown} was written in format {found}, this build reads up to {FORMAT}: use the newer build"
                )));
            }
            return Ok(DirState::Marked(found));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&marker, &error)),
    }
    let mut other = None;
    for entry in entries {
        let name = entry.map_err(|e| failed(path, &e))?.file_name();
        if ![LOCK, MARKER_NEW, "lost+found"].iter().any(|own| name == **own) {
            other = Some(name);
        }
    }
    let Some(other) = other else { return Ok(DirState::Unused) };
    if !path.join("cluster.json").is_file() || !path.join("log").join("current").is_file() {
        return Ok(DirState::Foreign(format!("it holds {} and no {MARKER}", other.display())));
    }
    Ok(match disk::verify(path.join("log")) {
        Ok(report) => match report.first_bad {
            None => DirState::Older,
            Some((at, why)) => {
                DirState::Foreign(format!("it has no {MARKER}, and its log is damaged at position {at}: {why}"))
            }
        },
        Err(error) => DirState::Foreign(format!("it has no {MARKER}, and its log cannot be verified: {error}")),
    })
}

fn foreign(path: &Path, why: &str) -> Failure {
    Failure::new(format!(
        "{}: not a data directory of trainyard ({why}): nothing was changed. Name an empty or new directory with --data-dir",
        path.display()
    ))
}

/// The run that has a data directory open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process, as it wrote it.
    pub pid: String,
    /// Its command line.
    pub command: String,
}

/// Returns true for the data directory of runs.
pub fn is_of_runs(dir: &Path) -> bool {
    dir.join(MARKER).is_file()
}

/// Returns the run that has a data directory open, if one has.
pub fn holder(dir: &Path) -> Option<Holder> {
    let mut file = File::open(dir.join(LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        // Given up at once: a run that begins just now tries again.
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (pid, command) = text.trim_end().split_once('\n').unwrap_or_default();
    Some(Holder { pid: pid.to_owned(), command: command.to_owned() })
}

/// Takes the lock, which a reader may have for a moment.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            other => return other,
        }
    }
    file.try_lock()
}

/// Takes the lock and writes who holds it.
fn lock(dir: &Path) -> Result<File, Failure> {
    let path = dir.join(LOCK);
    let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
    let mut file = options.map_err(|e| failed(&path, &e))?;
    match try_lock(&file) {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(&path, &error)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder writes its name after it has the lock: at that moment there is none to read.
            let _ = file.read_to_string(&mut holder);
            return Err(match holder.trim_end().split_once('\n') {
                Some((pid, command)) => Failure::new(format!(
                    "{}: in use by process {pid} ({command}): wait for it, end it with `trainyard stop`, or use another --data-dir",
                    dir.display()
                )),
                None => Failure::new(format!("{}: in use by another run: use another --data-dir", dir.display())),
            });
        }
    }
    let command: String = quoted(std::env::args()).chars().take(MAX_COMMAND_LENGTH).collect();
    let text = format!("{}\n{command}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(|e| failed(&path, &e))?;
    Ok(file)
}

/// Refuses a directory in which a run of a build without this lock is active: such a run locks its log only.
fn check_older_run(dir: &Path) -> Result<(), Failure> {
    let Ok(file) = File::open(dir.join("log").join("lock")) else { return Ok(()) };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
            "{}: its log is open in another process: wait for it, stop it, or use another --data-dir",
            dir.display()
        ))),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn write_marker(dir: &Path, marker: &Marker) -> Result<(), Failure> {
    let (new, path) = (dir.join(MARKER_NEW), dir.join(MARKER));
    let write = || {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(format!("{}\n", serde_json::to_string(marker)?).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| failed(&path, &e))
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
