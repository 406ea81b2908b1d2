//! Numbers with units: time, GPU time, speed, GPU type. All are integers, so that equal inputs give equal answers on
//! every machine; all arithmetic saturates.
//!
//! Reading decimal text into them is the caller's business (the CLI and the trace readers do so at the edge).
//! Tests: at the end of this file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An instant since an origin that the caller chooses, or a span of time: whole microseconds.
///
/// `u64` microseconds last half a million years, so sums of spans that come from traces do not saturate in practice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all, or the origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// Whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// The sum; stops at [`Micros::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The span from `earlier` to this instant; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This span, `n` times.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        write!(f, "{secs}.{rest:06} s")
    }
}

/// Service: GPUs times the time they were held, in GPU-microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMicros(pub u64);

impl GpuMicros {
    /// Whole GPU-seconds.
    pub const fn from_gpu_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// What `gpus` devices give in `span`.
    #[must_use]
    pub fn of(gpus: u32, span: Micros) -> Self {
        Self(span.0.saturating_mul(u64::from(gpus)))
    }

    /// The sum; stops at the largest value.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What was attained beyond `mark`; zero when `mark` is larger.
    #[must_use]
    pub const fn beyond(self, mark: Self) -> Self {
        Self(self.0.saturating_sub(mark.0))
    }
}

/// Progress per unit of time, in billionths of the speed of one reference GPU ([`Speed::ONE`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Speed(pub u64);

impl Speed {
    /// Standing still, or a size that cannot be run.
    pub const ZERO: Self = Self(0);
    /// One reference GPU.
    pub const ONE: Self = Self(1_000_000_000);
    /// Largest speed accepted: a million reference GPUs. Keeps all products of decisions within 128 bits.
    pub const LIMIT: Self = Self(1_000_000_000_000_000);

    /// `thousandths` of the reference speed.
    pub const fn from_milli(thousandths: u64) -> Self {
        Self(thousandths.saturating_mul(1_000_000))
    }

    /// How long work of `work` (time at [`Speed::ONE`]) takes at this speed, rounded up; [`Micros::MAX`] when standing
    /// still.
    #[must_use]
    pub fn time_for(self, work: Micros) -> Micros {
        let scaled = u128::from(work.0).saturating_mul(u128::from(Self::ONE.0));
        let up = scaled.saturating_add(u128::from(self.0.saturating_sub(1)));
        match up.checked_div(u128::from(self.0)) {
            Some(time) => Micros(u64::try_from(time).unwrap_or(u64::MAX)),
            None if work.0 == 0 => Micros::ZERO,
            None => Micros::MAX,
        }
    }

    /// How much work (time at [`Speed::ONE`]) is done in `span` at this speed, rounded down.
    #[must_use]
    pub fn work_in(self, span: Micros) -> Micros {
        let done = u128::from(span.0).saturating_mul(u128::from(self.0)).checked_div(u128::from(Self::ONE.0));
        Micros(done.and_then(|done| u64::try_from(done).ok()).unwrap_or(u64::MAX))
    }
}

/// A kind of GPU: its index in the caller's list of kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuType(pub u16);

impl fmt::Display for GpuType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_work_are_inverse_up_to_rounding() {
        let speed = Speed::from_milli(1785);
        let time = speed.time_for(Micros::from_secs(1785));
        assert_eq!(time, Micros::from_secs(1000));
        assert_eq!(speed.work_in(time), Micros::from_secs(1785));
        assert_eq!(Speed(3).time_for(Micros(1)), Micros(333_333_334));
    }

    #[test]
    fn standing_still_never_ends_unless_nothing_is_left() {
        assert_eq!(Speed::ZERO.time_for(Micros(1)), Micros::MAX);
        assert_eq!(Speed::ZERO.time_for(Micros::ZERO), Micros::ZERO);
    }

    #[test]
    fn sums_stop_at_the_end() {
        assert_eq!(Micros::MAX.plus(Micros(1)), Micros::MAX);
        assert_eq!(Micros(1).since(Micros(2)), Micros::ZERO);
        assert_eq!(GpuMicros::of(u32::MAX, Micros::MAX), GpuMicros(u64::MAX));
    }
}
