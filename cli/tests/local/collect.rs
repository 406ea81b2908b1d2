//! `collect`: what the files of a directory show, and what is said of those that cannot be read.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

fn collect(directory: &TempDir, args: &[&str]) -> Output {
    let metrics = directory.path().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command.args(["collect", "--metrics", metrics]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn each_file_reports_its_job() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let header = "epoch,epoch_time_sec,loss,total_epochs,workers\n";
    write("vgg-20260101-090000.csv", &format!("{header}0,60.5,1,30,2\n1,59.5,1,30,2\n2,30,1,30,4\n3,3"));
    write("torn.csv", &format!("{header}0,60\n"));
    write("other.csv", "a,b\n1,2\n");
    write("notes.txt", "0,1,2");
    let output = collect(&directory, &["--print"]);
    assert_eq!(
        text(&output.stdout),
        "vgg-20260101-090000\t{\"done\":3,\"sizes\":[{\"done\":2,\"gpus\":2,\"seconds\":120.0},\
         {\"done\":1,\"gpus\":4,\"seconds\":30.0}],\"total\":30}\n"
    );
    let said = text(&output.stderr);
    assert!(said.contains("torn.csv: 1 lines cannot be read and do not count"), "{said}");
    assert!(said.contains("other.csv: the first line has no columns epoch, workers and epoch_time_sec"), "{said}");
    assert!(output.status.success());
}

#[test]
fn a_directory_or_kind_that_is_not_there_is_named() {
    let directory = TempDir::new().unwrap();
    let output = collect(&directory, &["--kind", "Job", "--once"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--kind Job: no such kind of job is served"), "{}", text(&output.stderr));
    let gone = directory.path().join("gone");
    let args = ["collect", "--print", "--metrics", gone.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_trainyard")).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--metrics "), "{}", text(&output.stderr));
}
