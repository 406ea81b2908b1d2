//! Durations as Go writes them: `98s`, `1h30m`, `500ms`, `1.5h`.
//!
//! Owns reading them into milliseconds, and writing them. It must not know what a duration is for. Tests: at the end of this file.

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing is written.
    #[error("a duration is empty; write for example 98s, 10m or 1h30m")]
    Empty,
    /// A number is missing where one belongs.
    #[error("`{text}` is no duration: a number is expected at `{rest}`")]
    NoNumber {
        /// The whole text.
        text: String,
        /// What stands where the number belongs.
        rest: String,
    },
    /// A number has no unit, or one that is not known.
    #[error("`{text}` is no duration: {}", unit_problem(unit))]
    BadUnit {
        /// The whole text.
        text: String,
        /// What stands where the unit belongs; empty when the text ends there.
        unit: String,
    },
    /// More than fits into 64 bits of milliseconds, or a fraction finer than a millisecond.
    #[error("`{text}` is no duration: it is out of range or finer than a millisecond")]
    OutOfRange {
        /// The whole text.
        text: String,
    },
}

fn unit_problem(unit: &str) -> String {
    if unit.is_empty() {
        "a number has no unit: ms, s, m or h".to_owned()
    } else {
        format!("the unit `{unit}` is none of ms, s, m, h")
    }
}

/// Reads a duration into milliseconds. A bare `0` is allowed, as in Go.
///
/// # Errors
/// When the text is no duration; the error says where.
pub fn parse_ms(text: &str) -> Result<u64, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text == "0" {
        return Ok(0);
    }
    let out_of_range = || Error::OutOfRange { text: text.to_owned() };
    let (mut rest, mut total_ms) = (text, 0_u64);
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        if number.is_empty() || number == "." {
            return Err(Error::NoNumber { text: text.to_owned(), rest: rest.to_owned() });
        }
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(Error::BadUnit { text: text.to_owned(), unit: unit.to_owned() }),
        };
        let part_ms = scaled(number, unit_ms).ok_or_else(out_of_range)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(out_of_range)?;
        rest = after;
    }
    Ok(total_ms)
}

/// `number` (digits with at most one point) times `unit_ms`, exactly, or nothing.
fn scaled(number: &str, unit_ms: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let fraction = fraction.trim_end_matches('0');
    let fraction_ms = if fraction.is_empty() {
        0
    } else {
        let divisor = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let product = fraction.parse::<u64>().ok()?.checked_mul(unit_ms)?;
        if product.checked_rem(divisor)? != 0 {
            return None;
        }
        product.checked_div(divisor)?
    };
    whole.checked_mul(unit_ms)?.checked_add(fraction_ms)
}

/// Writes a duration in milliseconds without loss: `0s`, `1m500ms`, `2h`.
pub fn text(ms: u64) -> String {
    let (hours, minutes, seconds, rest) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    let parts = [(hours, "h"), (minutes, "m"), (seconds, "s"), (rest, "ms")];
    let shown = parts.iter().filter(|(n, _)| *n > 0);
    let text = shown.fold(String::new(), |text, (n, unit)| text + &n.to_string() + unit);
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, ms) in [
            ("98s", 98_000),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            (".5s", 500),
            ("0", 0),
            ("0s", 0),
            (" 3s ", 3_000),
            ("1h0m1s1ms", 3_601_001),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn durations_are_read_back() {
        for ms in [0, 1, 999, 1000, 61_000, 3_600_000, 3_723_004] {
            assert_eq!(parse_ms(&text(ms)), Ok(ms), "{}", text(ms));
        }
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for (text, words) in [
            ("", "empty"),
            ("98", "a number has no unit: ms"),
            ("s", "a number is expected at `s`"),
            ("3d", "unit `d`"),
            ("-3s", "a number is expected at `-3s`"),
            ("1.0001s", "finer than a millisecond"),
            ("1.2.3s", "out of range"),
            ("99999999999999999999h", "out of range"),
            ("18446744073709551615h", "out of range"),
        ] {
            let error = parse_ms(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
