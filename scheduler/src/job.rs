//! Holds the input of a policy on one job, and its grant: sizes, speeds, work left, service attained, GPUs held.
//!
//! Owns the check of one job ([`JobView::check`]); decides nothing. Tests: at the end of this file.

use std::sync::Arc;

use model::Text;
use serde::{Deserialize, Serialize};

use crate::units::{GpuMicros, GpuType, Micros, Speed};

/// Speed of a job by number of GPUs of one type: entry `k` is the speed on `k` GPUs, entry 0 is 0.
///
/// A number beyond the table reads as [`Speed::ZERO`], so no policy that looks at speeds gains by giving more. Tables are
/// shared between jobs of one model. They need not be monotone or concave: measured ones are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(Arc<[Speed]>);

impl Curve {
    /// A table from entry 0 on. Entry 0 is forced to zero and entries above [`Speed::LIMIT`] are cut to it.
    pub fn new(speeds: impl IntoIterator<Item = Speed>) -> Self {
        let clean = |(k, s): (usize, Speed)| if k == 0 { Speed::ZERO } else { s.min(Speed::LIMIT) };
        Self(speeds.into_iter().enumerate().map(clean).collect())
    }

    /// `k` GPUs are `k` times as fast as one, up to `max` GPUs: what is assumed of a job of which nothing is known.
    pub fn linear(max: u32) -> Self {
        Self::new((0..=u64::from(max)).map(|k| Speed(Speed::ONE.0.saturating_mul(k))))
    }

    /// Speed on `gpus` GPUs.
    pub fn at(&self, gpus: u32) -> Speed {
        usize::try_from(gpus).ok().and_then(|k| self.0.get(k)).copied().unwrap_or_default()
    }

    /// Largest number of GPUs in the table; 0 for an empty one.
    pub fn reach(&self) -> u32 {
        u32::try_from(self.0.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

/// Speeds of a job on the GPU types that it can use, the one it prefers (its *home*) first.
///
/// All tables share one unit: the speed of one GPU of the home type, unless that size cannot be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Speeds(Arc<[(GpuType, Curve)]>);

impl Speeds {
    /// Tables by type, home first.
    pub fn new(tables: impl IntoIterator<Item = (GpuType, Curve)>) -> Self {
        Self(tables.into_iter().collect())
    }

    /// One type only: type 0.
    pub fn single(curve: Curve) -> Self {
        Self::new([(GpuType::default(), curve)])
    }

    /// The preferred type and its table.
    pub fn home(&self) -> Option<&(GpuType, Curve)> {
        self.0.first()
    }

    /// The table of one type; `None` when the job cannot use it.
    pub fn on(&self, gpu_type: GpuType) -> Option<&Curve> {
        self.0.iter().find(|(t, _)| *t == gpu_type).map(|(_, curve)| curve)
    }

    /// All types with their tables, home first.
    pub fn iter(&self) -> impl Iterator<Item = &(GpuType, Curve)> {
        self.0.iter()
    }
}

/// GPUs of one type; none at all when `gpus` is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// Of which type; type 0 by convention when there are none.
    pub gpu_type: GpuType,
    /// How many.
    pub gpus: u32,
}

impl Grant {
    /// No GPUs.
    pub const NONE: Self = Self { gpu_type: GpuType(0), gpus: 0 };

    /// `gpus` GPUs of a type; [`Grant::NONE`] for 0 of them.
    pub const fn of(gpu_type: GpuType, gpus: u32) -> Self {
        if gpus == 0 { Self::NONE } else { Self { gpu_type, gpus } }
    }

    /// Whether there are no GPUs in it.
    pub const fn is_none(self) -> bool {
        self.gpus == 0
    }
}

/// One ready job (waiting or running) as it stands at the time of the decision.
///
/// Estimates may be wrong (estimated speeds, noisy sizes); policies cannot know and need not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Name or uid, unique in the input. The last tie-break.
    pub id: Text,
    /// Fewest GPUs it runs on, at least 1.
    pub min: u32,
    /// GPUs asked for: what rigid policies give, between `min` and `max`.
    pub num: u32,
    /// Most GPUs it can use.
    pub max: u32,
    /// Users' priority, higher first. Only [`crate::policies::gain`] looks at it.
    pub priority: i32,
    /// Queue of least-attained-service policies before any service, 0 first. Voda calls this the priority.
    pub level: u32,
    /// When it was submitted.
    pub submitted: Micros,
    /// When it first started; `None`: never.
    pub first_start: Option<Micros>,
    /// Beginning of its present spell: last start if it holds GPUs, else last halt, else submission.
    pub since: Micros,
    /// Time left at [`Speed::ONE`]; `None`: not known.
    pub remaining: Option<Micros>,
    /// How wrong estimates of the work usually are: the standard error of their binary logarithm, in thousandths; 0: they are
    /// exact. 1,000 means that one is often twice or half of the truth. See [`crate::learning::Errors`].
    #[serde(default)]
    pub doubt: u32,
    /// All its work as it was estimated when it was submitted, also when it has outlived that: time at [`Speed::ONE`]; `None`:
    /// there is no such estimate.
    #[serde(default)]
    pub expected: Option<Micros>,
    /// Work done of that, time at [`Speed::ONE`].
    #[serde(default)]
    pub done: Micros,
    /// The most GPUs, of any type, that it or another job of its kind was measured on: what more would do is a guess. 0: all
    /// speeds are; `None`: none is.
    #[serde(default)]
    pub tried: Option<u32>,
    /// Service attained so far.
    pub attained: GpuMicros,
    /// Time it has held GPUs so far.
    pub ran: Micros,
    /// Time it has held GPUs since its last start; kept while it waits, 0 before the first start.
    pub spell: Micros,
    /// What a start, halt and start, or change of size costs it: time without progress.
    pub restart_cost: Micros,
    /// What it holds now.
    pub held: Grant,
    /// Since when it holds that; `None`: not known.
    #[serde(default)]
    pub changed: Option<Micros>,
    /// Speeds by GPU type, home first.
    pub speeds: Speeds,
}

impl JobView {
    /// A job that waits, of which nothing is known but its sizes: linear speed on type 0, unknown work.
    pub fn waiting(id: impl Into<Text>, min: u32, num: u32, max: u32, submitted: Micros) -> Self {
        Self {
            id: id.into(),
            min,
            num,
            max,
            priority: 0,
            level: 0,
            submitted,
            first_start: None,
            since: submitted,
            remaining: None,
            doubt: 0,
            expected: None,
            done: Micros::ZERO,
            tried: None,
            attained: GpuMicros::default(),
            ran: Micros::ZERO,
            spell: Micros::ZERO,
            restart_cost: Micros::ZERO,
            held: Grant::NONE,
            changed: None,
            speeds: Speeds::single(Curve::linear(max)),
        }
    }

    /// Whether it holds GPUs.
    pub const fn is_running(&self) -> bool {
        self.held.gpus > 0
    }

    /// Checks the job alone.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with the values.
    pub fn check(&self) -> Result<(), JobError> {
        if self.min == 0 {
            return Err(JobError::NoMinimum);
        }
        if self.num < self.min || self.num > self.max {
            return Err(JobError::Sizes { min: self.min, num: self.num, max: self.max });
        }
        if self.speeds.home().is_none() {
            return Err(JobError::NoGpuType);
        }
        Ok(())
    }
}

/// Why a job takes no part in an allocation. It is granted nothing; the other jobs are not touched by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// `min` is 0.
    #[error("min is 0; a job needs at least one GPU")]
    NoMinimum,
    /// Not `min <= num <= max`.
    #[error("sizes must be ordered min <= num <= max, got min {min}, num {num}, max {max}")]
    Sizes {
        /// Fewest GPUs.
        min: u32,
        /// GPUs asked for.
        num: u32,
        /// Most GPUs.
        max: u32,
    },
    /// It has no speed table at all.
    #[error("no GPU type given")]
    NoGpuType,
    /// The cluster has no pool of any type the job can use.
    #[error("no pool of GPU type {0}")]
    NoPool(GpuType),
    /// Another job of the input has the same id.
    #[error("another job has the same id")]
    Duplicate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_zero_outside_its_table() {
        let curve = Curve::new([Speed(7), Speed::ONE, Speed::from_milli(1900)]);
        assert_eq!((curve.at(0), curve.at(2), curve.at(3)), (Speed::ZERO, Speed::from_milli(1900), Speed::ZERO));
        assert_eq!((curve.reach(), Curve::default().reach()), (2, 0));
        assert_eq!(Curve::linear(3).at(3), Speed(3_000_000_000));
    }

    #[test]
    fn sizes_are_checked() {
        let job = |min, num, max| JobView::waiting("j", min, num, max, Micros::ZERO).check();
        assert_eq!(job(1, 2, 4), Ok(()));
        assert_eq!(job(0, 2, 4), Err(JobError::NoMinimum));
        assert_eq!(job(3, 2, 4), Err(JobError::Sizes { min: 3, num: 2, max: 4 }));
        assert_eq!(job(1, 1, 0), Err(JobError::Sizes { min: 1, num: 1, max: 0 }));
        let nowhere = JobView { speeds: Speeds::default(), ..JobView::waiting("j", 1, 1, 1, Micros::ZERO) };
        assert_eq!(nowhere.check(), Err(JobError::NoGpuType));
    }
}
