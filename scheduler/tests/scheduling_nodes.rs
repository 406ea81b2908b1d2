//! Decisions of the scheduler where claims may use a part of the nodes: reach, other resources, reservation, halts.

mod world;

use std::collections::BTreeMap;

use model::Text;
use proptest::prelude::*;
use scheduler::scheduling::{QueueSettings, Quota, Reason, Sizes, WithinQueue};
use world::{Job, World, changes, cohort, job, member, queue, waiting};

fn nodes_of(world: &World) -> Vec<String> {
    world.jobs.iter().map(|job| job.held.join(" ")).collect()
}

#[test]
fn workers_are_placed_on_nodes_that_fit_them_and_stay_where_they_are() {
    let jobs = vec![job("a", 2, 0).on(&["n2"]), job("b", 2, 1), job("c", 1, 2).on(&["n3"])];
    let mut world = World::alone(&[2, 2], queue("fifo-backfill"), jobs);
    let decision = world.round();
    assert_eq!(nodes_of(&world), ["n2 n2", "n1 n1", ""]);
    assert_eq!(waiting(&decision), [(1, "c", &Reason::NeverNodes)], "no node fits it");
    // Nodes that fit no more keep what runs.
    world.jobs[0] = world.jobs[0].clone().on(&["n1"]);
    assert!(changes(&world.round()).is_empty());
}

#[test]
fn other_resources_are_shared_out_as_gpus_are() {
    let needing =
        |id: &str, workers, submitted, cpus: u64| job(id, workers, submitted).with(|job| job.needs = vec![cpus]);
    let jobs = vec![needing("a", 2, 0, 3), needing("b", 2, 1, 3), needing("c", 2, 2, 1)];
    let mut world = World::alone(&[8, 8], queue("fifo-backfill"), jobs);
    for node in &mut world.nodes {
        node.others = vec![8];
    }
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1", "n2 n2", "n1 n1"]);
    world.jobs.push(needing("d", 1, 3, 3));
    let decision = world.round();
    assert_eq!(waiting(&decision), [(1, "d", &Reason::Nodes)]);
    world.jobs.remove(1);
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1", "n1 n1", "n2"]);
    // Without end, and beyond the end of the list.
    world.nodes[0].others = vec![u64::MAX];
    world.nodes[1].others = Vec::new();
    world.jobs.push(needing("e", 6, 4, u64::MAX / 8));
    world.round();
    assert_eq!(nodes_of(&world)[3].len(), "n2 n2 n2 n2 n2 n2".len());
}

#[test]
fn a_gang_whose_workers_never_fit_together_holds_nothing_back() {
    let needing = |id: &str, workers, submitted, cpus| job(id, workers, submitted).with(|job| job.needs = vec![cpus]);
    let quota = Quota { nominal: 4, borrowing: 0, lending: None };
    for (cpus, on, want) in [
        (5, &["n1", "n2"][..], ["", "n1 n1"]), // each fits, and two of them; never three
        (5, &[], ["", "n1 n1"]),
        (4, &[], ["n1 n1 n2", ""]),
    ] {
        let gang = needing("gang", 3, 0, cpus);
        let gang = if on.is_empty() { gang } else { gang.on(on) };
        let queues = vec![member("q", 1, quota, queue("fifo-backfill")), cohort("pool")];
        let mut world = World::new(&[4, 4], queues, vec![gang, needing("next", 2, 1, 1)]);
        for node in &mut world.nodes {
            node.others = vec![8];
        }
        let decision = world.round();
        assert_eq!(nodes_of(&world), want, "{cpus} CPUs, on {on:?}");
        let waits = if cpus == 5 { (1, "gang", &Reason::NeverNodes) } else { (1, "next", &Reason::Quota) };
        assert_eq!(waiting(&decision), [waits]);
    }
}

#[test]
fn pods_without_a_claim_leave_less_room_for_a_time() {
    let gang = job("gang", 4, 0).with(|job| job.needs = vec![4]);
    let mut world = World::alone(&[4, 4], queue("fifo-backfill"), vec![gang]);
    for node in &mut world.nodes {
        node.others = vec![8];
    }
    world.taken.insert("n2".into(), vec![5]);
    assert_eq!(waiting(&world.round()), [(1, "gang", &Reason::Nodes)], "these pods may go");
    world.taken.clear();
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1 n2 n2"]);
}

#[test]
fn the_first_that_waits_reserves_nodes_that_it_can_use() {
    let jobs = || {
        vec![
            job("run", 1, 0).wide(8),
            job("gang", 2, 1).wide(8),
            job("small", 1, 2).wide(4),
            job("large", 1, 3).wide(8),
        ]
    };
    let mut world = World::alone(&[8, 8, 4], queue("fifo-backfill"), jobs());
    let decision = world.round();
    assert_eq!(nodes_of(&world), ["n1", "", "n3", ""]);
    let behind = Reason::Behind("gang".into());
    assert_eq!(waiting(&decision), [(1, "gang", &Reason::Nodes), (2, "large", &behind)]);
    world.jobs.remove(0);
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n2", "n3", ""], "the gang had both nodes left");
    // By labels as by size, and in the order of submission for the same nodes.
    let jobs = vec![
        job("run", 2, 0).on(&["n1"]),
        job("a", 2, 1).on(&["n1"]),
        job("b", 1, 2).on(&["n1"]),
        job("c", 2, 3),
        job("d", 1, 4),
    ];
    let mut world = World::alone(&[2, 2], queue("fifo-backfill"), jobs);
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1", "", "", "n2 n2", ""]);
    world.jobs.remove(0);
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1", "", "n2 n2", ""]);
}

#[test]
fn the_first_that_waits_keeps_the_quota_that_it_needs() {
    let quota = |nominal| Quota { nominal, borrowing: 0, lending: None };
    let jobs = || vec![job("run", 2, 0).on(&["n1"]), job("a", 2, 1).on(&["n1"]), job("b", 2, 2).on(&["n2"])];
    for (nominal, want) in [(6, ["n1 n1", "", "n2 n2"]), (4, ["n1 n1", "", ""])] {
        let queues = vec![member("q", 1, quota(nominal), queue("fifo-backfill")), cohort("pool")];
        let mut world = World::new(&[2, 2], queues, jobs());
        world.round();
        assert_eq!(nodes_of(&world), want, "quota {nominal}");
    }
}

#[test]
fn a_queue_whose_jobs_fit_other_nodes_holds_nothing_back() {
    let quota = Quota { nominal: 2, borrowing: 4, lending: None };
    let queues = || {
        let queue = || queue("fifo-backfill");
        vec![member("one", 2, quota, queue()), member("two", 2, quota, queue()), cohort("pool")]
    };
    let jobs = vec![job("run", 2, 0).on(&["n1"]), job("a", 2, 1).on(&["n1"]), job("b", 2, 2).of(1)];
    let mut world = World::new(&[2, 2], queues(), jobs);
    world.round();
    assert_eq!(nodes_of(&world), ["n1 n1", "", "n2 n2"]);
}

#[test]
fn a_claim_halts_only_what_is_on_nodes_that_it_can_use() {
    let rules = || QueueSettings {
        within: WithinQueue::LowerPriority,
        min_run: scheduler::Micros::ZERO,
        ..queue("fifo-backfill")
    };
    let high = |names: &[&str]| job("high", 2, 9).with(|job| job.priority = 5).on(names);
    for (names, want, lost) in [
        (&["n1"][..], ["", "n2 n2", "n1 n1"], "a Preempted for high"),
        (&["n2"][..], ["n1 n1", "", "n2 n2"], "b Preempted for high"),
    ] {
        let mut world = World::alone(&[2, 2], rules(), vec![job("a", 2, 0), job("b", 2, 1)]);
        world.round();
        assert_eq!(nodes_of(&world), ["n1 n1", "n2 n2"]);
        world.pass(10);
        world.jobs.push(high(names));
        let decision = world.round();
        assert_eq!(nodes_of(&world), want);
        assert!(changes(&decision).contains(&lost.to_owned()), "{decision:?}");
    }
    // Where none is in its way it waits, and no job is halted in vain.
    let mut world = World::alone(
        &[2, 2, 2],
        rules(),
        vec![job("a", 2, 0), high(&["n2"]), high(&["n2"]).with(|job| job.id = "other".into())],
    );
    world.round();
    world.pass(10);
    assert_eq!(nodes_of(&world), ["n1 n1", "n2 n2", ""]);
    assert!(changes(&world.round()).is_empty());
}

/// Numbers of a job: workers, GPUs of each, submission, priority, nodes that fit as bits, need.
type Numbers = (u32, u32, u64, i32, u8, u64);

fn any_job() -> impl Strategy<Value = Numbers> {
    (1_u32..4, 1_u32..4, 0_u64..50, 0_i32..3, 0_u8..16, 0_u64..4)
}

fn world_of(slots: &[u32], others: &[u64], numbers: &[Numbers], within: WithinQueue) -> World {
    let built = numbers.iter().enumerate().map(|(n, &(workers, width, submitted, priority, bits, need))| {
        let names: Vec<String> =
            (0..slots.len()).filter(|n| bits >> n & 1 == 1).map(|n| format!("n{}", n + 1)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let job = job(&format!("job-{n:02}"), workers, submitted).wide(width);
        let job = job.with(|job| (job.priority, job.needs) = (priority, vec![need]));
        let elastic = |job: &mut Job| job.sizes = Sizes { min: 1, num: workers, max: workers };
        let job = if n % 3 == 0 { job.with(elastic) } else { job };
        if bits == 15 { job } else { job.on(&names) }
    });
    let jobs = built.collect();
    let rules = QueueSettings { within, min_run: scheduler::Micros::ZERO, ..queue("ElasticFIFO") };
    let mut world = World::alone(slots, rules, jobs);
    for (node, other) in world.nodes.iter_mut().zip(others) {
        node.others = vec![*other];
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn workers_are_on_nodes_that_fit_them_within_all_room(
        slots in prop::collection::vec(1_u32..7, 4),
        others in prop::collection::vec(0_u64..12, 4),
        numbers in prop::collection::vec(any_job(), 1..9),
        lower in any::<bool>(),
    ) {
        let within = if lower { WithinQueue::LowerPriority } else { WithinQueue::Never };
        let mut world = world_of(&slots, &others, &numbers, within);
        for _ in 0..4 {
            let before: BTreeMap<Text, Vec<Text>> = world.jobs.iter().map(|job| (job.id.clone(), job.held.clone())).collect();
            let decision = world.round();
            let mut needs: BTreeMap<&Text, u64> = BTreeMap::new();
            for job in &world.jobs {
                for node in &job.held {
                    prop_assert!(job.fits.as_ref().is_none_or(|fits| fits.contains(node)), "{} on {node}", job.id);
                    *needs.entry(node).or_default() += job.needs[0];
                }
            }
            for node in &world.nodes {
                prop_assert!(world.by_node().get(&node.name).copied().unwrap_or_default() <= node.slots);
                prop_assert!(needs.get(&node.name).copied().unwrap_or_default() <= node.others[0], "{node:?}");
            }
            for target in &decision.targets {
                let beneficiary = target.change.as_ref().and_then(|change| change.beneficiary.as_ref());
                let Some(gainer) = beneficiary.and_then(|id| world.jobs.iter().find(|job| job.id == *id)) else { continue };
                prop_assert!(!gainer.held.is_empty(), "{} was halted for {}, which does not run", target.id, gainer.id);
                let on = &before[&target.id];
                prop_assert!(gainer.fits.as_ref().is_none_or(|fits| on.iter().any(|node| fits.contains(node))));
            }
            prop_assert_eq!(changes(&world.ask()), Vec::<String>::new(), "asked again at once");
            world.pass(60);
        }
    }
}
