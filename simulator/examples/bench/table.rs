//! A topic's table: what was measured, what was aimed at, and whether it was met.

/// Prints a topic's heading.
pub(crate) fn topic(title: &str) {
    println!("\n{title}");
    println!("  {:<58} {:>16}  {:>16}", "", "measured", "aim");
}

/// Prints a row that has no aim.
pub(crate) fn row(what: &str, measured: &str) {
    println!("  {what:<58} {measured:>16}");
}

/// Prints a row and whether its aim was met.
pub(crate) fn aimed(what: &str, measured: &str, aim: &str, met: bool) {
    println!("  {what:<58} {measured:>16}  {aim:>16}  {}", if met { "met" } else { "missed" });
}

/// A count with its thousands apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `count` per second.
pub(crate) fn per_second(count: u64, seconds: f64) -> String {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // counts far below 2^52
    let rate = (count as f64 / seconds.max(1e-9)) as u64;
    thousands(rate)
}

/// The middle one of some times, in seconds.
pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
