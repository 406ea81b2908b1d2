//! Plain decimal text to fixed-point integers, exactly: a study must not depend on how a machine rounds floats.
//!
//! Owns what a file may hold, and what is wrong with it; the arithmetic is [`settings::decimal`]'s. Tests: at the end of this file.

use settings::decimal::fixed;

/// Number of digits after the point that are kept: values are in billionths.
const DIGITS: u32 = 9;

/// Reads a non-negative decimal such as `3`, `0.586464` or `12.5` into billionths; digits beyond the ninth are rounded half up.
///
/// # Errors
/// What is wrong with the text, to be put behind it.
pub fn parse_nano(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; a number is needed");
    }
    if text.starts_with('-') {
        return Err("is negative");
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Err("is not a plain decimal number");
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    fixed(&format!("{whole}.{fraction}"), DIGITS).ok_or("is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly() {
        let cases = [
            ("0", 0),
            ("3", 3_000_000_000),
            ("0.586464", 586_464_000),
            (".5", 500_000_000),
            ("7.", 7_000_000_000),
            (" 12.5 ", 12_500_000_000),
            ("0.1234567894", 123_456_789),
            ("0.1234567895", 123_456_790),
        ];
        for (text, nano) in cases {
            assert_eq!(parse_nano(text), Ok(nano), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "NaN", "inf", "-1", "1e3", "1,5", ".", "99999999999999", "0x10"] {
            assert!(parse_nano(text).is_err(), "{text}");
        }
    }
}
