//! Properties of every decision of the scheduler, on any input and with every policy: asking again changes nothing, nodes and
//! quotas are kept, gangs and workers are whole, the order of the claims does not matter, rights are kept, and no job is
//! changed against its will twice within its protection.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use scheduler::scheduling::{
    Backfill, Decision, Fixed, QueueSettings, QueueSnapshot, Quota, Reclaim, Sizes, Why, WithinQueue,
};
use scheduler::{GpuMicros, GpuType, Micros, NAMES};
use world::{Job, World, changes, cohort, job, member, queue};

/// Queues of a case: `a` and `b` in a cohort, `c` alone.
const QUEUES: usize = 3;

fn any_quota() -> impl Strategy<Value = Quota> {
    (0_u32..12, 0_u32..10, prop::option::of(0_u32..8)).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

fn any_queue() -> impl Strategy<Value = QueueSettings> {
    let within = prop_oneof![Just(WithinQueue::Never), Just(WithinQueue::LowerPriority), Just(WithinQueue::Any)];
    let reclaim = prop_oneof![Just(Reclaim::Never), Just(Reclaim::LowerPriority), Just(Reclaim::Any)];
    // Every other queue is limited to some of the nodes.
    let nodes = prop::option::of(prop::collection::btree_set(1_u32..6, 0..5));
    let rest = (any::<bool>(), any::<bool>(), 0_u64..300, nodes);
    (0..NAMES.len(), within, reclaim, rest).prop_map(|(policy, within, reclaim, rest)| {
        let (by_priority, reserves, min_run, nodes) = rest;
        let backfill = if reserves { Backfill::Reserve } else { Backfill::Policy };
        let min_run = Micros::from_secs(min_run);
        let nodes = nodes.map(|nodes| Arc::new(nodes.into_iter().map(|n| format!("n{n}").into()).collect()));
        QueueSettings { within, reclaim, by_priority, backfill, min_run, nodes, ..queue(NAMES[policy]) }
    })
}

fn any_queues() -> impl Strategy<Value = Vec<QueueSnapshot>> {
    let each = || (any_quota(), any_queue(), 1_u32..4);
    (each(), each(), each()).prop_map(|all| {
        let [a, b, c] = <[_; 3]>::from(all);
        let queue = |name: &str, parent, (quota, queue, weight): (Quota, QueueSettings, u32)| QueueSnapshot {
            weight,
            ..member(name, parent, quota, queue)
        };
        let alone = QueueSnapshot { parent: None, ..queue("c", 3, c) };
        vec![queue("a", 3, a), queue("b", 3, b), alone, cohort("pool")]
    })
}

fn any_job() -> impl Strategy<Value = Job> {
    let sizes =
        (1_u32..4, 0_u32..3, 0_u32..4).prop_map(|(min, up, more)| Sizes { min, num: min + up, max: min + up + more });
    let width = prop_oneof![3 => Just(1_u32), 1 => Just(2_u32), 1 => Just(4_u32)];
    (0..QUEUES, sizes, width, -1_i32..2, (0_u64..100, 0_u64..50_000, 0_u64..5000), 0_u8..8).prop_map(
        |(queue, sizes, width, priority, (submitted, work, attained), fixed)| {
            job("", 1, submitted).of(queue).with(|job| {
                (job.sizes, job.width, job.priority) = (sizes, width, priority);
                job.estimate.remaining = Some(Micros::from_secs(work));
                job.usage.attained = GpuMicros::from_gpu_secs(attained);
                job.fixed = if fixed == 0 { Fixed::Size } else { Fixed::No };
            })
        },
    )
}

fn any_world() -> impl Strategy<Value = World> {
    let jobs = prop::collection::vec(any_job(), 0..14);
    (prop::collection::vec(0_u32..9, 1..6), any_queues(), jobs).prop_map(|(slots, queues, mut jobs)| {
        for (n, job) in jobs.iter_mut().enumerate() {
            job.id = format!("job-{n:02}").into();
        }
        World::new(&slots, queues, jobs)
    })
}

/// GPUs by queue.
fn used(world: &World) -> BTreeMap<usize, u32> {
    let mut used = BTreeMap::new();
    for job in &world.jobs {
        *used.entry(job.queue.unwrap()).or_default() += u32::try_from(job.held.len()).unwrap() * job.width;
    }
    used
}

/// Checks nodes, quotas, limits of the cohort, gangs and widths.
fn check(world: &World) -> Result<(), TestCaseError> {
    let by_node = world.by_node();
    for node in &world.nodes {
        prop_assert!(
            by_node.get(&node.name).copied().unwrap_or_default() <= node.slots,
            "{}: {:?}",
            node.name,
            by_node
        );
    }
    prop_assert!(by_node.keys().all(|name| world.nodes.iter().any(|node| node.name == *name)));
    let used = used(world);
    let quota = |queue: usize| world.queues[queue].quota(GpuType(0)).unwrap();
    let of = |queue: usize| used.get(&queue).copied().unwrap_or_default();
    for queue in 0..QUEUES {
        prop_assert!(of(queue) <= world.queues[queue].ceiling(GpuType(0)), "queue {}: {:?}", queue, used);
    }
    prop_assert!(of(0) + of(1) <= quota(0).nominal + quota(1).nominal, "the cohort: {:?}", used);
    for (own, other) in [(0, 1), (1, 0)] {
        let lent = of(own).saturating_sub(quota(own).nominal);
        let lending = quota(other).lending.unwrap_or(u32::MAX);
        prop_assert!(lent <= lending, "{} borrows {} of {}", own, lent, other);
    }
    for job in &world.jobs {
        let workers = u32::try_from(job.held.len()).unwrap();
        let elastic = world.queues[job.queue.unwrap()].settings.as_ref().unwrap().policy.is_elastic();
        let (min, max) = if elastic { (job.sizes.min, job.sizes.max) } else { (job.sizes.num, job.sizes.num) };
        prop_assert!(workers == 0 || (min..=max).contains(&workers), "{}: {} workers", job.id, workers);
    }
    Ok(())
}

/// Checks that new workers are on nodes of their queue.
fn check_nodes(before: &World, decision: &Decision) -> Result<(), TestCaseError> {
    for (job, target) in before.jobs.iter().zip(&decision.targets) {
        let settings = before.queues[job.queue.unwrap()].settings.as_ref().unwrap();
        let Some(nodes) = &settings.nodes else { continue };
        let on = |workers: &[model::Text], node: &model::Text| workers.iter().filter(|on| *on == node).count();
        for node in target.on.iter().filter(|node| !nodes.contains(*node)) {
            prop_assert!(on(&target.on, node) <= on(&job.held, node), "{} on {}", job.id, node);
        }
    }
    Ok(())
}

/// Checks that what was taken away was taken by right, for a job that gained, and not too soon.
fn check_rights(before: &World, decision: &Decision) -> Result<(), TestCaseError> {
    for (job, target) in before.jobs.iter().zip(&decision.targets) {
        let Some(change) = target.change.as_ref().filter(|_| target.on.len() < job.held.len()) else { continue };
        prop_assert!(job.fixed == Fixed::No);
        let queue = &before.queues[job.queue.unwrap()];
        let settings = queue.settings.as_ref().unwrap();
        if let Some(changed) = job.usage.changed {
            prop_assert!(before.now >= changed.plus(settings.min_run), "{} was left alone too shortly", job.id);
        }
        let beneficiary = change.beneficiary.as_ref();
        prop_assert!(beneficiary.is_some(), "{} {:?} without a beneficiary", job.id, change);
        let place = before.jobs.iter().position(|other| Some(&other.id) == beneficiary).unwrap();
        let gainer = &before.jobs[place];
        prop_assert!(decision.targets[place].on.len() > gainer.held.len(), "{} gains nothing", gainer.id);
        let permissions = before.queues[gainer.queue.unwrap()].settings.as_ref().unwrap();
        let is_higher = gainer.priority > job.priority;
        let right = match change.why {
            Why::Reclaimed => match permissions.reclaim {
                Reclaim::Any => true,
                Reclaim::LowerPriority => is_higher,
                Reclaim::Never => false,
            },
            Why::Preempted => match permissions.within {
                WithinQueue::Any => true,
                WithinQueue::LowerPriority => is_higher,
                WithinQueue::Never => false,
            },
            why => why == Why::Shrunk && gainer.queue == job.queue,
        };
        prop_assert!(right, "{} {:?}", job.id, change);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Several rounds with time between, jobs that end, and jobs that come.
    #[test]
    fn rounds_keep_all_limits_and_are_fixpoints(
        world in any_world(),
        late in prop::collection::vec(any_job(), 4),
        steps in prop::collection::vec((0_u64..200, any::<prop::sample::Index>(), any::<bool>()), 4),
    ) {
        let mut world = world;
        for ((step, late), n) in steps.into_iter().zip(late).zip(0..) {
            let (secs, ends, is_end) = step;
            let before = world.clone();
            let decision = world.round();
            check(&world)?;
            check_rights(&before, &decision)?;
            check_nodes(&before, &decision)?;
            prop_assert_eq!(changes(&world.ask()), Vec::<String>::new(), "asked again");
            prop_assert!(world.ask().memory.is_empty(), "memory at the same time");
            for wait in &decision.pending {
                prop_assert!(wait.place > 0 && !wait.to_string().is_empty());
            }
            world.pass(secs);
            if is_end && !world.jobs.is_empty() {
                let place = ends.index(world.jobs.len());
                let ended = world.jobs.remove(place);
                world.history.record_end(&ended.id, None);
            }
            world.jobs.push(late.with(|job| (job.id, job.submitted) = (format!("late-{n}").into(), world.now)));
        }
    }

    #[test]
    fn the_order_of_the_claims_does_not_matter(world in any_world(), keys in prop::collection::vec(any::<u32>(), 14)) {
        let first = world.ask();
        let mut order: Vec<usize> = (0..world.jobs.len()).collect();
        order.sort_by_key(|&place| keys[place]);
        let mut other = world.clone();
        other.jobs = order.iter().map(|&place| world.jobs[place].clone()).collect();
        other.nodes.reverse();
        let second = other.ask();
        for (place, &of) in order.iter().enumerate() {
            prop_assert_eq!(&second.targets[place], &first.targets[of]);
        }
        prop_assert_eq!((first.memory, first.pending, first.wake), (second.memory, second.pending, second.wake));
    }

    /// Nothing new happens but time, and these policies do not depend on it: no claim is moved.
    #[test]
    fn without_news_nothing_is_taken_back(world in any_world(), policy in 0_usize..4) {
        let mut world = world;
        for snapshot in &mut world.queues {
            if let Some(settings) = &mut snapshot.settings {
                let name = ["fifo-backfill", "FIFO", "max-min", "ElasticFIFO"][policy];
                // With `Any` a policy may change its mind about what fits on nodes.
                let within = if settings.within == WithinQueue::Any { WithinQueue::Never } else { settings.within };
                *settings = QueueSettings { policy: queue(name).policy, within, ..settings.clone() };
            }
        }
        world.round();
        // A decision may be completed once protections have ended.
        for _ in 0..6 {
            world.pass(400);
            world.round();
        }
        world.pass(400);
        prop_assert_eq!(changes(&world.round()), Vec::<String>::new());
    }
}
