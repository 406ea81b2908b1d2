//! Pods of another operator, timed by the same watcher. Install it manually for a comparison, and say which label its
//! pods carry.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::table::{AnyError, length, note};
use crate::test_bed::TestBed;
use crate::watcher::{Group, Pods};

/// Time without any change after which a burst of pods is over.
const OVER: Duration = Duration::from_secs(10);

/// Times bursts of pods with a label, until the bench is ended. Manifests are applied, one burst each, when they are given.
pub(crate) fn run(test_bed: &TestBed, label: &str, manifests: &[std::path::PathBuf]) -> Result<(), AnyError> {
    let (key, value) = label.split_once('=').ok_or_else(|| format!("peer-label: {label:?} is no LABEL=VALUE"))?;
    let group = Group::Label(key.to_owned(), value.to_owned());
    println!(
        "\npods labelled {label}, made by another operator; export KUBECONFIG={}",
        test_bed.plane.kubeconfig().display()
    );
    note("time is counted from the manifest's apply where one was given, otherwise from the first pod");
    if manifests.is_empty() {
        note("waiting for pods; Ctrl-C ends it");
    }
    for manifest in manifests {
        test_bed.until_rest()?;
        burst(test_bed, &group, Some(manifest))?;
    }
    while manifests.is_empty() {
        burst(test_bed, &group, None)?;
    }
    Ok(())
}

fn burst(test_bed: &TestBed, group: &Group, manifest: Option<&Path>) -> Result<(), AnyError> {
    test_bed.watcher.follow(group.clone());
    let mut mark = test_bed.mark()?;
    let applied = match manifest {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let started = Instant::now();
            test_bed.plane.apply(&text)?;
            println!("{} is applied; kubectl took {:.2} s", path.display(), started.elapsed().as_secs_f64());
            Some(started)
        }
    };
    let stands = |pods: &Pods| (pods.len(), pods.values().filter(|pod| pod.running.is_some()).count());
    let (mut last, mut since) = ((0, 0), Instant::now());
    while last.0 == 0 || since.elapsed() < OVER {
        let now = test_bed.watcher.look(group, stands)?;
        if last.0 == 0 && now.0 == 0 && applied.is_none() {
            mark = test_bed.mark()?;
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    test_bed.until_rest()?;
    let spent = test_bed.spent(mark)?;
    let pods = test_bed.watcher.leave(group);
    let Some(first) = pods.values().map(|pod| pod.first).min() else { return Ok(()) };
    let started = applied.unwrap_or(first);
    let (created, running) = crate::watcher::last(&pods, started);
    let count = length(pods.len());
    println!("{} pods, of which {} ran", last.0, last.1);
    note(&format!("first seen after {:.2} s", first.saturating_duration_since(started).as_secs_f64()));
    note(&format!("all seen after {created:.2} s: {:.0} a second", count / created.max(0.001)));
    note(&format!("last one Running after {running:.2} s"));
    note(&format!("API server {:.2}, etcd {:.2} CPU seconds", spent.api_server, spent.etcd));
    Ok(())
}
