//! That nothing outlives its owner.
//!
//! All processes of a plane are in one process group, which is led by a shell that waits for its standard input to end. The
//! other end of that pipe is held by the owner alone. However the owner ends, SIGKILL included, the pipe ends with it, and the
//! shell kills the whole group: also components that are stopped, and children that they started. A parent-death signal would
//! do less: it comes when the *thread* that started a process ends, and it does not reach grandchildren.
//!
//! Tests: `tests/lifetime.rs`.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, io};

/// Reads until the end of input, then kills its own process group. Signals that reach the group before (an orphaned group with
/// stopped members gets SIGHUP) must not end it earlier.
const SCRIPT: &str = "trap '' HUP INT TERM; read _; kill -KILL 0";

/// The leader of a plane's process group.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
}

impl Keeper {
    /// Starts one, with a new and otherwise empty process group.
    pub(crate) fn start() -> Result<Self, Error> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.process_group(0).spawn().map_err(io("starting /bin/sh"))?;
        Ok(Self { shell })
    }

    /// Has a command start in the group.
    pub(crate) fn adopt(&self, command: &mut Command) {
        command.process_group(self.group().as_raw_nonzero().get());
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.shell)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The leader is not reaped yet, so the group's number is still its own. An empty group needs no killing.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.shell.wait();
    }
}

/// Removes a temporary directory if its owner did not come to it: a plane in a `static` is never dropped.
#[derive(Debug)]
pub(crate) struct Remover {
    shell: Child,
}

/// Waits for the processes first, up to five seconds: where no parent reaps them, their group stays.
const REMOVE: &str = "trap '' HUP INT TERM; read _; n=0
while [ $n -lt 50 ] && kill -0 -- -\"$1\" 2>/dev/null; do n=$((n + 1)); sleep 0.1; done
rm -rf -- \"$2\"";

impl Remover {
    /// Starts one, in a process group of its own.
    pub(crate) fn start(keeper: &Keeper, directory: &Path) -> Result<Self, Error> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", REMOVE, "sh"]).arg(keeper.group().as_raw_nonzero().to_string()).arg(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.process_group(0).spawn().map_err(io("starting /bin/sh"))?;
        Ok(Self { shell })
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        // It is not needed when its owner gets here.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
