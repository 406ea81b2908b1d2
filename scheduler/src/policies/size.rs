//! How much work each job counts as having left, where estimates may be wrong or missing.
//!
//! An estimate that is usually wrong by a factor stands for all sizes around it, and every piece of work that did not end the job
//! makes the larger ones likelier. What is left of the estimate does not see that: it falls to nothing where the job reaches it,
//! jumps up when the job outlives it, and falls again, so that a job far larger than believed is first of all again and again.
//! Instead a job counts with its *Gittins index*: the least work that has to be spent on it per end it may bring, over all
//! spans that it could be given. Where nothing else is known that is the best order (Gittins, "Bandit processes and dynamic
//! allocation indices", 1979; for sizes that are known roughly: Scully and Harchol-Balter, "The Gittins policy in the M/G/1
//! queue", 2021). Errors are taken to be log-normal, as wide as [`JobView::doubt`] says; then the index in parts of the
//! estimate depends on the work done in parts of the estimate alone, and stands in a table.
//!
//! A job of unknown size counts as a typical one of those there are. Where all are unknown the service attained stands for
//! the work left: with heavy-tailed sizes the longer a job ran, the longer it will. Integer arithmetic. Tests: below.

use crate::fixed::{between, log2_milli, times_exp2};
use crate::job::JobView;
use crate::units::Micros;

/// Rows of [`INDEX`] are so far apart, in thousandths of a doubling; the first is that of one such step.
const ROW: u32 = 250;
/// Columns are so far apart.
const COLUMN: u32 = 500;
/// The first column: a 64th of the estimate is done.
const FIRST: i64 = -6000;
/// The last column: 64 times the estimate is done.
const LAST: i64 = 6000;

/// Binary logarithm of the index in parts of the estimate, in thousandths. A row is a width of the error, from a quarter of a
/// doubling to three; a column a logarithm of the work done in parts of the estimate, from -6 to 6.
#[rustfmt::skip]
const INDEX: [[i16; 25]; 12] = [
    [-1, -10, -23, -43, -70, -110, -168, -254, -386, -596, -957, -1661, -2692, -3364, -3622, -3651, -3550, -3365, -3123, -2843, -2534, -2203, -1854, -1491, -1116],
    [65, 56, 44, 25, -1, -39, -94, -176, -301, -495, -795, -1176, -1516, -1717, -1779, -1744, -1608, -1403, -1151, -864, -550, -216, 136, 500, 877],
    [175, 167, 155, 138, 114, 79, 28, -46, -155, -302, -476, -637, -748, -797, -790, -690, -517, -289, -23, 274, 595, 934, 1289, 1657, 2035],
    [326, 318, 307, 292, 270, 238, 193, 132, 53, -35, -120, -185, -220, -219, -138, 16, 225, 475, 757, 1064, 1393, 1738, 2097, 2468, 2849],
    [471, 464, 452, 436, 414, 383, 341, 291, 235, 181, 138, 114, 119, 197, 342, 539, 776, 1047, 1344, 1663, 1999, 2351, 2715, 3090, 3474],
    [543, 533, 519, 500, 475, 443, 405, 364, 325, 295, 280, 297, 382, 526, 717, 948, 1210, 1499, 1810, 2139, 2484, 2842, 3211, 3590, 3978],
    [521, 507, 490, 467, 439, 408, 376, 347, 327, 320, 358, 456, 605, 796, 1024, 1282, 1565, 1870, 2194, 2533, 2885, 3250, 3624, 4007, 4398],
    [406, 389, 368, 344, 317, 292, 271, 259, 269, 332, 446, 603, 798, 1026, 1282, 1562, 1863, 2183, 2517, 2866, 3226, 3596, 3975, 4363, 4758],
    [208, 188, 167, 145, 125, 112, 111, 151, 239, 368, 536, 737, 968, 1224, 1504, 1803, 2119, 2451, 2796, 3153, 3520, 3896, 4280, 4672, 5070],
    [-63, -82, -99, -112, -116, -88, -18, 92, 238, 417, 626, 861, 1120, 1400, 1699, 2014, 2343, 2686, 3040, 3404, 3777, 4159, 4548, 4943, 5345],
    [-395, -406, -410, -387, -326, -229, -98, 64, 255, 472, 713, 976, 1258, 1557, 1872, 2200, 2541, 2893, 3256, 3627, 4006, 4393, 4786, 5186, 5590],
    [-766, -742, -685, -594, -473, -322, -145, 58, 284, 531, 798, 1083, 1383, 1699, 2027, 2368, 2719, 3079, 3449, 3827, 4212, 4603, 5001, 5403, 5811],
];

/// Work left as believed, or what stands for it.
pub(super) fn believed(job: &JobView) -> Micros {
    job.remaining.unwrap_or(Micros(job.attained.0))
}

/// How much work each job counts as having left; in their order.
pub(super) fn sizes(jobs: &[&JobView]) -> Vec<Micros> {
    let typical = typical(jobs);
    let size = |job: &&JobView| match (job.remaining, job.expected) {
        (None, _) => believed(job).max(typical),
        (Some(_), Some(expected)) if job.doubt > 0 => index(expected, job.done, job.doubt),
        (Some(left), _) => left,
    };
    jobs.iter().map(size).collect()
}

/// The geometric mean of the sizes that are known; nothing where none is.
fn typical(jobs: &[&JobView]) -> Micros {
    if jobs.iter().all(|job| job.remaining.is_some()) {
        return Micros::ZERO; // not read then
    }
    let known = jobs.iter().filter_map(|job| job.remaining.map(|left| job.expected.unwrap_or(left)));
    let (sum, count) = known
        .fold((0_u64, 0_u64), |(sum, count), size| (sum.saturating_add(log2_milli(size.0)), count.saturating_add(1)));
    sum.checked_div(count).map_or(Micros::ZERO, |mean| times_power(Micros(1), i64::try_from(mean).unwrap_or(i64::MAX)))
}

/// The Gittins index of a job that was expected to have so much work and has done so much, for a log-normal error of so many
/// thousandths of a doubling.
fn index(expected: Micros, done: Micros, doubt: u32) -> Micros {
    let log = |time: Micros| i64::try_from(log2_milli(time.0)).unwrap_or_default();
    let way = log(done).saturating_sub(log(expected));
    let column = u32::try_from(way.clamp(FIRST, LAST).saturating_sub(FIRST)).unwrap_or_default();
    let most = ROW.saturating_mul(u32::try_from(INDEX.len()).unwrap_or_default());
    let row = doubt.clamp(ROW, most).saturating_sub(ROW);
    let at = |row: u32, column: u32| entry(row / ROW, column / COLUMN);
    let on = |row: u32| between(at(row, column), at(row, column.saturating_add(COLUMN)), column % COLUMN, COLUMN);
    let power = between(on(row), on(row.saturating_add(ROW)), row % ROW, ROW);
    // Beyond the table it continues in proportion to the work done.
    times_power(expected, power.saturating_add(way.saturating_sub(LAST).max(0)))
}

/// An entry of the table; beyond its end nothing asks for more than a share of 0.
fn entry(row: u32, column: u32) -> i64 {
    let place = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    INDEX.get(place(row)).and_then(|row| row.get(place(column))).copied().map_or(0, i64::from)
}

/// A time, times 2 to the power of so many thousandths; at least a microsecond.
fn times_power(time: Micros, milli: i64) -> Micros {
    Micros(times_exp2(time.0.max(1), milli).max(1))
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)]
mod tests {
    use super::*;
    use crate::units::GpuMicros;

    /// The index by its definition, for an estimate of 1: the least of (work spent) / (chance of an end) over all spans.
    fn defined(done: f64, sigma: f64) -> f64 {
        const STEPS: usize = 4000;
        let from = done.ln() / sigma;
        let step = (from.max(0.0) + 10.0 - from) / STEPS as f64;
        let at = |i: usize| from + step * i as f64;
        let density = |u: f64| (-u * u / 2.0 + from.max(0.0).powi(2) / 2.0).exp();
        let mut alive = vec![0.0; STEPS + 1];
        for i in (0..STEPS).rev() {
            alive[i] = alive[i + 1] + (density(at(i)) + density(at(i + 1))) * step / 2.0;
        }
        let (mut spent, mut best) = (0.0, f64::INFINITY);
        for i in 1..=STEPS {
            spent += f64::midpoint(alive[i], alive[i - 1]) * ((sigma * at(i)).exp() - (sigma * at(i - 1)).exp());
            best = best.min(spent / (alive[0] - alive[i]).max(1e-300));
        }
        best
    }

    #[test]
    fn the_table_is_the_index() {
        for (row, doublings) in (1..).map(|n| f64::from(n) / 4.0).enumerate().take(INDEX.len()) {
            for (column, way) in (0..25).map(|n| f64::from(n) / 2.0 - 6.0).enumerate() {
                let want = defined(way.exp2(), doublings * std::f64::consts::LN_2).log2() * 1000.0;
                let got = f64::from(INDEX[row][column]);
                assert!((got - want).abs() < 4.0, "{doublings} {way}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn entries_are_met_and_the_rest_lies_between() {
        let at = |expected, done, doubt| index(Micros(expected), Micros(done), doubt).0;
        let near = |got: u64, want: f64| assert!((got as f64 / want - 1.0).abs() < 0.001, "{got}, not {want}");
        let second = 1_000_000_u64;
        near(at(second, second, 1000), 1e6 * (-0.220_f64).exp2());
        near(at(1024 * second, 1024 * second, 1000), 1024e6 * (-0.220_f64).exp2());
        near(at(second, 0, 1000), 1e6 * 0.326_f64.exp2());
        near(at(second, second, 1125), 1e6 * (-0.0505_f64).exp2());
        // Far beyond in proportion to the work done; errors outside the table like those at its edge.
        near(at(second, 256 * second, 1000), 4e6 * 2.849_f64.exp2());
        near(at(second, second, 9999), at(second, second, 3000) as f64);
        near(at(second, second, 1), at(second, second, 250) as f64);
        assert_eq!(at(u64::MAX, u64::MAX, 3000), u64::MAX);
    }

    #[test]
    fn a_job_that_outlives_its_estimate_falls_back_and_does_not_jump() {
        let hour = Micros::from_secs(3600);
        let after = |minutes: u64| index(hour, Micros::from_secs(minutes * 60), 1440).0;
        assert!(after(59).abs_diff(after(61)) < after(59) / 50);
        assert!((6..60).all(|n| after(n * 20) < after(n * 20 + 20)));
    }

    #[test]
    fn what_is_not_known_is_typical_and_what_is_known_is_taken_as_it_is() {
        let job = |left: Option<u64>, ran: u64| JobView {
            remaining: left.map(Micros::from_secs),
            attained: GpuMicros::from_gpu_secs(ran),
            ..JobView::waiting("a", 1, 1, 1, Micros::ZERO)
        };
        let jobs = [job(Some(100), 0), job(Some(10_000), 0), job(None, 7), job(None, 5000)];
        let secs = |jobs: &[JobView]| -> Vec<u64> {
            sizes(&jobs.iter().collect::<Vec<_>>()).iter().map(|size| (size.0 + 1_000_000) / 1_000_000).collect()
        };
        let got = secs(&jobs);
        assert_eq!([got[0], got[1], got[3]], [101, 10_001, 5001]);
        assert!((995..=1002).contains(&got[2]), "{got:?}");
        assert_eq!(secs(&jobs[2..]), [8, 5001], "all unknown: by service");
    }
}
