//! The crash sweep: every scenario, with the operator crashing before and after every append and every API call, with its log
//! and without it. The final state must not depend on it; nor when the operator throttles status writes, so that
//! a crash loses more, and the next start begins with the state cached beside the log.
//!
//! `CRASHES_OF=torchjob/log cargo test -p snapshots crashes` tries the scenarios alone whose folder and name begin like that.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulator::Conditions;
use simulator::crash::LogAfterCrash;
use simulator::sweep::{self, Sweep};

use crate::per_api::{self, PerApi};

#[test]
fn a_crash_at_any_point_changes_nothing() {
    let points = sweep_all(1, Conditions::default());
    per_api::check_least(&points, "points were tried", |api| least(api.crashes));
}

#[test]
fn nor_does_it_with_throttled_status_writes_and_a_cached_state() {
    // Every fifth point; the other test goes to them all.
    let points = sweep_all(5, Conditions { status_interval_ms: 20, caches_state: true, ..Conditions::default() });
    per_api::check_least(&points, "points were tried", |api| least(api.crashes / 5));
}

/// Returns the beginning of the names of the scenarios that are tried.
fn only() -> String {
    std::env::var("CRASHES_OF").unwrap_or_default()
}

/// Returns the least number of crashes of an API: none where only some scenarios are tried.
fn least(all: usize) -> usize {
    if only().is_empty() { all } else { 0 }
}

/// Sweeps every scenario. Returns the number of crashes.
fn sweep_all(stride: u32, usual: Conditions) -> PerApi {
    let mut files = per_api::scenarios();
    let only = only();
    files.retain(|file| format!("{}/{}", file.api, file.name).starts_with(&only));
    let next = AtomicUsize::new(0);
    let total = Mutex::new((PerApi::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scenario = file.scenario.as_ref().unwrap_or_else(|error| panic!("{error}"));
                    // Alike pods by the hundred need not all be tried.
                    let stride = if file.name == "many-pods" { 37 } else { stride };
                    let logs_after = [LogAfterCrash::SameLog, LogAfterCrash::NoLog];
                    let Sweep { points, failures } = sweep::sweep(scenario, &logs_after, stride, usual);
                    let mut total = total.lock().expect("no thread panicked");
                    *total.0.entry(file.api.clone()).or_default() += points;
                    let name = format!("{}/{}", file.api, file.name);
                    total.1.extend(failures.into_iter().map(|failure| (name.clone(), failure)));
                }
            });
        }
    });
    let (points, wrong) = total.into_inner().expect("no thread panicked");
    println!("crashes: {points:?}");
    // Neighbouring crashes mostly differ alike: reported once, with their number and the first.
    let mut alike: BTreeMap<(String, String), (usize, String)> = BTreeMap::new();
    for (name, failure) in &wrong {
        let (at, what) = failure.split_once(": ").unwrap_or((failure, ""));
        let what: String = what.chars().take(240).collect();
        let entry = alike.entry((name.clone(), what)).or_insert_with(|| (0, at.to_owned()));
        entry.0 += 1;
    }
    let differences =
        alike.iter().map(|((name, what), (times, first))| format!("{name}: {times} crashes, first {first}: {what}"));
    let differences: Vec<String> = differences.collect();
    assert!(wrong.is_empty(), "{} of {points:?} crashes change the outcome:\n{}", wrong.len(), differences.join("\n"));
    points
}
