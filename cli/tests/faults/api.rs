//! The API server is paused, is restarted, forgets history, and delivers watch events late.

use std::thread::sleep;
use std::time::Duration;

use control_plane::{Component, until};

use crate::common::Cluster;
use crate::jobs::{JobKind, Jobs};
use crate::operator::Operator;
use crate::options;
use crate::seen::PodWatch;

/// Returns the time for which the API server is paused: `TRAINYARD_FAULT_PAUSE` seconds, 30 by default.
fn pause() -> Duration {
    let given = std::env::var("TRAINYARD_FAULT_PAUSE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(30))
}

const MIXED: [(JobKind, usize); 5] = [
    (JobKind::Healthy, 2),
    (JobKind::Succeeds, 2),
    (JobKind::Fails, 2),
    (JobKind::Restarts, 3),
    (JobKind::TimesOut, 2),
];

#[test]
fn the_api_server_stands_still_for_longer_than_the_lease() {
    let cluster = &Cluster::start(options());
    let mut jobs = Jobs::new(cluster, "standstill");
    let seen = PodWatch::begin(cluster, jobs.namespace);
    let mut operator = Operator::start(cluster, jobs.namespace, true);
    operator.until_leading();
    jobs.create(&MIXED);
    jobs.until_some_run();
    cluster.plane.pause(Component::ApiServer).unwrap();
    sleep(pause());
    assert!(operator.is_alive(), "it ended while the API server did not answer");
    let says = operator.says("/readyz");
    assert!(!says.contains("leading") || pause() < Duration::from_secs(5), "leads without a lease: {says}");
    cluster.plane.resume(Component::ApiServer).unwrap();
    jobs.until_ended();
    jobs.check(&seen);
    operator.until_leading();
    assert!(operator.is_alive());
}

#[test]
fn the_api_server_is_stopped_started_and_forgets_history() {
    let cluster = &Cluster::start(options());
    let mut jobs = Jobs::new(cluster, "restarted");
    // Without election: a leadership that is lost meanwhile would list again, and ask for no version that is gone.
    let mut operator = Operator::start(cluster, jobs.namespace, false);
    operator.until_leading();
    jobs.create(&[(JobKind::Healthy, 3)]);
    jobs.until_running();
    let before = jobs.pods();
    cluster.plane.stop(Component::ApiServer).unwrap();
    sleep(Duration::from_secs(2));
    cluster.plane.start_again(Component::ApiServer).unwrap();
    jobs.create(&MIXED);
    jobs.until_some_run();
    // Watches that continue from where they were get 410 Gone.
    cluster.plane.forget_history().unwrap();
    jobs.until_ended();
    jobs.check_statuses();
    let metrics = operator.says("/metrics");
    let gone = |line: &&str| line.starts_with("trainyard_watch_restarts_total{") && line.contains("\"expired\"");
    assert!(metrics.lines().any(|line| gone(&line)), "no watch heard that its version is too old: {metrics}");
    let after = jobs.pods();
    let lost: Vec<_> = before.difference(&after).collect();
    assert!(lost.is_empty(), "pods of healthy jobs are gone: {lost:?}");
    until("the operator leads", || {
        let says = operator.says("/readyz");
        says.contains("leading").then_some(()).ok_or(says)
    });
    assert!(operator.is_alive());
}

#[test]
fn watches_that_stutter_change_nothing() {
    let cluster = &Cluster::start(options());
    let mut jobs = Jobs::new(cluster, "stutter");
    let seen = PodWatch::begin(cluster, jobs.namespace);
    let mut operator = Operator::start(cluster, jobs.namespace, true);
    operator.until_leading();
    jobs.create(&MIXED);
    for _ in 0..8 {
        cluster.plane.pause(Component::ApiServer).unwrap();
        sleep(Duration::from_millis(1500));
        cluster.plane.resume(Component::ApiServer).unwrap();
        sleep(Duration::from_millis(700));
    }
    jobs.until_ended();
    jobs.check(&seen);
    assert!(operator.is_alive());
}
