//! Running components as processes: starting, signals, what they use, the end of their logs.
//!
//! Owns what is read from `/proc`. A process is known by its id *and* its start time, because ids are used again.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::component::{Component, log_of};
use crate::error::{Error, io, last_lines};
use crate::keeper::Keeper;
use crate::wait::Deadline;

/// A process of this machine, now and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// Time of its start, in clock ticks since the machine's.
    pub started: u64,
}

/// Resources a component has used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// User and system time, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// The most resident memory there ever was, in bytes.
    pub peak_rss_bytes: u64,
}

/// The fields of a process's `stat` after the program's name: `state` is the first. `None` if there is no such process.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    fields_of(Path::new(&format!("/proc/{pid}/stat")))
}

/// The same of any file of this format; threads have one, too.
fn fields_of(file: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(file).ok()?;
    // The name stands in parentheses and may hold anything, closing ones included.
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

fn number(fields: &[String], place: usize) -> Option<u64> {
    fields.get(place)?.parse().ok()
}

/// Places after the name, from proc(5): state, utime, stime, starttime, rss.
const STATE: usize = 0;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START: usize = 19;
const RSS_PAGES: usize = 21;

impl ProcessId {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: number(&stat_fields(pid)?, START)? })
    }

    /// Returns whether this very process still runs; one that ended and was not reaped does not.
    pub fn is_alive(self) -> bool {
        stat_fields(self.pid).is_some_and(|fields| {
            number(&fields, START) == Some(self.started)
                && fields.get(STATE).is_some_and(|state| !matches!(state.as_str(), "Z" | "X"))
        })
    }

    /// Returns whether it is stopped by a signal, with all its threads.
    pub fn is_stopped(self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        let states = threads.flatten().map(|thread| fields_of(&thread.path().join("stat")));
        // A thread that has ended since it was listed is no longer in the way.
        let mut states = states.flatten().filter_map(|fields| fields.get(STATE).cloned()).peekable();
        states.peek().is_some() && states.all(|state| state == "T")
    }

    /// Returns the resources it has used; `None` after its end.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a process do not reach 2^52")]
    pub fn usage(self) -> Option<Usage> {
        let fields = stat_fields(self.pid)?;
        let ticks = number(&fields, USER_TICKS)? + number(&fields, SYSTEM_TICKS)?;
        Some(Usage {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            rss_bytes: number(&fields, RSS_PAGES)? * rustix::param::page_size() as u64,
            peak_rss_bytes: self.peak_kib()? * 1024,
        })
    }

    fn peak_kib(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.split_ascii_whitespace().next()?.parse().ok()
    }

    /// Sends a signal, unless the process is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(self, signal: Signal) -> Result<(), Error> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw).filter(|_| self.is_alive()) else {
            return Ok(());
        };
        kill_process(pid, signal).map_err(|error| io(format!("signalling process {}", self.pid))(error.into()))
    }
}

/// A component's process.
#[derive(Debug)]
pub(crate) struct Running {
    component: Component,
    child: Child,
    id: ProcessId,
    log: PathBuf,
}

impl Running {
    /// Starts a component in the plane's directory; what it prints is added to its log.
    pub(crate) fn start(
        component: Component,
        mut command: Command,
        directory: &Path,
        keeper: &Keeper,
    ) -> Result<Self, Error> {
        let log = log_of(directory, component);
        print_to(&mut command, &log)?;
        command.current_dir(directory).stdin(Stdio::null());
        keeper.adopt(&mut command);
        let child = command.spawn().map_err(io(format!("starting {}", component.program())))?;
        let id = ProcessId::of(child.id()).unwrap_or_else(|| ProcessId { pid: child.id(), started: 0 });
        Ok(Self { component, child, id, log })
    }

    pub(crate) const fn id(&self) -> ProcessId {
        self.id
    }

    /// An error with the end of the log.
    pub(crate) fn failure(&self, what: impl Into<String>) -> Error {
        let tail = tail(&self.log);
        Error::Component { component: self.component.program(), what: what.into(), log: self.log.clone(), tail }
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait().map_err(io(self.component.program()))? {
            None => Ok(()),
            Some(status) => Err(self.failure(format!("ended ({status})"))),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.id.signal(signal)
    }

    /// Stops it with SIGSTOP, and waits until it is: each thread stops when it next runs.
    pub(crate) fn pause(&mut self) -> Result<(), Error> {
        self.check()?;
        self.signal(Signal::STOP)?;
        Deadline::within(Duration::from_secs(10)).wait_for(&format!("{} to pause", self.component.program()), || {
            Ok((!self.id.is_stopped()).then(|| "threads that run".to_owned()))
        })
    }

    /// Ends it with SIGTERM, or with SIGKILL if it takes longer than `timeout`, and reaps it.
    pub(crate) fn end(mut self, timeout: Duration) -> Result<(), Error> {
        let name = self.component.program();
        self.signal(Signal::TERM)?;
        // One that is stopped can only then take the signal.
        self.signal(Signal::CONT)?;
        let start = Instant::now();
        while start.elapsed() < timeout {
            if self.child.try_wait().map_err(io(name))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill()
    }

    /// Ends it with SIGKILL and reaps it.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        let name = self.component.program();
        self.child.kill().map_err(io(name))?;
        self.child.wait().map_err(io(name))?;
        Ok(())
    }
}

/// Has all that a command prints added to a log.
pub(crate) fn print_to(command: &mut Command, log: &Path) -> Result<(), Error> {
    let file = OpenOptions::new().create(true).append(true).open(log).map_err(io(log.display()))?;
    let twin = file.try_clone().map_err(io(log.display()))?;
    command.stdout(file).stderr(twin);
    Ok(())
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    const BYTES: u64 = 4096;
    const LINES: usize = 15;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes), LINES),
        Err(error) => format!("  (cannot be read: {error})\n"),
    }
}
