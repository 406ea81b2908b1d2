//! `up`: starts the holder in the background and waits until it says that all is ready.

use std::env;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control_plane::Binaries;

use super::arguments::Wanted;
use super::state::{self, State};
use super::{Failure, failed, say};

const EVERY: Duration = Duration::from_millis(100);
/// Longer than the plane itself waits: its own error says more.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run(wanted: &Wanted) -> Result<ExitCode, Failure> {
    let directory = state::directory();
    if let Some(state) = State::read(&directory)?.filter(|state| state.holder.is_alive()) {
        let word = if state.ready { "up" } else { "starting" };
        say(format_args!("the control plane is already {word}; `cargo xtask cluster down` ends it"));
        say(format_args!("kubeconfig: {}", directory.join("kubeconfig").display()));
        return Ok(ExitCode::SUCCESS);
    }
    // Built here, where one sees it.
    Binaries::ensure()?;
    fs::create_dir_all(&directory).map_err(failed(directory.display()))?;
    let stale = directory.join("state.json");
    if stale.exists() {
        fs::remove_file(&stale).map_err(failed(stale.display()))?;
    }
    let start = Instant::now();
    let output = directory.join("up.log");
    let holder = hold(wanted, &output)?;
    wait(holder, &directory, &output)?;
    print_summary(wanted, &directory, start.elapsed());
    Ok(ExitCode::SUCCESS)
}

/// Starts the holder in a process group of its own: Ctrl-C does not reach it.
fn hold(wanted: &Wanted, output: &Path) -> Result<Child, Failure> {
    let file = File::create(output).map_err(failed(output.display()))?;
    let twin = file.try_clone().map_err(failed(output.display()))?;
    let program = env::current_exe().map_err(failed("finding this program"))?;
    let mut command = Command::new(program);
    command.arg("hold").args(wanted.to_arguments());
    command.stdin(Stdio::null()).stdout(file).stderr(twin).process_group(0);
    command.spawn().map_err(failed("starting the holder"))
}

fn wait(mut holder: Child, directory: &Path, output: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        if holder.try_wait().map_err(failed("the holder"))?.is_some() {
            let said = fs::read_to_string(output).unwrap_or_default();
            return Err(Failure::Other(format!("it did not start:\n{}", said.trim_end())));
        }
        if State::read(directory)?.is_some_and(|state| state.ready && state.holder.pid == holder.id()) {
            return Ok(());
        }
        if start.elapsed() > LIMIT {
            let _ = holder.kill();
            let _ = holder.wait();
            return Err(Failure::Other(format!("not ready after {} s:\n{}", LIMIT.as_secs(), end_of(output))));
        }
        sleep(EVERY);
    }
}

fn end_of(file: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(file)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

fn print_summary(wanted: &Wanted, directory: &Path, took: Duration) {
    let mut nodes = Vec::new();
    if wanted.nodes > 0 {
        nodes.push(format!("{} simulated nodes", wanted.nodes));
    }
    if wanted.process_nodes > 0 {
        nodes.push(format!("{} process nodes", wanted.process_nodes));
    }
    let nodes = if nodes.is_empty() { "no nodes".to_owned() } else { nodes.join(" and ") };
    say(format_args!("the control plane is up after {:.1} s: {nodes}, {} GPUs each", took.as_secs_f64(), wanted.gpus));
    say("");
    say(format_args!("  export KUBECONFIG={}", directory.join("kubeconfig").display()));
    say("  cargo xtask kubectl -- get nodes");
    say("  trainyard crd | cargo xtask kubectl -- apply -f -     # the job kinds");
    say("  trainyard operator                                    # in another terminal");
    say("  cargo xtask kubectl -- apply -f deploy/samples/quickstart.yaml");
    say("  cargo xtask cluster down");
    if wanted.nodes > 0 {
        say("");
        say(
            "Pods on simulated nodes run for ever, unless their template is annotated `trainyard.dev/kwok-run-for: 30s`.",
        );
    }
}
