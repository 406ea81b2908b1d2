//! `voda`: its help by both names. What it does with objects is tested beside its files.

use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

#[test]
fn it_goes_by_the_name_of_vodas_command() {
    let directory = TempDir::new().unwrap();
    let link = directory.path().join("voda");
    symlink(env!("CARGO_BIN_EXE_trainyard"), &link).unwrap();
    let help = |command: &mut Command| {
        let output = command.arg("--help").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (own, of_trainyard) =
        (help(&mut Command::new(&link)), help(Command::new(env!("CARGO_BIN_EXE_trainyard")).arg("voda")));
    for verb in ["create", "delete", "get", "algorithm", "ratelimit", "serve"] {
        assert!(own.contains(&format!("\n  {verb}")) && of_trainyard.contains(&format!("\n  {verb}")), "{own}");
    }
    let output = Command::new(&link).args(["get", "pods"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
