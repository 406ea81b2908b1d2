//! What happens when, in small workloads.

use std::sync::Arc;

use super::*;
use crate::input::{Cluster, OnBadRow, Trace};
use crate::lineup::Candidate;
use crate::sim::Workers;
use scheduler::placement::{Node, Packing};
use scheduler::scheduling::{QueueSettings, QueueSnapshot};
use scheduler::{GpuType, Memory, Round};

fn workload(rows: &str, cluster: &str) -> Workload {
    let text = format!("job_id,submit_time_s,gpus_requested,duration_s\n{rows}");
    let trace = Trace::read("t.csv", text.as_bytes(), OnBadRow::Refuse).unwrap();
    Workload::join(trace, None, Cluster::parse(cluster).unwrap(), OnBadRow::Refuse).unwrap()
}

fn play(workload: &Workload, name: &str, settings: &Settings) -> StudyOutcome {
    run(workload, Candidate::find(name).unwrap().policy.as_ref(), settings).unwrap()
}

fn starts_and_ends(outcome: &StudyOutcome) -> Vec<(u64, u64)> {
    outcome.jobs.iter().map(|j| (j.first_start.0 / 1_000_000, j.finished.0 / 1_000_000)).collect()
}

#[test]
fn things_happen_at_ticks_and_waits_count_from_submission() {
    let workload = workload("a,0.5,2,10\nb,3,2,4.2\nc,40,1,1\n", "3");
    let outcome = play(&workload, "fifo-strict", &Settings::default());
    assert_eq!(starts_and_ends(&outcome), [(1, 11), (11, 16), (40, 41)]);
    assert_eq!(outcome.jobs[0].completion(), Micros(10_500_000));
    assert_eq!((outcome.jobs[1].first_wait(), outcome.jobs[1].queued()), (Micros::from_secs(8), Micros::from_secs(8)));
    let fine = Settings { tick: Micros::from_millis(100), ..Settings::default() };
    let outcome = play(&workload, "fifo-strict", &fine);
    assert_eq!(outcome.jobs[1].finished, Micros::from_millis(14_700));
}

#[test]
fn rounds_begin_at_their_multiples_and_starts_cost() {
    let workload = workload("a,5,1,100\nb,60,1,30\nc,1000,1,1\n", "1");
    let settings =
        Settings { round: Some(Micros::from_secs(60)), restart_cost: Micros::from_secs(30), ..Settings::default() };
    let outcome = play(&workload, "fifo-strict", &settings);
    // a waits for 60, ends at 60 + 30 + 100 = 190; b gets the next round; so does c after an empty stretch.
    assert_eq!(starts_and_ends(&outcome), [(60, 190), (240, 300), (1020, 1051)]);
}

#[test]
fn a_preempted_job_goes_on_where_it_was() {
    let workload = workload("long,0,1,100\nshort,10,1,20\n", "1");
    let settings = Settings { restart_cost: Micros::from_secs(5), ..Settings::default() };
    let outcome = play(&workload, "srtf", &settings);
    // 5 s of 100 done by 10; the short one runs 10 to 35; the rest of the long one takes 5 + 95 from there.
    assert_eq!(starts_and_ends(&outcome), [(0, 135), (10, 35)]);
    let long = &outcome.jobs[0];
    assert_eq!((long.halts, long.restarts, long.changes), (1, 1, 2));
    assert_eq!((long.ran, long.progressed), (Micros::from_secs(110), Micros::from_secs(100)));
}

/// Starts no job.
#[derive(Debug)]
struct Idle;

impl Policy for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        vec![Grant::NONE; round.jobs.len()]
    }
}

/// Starts no job before its own wake time.
#[derive(Debug)]
struct Late;

impl Policy for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn wake(&self, now: Micros, _: &[JobView], _: &Memory) -> Option<Micros> {
        Some(Micros(7_300_000)).filter(|&at| at > now)
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        let due = round.now >= Micros(7_300_000);
        round.jobs.iter().map(|job| if due { Grant::of(GpuType(0), job.num) } else { Grant::NONE }).collect()
    }
}

#[test]
fn a_policy_that_starts_no_job_is_an_error_and_not_a_loop() {
    let workload = workload("a,0,1,10\nb,5,1,10\n", "4");
    for round in [None, Some(Micros::from_secs(60))] {
        let settings = Settings { round, ..Settings::default() };
        let error = run(&workload, &Idle, &settings).unwrap_err();
        let Error::Stuck { waiting: 2, ref job, .. } = error else { panic!("{error}") };
        assert_eq!(job, "a");
    }
}

#[test]
fn a_policy_is_asked_again_when_it_wanted() {
    let workload = workload("a,0,1,10\n", "4");
    assert_eq!(starts_and_ends(&run(&workload, &Late, &Settings::default()).unwrap()), [(8, 18)]);
}

#[test]
fn the_scheduler_places_whole_workers_and_reserves_for_the_first_that_waits() {
    let workload = workload("a,0,4,100\nb,1,8,10\nc,2,4,200\nd,3,2,50\n", "8");
    let policy = || Arc::from(Candidate::find("fifo-backfill").unwrap().policy);
    let setup = ClusterSetup {
        queues: vec![QueueSnapshot::root("q", QueueSettings::new(policy()))],
        nodes: ["n1", "n2"].map(|name| Node::new(name, 4)).to_vec(),
        packing: Packing::Pack,
        workers: workload
            .jobs
            .iter()
            .map(|job| (job.name.clone(), Workers { width: 2, priority: 0, queue: Some(0) }))
            .collect(),
    };
    let settings = Settings { setup: Some(Box::new(setup)), ..Settings::default() };
    // Alone, the policy lets c and then d pass b, which waits for both nodes.
    let alone = play(&workload, "fifo-backfill", &Settings::default());
    assert_eq!(starts_and_ends(&alone), [(0, 100), (202, 212), (2, 202), (100, 150)]);
    let on_cluster = play(&workload, "fifo-backfill", &settings);
    assert_eq!(starts_and_ends(&on_cluster), [(0, 100), (100, 110), (110, 310), (110, 160)]);
    let on = |n: usize| on_cluster.places[n].on.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!([on(0), on(1), on(2), on(3)], ["n1 n1", "n1 n1 n2 n2", "n1 n1", "n2"]);
}
