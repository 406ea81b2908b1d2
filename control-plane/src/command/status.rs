//! `status`: what runs, and what it uses.

use std::process::ExitCode;

use super::kubectl;
use super::state::{self, State};
use super::{Failure, say};

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let directory = state::directory();
    let Some(state) = State::read(&directory)?.filter(|state| state.holder.is_alive()) else {
        say("the control plane is not up; `cargo xtask cluster up` starts it");
        return Ok(ExitCode::from(1));
    };
    if !state.ready {
        say("the control plane is starting");
        return Ok(ExitCode::from(1));
    }
    let mut all_well = true;
    say(format_args!("{:<24} {:<8} {:>8} {:>10} {:>9}", "", "", "process", "CPU", "memory"));
    for (name, id) in &state.processes {
        let word = match (id.is_alive(), id.is_stopped()) {
            (false, _) => "ended",
            (true, true) => "paused",
            (true, false) => "running",
        };
        all_well &= word == "running";
        let usage = if id.is_alive() { id.usage() } else { None };
        let (cpu, memory) = usage.map_or_else(Default::default, |usage| {
            (format!("{:.1} s", usage.cpu_seconds), format!("{} MiB", usage.rss_bytes >> 20))
        });
        say(format_args!("{name:<24} {word:<8} {:>8} {cpu:>10} {memory:>9}", id.pid));
    }
    say("");
    say(format_args!("kubeconfig: {}", directory.join("kubeconfig").display()));
    say(format_args!("logs: {}", directory.join("logs").display()));
    let nodes =
        kubectl::command(&state, &directory, &["get", "nodes", "--no-headers", "--request-timeout=5s"]).output();
    match nodes {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let ready = text.lines().filter(|line| line.split_ascii_whitespace().nth(1) == Some("Ready")).count();
            say(format_args!("nodes: {ready} of {} ready", text.lines().count()));
        }
        Ok(output) => {
            all_well = false;
            say(format_args!("the API server does not answer: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Err(error) => return Err(super::failed("running kubectl")(error)),
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
