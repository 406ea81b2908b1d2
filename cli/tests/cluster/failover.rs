//! Two real operator processes on a real control plane: one is killed in the middle of restarts and endings, the other continues.
//! Also what `--server` prints of a live operator.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control_plane::{ControlPlane, Identity, Options, until};
use model::Timestamp;
use serde_json::{Value, json};

/// Of the lease in this test.
const LEASE_SECONDS: u64 = 8;
const SPACE: &str = "failover";

/// An operator process; killed when dropped.
struct Operator {
    child: Child,
    health: u16,
}

impl Operator {
    fn start(kubeconfig: &Path, data: &Path) -> Self {
        // The port is free at this moment; no other program on this machine asks for this one by number.
        let health = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let level = std::env::var("TRAINYARD_LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
        let child = Command::new(env!("CARGO_BIN_EXE_trainyard"))
            .args(["operator", "--namespace", SPACE, "--leader-elect-resource-namespace", SPACE])
            .args(["--leader-elect-lease-duration", &format!("{LEASE_SECONDS}s")])
            .args(["--leader-elect-renew-deadline", "5s", "--leader-elect-retry-period", "1s"])
            .args(["--log-address", "127.0.0.1:0", "--health-address", &format!("127.0.0.1:{health}")])
            .args(["--log-level", &level])
            .arg("--data-directory")
            .arg(data)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, health }
    }

    /// Returns the answer of `/readyz` or another path.
    fn says(&self, path: &str) -> String {
        crate::probe::get(self.health, path).unwrap_or_else(|error| format!("(no answer: {error})"))
    }

    fn until_says(&self, words: &str) {
        until(words, || {
            let says = self.says("/readyz");
            says.contains(words).then_some(()).ok_or(says)
        });
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.says("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; gives how long it took to end well.
    fn terminate(mut self) -> Duration {
        let started = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        started.elapsed()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Space(ControlPlane);

impl Space {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.0.run_kubectl([&["--namespace", SPACE], arguments].concat()).expect("kubectl does it")
    }

    fn get(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[&["get", "--output=json"], arguments].concat())).expect("JSON")
    }

    fn apply(&self, name: &str, spec: &Value, stop_for: &str) {
        let annotations = json!({"trainyard.dev/kwok-stop-for": stop_for});
        let template = json!({"metadata": {"annotations": annotations}, "spec": {
            "containers": [{"name": "aitj-main", "image": "none"}]}});
        let mut group = spec.clone();
        group["template"] = template;
        let manifest = json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"cleanPodPolicy": "All", "completePolicy": "Any", "replicaSpecs": {"w": group}}});
        self.0.apply(&manifest.to_string()).expect("it is accepted");
    }

    /// Pods of a job: name and uid.
    fn pods(&self, job: &str) -> Vec<(String, String, Value)> {
        let list = self.get(&["pods"]);
        let text = |pod: &Value, member: &str| pod["metadata"][member].as_str().unwrap_or_default().to_owned();
        let mut pods: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pod| (text(pod, "name"), text(pod, "uid"), pod.clone()))
            .filter(|(name, ..)| name.starts_with(&format!("{job}-w-")))
            .collect();
        pods.sort_by(|a, b| a.0.cmp(&b.0));
        pods
    }

    fn until_running(&self, job: &str, count: usize) -> Vec<(String, String)> {
        until(&format!("{count} pods of {job} run"), || {
            let pods = self.pods(job);
            let running =
                |pod: &Value| pod["status"]["phase"] == "Running" && pod["metadata"].get("deletionTimestamp").is_none();
            let right = pods.len() == count && pods.iter().all(|(_, _, pod)| running(pod));
            let shown: Vec<_> = pods.into_iter().map(|(name, uid, _)| (name, uid)).collect();
            if right { Ok(shown) } else { Err(format!("{shown:?}")) }
        })
    }

    fn until_phase(&self, job: &str, phase: &str) -> Value {
        until(&format!("{job} is {phase}"), || {
            let job = self.get(&["aitrainingjob", job]);
            if job["status"]["phase"] == phase { Ok(job) } else { Err(job["status"].to_string()) }
        })
    }

    /// A pod's only container ends with this code.
    fn exit(&self, pod: &str, code: u8) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let state = json!({"terminated": {"exitCode": code, "reason": "Completed"}});
        let container = json!({"name": "aitj-main", "image": "none", "imageID": "", "ready": false, "restartCount": 0,
            "state": state});
        let patch = json!({"status": {"phase": phase, "containerStatuses": [container]}}).to_string();
        self.kubectl(&["patch", "pod", pod, "--subresource=status", "--type=merge", "--patch", &patch]);
    }

    /// The kubeconfig of a service account with the rights that `deploy/base` gives, in this namespace: with fewer
    /// the test fails.
    fn operator_account(&self) -> PathBuf {
        for file in ["service-account.yaml", "roles.yaml", "rbac.yaml"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base").join(file);
            let text = std::fs::read_to_string(file).unwrap().replace("trainyard-system", SPACE);
            self.0.apply(&text).expect("account and rights are accepted");
        }
        self.0.kubeconfig_for(Identity::ServiceAccount { namespace: SPACE, name: "trainyard" }).expect("a kubeconfig")
    }

    /// A file with the token of a service account that may read the log, or may not.
    fn token(&self, name: &str, reader: bool, file: &Path) {
        self.kubectl(&["create", "serviceaccount", name]);
        if reader {
            let subject = format!("--serviceaccount={SPACE}:{name}");
            self.kubectl(&["create", "clusterrole", "log", "--verb=get", "--non-resource-url=/log"]);
            self.kubectl(&["create", "clusterrolebinding", "log", "--clusterrole=log", &subject]);
        }
        std::fs::write(file, self.kubectl(&["create", "token", name])).unwrap();
    }
}

/// Returns the output of the binary: success, standard output, standard error.
fn trainyard(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trainyard")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn printed(arguments: &[&str]) -> String {
    let (good, out, err) = trainyard(arguments);
    assert!(good, "trainyard {arguments:?}: {err}");
    out
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Returns the time at which the Lease expires after its last renewal, in milliseconds since 1970. Both clocks are this machine's.
fn expiry_ms(lease: &Value) -> u64 {
    let renewed = Timestamp::parse_rfc3339(lease["spec"]["renewTime"].as_str().unwrap()).unwrap();
    renewed.0 + LEASE_SECONDS * 1000
}

#[test]
fn a_killed_leader_is_replaced_in_the_middle_of_restarts_and_endings() {
    let plane = ControlPlane::start(Options { nodes: 6, ..Options::default() }).expect("a control plane");
    let definition = printed(&["crd"]);
    plane.apply(&definition).expect("the definition is accepted");
    plane.wait_for_definitions().expect("it is served");
    plane.run_kubectl(["create", "namespace", SPACE]).expect("a namespace");
    let space = Space(plane);
    let data = tempfile::tempdir().unwrap();
    let at = |name: &str| data.path().join(name);

    let account = space.operator_account();
    let first = Operator::start(&account, &at("first"));
    first.until_says("leading");
    let second = Operator::start(&account, &at("second"));
    second.until_says("following");

    let always = json!({"replicas": 3, "restartPolicy": "OnFailure", "restartScope": "All", "restartLimit": 3,
        "completePolicy": "Rank0"});
    space.apply("healthy", &always, "1s");
    space.apply("restarts", &always, "12s");
    space.apply("ends", &always, "12s");
    space.apply("done", &always, "1s");
    let each = json!({"replicas": 2, "restartPolicy": "OnFailure", "restartScope": "Pod"});
    space.apply("owed", &each, "1s");
    let healthy = space.until_running("healthy", 3);
    let restarting = space.until_running("restarts", 3);
    space.until_running("ends", 3);
    space.until_running("done", 3);
    let owed = space.until_running("owed", 2);
    space.exit("done-w-0", 0);
    let done = space.until_phase("done", "Succeed");
    // One job's pods begin to stop for a restart, another's for its end, which takes both longer than the lease lasts.
    space.exit("restarts-w-1", 9);
    space.exit("ends-w-0", 0);
    space.until_phase("restarts", "Terminating");
    space.until_phase("ends", "Terminating");
    let ahead = first.metric("trainyard_log_head_position");
    until("the standby has it all", || {
        let at = second.metric("trainyard_log_head_position");
        (at >= ahead).then_some(()).ok_or_else(|| format!("{at} of {ahead}"))
    });

    first.kill();
    // Something happens while no leader is up: the next leader must create a pod.
    space.kubectl(&["delete", "pod", "owed-w-1"]);
    let expiry = expiry_ms(&space.get(&["lease", "trainyard"]));
    second.until_says("leading");
    assert!(now_ms() + 200 > expiry, "a lease was taken before it expired");

    let replaced = space.until_running("owed", 2);
    assert!(replaced[0] == owed[0] && replaced[1].1 != owed[1].1, "{owed:?} {replaced:?}");
    let restarted = space.until_running("restarts", 3);
    for (old, new) in restarting.iter().zip(&restarted) {
        assert!(old.0 == new.0 && old.1 != new.1, "{old:?} {new:?}");
    }
    let ended = space.until_phase("ends", "Succeed");
    assert_eq!(space.pods("ends").len(), 0, "{ended}");
    let restarts = space.until_phase("restarts", "Running");
    assert_eq!(restarts["status"]["RestartCount"]["w"], 1, "{restarts}");
    // Longer than any echo takes: what is at rest stays at rest.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(space.until_running("healthy", 3), healthy);
    assert_eq!(space.until_running("restarts", 3), restarted);
    let untouched = space.get(&["aitrainingjob", "healthy"]);
    assert_eq!(untouched["status"]["RestartCount"], Value::Null, "{untouched}");
    assert_eq!(space.get(&["aitrainingjob", "done"])["status"], done["status"]);
    assert_eq!(space.pods("done").len(), 0);

    let file = |name: &str| at(name).display().to_string();
    space.token("reader", true, &at("token"));
    space.token("stranger", false, &at("strange"));
    let (kubeconfig, token) = (space.0.kubeconfig().display().to_string(), file("token"));
    let here = ["--server", "auto", "--kubeconfig", &kubeconfig, "--operator-namespace", SPACE];
    failover_time(&printed(&[&["log", "show", "--raw"], &here[..]].concat()), expiry);
    same_as_the_directory(&here, &file("second"), &file("export.jsonl"));
    refusals(&space, &here, &token, &file("strange"));

    // The former leader comes back to a log that was gone on with elsewhere, and follows.
    let third = Operator::start(&account, &at("first"));
    third.until_says("following");
    // A leader that is asked to end releases the Lease: the next one does not wait for its expiry.
    let asked = Instant::now();
    let ending = second.terminate();
    third.until_says("leading");
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(LEASE_SECONDS), "{took:?}, of which {ending:?} to end");
    eprintln!("handed over in {took:?}, of which {ending:?} to end");
    assert_eq!(space.until_running("healthy", 3), healthy);
    third.terminate();
}

/// From the lease's end until the new leader knows that its first write was done, by its own records: from the answer, or from a
/// watch that showed the mirror of its term sooner.
fn failover_time(records: &str, expiry: u64) {
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts = |record: &Value| record["facts"].as_array().cloned().unwrap_or_default();
    let started = records.iter().rposition(|r| facts(r).iter().any(|fact| fact.get("TermBegan").is_some())).unwrap();
    let time = |record: &Value| record["at"].as_u64().unwrap().saturating_sub(expiry);
    let term = &records[started]["term"];
    let shows = |fact: &Value| fact.get("Published").is_some() || fact["Job"]["mirror"]["term"] == *term;
    let written = records[started..].iter().find(|r| facts(r).iter().any(shows));
    let (started, written) = (time(&records[started]), time(written.expect("the new leader wrote something")));
    eprintln!("after the lease ran out: term began {started} ms, first write answered {written} ms");
    assert!(written < 2000, "first write answered {written} ms after the lease ran out");
}

/// A live operator's log reads as its directory does.
fn same_as_the_directory(here: &[&str], directory: &str, export: &str) {
    let of = |command: &[&str], place: &[&str]| printed(&[command, place].concat());
    for command in
        [&["explain", "failover/restarts"][..], &["history", "failover/restarts"], &["history", "failover/ends"]]
    {
        assert_eq!(of(command, here), of(command, &["--data-dir", directory]), "{command:?}");
    }
    for command in [&["log", "ls"][..], &["log", "show", "--job", "failover/ends"], &["log", "show", "--from", "5"]] {
        assert_eq!(of(command, here), of(command, &[directory]), "{command:?}");
    }
    of(&["log", "export", "--to", export], here);
    assert_eq!(std::fs::read_to_string(export).unwrap(), of(&["log", "export"], &[directory]));
    assert_eq!(of(&["log", "export"], here), of(&["log", "export"], &[directory]));
    assert!(of(&["log", "verify"], here).starts_with("good"));
    assert!(of(&["explain", "failover/restarts"], here).contains("Running"));
}

/// A rejection says what to do.
fn refusals(space: &Space, here: &[&str], token: &str, strange: &str) {
    let command = |place: &[&str]| trainyard(&[&["explain", "failover/restarts"], place].concat());
    let failed = |place: &[&str]| {
        let (good, out, err) = command(place);
        assert!(!good, "{out}");
        err
    };
    // A token of the user's own goes where the user says, and nowhere else.
    let lent = failed(&[here, &["--token-file", token]].concat());
    assert!(lent.contains("--server https://HOST:PORT --certificate-authority FILE"), "{lent}");
    let annotations = &space.get(&["lease", "trainyard"])["metadata"]["annotations"];
    let advertised = |name: &str| annotations[format!("trainyard.dev/log-{name}")].as_str().unwrap().to_owned();
    let authority = format!("{token}.authority");
    std::fs::write(&authority, advertised("certificate")).unwrap();
    let (address, authority) = (advertised("address"), ["--certificate-authority", &authority]);
    let own = |file| [&["--server", &address, "--token-file", file], &authority[..]].concat();
    assert!(command(&own(token)).0, "{}", command(&own(token)).2);
    let stranger = failed(&own(strange));
    assert!(stranger.contains("--clusterrole=trainyard-log-reader --serviceaccount=failover:stranger"), "{stranger}");
    let no_token = failed(&[&["--server", &address], &here[2..4], &authority[..]].concat());
    assert!(no_token.contains("kubectl create token SERVICEACCOUNT > FILE"), "{no_token}");
    let elsewhere = [&["--server", "https://127.0.0.1:1"], &here[2..]].concat();
    assert!(failed(&elsewhere).contains("cannot be reached"), "{}", failed(&elsewhere));
}
