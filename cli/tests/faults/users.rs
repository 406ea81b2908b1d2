//! What users and administrators do to a running operator: other writers, quotas, namespaces that go, late definitions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster;
use crate::common::{Cluster, until};
use crate::jobs::{Jobs, Kind, Seen};
use crate::operator::Operator;

/// A user annotates and edits, and an old client writes back whole statuses it read before, all the time.
#[test]
fn other_writers_change_neither_counts_nor_endings() {
    let (cluster, _turn) = cluster();
    let mut jobs = Jobs::new(cluster, "edits");
    let seen = Seen::begin(cluster, jobs.namespace);
    let operator = Operator::start(cluster, Some(jobs.namespace), true);
    operator.until_leading();
    jobs.create(&[(Kind::Healthy, 1), (Kind::Succeeds, 1), (Kind::Fails, 1), (Kind::Restarts, 2), (Kind::TimesOut, 1)]);
    let names = jobs.names();
    let over = AtomicBool::new(false);
    let writes = scope(|scope| {
        let writer = scope.spawn(|| write_all_the_time(cluster, jobs.namespace, &names, &over));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(25) {
            sleep(Duration::from_millis(500));
        }
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(writes >= 10, "{writes} writes");
    jobs.until_ended();
    jobs.check(&seen);
    for name in &names {
        let job = cluster.get(jobs.namespace, &["aitrainingjob", name]);
        assert!(job["metadata"]["annotations"]["example.com/touched"].is_string(), "{name} lost a user's annotation");
        assert!(job["spec"]["frameworkType"].is_string(), "{name} lost a user's edit");
    }
    eprintln!("{writes} foreign writes");
}

/// Gives how many writes were taken.
fn write_all_the_time(cluster: &Cluster, namespace: &str, names: &[String], over: &AtomicBool) -> u32 {
    let mut taken = 0;
    let mut stale: Vec<Value> = Vec::new();
    for round in 0.. {
        for (at, name) in names.iter().enumerate() {
            if over.load(Ordering::Relaxed) {
                return taken;
            }
            let words = ["--namespace", namespace, "aitrainingjob", name, "--type=merge", "--patch"];
            let patch = |subresource: &[&str], body: &Value| {
                let text = body.to_string();
                let all = [&["patch"], subresource, &words[..], &[&text]].concat();
                cluster.try_kubectl(&all).is_ok()
            };
            let edit = json!({"metadata": {"annotations": {"example.com/touched": round.to_string()}},
                "spec": {"frameworkType": format!("edit-{round}")}});
            taken += u32::from(patch(&[], &edit));
            let object = cluster.get(namespace, &["aitrainingjob", name]);
            match stale.get(at) {
                // What it read a round ago, as a client that writes whole objects does.
                Some(status) if !status.is_null() => {
                    taken += u32::from(patch(&["--subresource=status"], &json!({"status": status})));
                    stale[at] = object["status"].clone();
                }
                Some(_) => stale[at] = object["status"].clone(),
                None => stale.push(object["status"].clone()),
            }
        }
    }
    taken
}

#[test]
fn a_quota_that_refuses_pods_and_is_raised() {
    let (cluster, _turn) = cluster();
    let mut jobs = Jobs::new(cluster, "quota");
    let quota = |pods: u32| {
        cluster.apply(
            &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "quota"},
                "spec": {"hard": {"pods": pods.to_string()}}})
            .to_string(),
        );
        until("the quota is in force", || {
            let object = cluster.get("quota", &["resourcequota", "few"]);
            let hard = &object["status"]["hard"]["pods"];
            if hard == &json!(pods.to_string()) { Ok(()) } else { Err(object.to_string()) }
        });
    };
    quota(3);
    let seen = Seen::begin(cluster, jobs.namespace);
    let operator = Operator::start(cluster, Some(jobs.namespace), true);
    operator.until_leading();
    jobs.create(&[(Kind::Healthy, 2)]);
    until("three of four pods are there", || {
        let pods = jobs.pods();
        if pods.len() == 3 { Ok(()) } else { Err(format!("{pods:?}")) }
    });
    let few = jobs.pods();
    // The user is told why.
    until("a job says that the quota refuses", || {
        let told = cluster.kubectl(&["describe", "aitrainingjobs", "--namespace", "quota"]);
        if told.contains("exceeded quota") { Ok(()) } else { Err(told) }
    });
    let refusals = || creations(&operator, "403");
    let before = refusals();
    sleep(Duration::from_secs(8));
    let tried = refusals() - before;
    assert!((1..=16).contains(&tried), "{tried} refused calls in 8 s: neither never nor in a busy loop");
    assert_eq!(jobs.pods(), few, "what exists stays");
    quota(10);
    jobs.until_ended();
    jobs.check(&seen);
    assert!(few.is_subset(&jobs.pods()));
}

/// Creations of pods that were answered so, by the operator's metrics.
fn creations(operator: &Operator<'_>, code: &str) -> u64 {
    let text = operator.says("/metrics");
    let lines = text.lines().filter(|line| line.starts_with("trainyard_calls_total{"));
    let of_pods = lines.filter(|line| line.contains("\"create\"") && line.contains("\"Pod\"") && line.contains(code));
    of_pods.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_namespace_that_goes_with_running_jobs() {
    let (cluster, _turn) = cluster();
    let mut going = Jobs::new(cluster, "going");
    let mut staying = Jobs::new(cluster, "staying");
    let seen = Seen::begin(cluster, staying.namespace);
    // It serves all namespaces.
    let mut operator = Operator::start(cluster, None, true);
    operator.until_leading();
    going.create(&[(Kind::Healthy, 3), (Kind::Restarts, 2)]);
    staying.create(&[(Kind::Healthy, 2)]);
    going.until_some_run();
    staying.until_running();
    let begun = Instant::now();
    cluster.kubectl(&["delete", "namespace", "going", "--timeout=90s"]);
    eprintln!("gone after {:?}", begun.elapsed());
    staying.create(&[(Kind::Succeeds, 1), (Kind::Restarts, 1)]);
    staying.until_ended();
    staying.check(&seen);
    assert!(operator.is_alive());
    // The same name again is another namespace.
    let mut again = Jobs::new(cluster, "going");
    again.create(&[(Kind::Succeeds, 1)]);
    again.until_ended();
    drop(operator);
    cluster.kubectl(&["delete", "namespace", "staying", "going", "--wait=false"]);
}

#[test]
fn a_definition_that_comes_after_the_operator() {
    let (cluster, _turn) = cluster();
    cluster.kubectl(&[
        "delete",
        "-f",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/crd.yaml"),
        "--timeout=90s",
    ]);
    let mut jobs = Jobs::new(cluster, "late");
    let mut operator = Operator::start(cluster, Some(jobs.namespace), true);
    // It leads once the lease of the operator before it has expired.
    let tells = |says: &str| says.contains("CustomResourceDefinition") && says.contains("aitrainingjobs");
    for _ in 0..60 {
        sleep(Duration::from_secs(1));
        assert!(operator.is_alive(), "it ended because a kind is not served yet");
        if tells(&operator.log()) {
            break;
        }
    }
    let says = operator.log();
    assert!(tells(&says), "it does not say what is missing: {says}");
    cluster.define();
    let seen = Seen::begin(cluster, jobs.namespace);
    jobs.create(&[(Kind::Healthy, 1), (Kind::Succeeds, 1), (Kind::Restarts, 1)]);
    jobs.until_ended();
    jobs.check(&seen);
}
