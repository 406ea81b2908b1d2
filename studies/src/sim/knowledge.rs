//! Limits what decisions know of a job: the truth, or what an operator would know.
//!
//! Owns the error put on sizes. The error of a job depends on the seed and its place in the trace alone, so every policy
//! of a comparison meets the same errors. Tests: at the end of this file.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use scheduler::Micros;
use scheduler::scheduling::outlived;

use crate::input::Work;

/// Knowledge of the decisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// Knowledge of a job's work.
    pub sizes: SizeKnowledge,
    /// Knowledge of a job's speed at each size.
    pub speeds: SpeedKnowledge,
}

/// Knowledge of the work of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SizeKnowledge {
    /// All of it, exactly.
    #[default]
    Exact,
    /// An estimate made at submission, wrong by a log-normal factor with median 1. When the job outlives it, the estimate
    /// is doubled, as often as needed.
    Noisy {
        /// Standard deviation of the factor's logarithm, in thousandths.
        sigma_milli: u32,
        /// Random seed of the errors.
        seed: u64,
    },
    /// Nothing.
    Unknown,
}

/// Knowledge of the speeds of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpeedKnowledge {
    /// The whole table, exactly.
    #[default]
    Exact,
    /// Nothing but what was measured at sizes it ran at, and what earlier jobs of its category measured.
    Learnt,
}

impl SizeKnowledge {
    /// Returns the work that a job is estimated to have at its submission; `None`: not known.
    pub(super) fn estimate(self, place: usize, work: Work) -> Option<Work> {
        match self {
            Self::Exact => Some(work),
            Self::Noisy { sigma_milli, seed } => Some(scaled(work, factor_millionths(place, sigma_milli, seed))),
            Self::Unknown => None,
        }
    }

    /// Returns whether sizes are estimates that may be wrong.
    pub(super) fn is_guess(self) -> bool {
        matches!(self, Self::Noisy { .. })
    }

    /// Returns the serial time that is estimated to be left of a job. `estimate`: that of all its work at submission.
    pub(super) fn left(self, estimate: Option<Work>, work: Work, left: Work) -> Option<Micros> {
        let estimate = match self {
            Self::Exact => return Some(left.serial()),
            Self::Unknown => return None,
            Self::Noisy { .. } => estimate?.0,
        };
        let done = work.minus(left).0;
        Some(Work(outlived(estimate, done) - done).serial().max(Micros(1)))
    }
}

/// A log-normal factor with median 1, in millionths, drawn from a stream of its own.
fn factor_millionths(place: usize, sigma_milli: u32, seed: u64) -> u64 {
    let mut stream = ChaCha8Rng::seed_from_u64(seed);
    stream.set_stream(place as u64);
    let sigma = f64::from(sigma_milli) / 1000.0;
    let factor = LogNormal::new(0.0, sigma).map_or(1.0, |d| d.sample(&mut stream));
    // Quantised, so that the last bits of a platform's logarithm do not matter; a float to integer cast saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating, and never negative")]
    let millionths = (factor * 1e6).round() as u64;
    millionths.max(1)
}

fn scaled(work: Work, millionths: u64) -> Work {
    Work(work.0.saturating_mul(u128::from(millionths)) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::Speed;

    fn hour() -> Work {
        Work::of(Speed::ONE, Micros::from_secs(3600))
    }

    #[test]
    fn errors_are_those_of_the_seed_and_have_the_right_spread() {
        let noisy = SizeKnowledge::Noisy { sigma_milli: 1000, seed: 7 };
        let draw = |seed, place| factor_millionths(place, 1000, seed);
        assert_eq!(noisy.estimate(3, hour()), noisy.estimate(3, hour()));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
        let mut factors: Vec<u64> = (0..10_001).map(|place| draw(7, place)).collect();
        factors.sort_unstable();
        // Median 1, and one standard deviation above it e.
        assert!((950_000..1_050_000).contains(&factors[5000]), "{}", factors[5000]);
        assert!((2_600_000..2_850_000).contains(&factors[8413]), "{}", factors[8413]);
        assert_eq!(factor_millionths(3, 0, 7), 1_000_000);
    }

    #[test]
    fn an_estimate_that_was_outlived_is_doubled() {
        let noisy = SizeKnowledge::Noisy { sigma_milli: 1000, seed: 7 };
        let (work, estimate) = (hour(), Some(Work::of(Speed::ONE, Micros::from_secs(1000))));
        let left = |done: u64| noisy.left(estimate, work, work.minus(Work::of(Speed::ONE, Micros::from_secs(done))));
        assert_eq!(left(0), Some(Micros::from_secs(1000)));
        assert_eq!(left(999), Some(Micros::from_secs(1)));
        assert_eq!(left(1000), Some(Micros::from_secs(1000)));
        assert_eq!(left(2500), Some(Micros::from_secs(1500)));
        assert_eq!(SizeKnowledge::Unknown.left(None, work, work), None);
        assert_eq!(SizeKnowledge::Exact.left(None, work, hour()), Some(Micros::from_secs(3600)));
    }
}
