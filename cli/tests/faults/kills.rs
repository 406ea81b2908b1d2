//! `kill -9` of the operator at random moments, with its log and without.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::jobs::{JobKind, Jobs};
use crate::operator::Operator;
use crate::seen::PodWatch;
use crate::{Random, shared};

/// After this the operator is left in peace.
const DISTURBED: Duration = Duration::from_secs(40);

fn fifty_jobs_under_kills(namespace: &'static str, keeps_log: bool) {
    let cluster = shared();
    let mut random = Random::new();
    let mut jobs = Jobs::new(cluster, namespace);
    let seen = PodWatch::begin(cluster, namespace);
    // Election is left out: a killed process's lease has to run out, and there would be few kills.
    let mut operator = Operator::start(cluster, namespace, false);
    let started = Instant::now();
    let manifests = jobs.plan(&[
        (JobKind::Healthy, 10),
        (JobKind::Succeeds, 12),
        (JobKind::Fails, 10),
        (JobKind::Restarts, 12),
        (JobKind::TimesOut, 6),
    ]);
    let mut kills = 0;
    scope(|scope| {
        // Killed while jobs appear, too.
        scope.spawn(|| cluster.apply(&manifests));
        while started.elapsed() < DISTURBED && (kills < 8 || !jobs.all_ended()) {
            sleep(random.between(200, 3500));
            operator.kill();
            kills += 1;
            if !keeps_log {
                operator.lose_log();
            }
            operator.start_again();
        }
    });
    let ended = jobs.until_ended();
    jobs.check(&seen);
    // One more start, at rest: what ended stays as it is, and nothing of it runs again.
    operator.kill();
    if !keeps_log {
        operator.lose_log();
    }
    operator.start_again();
    operator.until_leading();
    sleep(Duration::from_secs(3));
    jobs.check(&seen);
    for (name, status) in jobs.until_ended() {
        let shown = |status: &serde_json::Value| {
            let mut status = status.clone();
            // The mirror names the term, which is another.
            status.as_object_mut().and_then(|status| status.remove("trainyard"));
            status
        };
        assert_eq!(shown(&status), shown(&ended[&name]), "{name}");
    }
    eprintln!("{kills} kills, log kept: {keeps_log}; {:?}", started.elapsed());
    assert!(kills >= 5, "{kills} kills are too few");
}

#[test]
fn killed_at_random_moments_with_its_log_and_without() {
    // Both mostly wait, so they share one of the threads that tests have.
    scope(|scope| {
        scope.spawn(|| fifty_jobs_under_kills("kills", true));
        scope.spawn(|| fifty_jobs_under_kills("kills-no-log", false));
    });
}
