//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`) as exact numbers.
//!
//! Owns their arithmetic: integers of 10^-9, rounded up as `resource.Quantity` does. Tests: at the end of this file.

use serde_json::Value;

/// Nano units in one whole unit. All arithmetic is in nano units, so that the suffix `n` is exact.
const NANO: i128 = 1_000_000_000;

/// A quantity in nano units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// `units` whole units.
    pub fn whole(units: u64) -> Self {
        Self(i128::from(units).saturating_mul(NANO))
    }

    /// Reads a quantity from the JSON string or number that holds it. Digits below nano are rounded up, as Kubernetes does.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Returns true if the text is a quantity as Kubernetes writes one, of any size.
    pub fn is_valid(text: &str) -> bool {
        let Some(Parts { suffix, .. }) = Parts::of(text) else { return false };
        let is_exponent = |text: &str| {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        scale(suffix).is_some() || suffix.strip_prefix(['e', 'E']).is_some_and(is_exponent)
    }

    /// Reads a quantity from text, without regard to white space around it.
    pub fn parse(text: &str) -> Option<Self> {
        let Parts { negative, whole, fraction, suffix } = Parts::of(text.trim())?;
        let (multiplier, power) = scale(suffix)?;
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let exponent = power.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let product = digits.checked_mul(multiplier)?;
        let nano = if exponent >= 0 {
            product.checked_mul(10_i128.checked_pow(u32::try_from(exponent).ok()?)?)?
        } else {
            // Below what an i128 can divide by, any positive amount is the smallest there is.
            10_i128
                .checked_pow(exponent.unsigned_abs())
                .map_or_else(|| i128::from(product > 0), |divisor| div_ceil(product, divisor))
        };
        Some(Self(if negative { nano.saturating_neg() } else { nano }))
    }

    /// Whole units of `divisor`, rounded up; `None` for a divisor that is not positive.
    pub fn in_units_of(self, divisor: Self) -> Option<i128> {
        (divisor.0 > 0).then(|| div_ceil(self.0, divisor.0))
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i128 {
        div_ceil(self.0, NANO / 1000)
    }

    /// Whole units, rounded up.
    pub fn ceil(self) -> i128 {
        div_ceil(self.0, NANO)
    }
}

/// A quantity's text: sign, digits before and after the point, suffix.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !(number.is_empty() || number == "." || fraction.contains('.'));
        is_number.then_some(Self { negative: text.starts_with('-'), whole, fraction, suffix })
    }
}

/// Quotient rounded up; `b` must be positive.
fn div_ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b).saturating_add(i128::from(a.rem_euclid(b) != 0))
}

/// Multiplier and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |n: u32| Some((1024_i128.pow(n), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-60..=30).contains(&power).then_some((1, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_divide() {
        for (text, divisor, want) in [
            ("1", "1", 1),
            ("500m", "1", 1), // rounded up
            ("500m", "1m", 500),
            ("1.5", "1m", 1500),
            (".5", "1m", 500),
            ("2.", "1", 2),
            ("1Gi", "1Mi", 1024),
            ("1.5Gi", "1", 1_610_612_736),
            ("1G", "1", 1_000_000_000),
            ("2e3", "1", 2000),
            ("2E", "1E", 2),
            ("1E2", "1", 100),
            ("100n", "1", 1),
            ("0", "1", 0),
            ("-1500m", "1", -1),
            ("+3", "1", 3),
            ("0.0000000001", "1n", 1),
            ("1e-40", "1n", 1),
        ] {
            let (quantity, divisor) = (Quantity::parse(text).unwrap(), Quantity::parse(divisor).unwrap());
            assert_eq!(quantity.in_units_of(divisor), Some(want), "{text}");
        }
    }

    #[test]
    fn refuse() {
        for text in
            ["", "x", "1x", "1.2.3", ".", "-", "1e", "1e99", "Gi", "1 Gi", "99999999999999999999999999999999999999Ei"]
        {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::whole(1).in_units_of(Quantity::whole(0)), None);
    }

    #[test]
    fn a_quantity_of_any_size_is_valid() {
        for text in
            ["1", "1.5", ".5", "5.", "-1", "+2", "100m", "1Gi", "1.0Gi", "16G", "1e3", "1E-3", "12E", "5n", "1e99"]
        {
            assert!(Quantity::is_valid(text), "{text}");
        }
        for text in ["", "-", ".", "G", "16GB", "1 Gi", " 1", "1.2.3", "1gi", "0x10", "1e", "1e+", "one", "1Gib"] {
            assert!(!Quantity::is_valid(text), "{text}");
        }
    }

    #[test]
    fn thousandths_are_rounded_up() {
        for (text, want) in [("500m", 500), ("1.5Ki", 1_536_000), ("1n", 1), ("-1", -1_000), ("1E", 10_i128.pow(21))] {
            assert_eq!(Quantity::parse(text).map(Quantity::milli), Some(want), "{text}");
        }
    }

    #[test]
    fn json() {
        assert_eq!(Quantity::read(&serde_json::json!(1.5)), Quantity::parse("1500m"));
        assert_eq!(Quantity::read(&serde_json::json!(4)), Some(Quantity::whole(4)));
        assert_eq!(Quantity::read(&serde_json::json!([])), None);
    }
}
