//! A small runner for the tests of this crate: what `trainyard run` is to users.
//!
//! With a hidden first argument it is a supervisor or shim. Otherwise `local-test-runner DATA_DIR` reads pods as JSON
//! lines, starts each, and prints every report as a line `{"name", "ended", "status"}` until its input ends; then it continues
//! running. Tests kill it.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use cluster::runtime::PodRuntime;
use local::{Options, Processes};
use serde_json::{Value, json};

fn main() -> ExitCode {
    if let Some(code) = local::reexec() {
        return code;
    }
    let (Some(data_dir), Ok(program)) = (std::env::args_os().nth(1), std::env::current_exe()) else {
        eprintln!("usage: local-test-runner DATA_DIR");
        return ExitCode::from(2);
    };
    let mut processes = match Processes::new(Options::new(data_dir, program)) {
        Ok(processes) => processes,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for line in std::io::stdin().lock().lines() {
        match line
            .map_err(|error| error.to_string())
            .and_then(|line| serde_json::from_str::<Value>(&line).map_err(|error| error.to_string()))
        {
            Ok(pod) => processes.start(&pod),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    loop {
        for report in processes.poll() {
            println!("{}", json!({"name": report.name, "ended": report.ended, "status": report.status}));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
