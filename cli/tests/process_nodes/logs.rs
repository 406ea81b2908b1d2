//! `trainyard logs --server`: ranks by the operator's log, output by the API server, from pods of a process node.

use serde_json::{Value, json};

use crate::bench::{Bench, Node, text};
use crate::plain;

/// Two workers, which say who they are. The second one ends with an error once and is restarted in its pod.
fn elastic() -> Value {
    let script = "echo from $HOSTNAME
case $HOSTNAME in *-1) [ -e /tmp/$MARK ] || { touch /tmp/$MARK; echo wrong; exit 3; };; esac
echo again; while [ ! -e /tmp/$MARK.end ]; do sleep 0.2; done; echo bye";
    let mark = format!("trainyard-logs-{}", std::process::id());
    json!({
        "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379", "minReplicas": 2, "maxReplicas": 2,
            "replicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "elasticjob-worker", "image": "none", "command": ["sh", "-c", script],
                    "env": [{"name": "MARK", "value": mark}]}]}}}},
        },
    })
}

#[test]
fn logs_of_a_job_on_a_cluster() {
    let bench = Bench::start(plain());
    let mut node = Node::start(&bench, "process-0", &[]);
    node.wait_ready(true);
    let _operator = bench.operator_with_log();
    let job = elastic();
    bench.create(&job);
    bench.wait("pod", "j-worker-1", "running again", |pod| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"] == 1 && !container["state"]["running"].is_null()
    });
    node.wait_output("j-worker-0", "elasticjob-worker-1", "from j-worker-0\nagain\n");
    let logs = |words: &[&str]| bench.trainyard(&[&["logs", "j", "--server", "auto"], words].concat());
    let (code, out, err) = logs(&[]);
    assert_eq!((code, &*out), (Some(0), "from j-worker-0\nagain\n"), "{err}");
    assert!(err.contains("rank 0, of 0 to 1; --rank N shows another, --all shows all"), "{err}");
    let (code, out, err) = logs(&["--rank", "1", "--tail", "1"]);
    assert_eq!((code, &*out, &*err), (Some(0), "again\n", ""));
    let (code, out, err) = logs(&["--rank", "1", "--previous"]);
    assert_eq!((code, &*out, &*err), (Some(0), "from j-worker-1\nwrong\n", ""));
    let (code, out, err) = logs(&["--rank", "0", "--previous"]);
    assert_eq!((code, &*out), (Some(1), ""), "{err}");
    assert!(err.contains("j: no run before the last one; where the job is: trainyard get j --server auto"), "{err}");
    let (_, all, _) = logs(&["--all"]);
    let all: Vec<&str> = all.lines().collect();
    assert_eq!(
        all,
        ["j-worker-0 | from j-worker-0", "j-worker-0 | again", "j-worker-1 | from j-worker-1", "j-worker-1 | again"]
    );
    let (code, _, err) = logs(&["--rank", "2"]);
    assert!(code == Some(2) && err.contains("--rank 2: j has the ranks 0 to 1"), "{err}");

    // It is followed to the end of the job.
    let mark = text(&job, "/spec/replicaSpecs/Worker/template/spec/containers/0/env/0/value");
    let end = std::path::PathBuf::from(format!("/tmp/{mark}.end"));
    let (code, out, err) = std::thread::scope(|scope| {
        let following = scope.spawn(|| logs(&["--all", "--follow", "--tail", "1"]));
        std::thread::sleep(std::time::Duration::from_secs(2));
        std::fs::write(&end, "").unwrap();
        following.join().unwrap()
    });
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let want = ["j-worker-0 | again", "j-worker-0 | bye", "j-worker-1 | again", "j-worker-1 | bye"];
    assert_eq!((code, &lines[..]), (Some(0), &want[..]), "{err}");
    for file in [end, format!("/tmp/{mark}").into()] {
        std::fs::remove_file(file).unwrap();
    }
    node.stop();
}
