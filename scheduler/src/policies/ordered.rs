//! Rigid reference policies: an order, then every job at the size it asked for or not at all.
//!
//! Sources: the rules of the simulators published with Tiresias (NSDI'19) and AFS (NSDI'21), as stated in each variant.
//! What pre-empts and what does not follows from the order alone. Tests: at the end of this file.

use crate::job::{Grant, JobView};
use crate::memory::Memory;
use crate::policy::Policy;
use crate::round::{Member, Pool, Round};
use crate::units::Micros;

/// Which order, and whether a job that does not fit ends the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Running jobs keep what they have; then by submission, stopping at the first that does not fit.
    FifoStrict,
    /// Running jobs keep what they have; then by submission, skipping what does not fit.
    FifoBackfill,
    /// Shortest time left at the size asked for; pre-emptive.
    Srtf,
    /// Smallest service left, time times GPUs at the size asked for; pre-emptive.
    Srsf,
    /// Fewest GPUs asked for; pre-emptive.
    Sjf,
}

/// A rigid policy by order.
#[derive(Debug, Clone, Copy)]
pub struct Ordered {
    /// The order.
    pub order: Order,
}

impl Policy for Ordered {
    fn name(&self) -> &'static str {
        match self.order {
            Order::FifoStrict => "fifo-strict",
            Order::FifoBackfill => "fifo-backfill",
            Order::Srtf => "srtf",
            Order::Srsf => "srsf",
            Order::Sjf => "sjf",
        }
    }

    fn is_elastic(&self) -> bool {
        false
    }

    fn decide(&self, round: &Round<'_>, _: &mut Memory) -> Vec<Grant> {
        round.by_home(|pool| {
            let mut order: Vec<usize> = (0..pool.jobs.len()).collect();
            let member = |i: usize| pool.jobs.get(i);
            match self.order {
                Order::FifoStrict | Order::FifoBackfill => order = running_first(pool),
                Order::Srtf => order.sort_by_cached_key(|&i| member(i).map(time_left)),
                Order::Srsf => order.sort_by_cached_key(|&i| member(i).map(|m| time_left(m).times(m.job.num.into()))),
                Order::Sjf => order.sort_by_key(|&i| member(i).map(|m| m.job.num)),
            }
            fill(pool, &order, self.order == Order::FifoStrict, |job| job.num)
        })
    }
}

/// Time left at the size asked for; [`Micros::MAX`] when the work is not known.
fn time_left(member: &Member<'_>) -> Micros {
    member.job.remaining.map_or(Micros::MAX, |work| member.curve.at(member.job.num).time_for(work))
}

/// Running jobs by the time they started, then waiting ones; ties and waiting ones by (submission, id).
pub(super) fn running_first(pool: &Pool<'_>) -> Vec<usize> {
    let is_running = |&i: &usize| pool.jobs.get(i).is_some_and(|m| m.job.is_running());
    let (mut order, waiting): (Vec<usize>, Vec<usize>) = (0..pool.jobs.len()).partition(is_running);
    order.sort_by_key(|&i| pool.jobs.get(i).map(|m| m.job.since));
    order.extend(waiting);
    order
}

/// Takes GPUs out of the free ones, if they are there.
pub(super) fn take(free: &mut u32, gpus: u32) -> bool {
    let rest = free.checked_sub(gpus);
    *free = rest.unwrap_or(*free);
    rest.is_some()
}

/// Gives each job `size` GPUs, in order, if they are there; with `strict`, stops at the first that does not fit.
pub(super) fn fill(pool: &Pool<'_>, order: &[usize], strict: bool, size: impl Fn(&JobView) -> u32) -> Vec<u32> {
    let mut given = vec![0; pool.jobs.len()];
    let mut free = pool.gpus;
    for &i in order {
        if let (Some(member), Some(slot)) = (pool.jobs.get(i), given.get_mut(i)) {
            if take(&mut free, size(member.job)) {
                *slot = size(member.job);
            } else if strict {
                break;
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::{job, shares};
    use crate::units::GpuType;

    fn ordered(order: Order) -> Ordered {
        Ordered { order }
    }

    #[test]
    fn strict_stops_where_backfilling_goes_on() {
        let jobs = [job("a", 0, 2), job("b", 1, 4), job("c", 2, 1)];
        assert_eq!(shares(&ordered(Order::FifoStrict), 4, &jobs), [2, 0, 0]);
        assert_eq!(shares(&ordered(Order::FifoBackfill), 4, &jobs), [2, 0, 1]);
    }

    #[test]
    fn running_jobs_keep_their_place() {
        let mut late = job("late", 9, 3);
        (late.held, late.since) = (Grant::of(GpuType(0), 3), Micros::from_secs(9));
        let jobs = [job("early", 0, 3), late];
        assert_eq!(shares(&ordered(Order::FifoBackfill), 4, &jobs), [0, 3]);
    }

    #[test]
    fn shortest_by_time_service_and_size() {
        let with = |name: &str, num, secs| JobView { remaining: Some(Micros::from_secs(secs)), ..job(name, 0, num) };
        // On linear speeds: a takes 100 s on 4 (service 400), b 150 s on 2 (300), c 400 s on 1 (400).
        let jobs = [with("a", 4, 400), with("b", 2, 300), with("c", 1, 400)];
        assert_eq!(shares(&ordered(Order::Srtf), 4, &jobs), [4, 0, 0]);
        assert_eq!(shares(&ordered(Order::Srsf), 4, &jobs), [0, 2, 1]);
        assert_eq!(shares(&ordered(Order::Sjf), 4, &jobs), [0, 2, 1]);
        assert_eq!(shares(&ordered(Order::Sjf), 1, &jobs), [0, 0, 1]);
    }
}
