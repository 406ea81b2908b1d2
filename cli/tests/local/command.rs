//! `trainyard run -- COMMAND`: a job without a manifest, and the environment in which PyTorch's workers find each other.

use std::env;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::place::{Place, job, output_of, until};

/// Writes the variables that PyTorch reads to a file named after the worker.
const SHOW: &str = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_PORT $PYTHONUNBUFFERED $PET_NODE_RANK \
                    $MASTER_ADDR > $HOSTNAME";

#[test]
fn workers_run_a_command_and_know_their_peers() {
    let place = Place::new();
    let script = format!("{SHOW}; echo \"$1|$2|$#\" > args");
    let words = ["run", "-n", "3", "--name", "fit", "--", "sh", "-c", &script, "sh", "$(RANK) $HOME", "a  b"];
    let (code, out, err) = output_of(&place.run(&words));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("ElasticJob default/fit Succeeded, 0 restarts, "), "{out}");
    assert!(out.ends_with(" s\n  logs: trainyard logs fit\n"), "{out}");
    assert_eq!(place.read("args"), "$(RANK) $HOME|a  b|2\n", "arguments are passed as they stand");
    let mut masters = Vec::new();
    for rank in 0..3 {
        let shown = place.read(&format!("fit-worker-{rank}"));
        let (shown, master) = shown.trim().rsplit_once(' ').unwrap();
        let port = shown.split(' ').nth(4).unwrap();
        assert!((29_500..30_500).contains(&port.parse().unwrap()), "{shown}");
        assert_eq!(shown, format!("{rank} 3 0 1 {port} 1 {rank}"));
        masters.push(master.to_owned());
    }
    assert!(masters[0].starts_with("127.") && masters.iter().all(|one| *one == masters[0]), "{masters:?}");

    // A command is given to be run, also when it has ended so before.
    std::fs::remove_file(place.path("args")).unwrap();
    assert_eq!(output_of(&place.run(&words)).0, Some(0));
    assert!(place.path("args").exists());
}

#[test]
fn pods_of_a_manifest_get_the_same_where_it_says_nothing_else() {
    let place = Place::new();
    let manifest = job("j", SHOW).replace("replicas: 1", "replicas: 2");
    place.write("job.yaml", &manifest);
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}{err}");
    let shown = place.read("j-trainer-1");
    assert!(shown.starts_with("1 2 0 1 29") || shown.starts_with("1 2 0 1 30"), "{shown}");
    assert!(shown.contains(" 1 1 127."), "{shown}");
    let own = "env: [{name: WORLD_SIZE, value: \"9\"}, {name: PYTHONUNBUFFERED, value: \"0\"}, \
               {name: MASTER_PORT, value: \"OWN\"}], image: none";
    // No other program has it: the system has just chosen it.
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port().to_string();
    place.write("job.yaml", &manifest.replace("image: none", &own.replace("OWN", &port)));
    assert_eq!(output_of(&place.run(&["run", "job.yaml"])).0, Some(0));
    let want = format!("1 9 0 1 {port} 0 1 127.");
    assert!(place.read("j-trainer-1").starts_with(&want), "{}", place.read("j-trainer-1"));
}

#[test]
fn the_master_is_rank_0_of_its_workers() {
    let place = Place::new();
    let one = job("j", SHOW);
    let (head, group) = one.split_at(one.find("    trainer:").unwrap());
    let groups = [("worker", 2), ("master", 1), ("store", 1)].map(|(name, n)| {
        group.replace("trainer:", &format!("{name}:")).replace("replicas: 1", &format!("replicas: {n}"))
    });
    place.write("job.yaml", &format!("{head}{}", groups.concat()));
    let (code, out, err) = output_of(&place.run(&["run", "job.yaml"]));
    assert_eq!(code, Some(0), "{out}{err}");
    for (pod, want) in [("j-master-0", "0 3"), ("j-worker-0", "1 3"), ("j-worker-1", "2 3"), ("j-store-0", "0 1")] {
        assert!(place.read(pod).starts_with(&format!("{want} ")), "{pod}: {}", place.read(pod));
    }
}

#[test]
fn workers_that_fail_are_restarted_as_often_as_was_said() {
    let place = Place::new();
    // The other one may be stopped before it begins.
    let script = "test -e tried || test $RANK = 1 || { touch tried; exit 3; }";
    let (code, out, err) = output_of(&place.run(&["run", "-n", "2", "--max-restarts", "1", "--", "sh", "-c", script]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Succeeded, 1 restart, "), "one of the job: {out}");
    assert!(output_of(&place.run(&["ps"])).1.contains("1/1"), "of one");
    let (code, out, _) =
        output_of(&place.run(&["run", "--no-logs", "--name", "other", "--", "sh", "-c", "echo gone wrong; exit 3"]));
    assert_eq!(code, Some(1), "{out}");
    assert!(out.starts_with("last output of other-worker-0:\n  | gone wrong\n"), "{out}");
    assert!(out.ends_with("  why: trainyard explain other\n  again: trainyard rerun other\n"), "{out}");
}

#[test]
fn a_command_that_is_not_there_starts_nothing() {
    let place = Place::new();
    place.write("train.py", "");
    place.write("plain.sh", "#!/bin/sh\n");
    place.write("dos.sh", "#!/bin/sh\r\ntrue\r\n");
    fs::set_permissions(place.path("dos.sh"), Permissions::from_mode(0o755)).unwrap();
    for (words, says) in [
        (&[""][..], "the first word of the command is empty. Nothing was started"),
        (
            &["LR=1", "python3", "train.py"],
            "LR=1: no such program in PATH: variables are set by `env LR=1 ...`. Nothing was started",
        ),
        (&["./plain.sh"], "./plain.sh: is not executable; `chmod +x` makes it so. Nothing was started"),
        (&["./dos.sh"], "./dos.sh: its interpreter \"/bin/sh\\r\" does not exist. Nothing was started"),
        (&["/tmp"], "/tmp: is a directory. Nothing was started"),
        (&["bash", "plian.sh"], ": did you mean plain.sh? Nothing was started"),
        (&["slepe", "1"], "slepe: no such program in PATH: did you mean sleep? Nothing was started"),
        (&["./run.sh"], "./run.sh: no such file in "),
        (&["python3", "-u", "trian.py"], ": did you mean train.py? Nothing was started"),
    ] {
        let (code, out, err) = output_of(&place.run(&[&["run", "--"], words].concat()));
        assert_eq!((code, &*out), (Some(2), ""), "{words:?}: {err}");
        assert!(err.contains(says), "{words:?}: {err}");
    }
    let (code, _, err) =
        output_of(&place.run(&["run", "-n", "2", "--gpus-per-worker", "2", "--gpus", "3", "--", "true"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("-n 2 --gpus-per-worker 2 needs 4 GPUs: --gpus gives it 3. Nothing was started"), "{err}");
    let (code, _, err) = output_of(&place.run(&["run", "--workdir", "nowhere", "--", "true"]));
    assert!(code == Some(2) && err.contains("--workdir nowhere: no such directory. Nothing was started"), "{err}");
    let (code, _, err) = output_of(&place.run(&["run"]));
    assert!(code == Some(2) && err.contains("<FILE"), "{err}");
    let (code, _, err) = output_of(&place.run(&["run", "--gpus", "some", "job.yaml"]));
    assert!(code == Some(2) && err.contains("`auto` for all that are free"), "{err}");
}

#[test]
fn the_manifest_of_a_command_can_be_kept() {
    let place = Place::new();
    let words = [
        "run",
        "-n",
        "4",
        "--gpus-per-worker",
        "2",
        "--max-restarts",
        "3",
        "--print-manifest",
        "--",
        "python3",
        "train.py",
    ];
    let (code, out, err) = output_of(&place.run(&words));
    assert_eq!((code, &*err), (Some(0), ""));
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("manifest_of_a_command", out);
    });
    assert!(!place.path("trainyard-data").exists(), "nothing was started");
    // It is a manifest as good as any.
    place.write("job.yaml", &out);
    let (code, out, err) = output_of(&place.run(&["validate", "job.yaml"]));
    assert_eq!((code, &*out), (Some(0), ""), "{err}");
    let torchrun =
        output_of(&place.run(&["run", "--print-manifest", "--", "torchrun", "--nproc-per-node=2", "train.py"])).1;
    let value: Value = serde_saphyr::from_str(&torchrun).unwrap();
    let container = &value["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["--nproc-per-node=2", "train.py"]));
}

/// Marks the test program's process: it runs as a worker; the value is unused.
const AS_WORKER: &str = "TRAINYARD_TEST_WORKER";

/// A worker that meets those of its own job and no others: rank 0 listens on every address, as PyTorch's store does. Only the jobs of
/// [`jobs_at_once_do_not_meet`] run it as one.
#[test]
fn worker() {
    if env::var_os(AS_WORKER).is_none() {
        return;
    }
    let of = |name: &str| env::var(name).unwrap();
    let host = of("HOSTNAME");
    let job = host.split('-').next().unwrap();
    let port: u16 = of("MASTER_PORT").parse().unwrap();
    if of("RANK") == "0" {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
        // The others are there at the same time.
        thread::sleep(Duration::from_millis(500));
        for _ in 1..of("WORLD_SIZE").parse().unwrap() {
            let (mut peer, _) = listener.accept().unwrap();
            let mut said = String::new();
            peer.read_to_string(&mut said).unwrap();
            assert_eq!(said, job);
            peer.write_all(job.as_bytes()).unwrap();
        }
    } else {
        let mut peer = None;
        until("rank 0", || {
            peer = TcpStream::connect((&*of("MASTER_ADDR"), port)).ok();
            peer.is_some()
        });
        let (mut peer, mut said) = (peer.unwrap(), String::new());
        peer.write_all(job.as_bytes()).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        peer.read_to_string(&mut said).unwrap();
        assert_eq!(said, job);
    }
}

#[test]
fn jobs_at_once_do_not_meet() {
    let program = env::current_exe().unwrap().display().to_string();
    let set = format!("{AS_WORKER}=1");
    let command = ["env", &set, &program, "--exact", "command::worker", "--nocapture"];
    // Three runs of a directory each, and one run of four jobs.
    let mut runs: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let place = Place::new();
            let words = [&["run", "-n", "2", "--name", name, "--"][..], &command].concat();
            let run = place.trainyard(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (place, run)
        })
        .into();
    let place = Place::new();
    let script = command.join(" ");
    let jobs = ["d", "e", "f", "g"].map(|name| job(name, &script).replace("replicas: 1", "replicas: 2"));
    place.write("jobs.yaml", &jobs.join("---\n"));
    let run = place.trainyard(&["run", "jobs.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    runs.push((place, run));
    for (_place, run) in runs {
        let (code, out, err) = output_of(&run.wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{out}{err}");
    }
}
