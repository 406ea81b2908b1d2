//! `trainyard node-agent` against a real API server and scheduler, with real processes as pods; and the quickstart on such nodes
//! with a real `trainyard operator`, with workers and agents killed on the way.
//!
//! They stand here and not beside the agent because they need the built binary. Each test has a control plane of its own, one
//! at a time: five at once are too much for a small machine.

mod bench;
mod logs;
mod plugin;

use std::time::Duration;

use bench::{Bench, Node, text};
use control_plane::Options;
use serde_json::{Value, json};

/// A pod that runs a shell script.
fn shell(name: &str, policy: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 20,
            "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", script]}],
        },
    })
}

fn plain() -> Options {
    Options { nodes: 0, kwok: false, node_grace: Some(Duration::from_secs(12)), ..Options::default() }
}

#[test]
fn a_node_runs_pods_and_reports_what_becomes_of_them() {
    let bench = Bench::start(plain());
    let mut node = Node::start(&bench, "process-0", &["--gpus=2", "--label=rack=r1"]);
    node.wait_ready(true);
    let object = bench.get("node", "process-0");
    assert_eq!(text(&object, "/metadata/labels/rack"), "r1");
    assert_eq!(text(&object, "/status/allocatable/nvidia.com~1gpu"), "2");
    assert_eq!(text(&bench.get_in("kube-node-lease", "lease", "process-0"), "/spec/holderIdentity"), "process-0");

    // Success, failure, GPUs, its own address.
    let mut good = shell("good", "Never", "echo gpus=$CUDA_VISIBLE_DEVICES ip=$IP; echo credentials=$KUBECONFIG");
    good["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
    good["spec"]["containers"][0]["env"] =
        json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    bench.create(&good);
    bench.create(&shell("bad", "Never", "exit 7"));
    let good = bench.wait_phase("good", "Succeeded");
    let ip = text(&good, "/status/podIP");
    assert!(ip.starts_with("127."), "{ip}");
    assert_eq!(node.output("good", "main-0"), format!("gpus=0 ip={ip}\ncredentials=\n"));
    assert_eq!(bench.kubectl(&["logs", "good"]), format!("gpus=0 ip={ip}\ncredentials=\n"));
    assert_eq!(bench.kubectl(&["logs", "good", "--tail=1"]), "credentials=\n");
    // The node answers the API server, and no other client on this machine.
    let output = "/containerLogs/default/good/main";
    assert_eq!((node.answers(None, output), node.answers(Some("eve"), output)), (401, 403));
    bench.kubectl(&["create", "clusterrolebinding", "eve", "--clusterrole=system:kubelet-api-admin", "--user=eve"]);
    assert_eq!(node.answers(Some("eve"), output), 200);
    let bad = bench.wait_phase("bad", "Failed");
    assert_eq!(bad.pointer("/status/containerStatuses/0/state/terminated/exitCode"), Some(&json!(7)));
    // What the scheduler wrote is still there.
    let conditions = bad["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "PodScheduled" && c["status"] == "True"), "{conditions:?}");

    // Of the agent's own environment a pod gets the way to programs; the rest is the runtime's.
    bench.create(&shell("clean", "Never", "env"));
    bench.wait_phase("clean", "Succeeded");
    let environment = node.output("clean", "main-0");
    let mut names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(
        names,
        ["CUDA_VISIBLE_DEVICES", "HOSTNAME", "PATH", "TORCHELASTIC_ERROR_FILE", "TRAINYARD_RUN"],
        "{environment}"
    );

    // What a process cannot have is refused, in words; names that lead elsewhere are those of nothing.
    let mut sealed = shell("sealed", "Never", "true");
    sealed["spec"]["containers"][0]["securityContext"] = json!({"readOnlyRootFilesystem": true});
    let mut astray = shell("astray", "Never", "env");
    astray["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "../../kube-system/configmaps/x"}}]);
    for (pod, want) in
        [(sealed, "readOnlyRootFilesystem true of container \"main\" is not honoured"), (astray, "not found")]
    {
        // An API server that looks at names itself is as good.
        let name = text(&pod, "/metadata/name");
        if bench.try_create(&pod).is_err() && name == "astray" {
            continue;
        }
        let refused = bench.wait("pod", &name, "refused", |pod| {
            text(pod, "/status/containerStatuses/0/state/waiting/reason") == "CreateContainerConfigError"
        });
        let message = text(&refused, "/status/containerStatuses/0/state/waiting/message");
        assert!(message.contains(want), "{message}");
        bench.kubectl(&["delete", "pod", &name]);
    }

    // An object it refers to comes later.
    let mut waiting = shell("waiting", "Never", "test \"$WORD\" = yes");
    waiting["spec"]["containers"][0]["env"] =
        json!([{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}]);
    bench.create(&waiting);
    bench.wait("pod", "waiting", "waiting for the ConfigMap", |pod| {
        text(pod, "/status/containerStatuses/0/state/waiting/reason") == "CreateContainerConfigError"
    });
    bench.create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "words", "namespace": "default"}, "data": {"word": "yes"}}));
    bench.wait_phase("waiting", "Succeeded");

    // Output is followed to its end.
    bench.create(&shell("talker", "Never", "echo one; sleep 3; echo two"));
    bench.wait_phase("talker", "Running");
    assert_eq!(bench.kubectl(&["logs", "--follow", "talker"]), "one\ntwo\n");

    // A graceful deletion gives the time it says, and the object goes when the process has.
    let polite = "trap 'echo asked; sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    bench.create(&shell("polite", "Never", polite));
    bench.wait_phase("polite", "Running");
    node.wait_output("polite", "main-0", "up\n");
    bench.kubectl(&["delete", "pod", "polite", "--wait=true"]);
    let said = node.output("polite", "main-0");
    assert!(said.ends_with("asked\n"), "{said:?}");
    // One that does not listen is killed when its time is up.
    bench.create(&shell("deaf", "Never", "trap '' TERM; echo up; while :; do sleep 0.1; done"));
    bench.wait_phase("deaf", "Running");
    node.wait_output("deaf", "main-0", "up\n");
    bench.kubectl(&["delete", "pod", "deaf", "--wait=true", "--grace-period=1"]);
    node.wait_no_process();
    node.stop();
}

/// `kubectl exec`: streams, exit codes, places, and what is refused.
#[test]
fn programs_are_started_in_pods() {
    let bench = Bench::start(plain());
    let mut node = Node::start(&bench, "process-0", &[]);
    node.wait_ready(true);
    let mut host = shell("host", "Never", "touch $AT; while :; do sleep 0.1; done");
    host["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
    let container = &mut host["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "work", "mountPath": "/data"}]);
    container["workingDir"] = json!("/data");
    container["env"] = json!([{"name": "AT", "value": "/data/up"}]);
    bench.create(&host);
    bench.wait_phase("host", "Running");
    assert_eq!(bench.kubectl(&["exec", "host", "--", "sh", "-c", "ls; echo $AT >&2"]).lines().next(), Some("up"));
    let much = vec![b'x'; 3_000_000];
    let (code, said) =
        bench.kubectl_with(&["exec", "-i", "host", "--", "sh", "-c", "wc -c; echo bad >&2; exit 7"], &much);
    assert_eq!(code, Some(7), "{said}");
    assert!(said.starts_with("3000000\n") && said.contains("bad\n"), "{said}");
    let (code, said) = bench.kubectl_with(&["exec", "host", "--", "no-such-program"], b"");
    assert!(code == Some(1) && said.contains("cannot start no-such-program: No such file"), "{said}");
    // The node answers the API server, and no other client on this machine.
    let path = "/exec/default/host/main?command=true&output=1";
    assert_eq!((node.answers(None, path), node.answers(Some("eve"), path)), (401, 403));
    bench.kubectl(&["create", "clusterrolebinding", "eve", "--clusterrole=system:kubelet-api-admin", "--user=eve"]);
    // A terminal is refused, and so is anything but a WebSocket.
    for path in ["/exec/default/host/main?command=true&tty=1", path, "/exec/default/host/main?output=1"] {
        assert_eq!(node.answers(Some("eve"), path), 400, "{path}");
    }
    // What was started in a pod ends with it.
    let (code, said) = std::thread::scope(|scope| {
        let exec = scope.spawn(|| bench.kubectl_with(&["exec", "host", "--", "sh", "-c", "touch in; sleep 600"], b""));
        control_plane::until("it runs", || {
            let listed = bench.kubectl(&["exec", "host", "--", "ls"]);
            if listed.contains("in\n") { Ok(()) } else { Err(listed) }
        });
        bench.kubectl(&["delete", "pod", "host", "--wait=true", "--grace-period=1"]);
        exec.join().unwrap()
    });
    assert_ne!(code, Some(0), "{said}");
    node.stop();
    node.wait_no_process();
}

#[test]
fn an_agent_that_comes_back_takes_up_what_it_finds() {
    let bench = Bench::start(plain());
    let mut node = Node::start(&bench, "process-0", &[]);
    node.wait_ready(true);
    for (name, policy) in [("never", "Never"), ("always", "Always")] {
        bench.create(&shell(name, policy, "while :; do sleep 0.1; done"));
        bench.wait_phase(name, "Running");
    }
    bench.create(&shell("done", "Never", "echo done"));
    bench.wait_phase("done", "Succeeded");

    node.kill();
    node.wait_no_process();
    node.start_again();
    let never = bench.wait_phase("never", "Failed");
    assert_eq!(text(&never, "/status/reason"), "NodeAgentRestarted");
    assert_eq!(never.pointer("/status/containerStatuses/0/state/terminated/exitCode"), Some(&json!(137)));
    bench.wait("pod", "always", "running again", |pod| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"] == 1 && !container["state"]["running"].is_null()
    });
    assert_eq!(text(&bench.get("pod", "done"), "/status/phase"), "Succeeded");
    assert_eq!(bench.kubectl(&["logs", "done"]), "done\n");

    // Asked to stop, it ends its pods, says so, and takes no more.
    node.stop();
    let always = bench.get("pod", "always");
    assert_eq!(
        (text(&always, "/status/phase"), text(&always, "/status/reason")),
        ("Failed".into(), "Terminated".into())
    );
    node.wait_ready(false);
    node.wait_no_process();
}

#[test]
fn two_agents_do_not_share_a_directory() {
    let bench = Bench::start(Options { scheduler: false, ..plain() });
    let node = Node::start(&bench, "process-0", &[]);
    node.wait_ready(true);
    let said = node.twin_says("process-1");
    assert!(said.contains("in use by another agent"), "{said}");
    let said = node.twin_says("Process_1");
    assert!(said.contains("--node-name") && said.contains("Process_1"), "{said}");
}

/// The sample as it stands, but long enough for all that is to happen to it.
fn quickstart(steps: u32) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples/quickstart.yaml");
    let mut job: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let command = job.pointer_mut("/spec/replicaSpecs/trainer/template/spec/containers/0/command").unwrap();
    for word in command.as_array_mut().unwrap() {
        if word.as_str().unwrap().starts_with("--steps=") {
            *word = json!(format!("--steps={steps}"));
        }
    }
    job["metadata"]["namespace"] = json!("default");
    job
}

fn restarts(job: &Value) -> u64 {
    job.pointer("/status/RestartCount/trainer").and_then(Value::as_u64).unwrap_or_default()
}

/// Rank 2 kills itself on its first try; then an agent is killed and comes back. Both cost a restart, and the sums are right.
#[test]
fn the_quickstart_survives_a_worker_and_an_agent_killed() {
    let bench = Bench::start(plain());
    let mut nodes = [Node::start(&bench, "process-0", &[]), Node::start(&bench, "process-1", &[])];
    for node in &nodes {
        node.wait_ready(true);
    }
    let _operator = bench.operator();
    bench.create(&quickstart(40));
    bench.wait("aitj", "quickstart", "running again after rank 2 was killed", |job| {
        restarts(job) == 1 && text(job, "/status/phase") == "Running"
    });
    let used: Vec<String> = bench.pods().iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    assert!(["process-0", "process-1"].iter().all(|node| used.iter().any(|used| used == node)), "{used:?}");

    nodes[1].kill();
    nodes[1].start_again();
    bench.wait("aitj", "quickstart", "restarted after the agent was killed", |job| restarts(job) == 2);
    let job = bench.wait("aitj", "quickstart", "over with success", |job| text(job, "/status/phase") == "Succeed");
    assert_eq!(restarts(&job), 2);
    let printed: Vec<String> = nodes.iter().flat_map(|node| node.outputs("quickstart-trainer-0")).collect();
    assert!(printed.iter().any(|text| text.contains("step 40 of 40: all 100000 sums are right")), "{printed:?}");
    for node in &mut nodes {
        node.stop();
        node.wait_no_process();
    }
}

/// An agent is killed and stays away: its node is lost, and the job continues where there is one left.
#[test]
fn a_job_moves_away_from_a_node_that_stays_dead() {
    let bench = Bench::start(plain());
    let mut nodes = [Node::start(&bench, "process-0", &[]), Node::start(&bench, "process-1", &[])];
    for node in &nodes {
        node.wait_ready(true);
    }
    let _operator = bench.operator();
    let mut job = quickstart(60);
    job["spec"]["replicaSpecs"]["trainer"]["restartPolicy"] = json!("Always");
    bench.create(&job);
    bench.wait("aitj", "quickstart", "running again after rank 2 was killed", |job| {
        restarts(job) == 1 && text(job, "/status/phase") == "Running"
    });
    nodes[1].kill();
    bench.wait("aitj", "quickstart", "restarted for the lost node", |job| restarts(job) == 2);
    bench.wait("aitj", "quickstart", "over with success", |job| text(job, "/status/phase") == "Succeed");
    let printed = nodes[0].outputs("quickstart-trainer-0");
    assert!(printed.iter().any(|text| text.contains("step 60 of 60: all 100000 sums are right")), "{printed:?}");
    nodes[1].wait_no_process();
}
