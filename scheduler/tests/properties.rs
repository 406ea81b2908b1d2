//! What holds of every policy on any input: bounds, capacity, independence of the order of the list, repeatability, and
//! that a job that cannot be judged changes nothing for the others.

use proptest::prelude::*;
use scheduler::{
    Curve, GpuMicros, GpuType, Grant, JobError, JobView, Memory, Micros, NAMES, PolicyInput, PolicyOutput, Speed,
    Speeds, allocate, by_name,
};

const TYPES: u16 = 2;

fn curve(max: u32) -> impl Strategy<Value = Curve> {
    prop::collection::vec(0_u64..3000, max as usize + 1)
        .prop_map(|milli| Curve::new(milli.into_iter().map(Speed::from_milli)))
}

fn sizes() -> impl Strategy<Value = (u32, u32, u32)> {
    (1_u32..6, 0_u32..5, 0_u32..8).prop_map(|(min, up, more)| (min, min + up, min + up + more))
}

fn job() -> impl Strategy<Value = JobView> {
    let times = (0_u64..50, prop::option::of(0_u64..50), 0_u64..2000, 0_u64..10_000, prop::option::of(0_u64..100_000));
    (sizes(), times, -1_i32..2, 0_u32..4, (0_u32..12, 0..TYPES), 0_u64..120, 1_usize..=2).prop_flat_map(
        |(sizes, times, priority, level, (held, held_type), cost, types)| {
            let (min, num, max) = sizes;
            let (submitted, first, ran, attained, remaining) = times;
            prop::collection::vec(curve(max), types).prop_map(move |curves| {
                // The home type differs between jobs: shifted by the priority, to have some of each.
                let shift = u16::from(priority > 0);
                let speeds =
                    Speeds::new(curves.into_iter().zip(0_u16..).map(|(c, t)| (GpuType((t + shift) % TYPES), c)));
                let held_type = GpuType(held_type);
                let holds = (min..=max).contains(&held) && speeds.on(held_type).is_some();
                JobView {
                    priority,
                    level,
                    first_start: first.map(Micros::from_secs),
                    remaining: remaining.map(Micros::from_secs),
                    attained: GpuMicros::from_gpu_secs(attained),
                    ran: Micros::from_secs(ran),
                    spell: Micros::from_secs(ran / 2),
                    restart_cost: Micros::from_secs(cost),
                    held: Grant::of(held_type, if holds { held } else { 0 }),
                    speeds,
                    ..JobView::waiting("", min, num, max, Micros::from_secs(submitted))
                }
            })
        },
    )
}

fn jobs() -> impl Strategy<Value = Vec<JobView>> {
    prop::collection::vec(job(), 0..14).prop_map(|mut jobs| {
        for (job, n) in jobs.iter_mut().zip(0..) {
            job.id = format!("job-{n:02}").into();
        }
        jobs
    })
}

fn ask(name: &str, capacity: &[(GpuType, u32)], jobs: &[JobView]) -> (PolicyOutput, Memory) {
    let policy = by_name(name).unwrap();
    let mut memory = Memory::default();
    let now = Micros::from_secs(10_000);
    policy.review(now, jobs, &mut memory);
    let allocation = allocate(&*policy, PolicyInput { now, capacity, jobs }, &mut memory)
        .unwrap_or_else(|error| panic!("{name}: {error}")); // bounds and capacity are checked there
    (allocation, memory)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn within_bounds_and_capacity_in_any_order(
        jobs in jobs(),
        gpus in (0_u32..20, 0_u32..20),
        shuffle in prop::collection::vec(any::<u32>(), 14),
    ) {
        let capacity = [(GpuType(0), gpus.0), (GpuType(1), gpus.1)];
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&i| shuffle[i]);
        let shuffled: Vec<JobView> = order.iter().map(|&i| jobs[i].clone()).collect();
        for &name in NAMES {
            let (first, memory) = ask(name, &capacity, &jobs);
            prop_assert!(first.refused.is_empty(), "{}", name);
            let given = |t| first.grants.iter().filter(|g| g.gpu_type == t).map(|g| g.gpus).sum::<u32>();
            prop_assert!(given(GpuType(0)) <= gpus.0 && given(GpuType(1)) <= gpus.1, "{}", name);
            prop_assert_eq!(&(first.clone(), memory.clone()), &ask(name, &capacity, &jobs), "{}", name);
            let (second, memory_of_second) = ask(name, &capacity, &shuffled);
            for (place, &i) in order.iter().enumerate() {
                prop_assert_eq!(first.grants[i], second.grants[place], "{}: {}", name, jobs[i].id);
            }
            prop_assert_eq!(memory, memory_of_second, "{}", name);
        }
    }

    #[test]
    fn a_bad_job_changes_nothing_for_the_others(jobs in jobs(), gpus in 0_u32..30, at in 0_usize..14) {
        let capacity = [(GpuType(0), gpus), (GpuType(1), gpus / 2)];
        let at = at.min(jobs.len());
        let mut with_bad = jobs.clone();
        with_bad.insert(at, JobView { max: 0, ..JobView::waiting("bad", 1, 1, 1, Micros::ZERO) });
        for &name in NAMES {
            let (clean, _) = ask(name, &capacity, &jobs);
            let (mut other, _) = ask(name, &capacity, &with_bad);
            prop_assert_eq!(other.refused.len(), 1);
            prop_assert_eq!(&other.refused[0].error, &JobError::Sizes { min: 1, num: 1, max: 0 });
            prop_assert_eq!(other.grants.remove(at), Grant::NONE);
            prop_assert_eq!(clean.grants, other.grants, "{}", name);
        }
    }

    /// One GPU type, everyone fits at the maximum and gains all the way: elastic policies leave nothing idle that helps.
    #[test]
    fn elastic_policies_use_what_is_there(sizes in prop::collection::vec(sizes(), 1..8)) {
        let jobs: Vec<JobView> = sizes.iter().zip(0_u64..).map(|(&(min, num, max), n)| JobView {
            remaining: Some(Micros::from_secs(1000 + n)),
            ..JobView::waiting(format!("j{n}"), min, num, max, Micros::from_secs(n))
        }).collect();
        let most: u32 = jobs.iter().map(|j| j.max).sum();
        for &name in NAMES.iter().filter(|name| by_name(name).unwrap().is_elastic()) {
            let (allocation, _) = ask(name, &[(GpuType(0), most)], &jobs);
            prop_assert_eq!(allocation.grants.iter().map(|g| g.gpus).sum::<u32>(), most, "{}", name);
        }
    }
}

#[test]
fn jobs_without_a_pool_and_doubles_are_reported() {
    let elsewhere = JobView {
        speeds: Speeds::new([(GpuType(9), Curve::linear(1))]),
        ..JobView::waiting("elsewhere", 1, 1, 1, Micros::ZERO)
    };
    let job = JobView::waiting("j", 1, 1, 1, Micros::ZERO);
    let (allocation, _) = ask("FIFO", &[(GpuType(0), 4)], &[job.clone(), elsewhere, job]);
    let refused: Vec<String> = allocation.refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["job elsewhere: no pool of GPU type 9", "job j: another job has the same id"]);
    assert_eq!(allocation.grants.iter().map(|g| g.gpus).collect::<Vec<_>>(), [1, 0, 0]);
}
