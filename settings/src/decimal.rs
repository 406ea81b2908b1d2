//! Decimal text to fixed point, exactly: no float in between.
//!
//! Owns rounding and what is no number. It must not know what is counted. Tests: at the end.

/// Returns the value of a decimal such as `12`, `1.785` or `2.5e3`, times ten to the power of `places`, rounded half up; `None` when
/// it is not a number, negative, or too large.
pub fn fixed(text: &str, places: u32) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // The point, counted from the left of `digits`, after the shift by all powers of ten.
    let shift = exponent.checked_add(i32::try_from(places).ok()?)?;
    let point = i64::try_from(whole.len()).ok()?.checked_add(shift.into())?;
    if point > 60 && digits.bytes().any(|b| b != b'0') {
        return None;
    }
    let Ok(point) = usize::try_from(point) else { return Some(0) };
    let kept: String = digits.chars().chain(std::iter::repeat('0')).take(point.min(60)).collect();
    let rest = digits.as_bytes().get(point).copied().unwrap_or(b'0');
    let value: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    u64::try_from(value.checked_add(u128::from(rest >= b'5'))?).ok()
}

#[cfg(test)]
mod tests {
    use super::fixed;

    #[test]
    fn decimals_are_exact() {
        for (text, places, want) in [
            ("0", 9, Some(0)),
            ("1.785", 9, Some(1_785_000_000)),
            ("2.5e3", 0, Some(2500)),
            ("12345678901234567", 0, Some(12_345_678_901_234_567)),
            ("1.5e-7", 9, Some(150)),
            ("0.4999999", 0, Some(0)),
            ("0.5", 0, Some(1)),
            ("1e-400", 9, Some(0)),
            ("0e400", 9, Some(0)),
        ] {
            assert_eq!(fixed(text, places), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_in_range_is_refused() {
        for text in ["", "-1", "NaN", "inf", ".5", "1.2.3", "1e", "1e400", "99999999999999999999", "0x10"] {
            assert_eq!(fixed(text, 0), None, "{text}");
        }
    }
}
