//! The cluster is restored from a backup: what the operator remembers is newer than what there is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use control_plane::{Component, until};
use serde_json::{Value, json};

use crate::common::Cluster;
use crate::jobs::{JobKind, Jobs};
use crate::operator::Operator;
use crate::options;

#[test]
fn a_restored_cluster_is_refused_until_it_is_accepted() {
    let cluster = &Cluster::start(options());
    let mut jobs = Jobs::new(cluster, "restored");
    let mut operator = Operator::start(cluster, jobs.namespace, false);
    jobs.create(&[(JobKind::Healthy, 2)]);
    jobs.until_running();
    let before = jobs.pods();
    let backup = Backup::take(cluster);
    // Further than what the control plane itself will write after the restoration.
    write_much(cluster, jobs.namespace);
    operator.kill();
    operator.start_again();
    operator.until_leading();
    operator.kill();
    backup.restore(cluster);

    operator.start_again();
    until_refused(&mut operator);
    assert_eq!(jobs.pods(), before, "nothing is touched meanwhile");
    operator.kill();
    operator.add_argument("--accept-new-cluster");
    operator.start_again();
    operator.until_leading();
    assert_eq!(jobs.pods(), before, "no pod of a healthy job is touched");
    let names = fs::read_dir(operator.data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    assert!(names.iter().any(|name| name.ends_with("another-cluster")), "the old log is kept: {names:?}");
    // It works.
    cluster.kubectl(&["delete", "pod", "healthy-0-w-1", "--namespace", jobs.namespace]);
    until("the pod comes again", || {
        let now = jobs.pods();
        let new: Vec<_> = now.difference(&before).map(|(name, _)| name.clone()).collect();
        if now.len() == before.len() && new == ["healthy-0-w-1"] { Ok(()) } else { Err(format!("{now:?}")) }
    });
    for status in jobs.until_ended().into_values() {
        assert_eq!(status["RestartCount"], Value::Null, "{status}");
    }
}

#[test]
fn an_operator_notices_that_its_cluster_is_restored_under_it() {
    let cluster = &Cluster::start(options());
    // One that has a Lease, which is restored with everything else, and one that has none.
    let mut both = [("under-it", true), ("under-it-alone", false)].map(|(namespace, elects)| {
        let jobs = Jobs::new(cluster, namespace);
        let operator = Operator::start(cluster, namespace, elects);
        (jobs, operator)
    });
    let before = both.each_mut().map(|(jobs, _)| {
        jobs.create(&[(JobKind::Healthy, 2)]);
        jobs.until_running();
        jobs.pods()
    });
    let backup = Backup::take(cluster);
    write_much(cluster, both[0].0.namespace);
    for (jobs, _) in &mut both {
        jobs.create(&[(JobKind::Healthy, 1)]);
        jobs.until_running();
    }
    backup.restore(cluster);

    for ((jobs, operator), before) in both.iter_mut().zip(before) {
        until_refused(operator);
        assert_eq!(jobs.pods(), before, "nothing is touched");
    }
}

/// Waits until readiness says what happened and what to do.
fn until_refused(operator: &mut Operator<'_>) {
    until("readiness says what happened and what to do", || {
        let says = operator.says("/readyz");
        let reported = says.contains("not working") && says.contains("--accept-new-cluster");
        reported.then_some(()).ok_or(says)
    });
    assert!(operator.is_alive());
}

/// Copy of the store.
struct Backup(tempfile::TempDir);

impl Backup {
    fn take(cluster: &Cluster) -> Self {
        let backup = Self(tempfile::tempdir().unwrap());
        stop(cluster, &STORE);
        copy(&data(cluster), &backup.data());
        start_again(cluster, &STORE);
        backup
    }

    fn restore(&self, cluster: &Cluster) {
        stop(cluster, &WATCHERS);
        stop(cluster, &STORE);
        fs::remove_dir_all(data(cluster)).unwrap();
        copy(&self.data(), &data(cluster));
        start_again(cluster, &STORE);
        // Otherwise kwok would wait until they run out.
        cluster.kubectl(&["delete", "leases", "--all", "--namespace", "kube-node-lease"]);
        start_again(cluster, &WATCHERS);
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("etcd.data")
    }
}

fn data(cluster: &Cluster) -> PathBuf {
    cluster.plane.directory().join("etcd.data")
}

/// Components that store and serve the cluster's objects.
const STORE: [Component; 2] = [Component::Etcd, Component::ApiServer];
/// Components that watch them. As etcd's documentation of a restoration asks, they are restarted: a watch that is taken up again from a
/// version which is still to come would be silent until then, and no pod be scheduled or run.
const WATCHERS: [Component; 3] = [Component::ControllerManager, Component::Scheduler, Component::Kwok];

fn stop(cluster: &Cluster, components: &[Component]) {
    for &component in components.iter().rev() {
        cluster.plane.stop(component).unwrap();
    }
}

fn start_again(cluster: &Cluster, components: &[Component]) {
    for &component in components {
        cluster.plane.start_again(component).unwrap();
    }
}

fn write_much(cluster: &Cluster, namespace: &str) {
    let item = |number: u32| {
        let metadata = json!({"name": format!("filler-{number}"), "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    };
    let items: Vec<Value> = (0..600).map(item).collect();
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{}", from.display());
}
