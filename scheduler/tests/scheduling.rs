//! Decisions of the scheduler in small clusters: gangs, widths, reservation, quotas, rights, fixed claims, reasons.

mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Text;
use scheduler::scheduling::{
    Backfill, Fixed, QueueSettings, QueueSnapshot, Quota, Reason, Reclaim, Sizes, WithinQueue,
};
use scheduler::{GpuMicros, Micros, Speeds};
use world::{World, changes, cohort, job, member, queue, waiting};

fn quota(nominal: u32, borrowing: u32) -> Quota {
    Quota { nominal, borrowing, lending: None }
}

#[test]
fn of_two_gangs_with_room_for_one_the_first_runs_whole() {
    let mut world = World::alone(&[1, 1], queue("fifo-backfill"), vec![job("b", 2, 1), job("a", 2, 0)]);
    let decision = world.round();
    assert_eq!(world.sizes(), [0, 2]);
    assert_eq!(changes(&decision), ["a Started"]);
    assert_eq!(decision.pending[0].to_string(), "needs 2 GPUs; the nodes have 0 left");
    assert!(changes(&world.ask()).is_empty());
    world.jobs.remove(1);
    assert_eq!(changes(&world.round()), ["b Started"]);
}

#[test]
fn wide_workers_stay_whole_and_fill_what_there_is() {
    let wide = |id: &str, submitted, sizes| job(id, 1, submitted).with(|job| (job.sizes, job.width) = (sizes, 4));
    let sizes = Sizes { min: 1, num: 1, max: 8 };
    let jobs = vec![wide("a", 0, sizes), wide("b", 1, sizes)];
    let mut world = World::alone(&[8, 8, 4], queue("max-min"), jobs);
    world.round();
    assert_eq!(world.sizes().iter().sum::<usize>(), 5);
    assert!(world.by_node().into_values().eq([8, 8, 4]));
    // With workers of one GPU beside them, what rounding leaves is used as well.
    let jobs = vec![wide("a", 0, sizes), job("b", 1, 1).with(|job| job.sizes = sizes), wide("c", 2, sizes)];
    let mut world = World::alone(&[8, 8, 4], queue("max-min"), jobs);
    world.round();
    let used: u32 = world.by_node().into_values().sum();
    assert!(used >= 17, "{:?}", world.sizes());
    // Six free GPUs on two nodes hold no worker of four.
    let mut world = World::alone(&[3, 3], queue("fifo-backfill"), vec![wide("a", 0, Sizes::rigid(1)), job("b", 1, 1)]);
    let decision = world.round();
    assert_eq!(world.sizes(), [0, 1], "what fits on no node reserves nothing");
    assert_eq!(waiting(&decision), [(1, "a", &Reason::NeverNodes)]);
}

#[test]
fn the_first_that_waits_reserves_what_it_needs() {
    let jobs = || vec![job("run", 5, 0), job("large", 6, 1), job("small", 1, 2)];
    let mut world = World::alone(&[8], queue("fifo-backfill"), jobs());
    let decision = world.round();
    assert_eq!(world.sizes(), [5, 0, 0]);
    let behind = Reason::Behind("large".into());
    assert_eq!(waiting(&decision), [(1, "large", &Reason::Nodes), (2, "small", &behind)]);
    assert_eq!(decision.pending[0].to_string(), "needs 6 GPUs; the nodes have 3 left");
    world.jobs.remove(0);
    world.round();
    assert_eq!(world.sizes(), [6, 1]);
    let plain = QueueSettings { backfill: Backfill::Policy, ..queue("fifo-backfill") };
    let mut world = World::alone(&[8], plain, jobs());
    world.round();
    assert_eq!(world.sizes(), [5, 0, 1], "the rule of the studies");
    // A job larger than the cluster holds up no other.
    let mut world = World::alone(&[8], queue("fifo-backfill"), vec![job("huge", 9, 0), job("small", 1, 1)]);
    world.round();
    assert_eq!(world.sizes(), [0, 1]);
}

#[test]
fn a_reservation_on_nodes_is_left_free() {
    // The large one needs a whole node; the first of the two that are half free is kept for it.
    let wide = job("wide", 1, 1).with(|job| job.width = 4);
    let jobs = vec![
        job("a", 2, 0).with(|job| job.held = vec!["n1".into(); 2]),
        job("b", 2, 0).with(|job| job.held = vec!["n2".into(); 2]),
        wide,
        job("late", 2, 2).of(1),
    ];
    let mut queues = vec![member("q", 2, quota(8, 0), queue("fifo-backfill"))];
    queues.push(member("p", 2, quota(0, 8), queue("fifo-backfill")));
    queues.push(cohort("pool"));
    let mut world = World::new(&[4, 4], queues, jobs);
    let decision = world.round();
    assert_eq!(world.sizes(), [2, 2, 0, 0], "nothing of q's quota is lent before wide had it");
    assert_eq!(waiting(&decision)[0], (1, "wide", &Reason::Nodes));
    world.jobs.remove(0);
    world.round();
    assert_eq!((world.sizes(), &*world.jobs[1].held[0]), (vec![2, 1, 2], "n1"), "what q leaves is lent");
}

#[test]
fn what_was_lent_comes_back_and_stays() {
    let queues = |reclaim| {
        let owner = QueueSettings { reclaim, ..queue("fifo-backfill") };
        vec![
            member("borrower", 2, quota(2, 6), queue("fifo-backfill")),
            member("owner", 2, quota(6, 0), owner),
            cohort("pool"),
        ]
    };
    let start = |reclaim| {
        let mut world =
            World::new(&[4, 4], queues(reclaim), vec![job("x", 2, 0), job("y", 2, 1), job("z", 2, 2), job("w", 2, 3)]);
        world.round();
        assert_eq!(world.sizes(), [2, 2, 2, 2], "all of the owner's quota is lent");
        world.jobs.push(job("own", 4, 10).of(1));
        world
    };
    let mut world = start(Reclaim::Any);
    world.pass(10);
    let decision = world.round();
    assert!(changes(&decision).is_empty(), "left alone for two minutes");
    assert_eq!(decision.pending[0].reason, Reason::Quota);
    assert_eq!(decision.wake, Some(Micros::from_secs(10_120)));
    world.pass(110);
    assert_eq!(changes(&world.round()), ["z Reclaimed for own", "w Reclaimed for own", "own Started"]);
    for _ in 0..5 {
        world.pass(130);
        assert!(changes(&world.round()).is_empty(), "no counter-claim");
    }
    let mut world = start(Reclaim::Never);
    world.pass(200);
    assert!(changes(&world.round()).is_empty());
    world.jobs.retain(|job| *job.id != *"x" && *job.id != *"y");
    assert_eq!(changes(&world.round()), ["own Started"]);
    let mut world = start(Reclaim::LowerPriority);
    world.pass(200);
    assert!(changes(&world.round()).is_empty());
    world.jobs[4].priority = 1;
    assert_eq!(changes(&world.round()), ["z Reclaimed for own", "w Reclaimed for own", "own Started"]);
}

#[test]
fn a_job_of_higher_priority_takes_over_where_that_is_allowed() {
    let start = |within| {
        let queue = QueueSettings { within, ..queue("fifo-backfill") };
        let mut world = World::alone(&[4], queue, vec![job("a", 2, 0), job("b", 2, 1)]);
        world.round();
        world.pass(200);
        world.jobs.push(job("urgent", 2, 9).with(|job| job.priority = 5));
        world
    };
    let mut world = start(WithinQueue::LowerPriority);
    let decision = world.round();
    assert_eq!(changes(&decision), ["b Preempted for urgent", "urgent Started"]);
    assert!(changes(&world.ask()).is_empty());
    world.pass(300);
    assert!(changes(&world.round()).is_empty());
    let mut world = start(WithinQueue::Never);
    assert!(changes(&world.round()).is_empty());
    let mut world = start(WithinQueue::LowerPriority);
    world.jobs[2].priority = 0;
    assert!(changes(&world.round()).is_empty(), "equals do not halt each other");
    world.jobs[2].priority = 5;
    world.jobs.iter_mut().for_each(|job| job.fixed = Fixed::Size);
    assert!(changes(&world.round()).is_empty());
}

#[test]
fn an_elastic_job_gives_way_to_its_minimum_and_names_the_other() {
    let elastic = |id: &str, submitted| job(id, 2, submitted).with(|job| job.sizes = Sizes { min: 2, num: 2, max: 8 });
    let mut world = World::alone(&[8], queue("max-min"), vec![elastic("a", 0)]);
    world.round();
    assert_eq!(world.sizes(), [8]);
    world.jobs.push(elastic("b", 1));
    world.pass(60);
    assert!(changes(&world.round()).is_empty(), "protected");
    world.pass(60);
    assert_eq!(changes(&world.round()), ["a Shrunk for b", "b Started"]);
    assert_eq!(world.sizes(), [4, 4]);
    // Policies that are not elastic give what was asked for.
    let mut world = World::alone(&[8], queue("srtf"), vec![elastic("a", 0)]);
    world.round();
    assert_eq!(world.sizes(), [2]);
}

#[test]
fn lost_and_closed_nodes() {
    let held = |job: world::Job, nodes: &[&str]| job.with(|job| job.held = nodes.iter().map(|&n| n.into()).collect());
    // n9 is gone: its worker goes to n2 before the job that waits; the closed n1 takes nothing.
    let jobs = vec![held(job("a", 2, 5), &["n1", "n9"]), job("b", 2, 0), held(job("c", 1, 6), &["n1"])];
    let mut world = World::alone(&[8, 2], queue("fifo-backfill"), jobs);
    world.closed.insert("n1".into());
    let decision = world.round();
    assert_eq!(changes(&decision), ["a Replaced"]);
    assert_eq!(world.jobs[0].held, ["n1".into(), "n2".into()]);
    // Without room it is given up.
    let jobs = vec![held(job("a", 2, 5), &["n1", "n9"]).with(|job| job.fixed = Fixed::Size)];
    let mut world = World::alone(&[1], queue("fifo-backfill"), jobs);
    world.nodes[0].slots = 2;
    world.jobs.push(held(job("other", 1, 0), &["n1"]).with(|job| job.fixed = Fixed::Place));
    assert_eq!(changes(&world.round()), ["a Lost"]);
}

#[test]
fn quota_that_was_lowered_evicts_none_and_pods_of_others_count() {
    let mut world = World::new(
        &[8],
        vec![member("q", 1, quota(8, 0), queue("fifo-backfill")), cohort("pool")],
        vec![job("a", 4, 0), job("b", 2, 1)],
    );
    world.round();
    world.queues[0].quota = Some([(scheduler::GpuType(0), quota(3, 0))].into());
    world.pass(1000);
    world.jobs.push(job("c", 1, 2));
    world.jobs.push(job("d", 4, 3));
    let decision = world.round();
    assert!(changes(&decision).is_empty());
    assert_eq!(waiting(&decision), [(1, "c", &Reason::Quota), (2, "d", &Reason::NeverQuota)]);
    assert_eq!(decision.pending[0].to_string(), "needs 1 GPU; its queue has 0 of 3 left");
    assert_eq!(decision.pending[1].to_string(), "needs 4 GPUs; its queue may never use more than 3");
    let foreign = job("pod", 6, 0).with(|job| {
        (job.queue, job.fixed, job.held, job.estimate.speeds) =
            (None, Fixed::Place, vec!["n1".into(); 6], Speeds::default());
    });
    let mut world = World::alone(&[8], queue("fifo-backfill"), vec![foreign, job("a", 3, 0), job("b", 2, 1)]);
    let decision = world.round();
    assert_eq!(world.sizes(), [6, 0, 0]);
    assert_eq!(waiting(&decision)[0], (1, "a", &Reason::Nodes));
}

#[test]
fn claims_that_cannot_be_judged_say_why() {
    let none = job("none", 1, 0).with(|job| job.queue = None);
    let faulty = job("faulty", 1, 1).with(|job| job.sizes.min = 0);
    let mut world = World::alone(&[8], queue("gain"), vec![none, faulty, job("good", 1, 2), job("good", 1, 3)]);
    let decision = world.round();
    assert_eq!(world.sizes(), [0, 0, 1, 0]);
    let texts: Vec<String> = decision.pending.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "cannot be scheduled: min is 0; a job needs at least one GPU",
            "cannot be scheduled: another job has the same id",
            "needs 1 GPU; it belongs to no queue",
        ]
    );
    let mut world = World::alone(&[8], QueueSettings { paused: true, ..queue("gain") }, vec![job("a", 1, 0)]);
    assert_eq!(waiting(&world.round()), [(1, "a", &Reason::Paused)]);
}

#[test]
fn a_start_that_failed_is_tried_later_and_elsewhere() {
    let failed =
        job("a", 4, 0).with(|job| (job.avoid, job.not_before) = (vec!["n1".into()], Micros::from_secs(10_060)));
    let mut world = World::alone(&[4, 4], queue("fifo-backfill"), vec![failed, job("b", 2, 1)]);
    let decision = world.round();
    assert_eq!(world.sizes(), [0, 2], "it reserves nothing meanwhile");
    assert_eq!(waiting(&decision), [(1, "a", &Reason::BackOff(Micros::from_secs(10_060)))]);
    assert_eq!(decision.wake, Some(Micros::from_secs(10_060)));
    world.pass(60);
    world.round();
    assert!(world.jobs[0].held.iter().all(|node| **node == *"n2") && world.jobs[0].held.len() == 4);
}

#[test]
fn of_two_gangs_that_both_have_to_borrow_one_starts() {
    let queues = |a: Quota, b: Quota| {
        vec![member("a", 2, a, queue("fifo-backfill")), member("b", 2, b, queue("fifo-backfill")), cohort("pool")]
    };
    // Each keeps back its own quota for the other's want: 8 and 4 of 12, of which one needs 12 and the other 9.
    let jobs = || vec![job("large", 12, 1), job("wide", 9, 0).of(1), job("small", 4, 2).of(1)];
    let mut world = World::new(&[4, 4, 4, 4], queues(quota(8, 4), quota(4, 8)), jobs());
    assert_eq!(changes(&world.round()), ["large Started"], "the queue that uses least, then by name");
    world.pass(1000);
    assert!(changes(&world.round()).is_empty(), "no queue may take back what it has to borrow itself");
    world.jobs.remove(0);
    world.pass(1000);
    assert_eq!(changes(&world.round()), ["wide Started"]);
    // What a job within its queue's own quota waits for is not lent to a job that has to borrow.
    let busy = job("busy", 4, 0).of(1).with(|job| job.held = vec!["n1".into(); 4]);
    let jobs = vec![busy, job("own", 8, 1).of(1), job("greedy", 5, 2)];
    let mut world = World::new(&[4, 4], queues(quota(0, 8), quota(8, 0)), jobs);
    assert!(changes(&world.round()).is_empty());
}

#[test]
fn two_queues_do_not_keep_nodes_and_quota_from_each_other() {
    // Both need three of four nodes. The first in line is offered 7 GPUs, as the other queue's own quota comes first.
    let gang = |id: &str, submitted| job(id, 3, submitted).with(|job| job.width = 3);
    let queues = vec![
        member("a", 2, quota(16, 0), queue("fifo-backfill")),
        member("b", 2, quota(4, 12), queue("fifo-backfill")),
        cohort("pool"),
    ];
    let mut world = World::new(&[4, 4, 4, 4], queues, vec![gang("late", 1), gang("early", 0).of(1)]);
    assert_eq!(changes(&world.round()), ["early Started"]);
    world.jobs.remove(1);
    world.pass(1000);
    assert_eq!(changes(&world.round()), ["late Started"]);
}

/// A queue with all quota there is that is limited to these nodes.
fn limited(name: &str, nodes: &[&str]) -> QueueSnapshot {
    let nodes = nodes.iter().map(|node| Text::from(*node)).collect();
    QueueSnapshot::root(name, QueueSettings { nodes: Some(Arc::new(nodes)), ..queue("fifo-backfill") })
}

#[test]
fn a_queue_places_workers_on_its_nodes_and_waits_for_them_alone() {
    let jobs = vec![job("a1", 4, 0), job("a2", 4, 1), job("a3", 8, 2), job("b1", 4, 3).of(1)];
    let queues = vec![limited("a", &["n2"]), QueueSnapshot::root("b", queue("fifo-backfill"))];
    let mut world = World::new(&[4, 4], queues, jobs);
    let decision = world.round();
    assert_eq!(world.sizes(), [4, 0, 0, 4], "what a2 waits for is not missing on n1");
    assert!(world.jobs[0].held.iter().all(|node| **node == *"n2"));
    assert_eq!(decision.pending[0].to_string(), "needs 4 GPUs; the nodes have 0 left");
    assert_eq!(
        decision.pending[1].to_string(),
        "needs 8 GPUs, 1 for each pod; the nodes that it may use have 4 in all and at most 4 each"
    );
    assert_eq!(waiting(&decision), [(1, "a2", &Reason::Nodes), (2, "a3", &Reason::NeverNodes)]);
    // Without nodes there is no start.
    world.queues[0] = limited("a", &[]);
    world.pass(1000);
    let decision = world.round();
    assert!(changes(&decision).is_empty(), "what runs stays where it is");
    assert_eq!(waiting(&decision), [(1, "a2", &Reason::NeverNodes), (2, "a3", &Reason::NeverNodes)]);
}

#[test]
fn queues_of_a_cohort_on_nodes_of_their_own_do_not_starve_each_other() {
    let of = |name: &str, nodes: &[&str], quota: Quota| {
        let settings = limited(name, nodes).settings;
        QueueSnapshot { settings, ..member(name, 2, quota, self::queue("fifo-backfill")) }
    };
    let queues = vec![of("a", &["n1"], quota(16, 0)), of("b", &["n2"], quota(8, 0)), cohort("pool")];
    let jobs = vec![job("a1", 8, 0), job("a2", 8, 1), job("a3", 8, 2), job("b1", 8, 3).of(1)];
    let mut world = World::new(&[8, 8], queues, jobs);
    let decision = world.round();
    assert_eq!(world.sizes(), [8, 0, 0, 8]);
    assert_eq!(waiting(&decision)[0], (1, "a2", &Reason::Nodes));
    // A large job of one waits; small ones of the other still go one after the other.
    world.jobs.retain(|job| &*job.id != "b1");
    world.jobs.extend([job("b2", 8, 5).of(1), job("b3", 1, 6).of(1)]);
    world.round();
    assert_eq!(world.sizes(), [8, 0, 0, 8, 0], "b3 does not pass b2 for a job that waits for other nodes");
}

#[test]
fn a_job_on_a_node_that_left_its_queue_goes_on_there_and_grows_elsewhere() {
    let sizes = Sizes { min: 1, num: 1, max: 6 };
    let elastic = job("a", 1, 0).with(|job| (job.sizes, job.held) = (sizes, vec!["n1".into(); 2]));
    let nodes: BTreeSet<Text> = ["n2".into()].into();
    let mut world =
        World::alone(&[4, 2], QueueSettings { nodes: Some(Arc::new(nodes)), ..queue("max-min") }, vec![elastic]);
    world.round();
    assert_eq!(world.jobs[0].held, ["n1", "n1", "n2", "n2"].map(Text::from));
}

#[test]
fn a_growth_that_is_not_granted_yet_changes_no_budget() {
    let elastic = |id: &str, submitted| job(id, 2, submitted).with(|job| job.sizes = Sizes { min: 1, num: 2, max: 3 });
    let held = |job: world::Job, nodes: &[&str]| job.with(|job| job.held = nodes.iter().map(|&n| n.into()).collect());
    let queue = QueueSettings { min_run: Micros::ZERO, within: WithinQueue::LowerPriority, ..queue("ElasticTiresias") };
    let queues = || {
        let other = self::queue("Tiresias");
        let rest = QueueSnapshot::root("rest", self::queue("fifo-backfill"));
        vec![member("b", 3, quota(4, 8), queue.clone()), rest, member("a", 3, quota(8, 4), other), cohort("pool")]
    };
    for nodes in [&["n1"][..], &["n1", "n4"]] {
        // Both queues lack GPUs for a gang. "old" was demoted, so that the policy prefers "young".
        let old = held(elastic("old", 0), nodes).with(|job| job.usage.attained = GpuMicros(3_600_000_000_000));
        let fixed = held(job("fixed", 3, 1), &["n2", "n2", "n1"]).with(|job| job.width = 2).of(1);
        let other = held(job("other", 3, 1), &["n3"; 3]).of(1);
        let gang = job("gang", 2, 3).with(|job| job.width = 3);
        let wait = job("wait", 3, 3).with(|job| job.width = 2).of(2);
        let jobs = vec![old, fixed, other, held(elastic("young", 2), &["n3"]), gang, wait];
        let mut world = World::new(&[4, 4, 4, 4], queues(), jobs);
        let mut sizes = BTreeSet::new();
        for _ in 0..4 {
            world.round();
            sizes.insert(world.sizes());
            // What "young" is granted is not free yet.
            world.jobs[3].held.truncate(1);
            world.now = world.now.plus(Micros(1000));
        }
        assert_eq!(sizes.len(), 1, "{sizes:?}");
    }
}

#[test]
fn a_start_that_is_not_granted_yet_is_decided_alike_at_the_same_time() {
    let held = |id: &str, submitted, gpus| {
        let job = job(id, 1, submitted).with(|job| job.sizes = Sizes { min: 1, num: 1, max: 8 });
        job.with(|job| job.held = vec!["n1".into(); gpus])
    };
    for policy in ["ElasticFIFO", "ElasticTiresias", "FfDLOptimizer", "AFS-L", "max-min"] {
        let rights = QueueSettings { min_run: Micros::ZERO, within: WithinQueue::Any, ..queue(policy) };
        let queue = QueueSettings { backfill: Backfill::Policy, ..rights };
        let mut world = World::alone(&[8], queue, vec![held("a", 0, 3), held("b", 1, 5), held("new", 2, 0)]);
        let new = world.jobs[2].clone();
        world.round();
        let decided = world.sizes();
        // What "b" lost is not free yet.
        world.jobs[2] = new;
        world.round();
        assert_eq!(world.sizes(), decided, "{policy}");
    }
}
