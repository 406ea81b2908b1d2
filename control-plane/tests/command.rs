//! The program, as `cargo xtask cluster` calls it.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use control_plane::{Binaries, until_within};
use support::processes_in;

/// A state of its own, but the programs that were built for all.
struct Program {
    target: tempfile::TempDir,
}

impl Program {
    fn new() -> Self {
        Self { target: tempfile::tempdir().unwrap() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_control-plane"));
        if std::env::var_os("TRAINYARD_CONTROL_PLANE_CACHE").is_none() {
            command.env("TRAINYARD_CONTROL_PLANE_CACHE", control_plane::target_directory().join("control-plane"));
        }
        command.env("CARGO_TARGET_DIR", self.target.path()).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn says(&self, words: &[&str], code: i32) -> String {
        said(&self.run(words), code)
    }

    fn cluster(&self) -> std::path::PathBuf {
        self.target.path().join("cluster")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

/// Returns the output of a program, if it ended with this code.
fn said(output: &Output, code: i32) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// A directory with executable shell scripts.
fn scripts(scripts: &[(&str, String)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in scripts {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

fn assert_nothing_runs_in(directory: &Path) {
    assert_eq!(processes_in(directory), Vec::<String>::new());
}

#[test]
fn up_status_kubectl_down() {
    let program = Program::new();
    assert!(program.says(&["status"], 1).contains("not up"));
    assert!(program.says(&["down"], 0).contains("not up"));
    assert!(program.says(&["kubectl", "get", "nodes"], 2).contains("not up"));

    let said = program.says(&["up", "--nodes", "2", "--gpus=4"], 0);
    assert!(said.contains("up after") && said.contains("2 simulated nodes") && said.contains("kubeconfig"), "{said}");
    assert!(program.says(&["up"], 0).contains("already up"));
    let status = program.says(&["status"], 0);
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"] {
        assert!(status.lines().any(|line| line.starts_with(component) && line.contains("running")), "{status}");
    }
    assert!(status.contains("nodes: 2 of 2 ready"), "{status}");
    let gpus = "jsonpath={.items[*].status.allocatable.nvidia\\.com/gpu}";
    assert_eq!(program.says(&["kubectl", "get", "nodes", "-o", gpus], 0), "4 4");
    // kubectl's own exit code and words come through.
    assert!(program.says(&["kubectl", "get", "pod", "nobody"], 1).contains("not found"));

    assert!(program.says(&["down"], 0).contains("is down"));
    assert_nothing_runs_in(program.target.path());
    assert!(!program.cluster().exists());
}

#[test]
fn a_plane_without_its_state_ends_by_itself() {
    let program = Program::new();
    program.says(&["up", "--nodes=0"], 0);
    fs::remove_file(program.cluster().join("state.json")).unwrap();
    until_within(Duration::from_secs(15), "all to end", || {
        let left = processes_in(&program.cluster());
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    });
}

#[test]
fn a_part_that_ended_is_reported() {
    let program = Program::new();
    program.says(&["up", "--nodes=0"], 0);
    let line = program.says(&["status"], 0);
    let line = line.lines().find(|line| line.starts_with("kube-scheduler")).unwrap().to_owned();
    let pid = line.split_ascii_whitespace().nth(2).unwrap().to_owned();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    until_within(Duration::from_secs(5), "status to show", || {
        let status = program.run(&["status"]);
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        let reported = text.lines().any(|line| line.starts_with("kube-scheduler") && line.contains("ended"));
        if reported && status.status.code() == Some(1) { Ok(()) } else { Err(text) }
    });
    assert!(program.says(&["down"], 0).contains("is down"));
}

#[test]
fn wrong_words_are_named() {
    let program = Program::new();
    assert!(program.says(&["up", "--nodes=many"], 2).contains("--nodes: \"many\" is not a number"));
    assert!(program.says(&["up", "--nodes=20000"], 2).contains("nodes: 20000: at most 16384"));
    assert!(program.says(&["sideways"], 2).contains("no command `sideways`"));
    assert!(program.says(&["down", "now"], 2).contains("takes no arguments"));
}

#[test]
fn programs_of_kubebuilder_assets_are_used() {
    let binaries = Binaries::ensure().unwrap();
    let script = |name: &str| {
        let command = binaries.command(name);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        format!("exec {} \"$@\"", words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    };
    let names = ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kwok"];
    let assets = scripts(&names.map(|name| (name, script(name))));
    let program = Program::new();
    let up = |path: &Path| {
        let mut up = program.command(&["up", "--nodes=1"]);
        // What this machine has on its own path is not meant.
        up.env("KUBEBUILDER_ASSETS", path).env("PATH", "/nonexistent").output().unwrap()
    };
    assert!(said(&up(assets.path()), 0).contains("1 simulated nodes"));
    assert!(program.says(&["status"], 0).contains("nodes: 1 of 1 ready"));
    program.says(&["down"], 0);

    fs::remove_file(assets.path().join("kwok")).unwrap();
    let text = said(&up(assets.path()), 2);
    assert!(text.contains("kwok not found: looked in KUBEBUILDER_ASSETS"), "{text}");
    fs::remove_file(assets.path().join("etcd")).unwrap();
    fs::remove_file(assets.path().join("kubectl")).unwrap();
    let text = said(&up(assets.path()), 2);
    assert!(text.contains("etcd, kubectl not found"), "{text}");
}

#[test]
fn without_go_it_is_said_what_to_install() {
    let program = Program::new();
    let cache = tempfile::tempdir().unwrap();
    let mut up = program.command(&["up"]);
    up.env_remove("KUBEBUILDER_ASSETS").env("TRAINYARD_CONTROL_PLANE_CACHE", cache.path()).env("PATH", "/nonexistent");
    let text = said(&up.output().unwrap(), 2);
    assert!(text.contains("`go` was not found") && text.contains("https://go.dev/dl"), "{text}");
}

/// With a `go` that notes that it was called and takes its time.
#[test]
fn what_is_wanted_twice_at_once_is_built_once() {
    let calls = tempfile::NamedTempFile::new().unwrap();
    // The file to make is the argument after `-o`.
    let go = format!(
        "echo call >> {}; sleep 1; while [ \"$1\" != -o ]; do shift; done; cp /bin/false \"$2\"",
        calls.path().display()
    );
    let path = scripts(&[("go", go)]);
    let path = format!("{}:/usr/bin:/bin", path.path().display());
    let cache = tempfile::tempdir().unwrap();
    let programs = [Program::new(), Program::new()];
    let ups = programs.each_ref().map(|program| {
        let mut up = program.command(&["up", "--nodes=0"]);
        up.env_remove("KUBEBUILDER_ASSETS").env("TRAINYARD_CONTROL_PLANE_CACHE", cache.path()).env("PATH", &path);
        up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for up in ups {
        // What was "built" does nothing but fail, and that is what is reported.
        let text = said(&up.wait_with_output().unwrap(), 2);
        assert!(text.contains("etcd ended (exit status: 1)"), "{text}");
    }
    assert_eq!(fs::read_to_string(calls.path()).unwrap(), "call\n");
}

#[test]
fn a_build_that_fails_shows_what_go_said() {
    let path = scripts(&[("go", "echo 'main.go:1: no such thing' >&2; exit 1".to_owned())]);
    let cache = tempfile::tempdir().unwrap();
    let program = Program::new();
    let mut up = program.command(&["up"]);
    up.env_remove("KUBEBUILDER_ASSETS").env("TRAINYARD_CONTROL_PLANE_CACHE", cache.path());
    let text = said(&up.env("PATH", format!("{}:/bin", path.path().display())).output().unwrap(), 2);
    assert!(text.contains("building the control plane") && text.contains("main.go:1: no such thing"), "{text}");
}
