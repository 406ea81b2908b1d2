//! Chooses one offer per job so that the sum of values is large, for GPUs of several types.
//!
//! An exact answer is out of reach (a knapsack of several dimensions). Prices per GPU are moved until demand fits, which
//! solves the Lagrangian dual of the linear relaxation; then jobs choose in turn within what is left, and what no job chose
//! goes where it adds value. Source: Kellerer, Pferschy, Pisinger, "Knapsack Problems", chapters 9 and 11. Cost: some
//! hundred looks at each offer. Tests: at the end of this file.

use crate::units::GpuType;

/// GPUs of a type for so much value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) gpu_type: GpuType,
    pub(super) gpus: u32,
    pub(super) value: u64,
}

/// Sum of the values chosen.
fn total(jobs: &[Vec<Offer>], chosen: &[Option<usize>]) -> u64 {
    let values = jobs.iter().zip(chosen).filter_map(|(offers, place)| offers.get((*place)?));
    values.fold(0, |sum, offer| sum.saturating_add(offer.value))
}

/// GPUs of one type for sale.
#[derive(Debug, Clone, Copy)]
struct Stall {
    gpu_type: GpuType,
    free: u32,
    /// Of one GPU.
    price: u64,
}

/// What is for sale. There are few types, so a stall is found by looking at all.
#[derive(Debug, Clone)]
pub(super) struct Market {
    stalls: Vec<Stall>,
}

impl Market {
    /// So many GPUs of each type; each type once.
    pub(super) fn new(pools: &[(GpuType, u32)]) -> Self {
        Self { stalls: pools.iter().map(|&(gpu_type, free)| Stall { gpu_type, free, price: 0 }).collect() }
    }

    /// At most one offer per job: the place of the one it takes. Jobs listed first have the advantage where it is tight.
    pub(super) fn clear(mut self, jobs: &[Vec<Offer>]) -> Vec<Option<usize>> {
        // Where few large offers are all there is room for, prices mislead; then the largest values go first.
        let nothing = self.clone();
        let enough = self.find_prices(jobs);
        let mut best = self.sell(jobs);
        for other in enough.into_iter().chain([nothing]).map(|market| market.sell(jobs)) {
            if total(jobs, &other) > total(jobs, &best) {
                best = other;
            }
        }
        best
    }

    fn sell(mut self, jobs: &[Vec<Offer>]) -> Vec<Option<usize>> {
        let mut chosen = self.buy(jobs);
        self.improve(jobs, &mut chosen);
        chosen
    }

    fn stall(&self, offer: &Offer) -> Option<&Stall> {
        self.stalls.iter().find(|stall| stall.gpu_type == offer.gpu_type)
    }

    fn has_room(&self, offer: &Offer) -> bool {
        self.stall(offer).is_some_and(|stall| stall.free >= offer.gpus)
    }

    /// What is gained beyond the price; `None` when nothing is, or there is no room.
    fn surplus(&self, offer: &Offer) -> Option<u64> {
        let stall = self.stall(offer).filter(|stall| stall.free >= offer.gpus)?;
        offer.value.checked_sub(stall.price.saturating_mul(offer.gpus.into())).filter(|&surplus| surplus > 0)
    }

    fn best(&self, offers: &[Offer]) -> Option<(u64, usize)> {
        let surplus = |(place, offer): (usize, &Offer)| Some((self.surplus(offer)?, place));
        // Of equals the first: fewer GPUs, and the home type before others.
        offers.iter().enumerate().filter_map(surplus).reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// Prices at which about as much is wanted as there is, by steps that halve again and again. Returns the market at the
    /// last prices on the way at which nothing was short.
    fn find_prices(&mut self, jobs: &[Vec<Offer>]) -> Option<Self> {
        const ROUNDS: u32 = 48;
        let gpus = self.stalls.iter().fold(0_u64, |sum, stall| sum.saturating_add(stall.free.into()));
        // An offer larger than all there is must not raise prices.
        let possible = |offer: &&Offer| self.has_room(offer);
        let most = |offers: &Vec<Offer>| offers.iter().filter(possible).map(|o| o.value).max().unwrap_or_default();
        let value = jobs.iter().map(most).fold(0_u64, u64::saturating_add);
        let start = value.checked_div(gpus).unwrap_or_default().max(1);
        for stall in &mut self.stalls {
            stall.price = start;
        }
        let mut enough = None;
        for round in 0..ROUNDS {
            let mut wanted = vec![0_u64; self.stalls.len()];
            for offer in jobs.iter().filter_map(|offers| offers.get(self.best(offers)?.1)) {
                let place = self.stalls.iter().position(|stall| stall.gpu_type == offer.gpu_type);
                if let Some(sum) = place.and_then(|place| wanted.get_mut(place)) {
                    *sum = sum.saturating_add(offer.gpus.into());
                }
            }
            if self.stalls.iter().zip(&wanted).all(|(stall, &wanted)| wanted <= stall.free.into()) {
                enough = Some(self.clone());
            }
            // Steps of a half, then a quarter, ... of the price, six rounds each.
            let shift = round.checked_div(6).unwrap_or_default().saturating_add(1);
            for (stall, wanted) in self.stalls.iter_mut().zip(wanted) {
                let step = (stall.price >> shift).max(1);
                let short = wanted > stall.free.into();
                stall.price =
                    if short { stall.price.saturating_add(step) } else { stall.price.saturating_sub(step).max(1) };
            }
        }
        enough
    }

    /// At these prices, the job that gains most per cost goes first; one whose choice is sold out takes its next best.
    fn buy(&mut self, jobs: &[Vec<Offer>]) -> Vec<Option<usize>> {
        let mut order: Vec<(u64, usize)> = (jobs.iter().enumerate())
            .map(|(job, offers)| (self.best(offers).map_or(0, |(surplus, _)| surplus), job))
            .collect();
        order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen = vec![None; jobs.len()];
        for (_, job) in order {
            let offers = jobs.get(job).map_or(&[][..], Vec::as_slice);
            if let Some((_, place)) = self.best(offers)
                && let (Some(slot), Some(offer)) = (chosen.get_mut(job), offers.get(place))
            {
                *slot = Some(place);
                self.take(offer.gpu_type, offer.gpus);
            }
        }
        chosen
    }

    fn take(&mut self, gpu_type: GpuType, gpus: u32) {
        if let Some(stall) = self.stalls.iter_mut().find(|stall| stall.gpu_type == gpu_type) {
            stall.free = stall.free.saturating_sub(gpus);
        }
    }

    fn give_back(&mut self, gpu_type: GpuType, gpus: u32) {
        if let Some(stall) = self.stalls.iter_mut().find(|stall| stall.gpu_type == gpu_type) {
            stall.free = stall.free.saturating_add(gpus);
        }
    }

    /// Grants what is left at any price where it adds value: job after job, until no job improves.
    fn improve(&mut self, jobs: &[Vec<Offer>], chosen: &mut [Option<usize>]) {
        const ROUNDS: u32 = 4;
        for _ in 0..ROUNDS {
            let mut improved = false;
            for (offers, slot) in jobs.iter().zip(chosen.iter_mut()) {
                let now = slot.and_then(|place| offers.get(place)).copied();
                if let Some(now) = now {
                    self.give_back(now.gpu_type, now.gpus);
                }
                let better = |a: (usize, &Offer), b: (usize, &Offer)| b.1.value > a.1.value;
                let best = offers.iter().enumerate().filter(|(_, offer)| self.has_room(offer));
                let best =
                    best.fold(slot.and_then(|place| Some((place, offers.get(place)?))), |best, next| match best {
                        Some(best) if !better(best, next) => Some(best),
                        Some(_) => Some(next),
                        None if next.1.value > 0 => Some(next),
                        None => None,
                    });
                if let Some((place, offer)) = best {
                    improved |= *slot != Some(place);
                    *slot = Some(place);
                    self.take(offer.gpu_type, offer.gpus);
                }
            }
            if !improved {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest sum of values that fits, by trying everything.
    fn largest(jobs: &[Vec<Offer>], free: [u32; 2]) -> u64 {
        let Some((offers, rest)) = jobs.split_first() else { return 0 };
        let mut best = largest(rest, free);
        for offer in offers {
            let mut left = free;
            let at = usize::from(offer.gpu_type.0);
            if left[at] >= offer.gpus {
                left[at] -= offer.gpus;
                best = best.max(offer.value + largest(rest, left));
            }
        }
        best
    }

    proptest! {
        #[test]
        fn the_market_sells_what_there_is_and_comes_close(
            jobs in prop::collection::vec(
                prop::collection::vec((0_u16..2, 1_u32..5, 1_u64..100), 0..4)
                    .prop_map(|o| o.into_iter().map(|(t, gpus, value)| Offer { gpu_type: GpuType(t), gpus, value }).collect()),
                0..6,
            ),
            free in (0_u32..8, 0_u32..8),
        ) {
            let jobs: Vec<Vec<Offer>> = jobs;
            let chosen = Market::new(&[(GpuType(0), free.0), (GpuType(1), free.1)]).clear(&jobs);
            let taken: Vec<&Offer> = jobs.iter().zip(&chosen).filter_map(|(o, c)| c.map(|c| &o[c])).collect();
            let sold = |t| taken.iter().filter(|o| o.gpu_type == GpuType(t)).map(|o| o.gpus).sum::<u32>();
            prop_assert!(sold(0) <= free.0 && sold(1) <= free.1);
            let value: u64 = taken.iter().map(|o| o.value).sum();
            // Small cases are the hard ones: one large offer may be all there is room for.
            prop_assert!(value * 2 >= largest(&jobs, [free.0, free.1]), "{value}");
        }
    }
}
