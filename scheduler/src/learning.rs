//! Speeds and remaining time, learnt from progress reports.
//!
//! A report says: so many units of work (epochs, or steps) took so long on so many GPUs. The time per unit at a size is the
//! mean over its reports. Sizes that were not measured follow the *prior* curve, scaled by what was measured at the nearest
//! sizes: between two of them the factor is interpolated linearly, beyond the last it is that of the last. So one
//! measurement anywhere fixes the level of the whole curve, and nothing is ever assumed to take one second.
//!
//! The prior of a job is its category's estimate: the measurements of earlier jobs of that name, together. The prior of a category
//! is [`Prior`]: linear up to one node, less beyond. Integer arithmetic. Tests: at the end of this file; vectors
//! `collector` in `tests/learning.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fixed::log2;
use crate::job::{Curve, Speeds};
use crate::units::{GpuType, Micros, Speed};

/// What is assumed before anything is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prior {
    /// GPUs of one node: up to there speed is linear.
    pub node: u32,
    /// What each GPU beyond adds, in thousandths of one GPU.
    pub beyond_milli: u32,
    /// Speed of one GPU of a type against one of the home type; types not listed count as equal.
    pub types: BTreeMap<GpuType, Speed>,
}

impl Default for Prior {
    /// Nodes of 8 GPUs; 0.7 for each GPU beyond the first node.
    fn default() -> Self {
        Self { node: 8, beyond_milli: 700, types: BTreeMap::new() }
    }
}

impl Prior {
    /// Speeds for 0 to `max` GPUs of a type.
    pub fn curve(&self, gpu_type: GpuType, max: u32) -> Curve {
        let one = self.types.get(&gpu_type).copied().unwrap_or(Speed::ONE).0;
        let speed = |gpus: u32| {
            let inside = u64::from(gpus.min(self.node)).saturating_mul(1000);
            let beyond = u64::from(gpus.saturating_sub(self.node)).saturating_mul(self.beyond_milli.into());
            let milli = u128::from(inside.saturating_add(beyond)).saturating_mul(one.into());
            Speed(milli.checked_div(1000).and_then(|speed| u64::try_from(speed).ok()).unwrap_or(u64::MAX))
        };
        Curve::new((0..=max).map(speed))
    }

    /// Curves for all types a job can use, home first.
    pub fn speeds(&self, types: &[GpuType], max: u32) -> Speeds {
        Speeds::new(types.iter().map(|&gpu_type| (gpu_type, self.curve(gpu_type, max))))
    }
}

/// What was measured at one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Units of work done.
    pub units: u64,
    /// Time that took.
    pub took: Micros,
}

impl Sample {
    /// Mean time per unit, rounded down, at least one microsecond; `None` when nothing was measured.
    pub fn time_per_unit(self) -> Option<Micros> {
        self.took.0.checked_div(self.units).filter(|_| self.took > Micros::ZERO).map(|time| Micros(time.max(1)))
    }
}

/// One progress report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// On which GPUs.
    pub gpu_type: GpuType,
    /// On how many.
    pub gpus: u32,
    /// Units of work done since the report before.
    pub units: u64,
    /// Time that took, without start-up.
    pub took: Micros,
}

/// Samples by type and size: of one job, or of all jobs of a category.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    sizes: BTreeMap<GpuType, BTreeMap<u32, Sample>>,
}

impl Measured {
    /// Takes a report in. One without GPUs, work or time says nothing and is left out.
    pub fn record(&mut self, report: Report) {
        if report.gpus > 0 && report.units > 0 && report.took > Micros::ZERO {
            let sample = self.sizes.entry(report.gpu_type).or_default().entry(report.gpus).or_default();
            sample.units = sample.units.saturating_add(report.units);
            sample.took = sample.took.plus(report.took);
        }
    }

    /// The mean time per unit at a size; `None` when it was not measured.
    pub fn time_per_unit(&self, gpu_type: GpuType, gpus: u32) -> Option<Micros> {
        self.sizes.get(&gpu_type)?.get(&gpus)?.time_per_unit()
    }

    /// The most GPUs, of any type, that were measured; 0 when nothing was.
    pub fn largest(&self) -> u32 {
        let of_type = |sizes: &BTreeMap<u32, Sample>| sizes.last_key_value().map(|(&gpus, _)| gpus);
        self.sizes.values().filter_map(of_type).max().unwrap_or_default()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }
}

/// Estimate of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// Speeds on the types of the prior, in units of one home GPU.
    pub speeds: Speeds,
    /// Time per unit of work at [`Speed::ONE`]; `None` while nothing was measured, here or for the category.
    pub time_per_unit: Option<Micros>,
}

impl Estimate {
    /// What [`Prior`] alone says.
    pub fn of_prior(speeds: Speeds) -> Self {
        Self { speeds, time_per_unit: None }
    }

    /// This estimate as a prior, corrected by measurements.
    #[must_use]
    pub fn refined(&self, measured: &Measured) -> Self {
        let of_type = |(gpu_type, curve): &'_ (GpuType, Curve)| levels(measured.sizes.get(gpu_type), curve);
        let levels: Vec<_> = self.speeds.iter().map(|table| (table.0, &table.1, of_type(table))).collect();
        // Types that were not measured follow the nearest one in the list, home first.
        let Some(fallback) = levels.iter().find_map(|(_, _, levels)| levels.first().copied()) else {
            return self.clone();
        };
        let rate = |curve: &Curve, levels: &[(u32, u128)], gpus: u32| {
            let level = if levels.is_empty() { fallback.1 } else { level_at(levels, gpus) };
            level.saturating_mul(curve.at(gpus).0.into())
        };
        // One reference GPU: where the home table has speed 1 in the prior's units, i.e. its size 1.
        let Some(unit) = levels.first().map(|(_, curve, levels)| rate(curve, levels, 1)).filter(|&unit| unit > 0)
        else {
            return self.clone();
        };
        let one = unit.checked_div(Speed::ONE.0.into()).unwrap_or_default().max(1);
        let speeds = levels.iter().map(|(gpu_type, curve, levels)| {
            let speed = |gpus| rate(curve, levels, gpus).checked_div(one).and_then(|s| u64::try_from(s).ok());
            let sizes = 0..=curve.reach();
            (*gpu_type, Curve::new(sizes.map(|gpus| Speed(speed(gpus).unwrap_or(u64::MAX)))))
        });
        let time = SCALE.checked_div(unit).and_then(|time| u64::try_from(time).ok()).map(Micros);
        Self { speeds: Speeds::new(speeds), time_per_unit: time.or(self.time_per_unit) }
    }

    /// Time at [`Speed::ONE`] for so many units; `None` while the time per unit is not known.
    pub fn time_for(&self, units: u64) -> Option<Micros> {
        self.time_per_unit.map(|time| time.times(units))
    }
}

/// Scale of levels and rates: units of work per microsecond, times this. With speeds below 10^12 billionths and times from
/// one microsecond to months per unit neither end of `u128` is near.
const SCALE: u128 = 1_000_000_000_000_000_000_000_000_000_000_000;

/// Measured rate against the prior's speed, by size, ascending: what the prior has to be multiplied by.
fn levels(samples: Option<&BTreeMap<u32, Sample>>, prior: &Curve) -> Vec<(u32, u128)> {
    let level = |(&gpus, sample): (&u32, &Sample)| {
        let product = u128::from(sample.time_per_unit()?.0).saturating_mul(prior.at(gpus).0.into());
        SCALE.checked_div(product).map(|level| (gpus, level))
    };
    samples.into_iter().flatten().filter_map(level).collect()
}

/// Linear between measured sizes, flat beyond.
fn level_at(levels: &[(u32, u128)], gpus: u32) -> u128 {
    let after = levels.partition_point(|&(size, _)| size < gpus);
    let below = after.checked_sub(1).and_then(|i| levels.get(i));
    match (below, levels.get(after)) {
        (Some(&(a, low)), Some(&(b, high))) => {
            let (span, way) = (u128::from(b.saturating_sub(a)), u128::from(gpus.saturating_sub(a)));
            let rest = span.saturating_sub(way);
            // Divided first: levels are large numbers, the loss is below one part in a million.
            let part = |level: u128, share: u128| level.checked_div(span).unwrap_or_default().saturating_mul(share);
            part(low, rest).saturating_add(part(high, way))
        }
        (Some(&(_, level)), None) | (None, Some(&(_, level))) => level,
        (None, None) => 0,
    }
}

/// One job's progress: what it did, what is left, what it measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredProgress {
    /// Units of work in all; `None`: not known.
    pub total: Option<u64>,
    /// Units done.
    pub done: u64,
    /// Its own measurements.
    pub measured: Measured,
}

impl MeasuredProgress {
    /// Takes a report in, for the job and for its category.
    pub fn record(&mut self, report: Report, category: &mut Measured) {
        self.done = self.done.saturating_add(report.units);
        self.measured.record(report);
        category.record(report);
    }

    /// Units left; `None` when the total is not known.
    pub fn left(&self) -> Option<u64> {
        self.total.map(|total| total.saturating_sub(self.done))
    }

    /// Returns the estimate of the job, and the time it has left at [`Speed::ONE`].
    pub fn estimate(&self, prior: Speeds, category: &Measured) -> (Estimate, Option<Micros>) {
        let estimate = Estimate::of_prior(prior).refined(category).refined(&self.measured);
        let remaining = self.left().and_then(|units| estimate.time_for(units));
        (estimate, remaining)
    }
}

/// How wrong estimates of work were, of jobs that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Jobs whose estimate was compared with what they took.
    jobs: u64,
    /// Sum of the squares of their errors, in doublings, with 32 bits behind the point.
    squares: u128,
}

/// Jobs that the assumption below counts as much as.
const ASSUMED_JOBS: u64 = 4;
/// What is assumed at first: estimates are wrong by a factor of two or so. Square of one doubling, with 32 bits.
const ASSUMED_SQUARE: u128 = 1 << 32;

impl Errors {
    /// Adds the error of a job estimated to have `estimated` units of work that had `actual`.
    pub fn record(&mut self, estimated: u64, actual: u64) {
        // 24 bits behind the point, so 48 in the square.
        let error = u128::from(log2(estimated).abs_diff(log2(actual)));
        self.squares = self.squares.saturating_add(error.saturating_mul(error) >> 16);
        self.jobs = self.jobs.saturating_add(1);
    }

    /// The standard error of an estimate's binary logarithm, in thousandths: what [`crate::JobView::doubt`] wants.
    pub fn doubt(&self) -> u32 {
        let sum = self.squares.saturating_add(ASSUMED_SQUARE.saturating_mul(ASSUMED_JOBS.into()));
        let mean = sum.checked_div(self.jobs.saturating_add(ASSUMED_JOBS).into()).unwrap_or_default();
        let root = mean.saturating_mul(1_000_000).isqrt() >> 16;
        u32::try_from(root).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: GpuType = GpuType(0);

    fn report(gpus: u32, units: u64, secs: u64) -> Report {
        Report { gpu_type: HOME, gpus, units, took: Micros::from_secs(secs) }
    }

    fn milli(estimate: &Estimate, gpus: u32) -> u64 {
        (estimate.speeds.home().unwrap().1.at(gpus).0 + 500_000) / 1_000_000
    }

    fn prior(max: u32) -> Speeds {
        Prior::default().speeds(&[HOME], max)
    }

    #[test]
    fn the_prior_bends_at_the_node() {
        let estimate = Estimate::of_prior(prior(16));
        assert_eq!([1, 8, 9, 16].map(|k| milli(&estimate, k)), [1000, 8000, 8700, 13_600]);
        assert_eq!(estimate.time_for(10), None);
    }

    #[test]
    fn one_measurement_sets_the_level_of_all() {
        let mut progress = MeasuredProgress { total: Some(10), ..MeasuredProgress::default() };
        let mut category = Measured::default();
        progress.record(report(2, 2, 120), &mut category);
        let (estimate, remaining) = progress.estimate(prior(8), &Measured::default());
        assert_eq!([1, 2, 4].map(|k| milli(&estimate, k)), [1000, 2000, 4000]);
        assert_eq!(remaining, Some(Micros::from_secs(8 * 120))); // 60 s on 2 GPUs are 120 s on one
    }

    #[test]
    fn what_earlier_jobs_taught_is_the_prior_of_the_next() {
        let mut category = Measured::default();
        let mut first = MeasuredProgress::default();
        for (gpus, secs) in [(1, 100), (2, 55), (4, 30)] {
            first.record(report(gpus, 1, secs), &mut category);
        }
        let fresh = MeasuredProgress { total: Some(10), ..MeasuredProgress::default() };
        let (estimate, remaining) = fresh.estimate(prior(8), &category);
        assert_eq!([2, 4].map(|k| milli(&estimate, k)), [1818, 3333]);
        assert_eq!(remaining, Some(Micros::from_secs(1000)));
        // A job of its own pace keeps the category's shape.
        let mut slower = MeasuredProgress { total: Some(10), ..MeasuredProgress::default() };
        slower.record(report(4, 1, 60), &mut category.clone());
        let (estimate, remaining) = slower.estimate(prior(8), &category);
        assert_eq!([2, 4].map(|k| milli(&estimate, k)), [1818, 3333]);
        assert_eq!((remaining.unwrap().0 + 500_000) / 1_000_000, 9 * 200);
    }

    #[test]
    fn other_types_follow_the_home_until_measured() {
        let types = BTreeMap::from([(GpuType(1), Speed::from_milli(500))]);
        let speeds = Prior { types, ..Prior::default() }.speeds(&[HOME, GpuType(1)], 4);
        let mut measured = Measured::default();
        measured.record(report(1, 1, 100));
        let estimate = Estimate::of_prior(speeds).refined(&measured);
        let at = |e: &Estimate, gpus| (e.speeds.on(GpuType(1)).unwrap().at(gpus).0 + 500_000) / 1_000_000;
        assert_eq!(at(&estimate, 2), 1000);
        measured.record(Report { gpu_type: GpuType(1), gpus: 2, units: 1, took: Micros::from_secs(40) });
        assert_eq!(at(&estimate.refined(&measured), 2), 2500);
        assert_eq!((measured.largest(), Measured::default().largest()), (2, 0));
    }

    #[test]
    fn doubt_follows_the_errors_that_were_made() {
        let mut errors = Errors::default();
        assert_eq!(errors.doubt(), 1000);
        for _ in 0..996 {
            errors.record(100, 400);
            errors.record(400, 100);
        }
        assert!((1995..=2000).contains(&errors.doubt()), "{}", errors.doubt());
        let mut exact = Errors::default();
        for units in 1..=396 {
            exact.record(units, units);
        }
        assert!((99..=100).contains(&exact.doubt()), "four assumed ones of 400: a tenth of a doubling");
    }

    #[test]
    fn empty_reports_say_nothing() {
        let mut measured = Measured::default();
        for bad in [report(0, 1, 1), report(1, 0, 1), report(1, 1, 0)] {
            measured.record(bad);
        }
        assert!(measured.is_empty());
    }
}
