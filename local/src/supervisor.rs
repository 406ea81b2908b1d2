//! The hidden command `pod-supervisor`: one pod.
//!
//! Owns the shims of the pod's containers, its clock and its log files; does what `lifecycle` says and reports the
//! status after every change. Signals are no orders to it. When the runner is gone it ends everything below itself, at once. Must not read Pod
//! objects: it gets a finished plan. Tests: `tests/local/processes.rs`, `tests/local/trees.rs`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use model::Timestamp;
use serde_json::Value;

use crate::clock::now;
use crate::lifecycle::{Action, ContainerIndex, Input, Lifecycle, State};
use crate::shim::{KILL_TIMEOUT, SELF};
use crate::wire::{self, Note, Order, Plan, ShimNote, ShimOrder};
use crate::{last_words, signals, status, tree};

/// Runs this process as the supervisor of the pod whose plan comes on standard input.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = signals::catch_requests() {
        eprintln!("pod supervisor: cannot catch signals: {error}");
        return ExitCode::FAILURE;
    }
    let mut control = BufReader::new(io::stdin());
    let plan = match wire::receive::<Plan>(&mut control) {
        Ok(Some(plan)) => plan,
        Ok(None) => return ExitCode::FAILURE, // the runner is gone before anything was started
        Err(error) => {
            eprintln!("pod supervisor: unreadable plan: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = tree::adopt_orphans() {
        eprintln!("pod supervisor: cannot adopt orphans: {error}");
        return ExitCode::FAILURE;
    }
    let (events, inbox) = mpsc::channel();
    let from_runner = events.clone();
    thread::spawn(move || {
        while let Ok(Some(order)) = wire::receive::<Order>(&mut control) {
            if from_runner.send(Event::Order(order)).is_err() {
                return;
            }
        }
        // The receiver is closed when the pod has ended by itself meanwhile.
        let _ = from_runner.send(Event::RunnerGone);
    });
    Supervisor::new(plan, events).run(&inbox)
}

enum Event {
    Order(Order),
    RunnerGone,
    /// From the shim of a container's `run`-th run.
    Shim {
        slot: ContainerIndex,
        run: u32,
        note: ShimNote,
    },
    /// That shim is gone.
    Closed {
        slot: ContainerIndex,
        run: u32,
    },
}

/// Exit code of a program that SIGKILL ended.
const KILLED: i32 = 137;

/// A shim and what is known of its container.
struct Shim {
    run: u32,
    child: Child,
    control: ChildStdin,
    log: PathBuf,
    log_from: u64,
    /// Processes that the kernel had killed for lack of memory when it began; absent where that is not reported.
    oom_kills: Option<u64>,
    /// Its last note; waits for the shim to be gone, so that no process of the container is left when it counts as ended.
    outcome: Option<ShimNote>,
}

/// Wall time that never goes backwards while this process lives.
struct Clock {
    start: Instant,
    started_at: Timestamp,
}

impl Clock {
    fn new() -> Self {
        Self { start: Instant::now(), started_at: now() }
    }

    fn now(&self) -> Timestamp {
        self.started_at.plus_ms(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

struct Supervisor {
    clock: Clock,
    pod: Lifecycle,
    shims: Vec<Option<Shim>>,
    events: Sender<Event>,
    reported: Option<Value>,
}

impl Supervisor {
    fn new(plan: Plan, events: Sender<Event>) -> Self {
        let clock = Clock::new();
        let pod = Lifecycle::new(plan, clock.now());
        let shims = pod.tracks.iter().map(|_| None).collect();
        Self { clock, pod, shims, events, reported: None }
    }

    fn run(mut self, inbox: &Receiver<Event>) -> ExitCode {
        self.step(Input::Tick);
        while !(self.pod.has_ended() && self.shims.iter().all(Option::is_none)) {
            let event = match self.pod.next_wake() {
                Some(at) => match inbox.recv_timeout(Duration::from_millis(at.since_ms(self.clock.now()))) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => Some(Event::RunnerGone),
                },
                None => Some(inbox.recv().unwrap_or(Event::RunnerGone)),
            };
            match event {
                None => self.step(Input::Tick),
                Some(Event::Order(Order::Stop { grace_ms })) => self.step(Input::Stop { grace_ms }),
                Some(Event::Order(Order::Exit { code })) => self.step(Input::Exit { code }),
                Some(Event::Shim { slot, run, note }) => self.heard(slot, run, note),
                Some(Event::Closed { slot, run }) => self.shim_gone(slot, run),
                Some(Event::RunnerGone) => return self.abandon(),
            }
        }
        // Nothing is left, but a subreaper is the one who can prove it.
        self.shims.clear();
        if !tree::end_all(&[], KILL_TIMEOUT) {
            eprintln!("pod supervisor: some processes of {} cannot be ended", self.pod.plan.name);
        }
        self.report(true);
        ExitCode::SUCCESS
    }

    /// Ends the pod after the runner's end. The shims end their containers when their pipes close; they are left alone
    /// with it at first: stopping them in order to kill them would leave them stopped if this process were killed, too.
    fn abandon(mut self) -> ExitCode {
        let shims = self.shim_pids();
        self.shims.clear();
        if !tree::end_all(&shims, KILL_TIMEOUT) {
            tree::end_all(&[], KILL_TIMEOUT);
        }
        ExitCode::FAILURE
    }

    fn shim_pids(&self) -> Vec<i32> {
        self.shims.iter().flatten().filter_map(|shim| i32::try_from(shim.child.id()).ok()).collect()
    }

    fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for action in self.pod.step(input, self.clock.now()) {
                match action {
                    Action::Start { slot, restart } => {
                        if let Err(error) = self.start(slot, restart) {
                            let message = format!("cannot run the container: {error}");
                            inputs.push(Input::NotStarted { slot, message });
                        }
                    }
                    Action::Term { slot } => self.order(slot, ShimOrder::Term),
                    Action::Kill { slot } => self.order(slot, ShimOrder::Kill),
                }
            }
        }
        if !self.pod.has_ended() {
            self.report(false);
        }
    }

    fn report(&mut self, ended: bool) {
        let status = status::of_pod(&self.pod);
        if ended || self.reported.as_ref() != Some(&status) {
            // If the runner is gone the control pipe says so too.
            let _ = wire::send(&mut io::stdout().lock(), &Note::Status { status: status.clone(), ended });
            self.reported = Some(status);
        }
    }

    fn start(&mut self, slot: ContainerIndex, run: u32) -> io::Result<()> {
        let Some(track) = self.pod.tracks.get(slot) else { return Ok(()) };
        let spec = &track.spec;
        let log = log_of_run(&spec.log, run);
        let file = open_log(&log, run)?;
        let log_from = file.metadata()?.len();
        // A file of an earlier run would be taken for this run's. Without its directory there is just no such file.
        let _ = fs::remove_file(&spec.error_file);
        if let Some(dir) = spec.error_file.parent() {
            let _ = fs::create_dir_all(dir);
        }
        let plan = &self.pod.plan;
        let mut child = Command::new(SELF)
            // What `ps` shows.
            .args([crate::SHIM_COMMAND, "run", &format!("{}/{}/{}", plan.namespace, plan.name, spec.name)])
            .arg0("trainyard")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(file))
            .spawn()?;
        let (Some(mut control), Some(notes)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let starting = Note::Starting {
            container: spec.name.clone(),
            log: log.clone(),
            log_from,
            shim_pid: pid,
            shim_start_ticks: tree::process(pid).map_or(0, |process| process.start_ticks),
        };
        let _ = wire::send(&mut io::stdout().lock(), &starting);
        // If the shim is gone already, its closed pipe shows it.
        let _ = wire::send(&mut control, &spec.program);
        let events = self.events.clone();
        thread::spawn(move || {
            let mut notes = BufReader::new(notes);
            while let Ok(Some(note)) = wire::receive::<ShimNote>(&mut notes) {
                let _ = events.send(Event::Shim { slot, run, note });
            }
            let _ = events.send(Event::Closed { slot, run });
        });
        if let Some(place) = self.shims.get_mut(slot) {
            *place =
                Some(Shim { run, child, control, log, log_from, oom_kills: last_words::oom_kills(), outcome: None });
        }
        Ok(())
    }

    fn order(&mut self, slot: ContainerIndex, order: ShimOrder) {
        if let Some(Some(shim)) = self.shims.get_mut(slot) {
            // A shim that is gone has ended its container already.
            let _ = wire::send(&mut shim.control, &order);
        }
    }

    fn heard(&mut self, slot: ContainerIndex, run: u32, note: ShimNote) {
        let Some(Some(shim)) = self.shims.get_mut(slot) else { return };
        if shim.run != run {
            return;
        }
        match note {
            ShimNote::Running { pid } => self.step(Input::Running { slot, pid }),
            ShimNote::NotStarted { .. } | ShimNote::Exited { .. } => shim.outcome = Some(note),
        }
    }

    fn shim_gone(&mut self, slot: ContainerIndex, run: u32) {
        let Some(place) = self.shims.get_mut(slot) else { return };
        let Some(mut shim) = place.take_if(|shim| shim.run == run) else { return };
        // It closed its output, so it is ending; its own exit status says nothing its notes do not.
        let _ = shim.child.wait();
        let input = match shim.outcome.take() {
            Some(ShimNote::NotStarted { message }) => Input::NotStarted { slot, message },
            Some(ShimNote::Exited { code, at_ms }) => {
                let message = match code {
                    0 => String::new(),
                    KILLED => last_words::of_killed(shim.oom_kills, self.last_words(slot, &shim)),
                    _ => self.last_words(slot, &shim),
                };
                Input::Exited { slot, code, message, at: Timestamp(at_ms) }
            }
            Some(ShimNote::Running { .. }) | None => {
                // The shim was killed: its container's processes were given to this one.
                self.end_orphans();
                let message = "the process that supervises this container was killed".to_owned();
                Input::Exited { slot, code: KILLED, message, at: self.clock.now() }
            }
        };
        if matches!(self.pod.tracks.get(slot).map(|track| &track.state), Some(State::Terminated(_))) {
            return;
        }
        self.step(input);
    }

    /// Why a container failed, in its own words.
    fn last_words(&self, slot: ContainerIndex, shim: &Shim) -> String {
        let Some(spec) = self.pod.tracks.get(slot).map(|track| &track.spec) else { return String::new() };
        match last_words::of_error_file(&spec.error_file) {
            Some(exception) => exception,
            None if spec.message_from_log => last_words::of_log(&shim.log, shim.log_from),
            None => String::new(),
        }
    }

    /// Kills the processes below this one that belong to no shim.
    fn end_orphans(&self) {
        let shims = self.shim_pids();
        let deadline = Instant::now() + KILL_TIMEOUT;
        while tree::kill_once(&shims) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The first run's file is named by the plan; later ones count.
fn log_of_run(first: &Path, run: u32) -> PathBuf {
    if run == 0 { first.to_owned() } else { first.with_extension(format!("{run}.log")) }
}

/// Opens the log of a container's run. What an earlier pod of the same name and count wrote is archived when the first one begins.
fn open_log(path: &Path, run: u32) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
        if run == 0 && path.exists() {
            archive_logs(path, dir)?;
        }
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Moves the logs of all runs, of which `first` is the first one's, into a directory of their own below theirs.
fn archive_logs(first: &Path, dir: &Path) -> io::Result<()> {
    let Some(name) = first.file_name() else { return Ok(()) };
    // Containers of one pod share the directory.
    let archives = (1_u32..).map(|n| dir.join(format!("previous-{n}")));
    let Some(archive) = archives.into_iter().find(|archive| !archive.join(name).exists()) else { return Ok(()) };
    fs::create_dir_all(&archive)?;
    for log in (0..).map(|run| log_of_run(first, run)).take_while(|log| log.exists()) {
        if let Some(name) = log.file_name() {
            fs::rename(&log, archive.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_an_earlier_job_keeps_its_logs_apart() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("pod/c-1.log"), dir.path().join("pod/c-1.1.log"));
        let read = |name: &str| fs::read_to_string(dir.path().join("pod").join(name)).ok();
        for job in ["one", "two", "three"] {
            writeln!(open_log(&first, 0).unwrap(), "{job}").unwrap();
            if job == "one" {
                writeln!(open_log(&second, 1).unwrap(), "{job}, restarted in place").unwrap();
                writeln!(open_log(&second, 1).unwrap(), "and opened again").unwrap();
            }
        }
        assert_eq!(read("c-1.log").as_deref(), Some("three\n"));
        assert_eq!(read("c-1.1.log"), None);
        assert_eq!(read("previous-1/c-1.log").as_deref(), Some("one\n"));
        assert_eq!(read("previous-1/c-1.1.log").as_deref(), Some("one, restarted in place\nand opened again\n"));
        assert_eq!(read("previous-2/c-1.log").as_deref(), Some("two\n"));
        let other = dir.path().join("pod/d-1.log");
        drop((open_log(&other, 0).unwrap(), open_log(&other, 0).unwrap()));
        assert_eq!(read("previous-1/d-1.log").as_deref(), Some(""));
    }

    #[test]
    fn one_log_file_per_run() {
        assert_eq!(log_of_run(Path::new("/a/c-3.log"), 0), Path::new("/a/c-3.log"));
        assert_eq!(log_of_run(Path::new("/a/c.d-3.log"), 2), Path::new("/a/c.d-3.2.log"));
    }
}
