//! The hidden command `pod-exec`: one container.
//!
//! Two stages. `run` adopts orphans, starts the program, passes signals on and, when the program has ended, ends
//! its remaining children: like the first process of a real container. `enter` is the program's process before it becomes
//! the program: it asks to be killed when its parent dies, opens a session of its own, and replaces itself.
//!
//! Must not decide anything: restarts and grace periods are the supervisor's. Tests: `tests/local/processes.rs`, `tests/local/trees.rs`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Gid, Signal, Uid};
use rustix::thread;

use crate::clock::now;
use crate::nearest;
use crate::security::{self, Identity};
use crate::signals::{self, Asked};
use crate::tree::{self, Process};
use crate::wire::{self, Program, ShimNote, ShimOrder};

/// This very binary, also when its file was replaced or removed since it was started.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Second argument of the stage that becomes the program.
const ENTER: &str = "enter";

/// Timeout for processes that do not end at once (a process in an uninterruptible wait).
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(15);

/// Time that a run has to order an end after signals to all of its processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs this process as a container shim, as its arguments say.
#[must_use]
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(2);
    if args.next().as_deref() == Some(OsStr::new(ENTER)) {
        return enter(args);
    }
    run()
}

fn run() -> ExitCode {
    let asked = match signals::catch_requests() {
        Ok(asked) => asked,
        Err(error) => {
            report(&ShimNote::NotStarted { message: format!("cannot catch signals: {error}") });
            return ExitCode::SUCCESS;
        }
    };
    let mut control = BufReader::new(io::stdin());
    let program = match wire::receive::<Program>(&mut control) {
        Ok(Some(program)) => program,
        Ok(None) => return ExitCode::FAILURE, // the supervisor is gone before anything was started
        Err(error) => {
            eprintln!("container shim: unreadable order: {error}");
            return ExitCode::FAILURE;
        }
    };
    let child = tree::adopt_orphans().map_err(StartError::Orphans).and_then(|()| start(&program));
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            report(&ShimNote::NotStarted { message: error.to_string() });
            return ExitCode::SUCCESS;
        }
    };
    let pid = i32::try_from(child.id()).unwrap_or_default();
    report(&ShimNote::Running { pid });
    let program = tree::process(pid);
    let ordered = Arc::new(AtomicBool::new(false));
    let (given, signalled) = (Arc::clone(&ordered), asked.clone());
    spawn(move || obey(&mut control, program, &signalled, &given));
    let (mut code, mut at_ms) = (255, 0);
    while let Some((ended, status)) = tree::reap() {
        if ended == pid {
            // Read before what it left behind is ended, which takes its time: it gives the order of failures in a job.
            (code, at_ms) = (tree::exit_code(status), now().0);
            break;
        }
    }
    // The container is its first process: what outlives it goes with it.
    if !tree::end_all(&[], KILL_TIMEOUT) {
        eprintln!("container shim: some processes cannot be ended");
    }
    // Others end the run (systemd, Slurm): it is about to say so. An end that is reported first would count as a failure.
    let deadline = Instant::now() + STOP_TIMEOUT;
    while asked.get() && !ordered.load(Ordering::Relaxed) && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    report(&ShimNote::Exited { code, at_ms });
    ExitCode::SUCCESS
}

/// Reports to the supervisor. If it has ended, the control pipe says so too.
fn report(note: &ShimNote) {
    let _ = wire::send(&mut io::stdout().lock(), note);
}

/// Follows the supervisor's orders until it is gone, which is the last order.
///
/// A signal to this process went most likely to all of the run. The program's handler may be at work in a child then, which a
/// second SIGTERM would end: it is for the program alone, as from a kubelet.
fn obey(control: &mut BufReader<io::Stdin>, program: Option<Process>, asked: &Asked, ordered: &AtomicBool) {
    loop {
        let order = wire::receive::<ShimOrder>(control);
        ordered.store(true, Ordering::Relaxed);
        match order {
            Ok(Some(ShimOrder::Term)) => match program.filter(|_| asked.get()) {
                Some(program) => tree::signal(program, Signal::TERM),
                None => tree::signal_all(Signal::TERM),
            },
            Ok(Some(ShimOrder::Kill)) => kill_all(),
            Ok(None) | Err(_) => {
                kill_all();
                return;
            }
        }
    }
}

/// Kills everything; the main thread reaps and ends this process when nothing is left. What withstands SIGKILL for long
/// (an uninterruptible wait) has it pending and can do no more.
fn kill_all() {
    let deadline = Instant::now() + KILL_TIMEOUT;
    while tree::kill_once(&[]) > 0 && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
}

/// Reason for which the program was not started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// This process cannot adopt orphans.
    #[error(transparent)]
    Orphans(io::Error),
    /// There is nothing to start.
    #[error("no program given")]
    NoProgram,
    /// Its working directory is missing.
    #[error("working directory {} does not exist", .0.display())]
    WorkingDirectory(PathBuf),
    /// Its identity cannot be passed on.
    #[error(transparent)]
    Identity(#[from] serde_json::Error),
    /// Its process cannot be made.
    #[error("cannot start {program:?}: {source}")]
    Process { program: String, source: io::Error },
    /// Its process reported an error, in these words.
    #[error("{0}")]
    Reported(String),
}

/// Starts the program. An error of the program's own start (not found, not executable) comes back over a socket that
/// closes by itself when the program takes over.
fn start(program: &Program) -> Result<Child, StartError> {
    let first = program.argv.first().ok_or(StartError::NoProgram)?;
    if !program.workdir.is_dir() {
        return Err(StartError::WorkingDirectory(program.workdir.clone()));
    }
    let identity = serde_json::to_string(&program.identity)?;
    let failed = |source: io::Error| StartError::Process { program: first.clone(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // Without streams of its own, both of the program's go where this process's errors go: its log file.
    let output = |path: Option<&PathBuf>| {
        let output: OwnedFd = match path {
            Some(path) => File::options().write(true).open(path)?.into(),
            None => io::stderr().as_fd().try_clone_to_owned()?,
        };
        if let Some(uid) = program.identity.uid.map(Uid::from_raw) {
            // So that it can be opened again by the name `/dev/stderr`; its directory stays closed to others.
            let _ = rustix::fs::fchown(&output, Some(uid), None);
        }
        Ok(Stdio::from(output))
    };
    let streams = program.streams.as_ref();
    let input = streams.map_or_else(|| Path::new("/dev/null"), |streams| streams.stdin.as_path());
    let child = Command::new(SELF)
        .args([crate::SHIM_COMMAND, ENTER, &tree::own_pid().to_string(), &identity])
        .arg(input)
        .args(&program.argv)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&program.workdir)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(output(streams.map(|streams| &streams.stdout)).map_err(failed)?)
        .stderr(output(streams.map(|streams| &streams.stderr)).map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let mut problem = String::new();
    let mut ours = ours;
    // A broken socket carries as little as a closed one: the exit status is then used.
    let _ = ours.read_to_string(&mut problem);
    if problem.is_empty() { Ok(child) } else { Err(StartError::Reported(problem)) }
}

/// Becomes the program: arguments are the pid of the shim, the [`Identity`], the file that is its input, and the program with
/// its arguments.
fn enter(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent: Option<i32> = args.next().and_then(|text| text.to_str()?.parse().ok());
    let identity: Option<Identity> = args.next().and_then(|text| serde_json::from_str(text.to_str()?).ok());
    let (Some(parent), Some(identity), Some(input), Some(program)) = (parent, identity, args.next(), args.next())
    else {
        return ExitCode::FAILURE;
    };
    let Ok(problems) = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3) else { return ExitCode::FAILURE };
    let error = become_program((parent, &identity), Path::new(&input), &program, args);
    let near = (error.kind() == io::ErrorKind::NotFound).then(|| nearest_program(&program)).flatten();
    let near = near.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    // If the shim has ended, this is not read, and nothing was started.
    let _ =
        UnixStream::from(problems).write_all(format!("cannot start {}: {error}{near}", program.display()).as_bytes());
    ExitCode::from(127)
}

/// The program of a near name, where one is on `PATH`.
fn nearest_program(program: &OsStr) -> Option<String> {
    nearest::nearest_program(program.to_str()?, &std::env::var("PATH").ok()?)
}

fn become_program(
    (parent, identity): (i32, &Identity),
    input: &Path,
    program: &OsStr,
    args: impl Iterator<Item = OsString>,
) -> io::Error {
    let prepare = || -> io::Result<()> {
        // Before the change of user, who may not open it.
        let input = File::open(input)?;
        become_user(identity).map_err(|error| io::Error::other(format!("its security context: {error}")))?;
        // After the change of user, which forgets it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before that line will not be noticed by it.
        if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
            return Err(io::Error::other("its supervisor is gone"));
        }
        signals::reset_at_exec()?;
        rustix::process::setsid()?;
        rustix::stdio::dup2_stdin(input)?;
        Ok(())
    };
    match prepare() {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

/// Takes on user, groups and capabilities. This stage has one thread, so the calls for a thread are those for the process.
fn become_user(identity: &Identity) -> io::Result<()> {
    if let Some(mask) = identity.umask {
        rustix::process::umask(Mode::from_raw_mode(mask));
    }
    for capability in security::each(identity.dropped_capabilities) {
        // A newer name than this kernel knows is nothing that could be had.
        let _ = thread::remove_capability_from_bounding_set(capability);
    }
    if let Some(groups) = &identity.groups {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        thread::set_thread_groups(&groups)?;
    }
    if let Some(gid) = identity.gid.map(Gid::from_raw) {
        thread::set_thread_res_gid(gid, gid, gid)?;
    }
    if let Some(uid) = identity.uid.map(Uid::from_raw) {
        thread::set_thread_res_uid(uid, uid, uid)?;
    }
    if identity.no_new_privileges {
        thread::set_no_new_privs(true)?;
    }
    Ok(())
}
