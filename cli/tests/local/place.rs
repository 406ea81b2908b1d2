//! Runs the binary on manifests of its own, in a directory of its own. For tests of `trainyard run` and its files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time after which a test gives up waiting. Never reached where the program works.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory for manifests and data, removed when dropped.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The binary, working in this directory.
    pub(crate) fn trainyard(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.trainyard(words).output().unwrap()
    }
}

/// A job of one pod that runs a shell script.
pub(crate) fn job(name: &str, script: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script]);
    format!(
        "apiVersion: elasticdeeplearning.ai/v1\nkind: AITrainingJob\nmetadata: {{name: {name}}}\nspec:\n  replicaSpecs:\n    \
         trainer:\n      replicas: 1\n      restartPolicy: Never\n      template:\n        spec:\n          \
         terminationGracePeriodSeconds: 1\n          containers: [{{name: main, image: none, command: {command}}}]\n"
    )
}

/// Exit code and both outputs as text.
pub(crate) fn output_of(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Waits until something is there.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for the end of a program.
pub(crate) fn ended(child: &mut Child) -> Option<i32> {
    let mut status = None;
    until("the end of the program", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// Names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Sends a signal to a process.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
