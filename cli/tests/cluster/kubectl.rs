//! What a user does with kubectl: manifests are taken or refused by name of the field, and get, describe, explain, apply, diff, wait
//! and scale do what one expects. The API server's part without an operator; what the operator says of bad input with one.

use control_plane::{Options, until};
use serde_json::{Value, json};

use crate::common::{Cluster, file};
use crate::operator::Operator;

/// A job of one group that nothing is wrong with.
fn job(name: &str) -> Value {
    json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicaSpecs": {"w": {"replicas": 2,
            "template": {"spec": {"containers": [{"name": "aitj-main", "image": "none"}]}}}}}})
}

/// Runs kubectl with this on its standard input: exit code, and both streams.
pub(crate) fn with_input(cluster: &Cluster, words: &[&str], input: &str) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input.yaml");
    std::fs::write(&path, input).unwrap();
    let mut command = cluster.plane.kubectl(words);
    let output = command.arg("-f").arg(&path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}

fn samples_are_taken_under_strict_validation(cluster: &Cluster) {
    for path in [
        "deploy/samples/quickstart.yaml",
        "deploy/samples/python-allreduce.yaml",
        "deploy/samples/torch-ddp.yaml",
        "fixtures/manifests/paddle-mnist.yaml",
    ] {
        let (code, says) = with_input(
            cluster,
            &["create", "--validate=strict", "--dry-run=server", "--namespace=default"],
            &file(path),
        );
        assert_eq!(code, 0, "{path}: {says}");
        assert!(says.contains("created (server dry run)"), "{path}: {says}");
    }
}

/// A value that the definition rejects: the API server names the field.
fn bad_input_is_refused_by_name(cluster: &Cluster) {
    let rows = [
        ("/spec/replicaSpecs/w/replicas", json!(-1), "spec.replicaSpecs.w.replicas"),
        ("/spec/replicaSpecs/w/replicas", json!("3"), "spec.replicaSpecs.w.replicas"),
        ("/spec/replicaSpecs/w", json!([]), "spec.replicaSpecs.w"),
        ("/spec/replicaSpecs/w", json!("x"), "spec.replicaSpecs.w"),
        ("/spec/replicaSpecs", json!([1]), "spec.replicaSpecs"),
        ("/spec", json!("x"), "spec"),
    ];
    for (pointer, value, path) in rows {
        let mut bad = job("bad");
        *bad.pointer_mut(pointer).unwrap() = value.clone();
        let (code, says) = with_input(cluster, &["create", "--validate=strict"], &bad.to_string());
        assert_ne!(code, 0, "{pointer} = {value} was taken: {says}");
        assert!(says.contains(&format!("{path}: Invalid value")) && says.contains("is invalid"), "{pointer}: {says}");
    }
}

/// A value that the definition accepts because users have stored it: the operator names field and value on the job.
fn bad_input_becomes_a_condition(cluster: &Cluster) {
    let rows = [
        ("/spec/replicaSpecs/w/restartScope", json!("Node"), "spec.replicaSpecs.w.restartScope: must be one of"),
        (
            "/spec/replicaSpecs/w/template",
            json!({}),
            "spec.replicaSpecs.w.template.spec.containers: a pod template needs",
        ),
        ("/spec/replicaSpecs", json!({}), "spec.replicaSpecs: must name at least one group"),
        ("/spec/priority", json!("a b"), "spec.priority: must be a label value"),
    ];
    for (at, (pointer, value, _)) in rows.iter().enumerate() {
        let mut bad = job(&format!("bad-{at}"));
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[member] = value.clone();
        let (code, says) = with_input(cluster, &["create", "--validate=strict"], &bad.to_string());
        assert_eq!(code, 0, "{pointer} = {value}: {says}");
    }
    for (at, (pointer, _, says)) in rows.iter().enumerate() {
        let name = format!("bad-{at}");
        until(&format!("{name} ({pointer}) says what is wrong"), || {
            let job = cluster.get("default", &["aitrainingjob", &name]);
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let reported = conditions.iter().any(|condition| {
                condition["type"] == "Invalid" && condition["message"].as_str().is_some_and(|text| text.contains(says))
            });
            if reported { Ok(()) } else { Err(job["status"].to_string()) }
        });
        assert!(cluster.kubectl(&["describe", "aitj", &name]).contains(says), "kubectl describe does not show");
        cluster.kubectl(&["delete", "aitj", &name]);
    }
}

fn words_of(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn a_running_job_is_looked_at(cluster: &Cluster) {
    let (code, says) = with_input(cluster, &["apply", "--validate=strict"], &job("run").to_string());
    assert_eq!(code, 0, "{says}");
    let waited = cluster.kubectl(&["wait", "aitj/run", "--for=jsonpath={.status.phase}=Running", "--timeout=60s"]);
    assert!(waited.contains("condition met"), "{waited}");

    let table = cluster.kubectl(&["get", "aitj"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(words_of(lines[0]), ["NAME", "PHASE", "READY", "RESTARTS", "QUEUE", "REASON", "AGE"]);
    assert_eq!(words_of(lines[1])[..5], ["run", "Running", "2/2", "0", "TrainingJobRunning"], "{table}");
    let wide = cluster.kubectl(&["get", "aitj", "--output=wide"]);
    assert_eq!(
        words_of(wide.lines().next().unwrap()),
        ["NAME", "PHASE", "READY", "RESTARTS", "QUEUE", "REASON", "RESTARTING", "RUNNING-SINCE", "ENDED", "AGE"]
    );
    let shown = cluster.get("default", &["aitj", "run"]);
    let conditions = shown["status"]["conditions"].as_array().unwrap();
    assert!(!conditions.is_empty(), "{shown}");
    let generation = &shown["metadata"]["generation"];
    assert!(conditions.iter().all(|condition| condition["observedGeneration"] == *generation), "{shown}");
    let described = cluster.kubectl(&["describe", "aitj", "run"]);
    for word in ["Replica Specs:", "Phase:", "Running", "Conditions:", "Events:"] {
        assert!(described.contains(word), "no {word} in\n{described}");
    }
    until("kubectl describe shows what was done", || {
        let described = cluster.kubectl(&["describe", "aitj", "run"]);
        let events = described.split_once("Events:").unwrap().1;
        if events.contains("SuccessfulCreatePod") && events.contains("run-w-1") { Ok(()) } else { Err(described) }
    });
    let waited = cluster.kubectl(&["wait", "aitj/run", "--for=condition=Running", "--timeout=30s"]);
    assert!(waited.contains("condition met"), "{waited}");
    let late = cluster.try_kubectl(&["wait", "aitj/run", "--for=jsonpath={.status.phase}=Succeed", "--timeout=1s"]);
    assert!(late.unwrap_err().contains("timed out waiting for the condition"));

    // apply and diff: the same again is no change; another number of pods is, and the operator acts on it.
    let (code, says) = with_input(cluster, &["diff"], &job("run").to_string());
    assert_eq!((code, says.as_str()), (0, ""), "no difference");
    let (code, says) = with_input(cluster, &["apply"], &job("run").to_string());
    assert!(code == 0 && says.contains("unchanged"), "{says}");
    let mut more = job("run");
    more["spec"]["replicaSpecs"]["w"]["replicas"] = json!(3);
    let (code, says) = with_input(cluster, &["diff"], &more.to_string());
    assert!(code == 1 && says.contains("+      replicas: 3"), "{code}: {says}");
    let (code, says) = with_input(cluster, &["apply"], &more.to_string());
    assert!(code == 0 && says.contains("configured"), "{says}");
    until("a third pod", || {
        let pods = cluster.kubectl(&["get", "pods", "--output=name"]);
        if pods.contains("pod/run-w-2") { Ok(()) } else { Err(pods) }
    });

    // There is no one number to scale: groups have their own. The API server answers 404 for a subresource that is not defined,
    // in words of its own; what does it instead stands in docs/kubernetes.md.
    let refused = cluster.try_kubectl(&["scale", "aitj/run", "--replicas=4"]).unwrap_err();
    assert!(refused.contains("Error from server (NotFound)"), "{refused}");
    let job = cluster.get("default", &["aitj", "run"]);
    assert_eq!(job["spec"]["replicaSpecs"]["w"]["replicas"], 3);
    let scale = r#"{"spec":{"replicaSpecs":{"w":{"replicas":1}}}}"#;
    cluster.kubectl(&["patch", "aitj", "run", "--type=merge", "-p", scale]);
    until("one pod is left", || {
        let pods = cluster.kubectl(&["get", "pods", "--output=name"]);
        if pods == "pod/run-w-0\n" { Ok(()) } else { Err(pods) }
    });

    cluster.kubectl(&["delete", "aitj", "run", "--timeout=60s"]);
    until("the pods are gone", || {
        let pods = cluster.kubectl(&["get", "pods", "--output=name"]);
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    });
}

fn fields_are_explained(cluster: &Cluster) {
    let rows = [
        ("aitj", "A distributed training job of named replica groups."),
        ("aitj.spec.timeLimit", "Seconds from the first pod running"),
        ("aitj.spec.replicaSpecs.restartPolicy", "Which failures are restarted"),
        ("aitj.status.RestartCount", "Restarts so far"),
    ];
    for (field, says) in rows {
        let text = cluster.kubectl(&["explain", field]);
        let text = words_of(&text).join(" ");
        assert!(text.contains(says), "{field}: {text}");
    }
    for (field, kind) in [
        ("aitj.spec.timeLimit", "<integer>"),
        ("elasticjobs.spec.replicaSpecs.template.spec.containers.image", "<string>"),
        ("torchjobs.spec.torchTaskSpecs", "<map[string]Object>"),
        ("torchrunjobs.spec.env.name", "<string>"),
        ("torchrunqueues.spec.podTemplate.spec.tolerations", "<[]Object>"),
        ("trainingqueues.spec.quota.nominal", "<integer>"),
        ("modelversions.spec.storage.nfs.server", "<string>"),
    ] {
        let text = cluster.kubectl(&["explain", field]);
        assert!(text.contains(kind) && text.contains("DESCRIPTION:"), "{field}: {text}");
        assert!(!text.contains("<no description>") && !text.contains("<empty>"), "{field}: {text}");
    }
}

/// The original of TorchJob had a schema: a field that it does not know is no spelling mistake without consequences.
fn unknown_fields_are_refused_where_the_original_refused_them(cluster: &Cluster) {
    let template = json!({"spec": {"containers": [{"name": "torch", "image": "i", "imagePullPolice": "Always"}]}});
    let job = |tasks: Value| {
        json!({"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob",
            "metadata": {"name": "t", "namespace": "default"}, "spec": {"torchTaskSpecs": tasks}})
    };
    let words = ["create", "--validate=strict", "--dry-run=server"];
    let (code, says) = with_input(cluster, &words, &job(json!({"Master": {"template": template}})).to_string());
    assert!(code != 0 && says.contains("imagePullPolice"), "{says}");
    let (code, says) = with_input(cluster, &words, &job(json!({"Master": {"replicas": 1}})).to_string());
    assert!(code != 0 && says.contains("unknown field \"spec.torchTaskSpecs.Master.replicas\""), "{says}");
}

#[test]
fn kubectl_does_what_users_expect() {
    let cluster = Cluster::start(Options { nodes: 2, ..Options::default() });
    samples_are_taken_under_strict_validation(&cluster);
    bad_input_is_refused_by_name(&cluster);
    fields_are_explained(&cluster);
    unknown_fields_are_refused_where_the_original_refused_them(&cluster);
    let data = tempfile::tempdir().unwrap();
    let _operator = Operator::start(&cluster, &data.path().join("data"));
    until("the default account", || cluster.try_kubectl(&["get", "serviceaccount", "default"]));
    bad_input_becomes_a_condition(&cluster);
    a_running_job_is_looked_at(&cluster);
}
