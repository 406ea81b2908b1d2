//! Runs without a terminal: started in the background, or left there by Ctrl-C.
//!
//! Owns how a run leaves its terminal, and the file that its output goes to then (`run.log`), which `trainyard attach` follows. The
//! process in front of a run on a terminal only waits: so a shell gets its prompt back while the run continues. Tests:
//! `cli/tests/local/detached.rs`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use terminal::out::{self, Failure};

use crate::keys;

/// File of a data directory with the output of a run that has no terminal.
pub(crate) const OUTPUT: &str = "run.log";
/// File of a data directory with the exit code of its last run.
pub(crate) const EXIT: &str = "run.exit";
/// Option of a run that is started in the background.
pub(crate) const BACKGROUND: &str = "--background";
/// Option of a run with a process in front of it.
pub(crate) const IN_FRONT: &str = "--in-front";
/// Line of a background run that says that its jobs were applied; the names of the jobs come before it.
const STARTED: &str = "started";

/// Returns true if input and both outputs are a terminal, so that the user can be asked.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

/// The arguments of this process, with an option more for the run.
pub(crate) fn own_arguments(option: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    words.insert(words.len().min(1), option.into());
    words
}

/// Starts a run in the background, which reads `input` from its standard input. Returns when its jobs are applied, or when it has
/// failed before.
pub(crate) fn start(arguments: &[OsString], input: Option<&Value>, attach: &str) -> Result<ExitCode, Failure> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command(arguments)?.stdin(stdin).stdout(Stdio::piped()).spawn()?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        serde_json::to_writer(&mut stdin, input)?;
    }
    let mut started = false;
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line?;
        if line == STARTED {
            started = true;
            break;
        }
        out::line(&line);
    }
    if started {
        out::error_line(&format!("running in the background. Follow it: {attach}"));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(code_of(child.wait()?))
}

/// Leaves the terminal of the process that started this one. Called first in a background run.
pub(crate) fn begin() {
    // It fails only for the leader of a group, which is out of reach already.
    let _ = rustix::process::setsid();
}

/// Says that the jobs were applied, and turns the outputs to the data directory.
pub(crate) fn started(data_dir: &Path, jobs: &[String]) -> Result<(), Failure> {
    handed_over(jobs);
    redirect(data_dir)
}

/// Leaves the terminal, with its jobs running: outputs go to the data directory, and the process in front ends.
pub(crate) fn leave(data_dir: &Path) -> Result<(), Failure> {
    out::wait_written(std::time::Duration::from_secs(1));
    redirect(data_dir)?;
    let front = rustix::process::getppid();
    let _ = rustix::process::setsid();
    if let Some(front) = front {
        rustix::process::kill_process(front, Signal::USR1).map_err(std::io::Error::from)?;
    }
    Ok(())
}

/// Says that another run has taken the jobs, to the process that started this one in the background.
pub(crate) fn handed_over(jobs: &[String]) {
    let mut lines = jobs.to_vec();
    lines.push(STARTED.to_owned());
    out::lines(&lines);
    out::wait_written(std::time::Duration::from_secs(1));
}

fn redirect(data_dir: &Path) -> Result<(), Failure> {
    let path = data_dir.join(OUTPUT);
    let options = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path);
    let file = options.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&file).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&file).map_err(std::io::Error::from)?;
    Ok(())
}

/// Notes the exit code of a run, for those that attach to it.
pub(crate) fn note_exit(data_dir: &Path, code: u8) {
    // Without it they only learn that it has ended.
    let _ = fs::write(data_dir.join(EXIT), format!("{code}\n"));
}

/// Returns the exit code that a run noted, and the file of its output where it has one.
pub(crate) fn noted(data_dir: &Path) -> (Option<u8>, Option<PathBuf>) {
    let code = fs::read_to_string(data_dir.join(EXIT)).ok().and_then(|text| text.trim().parse().ok());
    (code, Some(data_dir.join(OUTPUT)).filter(|path| path.exists()))
}

/// Forgets what the run before noted.
pub(crate) fn forget(data_dir: &Path) {
    for name in [EXIT, OUTPUT] {
        let _ = fs::remove_file(data_dir.join(name));
    }
}

/// Stands in front of a run on a terminal: waits for its end, or until it continues without the terminal.
pub(crate) fn stand_in_front() -> Result<ExitCode, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    // The run changes the mode, and may be killed.
    let mode = Arc::new(Mutex::new(keys::Mode::now()));
    let mut child = command(&own_arguments(IN_FRONT))?.spawn()?;
    let run = Pid::from_child(&child);
    let for_signals = Arc::clone(&mode);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                // It continues in the background.
                SIGUSR1 => {
                    drop(for_signals.lock().unwrap_or_else(PoisonError::into_inner).take());
                    std::process::exit(0)
                }
                SIGTERM => drop(rustix::process::kill_process(run, Signal::TERM)),
                SIGHUP => drop(rustix::process::kill_process(run, Signal::HUP)),
                // The terminal sends it to the run as well.
                _ => {}
            }
        }
    })?;
    let status = child.wait()?;
    drop(mode.lock().unwrap_or_else(PoisonError::into_inner).take());
    Ok(code_of(status))
}

fn command(arguments: &[OsString]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok()).map(|n| out::SIGNAL.saturating_add(n));
    ExitCode::from(code.or_else(signal).unwrap_or(out::FOUND))
}
