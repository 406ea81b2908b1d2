//! Kubernetes quantities (`500m`, `2`, `1.5`, `8Gi`, `1e3`), in thousandths, without floating point.
//!
//! Tests: at the end of this file.

use serde_json::Value;

/// Thousandths of a quantity written as text or as a number; `None` when it is no quantity.
pub(crate) fn milli(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse(text.trim()),
        Value::Number(number) => parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn parse(text: &str) -> Option<i128> {
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    // (multiplier, power of ten), of thousandths.
    let (multiplier, power): (i128, i32) = match suffix {
        "" => (1, 3),
        "n" => (1, -6),
        "u" => (1, -3),
        "m" => (1, 0),
        "k" => (1, 6),
        "M" => (1, 9),
        "G" => (1, 12),
        "T" => (1, 15),
        "P" => (1, 18),
        "E" => (1, 21),
        "Ki" => (1 << 10, 3),
        "Mi" => (1 << 20, 3),
        "Gi" => (1 << 30, 3),
        "Ti" => (1 << 40, 3),
        "Pi" => (1 << 50, 3),
        "Ei" => (1 << 60, 3),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?.checked_add(3)?),
    };
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = 10_i128.checked_pow(power.unsigned_abs())?;
    let mantissa = mantissa.checked_mul(multiplier)?;
    // What is asked for is rounded up, as the API server does.
    let value = if power >= 0 { mantissa.checked_mul(scale)? } else { mantissa.checked_add(scale - 1)? / scale };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::milli;

    #[test]
    fn quantities_are_read_in_thousandths() {
        let cases = [
            (json!("500m"), Some(500)),
            (json!("2"), Some(2_000)),
            (json!(2), Some(2_000)),
            (json!(1.0), Some(1_000)),
            (json!("1.5"), Some(1_500)),
            (json!(".5"), Some(500)),
            (json!("1Gi"), Some(1_073_741_824_000)),
            (json!("1.5Ki"), Some(1_536_000)),
            (json!("1k"), Some(1_000_000)),
            (json!("1e3"), Some(1_000_000)),
            (json!("12E2"), Some(1_200_000)),
            (json!("1E"), Some(1_000_000_000_000_000_000_000)),
            (json!("1n"), Some(1)),
            (json!("-1"), Some(-1_000)),
            (json!(""), None),
            (json!("."), None),
            (json!("one"), None),
            (json!("1.2.3"), None),
            (json!("1e99"), None),
            (json!(true), None),
        ];
        for (text, want) in cases {
            assert_eq!(milli(&text), want, "{text}");
        }
    }
}
