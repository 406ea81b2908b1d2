//! Measured speeds by model, batch size, GPU type and number of GPUs, in the CSV formats in use for that.
//!
//! A row gives one speed: a speedup (`goodput_speedup`, `speedup_vs_min`), a rate (`samples_per_s`, `iters_per_s`,
//! `steps_per_s`), a time (`seconds_per_iter`), or again a speedup (`speedup_vs_1`, `speedup`); of the columns there are,
//! the first in this order is taken. A rate per iteration is not comparable between sizes whose effective batch differs,
//! so speedups that account for it come first. Sizes between measured ones are interpolated: the time per unit of work is
//! linear between neighbours. Nothing is assumed outside the measured range. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::io::Read;

use scheduler::{Curve, Speed};

use super::table::{Column, Row, Table};
use super::{BadRow, Error, OnBadRow};

/// Columns of speeds, best first.
const COLUMNS: &[(&str, Measure)] = &[
    ("goodput_speedup", Measure::Rate),
    ("speedup_vs_min", Measure::Rate),
    ("samples_per_s", Measure::Rate),
    ("iters_per_s", Measure::Rate),
    ("steps_per_s", Measure::Rate),
    ("seconds_per_iter", Measure::Time),
    ("speedup_vs_1", Measure::Rate),
    ("speedup", Measure::Rate),
];

#[derive(Debug, Clone, Copy)]
enum Measure {
    Rate,
    Time,
}

/// Model and batch size; the batch size is empty in a profile that has none.
type Key = (String, String);

/// Measured speeds of one model at one batch size on one GPU type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Sizes with their speeds in any unit common to the profile's GPU types, ascending by size.
    points: Vec<(u32, u64)>,
}

/// A profile file.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name of the file as it was given.
    pub name: String,
    /// True if its rows distinguish batch sizes.
    pub has_batch: bool,
    /// Rows that were left out.
    pub skipped: Vec<BadRow>,
    tables: BTreeMap<String, BTreeMap<Key, Measured>>,
}

struct Point {
    gpu_type: String,
    key: Key,
    gpus: u32,
    /// Speed in a unit common to the file: billionths of its rate, or 10^24 over the billionths of its time.
    speed: u64,
}

impl Profile {
    /// Reads a profile; `name` is what complaints call it.
    ///
    /// # Errors
    /// The input cannot be read, lacks a column, has no usable row, or, unless bad rows are skipped, has a bad row: fields
    /// malformed, a speed that is not positive, or a size listed twice.
    pub fn read(name: &str, input: impl Read, on_bad: OnBadRow) -> Result<Self, Error> {
        let table = Table::open(name, input)?;
        let model = table.need("model")?;
        let gpus = table.need("gpus")?;
        let batch = table.find("batch_size");
        let gpu_type = table.find("gpu_type");
        let (value, kind) = COLUMNS
            .iter()
            .find_map(|&(column, kind)| table.find(column).map(|c| (c, kind)))
            .ok_or_else(|| table.missing(&one_of()))?;
        let mut seen: BTreeMap<(String, Key, u32), u64> = BTreeMap::new();
        let read = |row: &Row<'_>| {
            let key = (row.text(model).to_owned(), row.text_or_empty(batch).to_owned());
            if key.0.is_empty() {
                return Err(row.bad(model, "is empty; a model is needed"));
            }
            let gpu_type = row.text_or_empty(gpu_type).to_owned();
            let point = Point { speed: speed(row, value, kind)?, gpus: row.gpus(gpus)?, key, gpu_type };
            let place = (point.gpu_type.clone(), point.key.clone(), point.gpus);
            if let Some(line) = seen.insert(place, row.line()) {
                return Err(row.bad(gpus, format!("was measured before, in line {line}")));
            }
            Ok(point)
        };
        let (points, skipped) = table.rows(on_bad, read)?;
        if points.is_empty() {
            return Err(Error::Empty { file: name.to_owned() });
        }
        let mut tables: BTreeMap<String, BTreeMap<Key, Measured>> = BTreeMap::new();
        for point in points {
            let of_type = tables.entry(point.gpu_type).or_default();
            let measured = of_type.entry(point.key).or_insert_with(|| Measured { points: Vec::new() });
            measured.points.push((point.gpus, point.speed));
        }
        for measured in tables.values_mut().flat_map(BTreeMap::values_mut) {
            measured.points.sort_unstable();
        }
        Ok(Self { name: name.to_owned(), has_batch: batch.is_some(), skipped, tables })
    }

    /// Returns the measurements of a model at a batch size on a GPU type. A profile without GPU types holds for every type, one
    /// without batch sizes for every batch size.
    pub fn find(&self, gpu_type: &str, model: &str, batch: &str) -> Option<&Measured> {
        let table = self.tables.get(gpu_type).or_else(|| self.tables.get(""))?;
        let batch = if self.has_batch { batch } else { "" };
        table.get(&(model.to_owned(), batch.to_owned()))
    }

    /// Batch sizes known for a model, for a complaint about one that is not.
    pub fn batches(&self, model: &str) -> Vec<&str> {
        let keys = self.tables.values().flat_map(BTreeMap::keys);
        let mut batches: Vec<&str> = keys.filter(|(m, _)| m == model).map(|(_, b)| b.as_str()).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}

fn one_of() -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    format!("of {}", names.join(", "))
}

fn speed(row: &Row<'_>, column: Column, kind: Measure) -> Result<u64, BadRow> {
    let value = row.positive_nano(column)?;
    match kind {
        Measure::Rate => Ok(value),
        // The inverse, with as many digits as 64 bits hold for times up to hours and down to microseconds.
        Measure::Time => u64::try_from(1_000_000_000_000_000_000_000_000_u128 / u128::from(value))
            .map_err(|_| row.bad(column, "is too small a time")),
    }
}

impl Measured {
    /// Fewest and most GPUs measured.
    pub fn range(&self) -> (u32, u32) {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or((0, 0), |(first, last)| (first.0, last.0))
    }

    /// Speeds for every size up to the largest measured one, in units of the speed that `reference` has on one GPU. Sizes
    /// below the smallest measured one stand still.
    ///
    /// Where `reference` was not measured on one GPU, its smallest size is taken as that many times one GPU.
    pub fn curve(&self, reference: &Self) -> Curve {
        let Some(&(unit_gpus, unit)) = reference.points.first() else { return Curve::default() };
        let scale = |speed: u128| {
            let scaled = speed * u128::from(Speed::ONE.0) * u128::from(unit_gpus);
            let rounded = (scaled + u128::from(unit) / 2) / u128::from(unit).max(1);
            Speed(u64::try_from(rounded).unwrap_or(u64::MAX))
        };
        let (_, reach) = self.range();
        Curve::new((0..=reach).map(|gpus| scale(self.at(gpus))))
    }

    /// Speed in the profile's unit.
    fn at(&self, gpus: u32) -> u128 {
        match self.points.binary_search_by_key(&gpus, |&(g, _)| g) {
            Ok(i) => u128::from(self.points[i].1),
            Err(0) => 0,
            Err(i) => match self.points.get(i) {
                Some(&above) => between(self.points[i - 1], above, gpus),
                None => 0,
            },
        }
    }
}

/// Linear interpolation of the time per unit of work: with `f` the way from below to above, `1 / ((1-f)/below + f/above)`.
fn between((low, slow): (u32, u64), (high, fast): (u32, u64), gpus: u32) -> u128 {
    let (slow, fast) = (u128::from(slow), u128::from(fast));
    let weight = |n: u32| u128::from(n);
    let divisor = weight(high - gpus) * fast + weight(gpus - low) * slow;
    // Speeds are below 2^64 and sizes below 2^21: divide early to stay within 128 bits.
    let numerator = weight(high - low) * slow;
    let whole = numerator / divisor;
    let rest = numerator % divisor;
    whole * fast + mul_div(rest, fast, divisor)
}

/// `a * b / c` without overflow, for `a < c`.
fn mul_div(a: u128, b: u128, c: u128) -> u128 {
    if let Some(product) = a.checked_mul(b) {
        return product / c;
    }
    let bits = 128 - (a | c).leading_zeros();
    let down = bits.saturating_sub(64);
    ((a >> down) * b) / (c >> down).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, Error> {
        Profile::read("p.csv", text.as_bytes(), OnBadRow::Refuse)
    }

    fn curve(profile: &Profile, model: &str, batch: &str) -> Curve {
        let measured = profile.find("", model, batch).expect("measured");
        measured.curve(measured)
    }

    #[test]
    fn a_time_a_rate_and_a_speedup_say_the_same() {
        let time = read("model,batch_size,gpus,seconds_per_iter\nm,8,1,3\nm,8,2,1.5\nm,8,4,1\n").unwrap();
        let rate = read("model,batch_size,gpus,iters_per_s\nm,8,1,2\nm,8,2,4\nm,8,4,6\n").unwrap();
        let speedup = read("model,batch_size,gpus,speedup\nm,8,1,1.0\nm,8,2,2.0\nm,8,4,3.0\n").unwrap();
        for profile in [time, rate, speedup] {
            let curve = curve(&profile, "m", "8");
            assert_eq!(
                (curve.at(1), curve.at(2), curve.at(4)),
                (Speed::ONE, Speed::from_milli(2000), Speed::from_milli(3000))
            );
            assert_eq!(curve.reach(), 4);
            // Time per work at 3: halfway between 1/2 and 1/3.
            assert_eq!(curve.at(3), Speed(2_400_000_000));
        }
    }

    #[test]
    fn a_speedup_that_counts_samples_is_preferred_to_seconds() {
        let profile = read("model,gpus,seconds_per_iter,speedup_vs_min\nm,1,2,1\nm,2,1,1.5\n").unwrap();
        assert_eq!(curve(&profile, "m", "any").at(2), Speed::from_milli(1500));
    }

    #[test]
    fn other_gpu_types_are_in_units_of_the_reference() {
        let profile = read("gpu_type,model,gpus,steps_per_s\nfast,m,1,10\nslow,m,1,4\nslow,m,2,6\n").unwrap();
        let [fast, slow] = ["fast", "slow"].map(|t| profile.find(t, "m", "").expect("measured"));
        let curve = slow.curve(fast);
        assert_eq!((curve.at(1), curve.at(2)), (Speed::from_milli(400), Speed::from_milli(600)));
    }

    #[test]
    fn without_one_gpu_the_smallest_size_counts_as_that_many() {
        let profile = read("model,gpus,speedup\nm,2,1\nm,4,1.5\n").unwrap();
        let curve = curve(&profile, "m", "");
        assert_eq!(
            (curve.at(1), curve.at(2), curve.at(4)),
            (Speed::ZERO, Speed::from_milli(2000), Speed::from_milli(3000))
        );
    }

    #[test]
    fn every_fault_names_its_place_and_value() {
        let head = "model,batch_size,gpus,speedup";
        let cases = [
            ("m,8,1,NaN", r#"p.csv:2: column speedup: "NaN" is not a plain decimal number"#),
            ("m,8,1,0", r#"p.csv:2: column speedup: "0" must be larger than 0"#),
            ("m,8,0,1", r#"p.csv:2: column gpus: "0" must be at least 1"#),
            (",8,1,1", r#"p.csv:2: column model: "" is empty; a model is needed"#),
            ("m,8,1,1\nm,8,1,2", r#"p.csv:3: column gpus: "1" was measured before, in line 2"#),
        ];
        for (rows, message) in cases {
            assert_eq!(read(&format!("{head}\n{rows}\n")).unwrap_err().to_string(), message);
        }
        let missing = read("model,gpus\nm,1\n").unwrap_err().to_string();
        assert!(missing.starts_with("p.csv:1: no column of goodput_speedup, "), "{missing}");
    }

    #[test]
    fn interpolation_stays_between_its_ends() {
        let (low, high) = ((16, u64::MAX / 4), (20, u64::MAX / 3));
        for gpus in 17..20 {
            let speed = between(low, high, gpus);
            assert!(speed > u128::from(low.1) && speed < u128::from(high.1));
        }
    }
}
