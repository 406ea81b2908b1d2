//! `kubectl torchrun` against a real API server, with a real operator and process nodes: a directory is submitted, its files run,
//! changed files are delivered to running workers, and every verb is used.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use control_plane::{Component, until};
use serde_json::{Value, json};

use crate::bench::{Bench, Node, Process, text};
use crate::plain;

/// A queue whose pods the default scheduler places, since there is no KAI. `torchrun` is a script of the workspace that runs the
/// program after its options.
fn queue() -> Value {
    json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunQueue",
        "metadata": {"name": "cpus", "namespace": "default"},
        "spec": {
            "queue": {"name": "cpus"},
            "scheduling": {"scheduler": "default-scheduler"},
            "podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 2,
                "containers": [{"name": "trainer", "image": "none",
                    "env": [{"name": "PATH", "value": "/app/bin:/usr/local/bin:/usr/bin:/bin"}]}]}}}})
}

/// A volume for the workspace of a job: nothing here provides volumes.
fn volume() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "any"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/tmp"}}})
}

/// A launcher that needs no PyTorch: what is tested here is how files get to workers.
const LAUNCHER: &str =
    "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != --no-python ]; do shift; done\nshift\nexec \"$@\"\n";

/// A program that says which version of a file it sees until it is asked to end.
const PROGRAM: &str = "echo rank $JOB_COMPLETION_INDEX begins
while true; do
  echo sees $(cat words)
  [ -e end ] && exit 0
  sleep 0.3
done
";

fn write(directory: &Path, name: &str, content: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    if content.starts_with("#!") {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A directory with a program.
fn program() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "bin/torchrun", LAUNCHER);
    write(place.path(), "train.sh", PROGRAM);
    write(place.path(), "words", "one\n");
    write(place.path(), ".gitignore", "*.ckpt\n");
    write(place.path(), "old.ckpt", "left out");
    place
}

/// A node, an operator, and what the jobs of this file need.
fn ready(bench: &Bench) -> (Node<'_>, Process) {
    let node = Node::start(bench, "process-0", &[]);
    node.wait_ready(true);
    let operator = bench.operator();
    bench.create(&queue());
    bench.create(&volume());
    (node, operator)
}

struct Place<'a> {
    bench: &'a Bench,
    directory: tempfile::TempDir,
}

impl Place<'_> {
    /// The output of the plugin, which ends with this code.
    fn says(&self, words: &[&str], want: i32) -> String {
        let (code, said) = self.bench.plugin(self.directory.path(), words, b"");
        assert_eq!(code, Some(want), "{words:?}: {said}");
        said
    }

    fn until_says(&self, words: &[&str], want: &str) -> String {
        until(&format!("{words:?} says {want}"), || {
            let (_, said) = self.bench.plugin(self.directory.path(), words, b"");
            if said.contains(want) { Ok(said) } else { Err(said) }
        })
    }

    fn write(&self, name: &str, content: &str) {
        write(self.directory.path(), name, content);
    }
}

const SUBMIT: [&str; 8] =
    ["submit", "--queue=cpus", "--name=vit", "--num-nodes=2", "--env=A=b c", "--", "sh", "train.sh"];

#[test]
fn a_directory_is_submitted_changed_while_it_runs_suspended_and_ended() {
    let bench = Bench::start(plain());
    let (mut node, _operator) = ready(&bench);
    let place = Place { bench: &bench, directory: program() };
    // A definition that was just applied is not served at once.
    place.until_says(&["list"], "no jobs\n");

    // What is wrong is said before anything is created.
    for (words, want) in [
        (&["submit", "--queue=cpus", "--name=Vit", "--", "true"][..], "metadata.name"),
        (&["submit", "--queue=cpus", "--name=vit", "--gpus=8", "--", "true"], "spec.numGPUs"),
        (&["submit", "--queue=cpus", "--max-size=1", "--", "true"], "at most 1 B are uploaded; the largest: train.sh"),
        (&["submit", "--", "true"], "--queue is needed"),
    ] {
        let said = place.says(words, 2);
        assert!(said.contains(want), "{words:?}: {said}");
    }
    assert_eq!(place.says(&["list"], 0), "no jobs\n");

    let said = place.says(&SUBMIT, 0);
    assert!(said.starts_with("TorchrunJob vit is submitted\n"), "{said}");
    assert!(said.contains("generation 1 of its workspace is delivered: 4 files, "), "{said}");
    place.until_says(&["list"], "Running");
    place.until_says(&["logs", "vit", "--rank=1"], "vit-1 | sees one");
    let logs = place.says(&["logs", "vit"], 0);
    assert!(logs.starts_with("vit-0 | rank 0 begins\n") && logs.contains("vit-1 | rank 1 begins\n"), "{logs}");
    let status = place.until_says(&["status", "vit"], "2/2 ready");
    for want in
        ["WorkspaceSync", "generation 1 is delivered", "0      vit-0   Running   0          process-0   trainer runs"]
    {
        assert!(status.contains(want), "{want} in {status}");
    }
    assert_eq!(place.says(&["list", "-o", "name"], 0), "vit\n");
    // The same again sends nothing; something else of that name is refused.
    assert!(place.says(&SUBMIT, 0).contains("generation 1 of its workspace is delivered"));
    let other = place.says(&["submit", "--queue=cpus", "--name=vit", "--", "true"], 1);
    assert!(other.contains("there is a TorchrunJob vit that asks for something else"), "{other}");

    // A program in a worker, its streams and its exit code.
    let (code, said) = bench.plugin(
        place.directory.path(),
        &["exec", "vit", "--rank=1", "-i", "--", "sh", "-c", "ls; echo $A; cat; exit 5"],
        b"from here",
    );
    assert_eq!((code, said.as_str()), (Some(5), "bin\ntrain.sh\nwords\nb c\nfrom here"));
    assert!(
        place
            .says(&["exec", "vit", "--rank=7", "--", "true"], 1)
            .contains("vit: no worker of rank 7; it has 2 workers")
    );

    // Changed files reach running workers.
    let before: Vec<String> = bench.pods().iter().map(|pod| text(pod, "/metadata/uid")).collect();
    place.write("words", "two\n");
    let said = place.says(&["sync", "vit"], 0);
    assert!(said.contains("generation 2 of its workspace is delivered: 4 files"), "{said}");
    place.until_says(&["logs", "vit", "--rank=0", "--tail=3"], "vit-0 | sees two");
    place.until_says(&["logs", "vit", "--rank=1", "--tail=3"], "vit-1 | sees two");
    let after: Vec<String> = bench.pods().iter().map(|pod| text(pod, "/metadata/uid")).collect();
    assert!(after.iter().all(|uid| before.contains(uid)), "no worker was replaced");

    // A port of a worker.
    ports_are_forwarded(&place);

    // It waits without workers, and continues with the files it had.
    assert_eq!(place.says(&["suspend", "vit"], 0), "TorchrunJob vit is suspended\n");
    place.until_says(&["list"], "Suspended");
    until("no worker is left", || if bench.pods().is_empty() { Ok(()) } else { Err(format!("{:?}", bench.pods())) });
    assert!(place.says(&["suspend", "vit"], 1).contains("TorchrunJob vit is suspended already"));
    assert_eq!(place.says(&["resume", "vit"], 0), "TorchrunJob vit is resumed\n");
    place.until_says(&["logs", "vit", "--rank=0"], "vit-0 | sees two");
    place.write("end", "");
    place.says(&["sync", "vit"], 0);
    let said = place.says(&["logs", "vit", "-f"], 0);
    assert!(said.contains("vit-1 | sees two"), "{said}");
    place.until_says(&["list"], "Succeeded");
    assert!(place.says(&["sync", "vit"], 1).contains("TorchrunJob vit has ended: it is Succeeded"));
    assert!(place.says(&["delete", "vit"], 0).starts_with("TorchrunJob vit is "));
    until("it is gone", || {
        let said = place.says(&["list"], 0);
        if said == "no jobs\n" { Ok(()) } else { Err(said) }
    });
    assert!(place.says(&["status", "vit"], 1).contains("\"vit\" not found"));
    node.stop();
    node.wait_no_process();
}

/// A server in worker 0, which another program of the worker starts.
fn ports_are_forwarded(place: &Place<'_>) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (there, here) = (free(), free());
    let serve = format!("exec python3 -m http.server {there}");
    let kill = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let server =
        place.bench.plugin_command(place.directory.path(), &["exec", "vit", "--", "sh", "-c", &serve]).spawn().unwrap();
    let forward = place
        .bench
        .plugin_command(place.directory.path(), &["port-forward", "vit", &format!("{here}:{there}")])
        .spawn()
        .unwrap();
    until("the file is read through the port", || {
        let answer = get(here, "/words").map_err(|error| error.to_string())?;
        if answer.ends_with("two\n") { Ok(()) } else { Err(answer) }
    });
    kill(server);
    kill(forward);
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The API server goes away in the middle of an upload; then the plugin itself is killed. What arrived is not sent again.
#[test]
fn an_upload_that_breaks_loses_nothing_and_is_repeated() {
    let bench = Bench::start(plain());
    let (mut node, _operator) = ready(&bench);
    let place = Place { bench: &bench, directory: program() };
    place.until_says(&["list"], "no jobs\n");
    // Bytes that cannot be packed, so that the upload takes its time.
    let mut noise = vec![0_u8; 32 << 20];
    let mut state = 88_172_645_463_325_252_u64;
    for bytes in noise.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.copy_from_slice(&state.to_le_bytes());
    }
    fs::write(place.directory.path().join("noise.bin"), &noise).unwrap();
    let claim = node.claim("vit-workspace");
    let arrived = || -> u64 {
        let files = fs::read_dir(&claim).into_iter().flatten().flatten();
        let parts = files.filter(|file| file.file_name().to_string_lossy().starts_with(".upload-"));
        parts.filter_map(|part| Some(part.metadata().ok()?.len())).sum()
    };
    let until_arrived = |least: u64| {
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        while arrived() < least {
            assert!(std::time::Instant::now() < deadline, "{} of {least} bytes arrived", arrived());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut first = bench.plugin_command(place.directory.path(), &SUBMIT).spawn().unwrap();
    until_arrived(1 << 20);
    first.kill().unwrap();
    first.wait().unwrap();
    let before = arrived();
    assert!((1 << 20..33 << 20).contains(&before), "{before}");
    let mut second = bench.plugin_command(place.directory.path(), &SUBMIT).spawn().unwrap();
    // What the first one had sent may arrive after its end: the bytes alone do not say that the second one is at its upload.
    let mut printed = BufReader::new(second.stdout.take().unwrap());
    let mut said = String::new();
    printed.read_line(&mut said).unwrap();
    assert_eq!(said, "TorchrunJob vit is submitted\n");
    until_arrived(before + (1 << 20));
    bench.restart(Component::ApiServer);
    printed.read_to_string(&mut said).unwrap();
    let output = second.wait_with_output().unwrap();
    said += &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("generation 1 of its workspace is delivered: 5 files"), "{said}");
    assert_eq!(fs::read(claim.join("noise.bin")).unwrap(), noise, "every byte is there");
    assert!(!claim.join("old.ckpt").exists() && claim.join(".gitignore").exists());
    place.until_says(&["logs", "vit", "--rank=1"], "vit-1 | sees one");
    place.says(&["delete", "vit"], 0);
    node.stop();
    node.wait_no_process();
}
