//! `trainyard run` and the processes below it, from outside: signals to all of them, and kills.

use std::fmt::Debug;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time after which a test that hangs is called failed. No verdict depends on it.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A job of two pods that save a checkpoint after SIGTERM, in a child, and leave a process in a session of its own.
fn job(dir: &Path, nodes: &str) -> PathBuf {
    let path = dir.join("job.yaml");
    let text = format!(
        r#"apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {{name: saves}}
spec:
  replicaSpecs:
    w:
      replicas: {nodes}
      template:
        spec:
          containers:
            - name: aitj-c
              image: any
              command:
                - sh
                - -c
                - |
                  trap 'sh -c "sleep 1; echo saved > {dir}/$HOSTNAME.saved"; exit 0' TERM
                  setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' {dir} > /dev/null 2>&1 &
                  echo up > {dir}/$HOSTNAME.up
                  while :; do sleep 0.1; done
"#,
        dir = dir.display()
    );
    fs::write(&path, text).unwrap();
    path
}

fn start(dir: &Path, manifest: &Path) -> Child {
    // Tests may run under `nohup`, whose ignored SIGHUP a run would inherit and respect.
    Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_trainyard"), "run"])
        .arg(manifest)
        .arg("--data-dir")
        .arg(dir.join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    until_ok(what, || get().ok_or(""))
}

/// Waits like [`until`]. The error of the last attempt is part of the failure.
fn until_ok<T, E: Debug>(what: &str, mut get: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + HANG_TIMEOUT;
    loop {
        match get() {
            Ok(found) => return found,
            Err(error) => assert!(Instant::now() < deadline, "never happened: {what}: {error:?}"),
        }
        sleep(Duration::from_millis(20));
    }
}

fn count(dir: &Path, end: &str) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(end)).count()
}

/// Processes with `text` in their arguments or environment, with their arguments.
fn processes(text: &Path) -> Vec<(String, String)> {
    let text = text.to_str().unwrap();
    let own = std::process::id().to_string();
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let pids = pids.filter(|name| *name != own && name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        (arguments.contains(text) || String::from_utf8_lossy(&read("environ")).contains(text))
            .then_some((pid, arguments))
    })
    .collect()
}

/// The runner and every process that carries its data directory's mark.
fn tree(dir: &Path, runner: &Child) -> Vec<(String, String)> {
    let marker = fs::read_to_string(dir.join("data/trainyard.json")).unwrap();
    let id = marker.split('"').find(|part| part.len() == 32 && part.bytes().all(|b| b.is_ascii_hexdigit())).unwrap();
    let mut found = processes(Path::new(id));
    found.insert(0, (runner.id().to_string(), String::new()));
    found
}

fn signal(name: &str, pids: impl IntoIterator<Item = String>) {
    // One that has ended meanwhile makes `kill` fail: there is nothing left to signal.
    let _ = Command::new("kill").arg(format!("-{name}")).args(pids).stderr(Stdio::null()).status().unwrap();
}

fn ended(mut runner: Child) -> (Option<i32>, String) {
    let code = until("the run ends", || runner.try_wait().unwrap()).code();
    let mut text = String::new();
    runner.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    runner.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (code, text)
}

#[test]
fn a_signal_to_every_process_leaves_pods_their_grace_period() {
    for (name, ends_with) in [("TERM", 143), ("HUP", 129)] {
        let dir = tempfile::tempdir().unwrap();
        let runner = start(dir.path(), &job(dir.path(), "2"));
        until("both pods are up", || (count(dir.path(), ".up") == 2).then_some(()));
        let all = tree(dir.path(), &runner);
        // The pods' shells do not handle SIGHUP: it goes to what a closed terminal reaches.
        let reached = all
            .into_iter()
            .filter(|(_, arguments)| name == "TERM" || arguments.is_empty() || arguments.starts_with("trainyard "));
        signal(name, reached.map(|(pid, _)| pid));
        let (code, text) = ended(runner);
        assert_eq!(count(dir.path(), ".saved"), 2, "{name}: {text}");
        assert_eq!(code, Some(ends_with), "{name}: {text}");
        assert_eq!(processes(dir.path()), [], "{name}");
    }
}

#[test]
fn what_a_kill_of_the_whole_chain_leaves_is_ended_by_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = job(dir.path(), "2");
    let mut runner = start(dir.path(), &manifest);
    until("both pods are up", || (count(dir.path(), ".up") == 2).then_some(()));
    let all = tree(dir.path(), &runner).into_iter();
    let chain: Vec<String> = all
        .filter(|(_, arguments)| arguments.is_empty() || arguments.starts_with("trainyard "))
        .map(|one| one.0)
        .collect();
    assert_eq!(chain.len(), 5, "a runner, two supervisors, two shims");
    signal("STOP", chain.clone());
    signal("KILL", chain);
    runner.wait().unwrap();
    let left =
        || processes(dir.path()).into_iter().filter(|(_, arguments)| arguments.starts_with("sh ")).collect::<Vec<_>>();
    let old = until_ok("only the detached are left", || Some(left()).filter(|left| left.len() == 2).ok_or_else(left));

    let runner = start(dir.path(), &manifest);
    until("the old ones are gone", || {
        let now = left();
        old.iter().all(|one| !now.contains(one)).then_some(())
    });
    until_ok("the pods are up again", || Some(left()).filter(|left| left.len() == 4).ok_or_else(left));
    signal("TERM", [runner.id().to_string()]);
    let (_, text) = ended(runner);
    assert!(text.contains("ended processes that an earlier run left"), "{text}");
    assert_eq!(processes(dir.path()), []);
}
