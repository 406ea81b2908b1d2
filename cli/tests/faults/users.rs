//! What users and administrators do to a running operator: other writers, quotas, namespaces that go, late definitions.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use control_plane::until;
use serde_json::{Value, json};

use crate::common::Cluster;
use crate::jobs::{JobKind, Jobs};
use crate::operator::Operator;
use crate::seen::PodWatch;
use crate::{options, shared};

/// A user annotates and edits, and an old client writes back whole statuses it read before, all the time.
#[test]
fn other_writers_change_neither_counts_nor_endings() {
    let cluster = shared();
    let mut jobs = Jobs::new(cluster, "edits");
    let seen = PodWatch::begin(cluster, jobs.namespace);
    let operator = Operator::start(cluster, jobs.namespace, true);
    operator.until_leading();
    jobs.create(&[
        (JobKind::Healthy, 1),
        (JobKind::Succeeds, 1),
        (JobKind::Fails, 1),
        (JobKind::Restarts, 2),
        (JobKind::TimesOut, 1),
    ]);
    let names = jobs.names();
    let (over, writes) = (AtomicBool::new(false), AtomicU32::new(0));
    scope(|scope| {
        // Stopped also when something here fails.
        let stop = Stop(&over);
        scope.spawn(|| write_all_the_time(cluster, jobs.namespace, &names, &over, &writes));
        jobs.until_ended();
        until("enough was written", || {
            let written = writes.load(Ordering::Relaxed);
            if written >= 30 { Ok(()) } else { Err(written.to_string()) }
        });
        // What ended is written to as well.
        sleep(Duration::from_secs(2));
        drop(stop);
    });
    jobs.until_ended();
    jobs.check(&seen);
    for name in &names {
        let job = cluster.get(jobs.namespace, &["aitrainingjob", name]);
        assert!(job["metadata"]["annotations"]["example.com/touched"].is_string(), "{name} lost a user's annotation");
        assert!(job["spec"]["frameworkType"].is_string(), "{name} lost a user's edit");
    }
    eprintln!("{} foreign writes", writes.into_inner());
}

/// Ends the writing when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes until it is over, and counts what was taken.
fn write_all_the_time(cluster: &Cluster, namespace: &str, names: &[String], over: &AtomicBool, taken: &AtomicU32) {
    let count = |done: bool| taken.fetch_add(u32::from(done), Ordering::Relaxed);
    let mut stale: Vec<Value> = Vec::new();
    for round in 0.. {
        for (at, name) in names.iter().enumerate() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            let words = ["--namespace", namespace, "aitrainingjob", name, "--type=merge", "--patch"];
            let patch = |subresource: &[&str], body: &Value| {
                let text = body.to_string();
                let all = [&["patch"], subresource, &words[..], &[&text]].concat();
                cluster.try_kubectl(&all).is_ok()
            };
            let edit = json!({"metadata": {"annotations": {"example.com/touched": round.to_string()}},
                "spec": {"frameworkType": format!("edit-{round}")}});
            count(patch(&[], &edit));
            let object = cluster.get(namespace, &["aitrainingjob", name]);
            match stale.get(at) {
                // What it read a round ago, as a client that writes whole objects does.
                Some(status) if !status.is_null() => {
                    count(patch(&["--subresource=status"], &json!({"status": status})));
                    stale[at] = object["status"].clone();
                }
                Some(_) => stale[at] = object["status"].clone(),
                None => stale.push(object["status"].clone()),
            }
        }
    }
}

#[test]
fn a_quota_that_refuses_pods_and_is_raised() {
    let cluster = shared();
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
    let seen = PodWatch::begin(cluster, jobs.namespace);
    let operator = Operator::start(cluster, jobs.namespace, true);
    operator.until_leading();
    jobs.create(&[(JobKind::Healthy, 2)]);
    until("three of four pods are there", || {
        let pods = jobs.pods();
        if pods.len() == 3 { Ok(()) } else { Err(format!("{pods:?}")) }
    });
    let few = jobs.pods();
    // The user is given the reason.
    until("a job says that the quota refuses", || {
        let reported = cluster.kubectl(&["describe", "aitrainingjobs", "--namespace", "quota"]);
        if reported.contains("exceeded quota") { Ok(()) } else { Err(reported) }
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
    let cluster = &Cluster::start(options());
    let mut going = Jobs::new(cluster, "going");
    let mut staying = Jobs::new(cluster, "staying");
    let seen = PodWatch::begin(cluster, staying.namespace);
    // It serves all namespaces.
    let mut operator = Operator::start_with(cluster, staying.namespace, true, &[]);
    operator.until_leading();
    going.create(&[(JobKind::Healthy, 3), (JobKind::Restarts, 2)]);
    staying.create(&[(JobKind::Healthy, 2)]);
    going.until_some_run();
    staying.until_running();
    let started = Instant::now();
    cluster.kubectl(&["delete", "namespace", "going", "--timeout=90s"]);
    eprintln!("gone after {:?}", started.elapsed());
    staying.create(&[(JobKind::Succeeds, 1), (JobKind::Restarts, 1)]);
    // The same name again is another namespace.
    let mut again = Jobs::new(cluster, "going");
    again.create(&[(JobKind::Succeeds, 1)]);
    staying.until_ended();
    again.until_ended();
    staying.check(&seen);
    assert!(operator.is_alive());
}

#[test]
fn an_operator_for_some_jobs_leaves_the_others_alone() {
    let cluster = shared();
    let mut chosen = Jobs::new(cluster, "chosen").labelled("team", "a");
    let mut others = Jobs::new(cluster, "not-chosen").labelled("team", "b");
    let seen = PodWatch::begin(cluster, chosen.namespace);
    // In every namespace: those of the other tests here have jobs and pods without the label.
    let mut operator = Operator::start_with(cluster, chosen.namespace, true, &["--label-selector=team=a"]);
    operator.until_leading();
    others.create(&[(JobKind::Healthy, 1)]);
    chosen.create(&[(JobKind::Healthy, 1), (JobKind::Succeeds, 1), (JobKind::Restarts, 1)]);
    chosen.until_ended();
    chosen.check(&seen);
    assert!(others.pods().is_empty(), "{:?}", others.pods());
    assert_eq!(others.statuses().into_values().collect::<Vec<_>>(), [Value::Null]);
    // A job that is not chosen any more keeps its pods; one that is now gets some.
    let before = chosen.pods();
    assert!(!before.is_empty());
    for (namespace, team) in [("chosen", "team=b"), ("not-chosen", "team=a")] {
        let words = ["label", "--overwrite", "--namespace", namespace, "aitrainingjob", "healthy-0", team];
        cluster.kubectl(&words);
    }
    others.until_ended();
    assert_eq!(chosen.pods(), before);
    assert!(operator.is_alive());
}

#[test]
fn a_definition_that_comes_after_the_operator() {
    let cluster = &Cluster::start_undefined(options());
    let mut jobs = Jobs::new(cluster, "late");
    let mut operator = Operator::start(cluster, jobs.namespace, true);
    // Others may stand between these and after them.
    let missing = [
        "does not serve /apis/elasticdeeplearning.ai/v1/namespaces/late/aitrainingjobs",
        "/apis/elastic.pytorch.org/v1alpha1/namespaces/late/elasticjobs",
        "(yet): install",
    ];
    until("readiness says what is missing", || {
        let says = operator.says("/readyz");
        missing.iter().all(|part| says.contains(part)).then_some(()).ok_or(says)
    });
    assert!(operator.log().contains("install its CustomResourceDefinition"), "{}", operator.log());
    assert!(operator.is_alive(), "it ended because a kind is not served yet");
    cluster.define();
    until("readiness misses nothing any more", || {
        let says = operator.says("/readyz");
        let whole = says.contains(", serving AITrainingJob, ElasticJob") && !says.contains("does not serve");
        whole.then_some(()).ok_or(says)
    });
    let seen = PodWatch::begin(cluster, jobs.namespace);
    jobs.create(&[(JobKind::Healthy, 1), (JobKind::Succeeds, 1), (JobKind::Restarts, 1)]);
    jobs.until_ended();
    jobs.check(&seen);
}
