//! `down`: ends exactly what `up` started.

use std::fs;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::state::{self, State};
use super::{Failure, failed, say};

const LIMIT: Duration = Duration::from_secs(15);

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let directory = state::directory();
    let Some(state) = State::read(&directory)? else {
        say("the control plane is not up");
        return Ok(ExitCode::SUCCESS);
    };
    // The holder's end takes all others with it.
    state.holder.signal(Signal::TERM)?;
    let alive = || state.holder.is_alive() || state.processes.iter().any(|(_, id)| id.is_alive());
    let start = Instant::now();
    while alive() {
        if start.elapsed() > LIMIT {
            for (_, id) in state.processes.iter().chain([&("holder".to_owned(), state.holder)]) {
                id.signal(Signal::KILL)?;
            }
        }
        if start.elapsed() > LIMIT * 2 {
            return Err(Failure::Other("processes of the control plane do not end, not even by SIGKILL".into()));
        }
        sleep(Duration::from_millis(50));
    }
    fs::remove_dir_all(&directory).map_err(failed(directory.display()))?;
    say("the control plane is down");
    Ok(ExitCode::SUCCESS)
}
