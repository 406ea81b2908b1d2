//! Progress on real terminals, as `script` makes them: a table that fits, plain lines where text cannot be replaced.

use std::path::Path;
use std::process::{Command, Stdio};

const JOB: &str = "
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: a-job-whose-name-is-longer-than-a-narrow-terminal}
spec:
  replicaSpecs:
    worker: {replicas: 2, template: {spec: {containers: [{name: aitj-main, image: i, command: [x]}]}}}
";

/// Returns the output of a simulation on a terminal of `columns`, with these variables set.
fn written(columns: u32, variables: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.yaml");
    std::fs::write(&job, JOB).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_trainyard"));
    let inside = format!("stty rows 24 cols {columns}; {} simulate {}", program.display(), job.display());
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &inside, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Succeed"), "{text}");
    text
}

/// Lines of the table, without attributes: those that begin a frame.
fn headers(text: &str) -> Vec<String> {
    text.lines().map(|line| console::strip_ansi_codes(line).into_owned()).filter(|l| l.starts_with("JOB ")).collect()
}

#[test]
fn the_table_fits_the_terminal() {
    for columns in [40, 80] {
        let text = written(columns, &[]);
        let headers = headers(&text);
        assert!(headers.len() > 1, "the table is replaced:\n{text}");
        assert!(headers.iter().all(|line| line.len() <= columns as usize), "{headers:?}");
        assert!(text.contains("\x1b[2A\x1b[J"), "two rows are taken back:\n{text:?}");
        assert!(text.contains("\x1b[1mJOB"), "{text:?}");
    }
}

#[test]
fn no_color_takes_the_colours_and_a_dumb_terminal_the_table() {
    let text = written(80, &[("NO_COLOR", "1")]);
    assert!(text.contains("\x1b[2A\x1b[J") && !text.contains("\x1b[1m"), "{text:?}");
    let text = written(80, &[("TERM", "dumb")]);
    assert!(!text.contains('\x1b') && headers(&text).is_empty(), "{text:?}");
    assert!(text.contains("Running"), "{text}");
}
