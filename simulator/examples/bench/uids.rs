//! Logs with uids of Kubernetes' length in place of the embedded cluster's short ones.
//!
//! Owns that replacement. It follows from the counted uids alone.

use std::fmt::Write as _;

use event_log::{EventLog, MemoryLog, NewRecord};

use crate::AnyError;

/// The first records of a log, the cluster's counted uids replaced by ones of Kubernetes' length.
pub(crate) fn with_long_uids(log: &dyn EventLog, records: u64) -> Result<MemoryLog, AnyError> {
    let mut out = MemoryLog::new();
    let count = usize::try_from(records)?;
    for frame in log.read(log.first())?.take(count) {
        let frame = frame?;
        let body = long_uids(std::str::from_utf8(&frame.body)?);
        out.append(&[NewRecord { term: frame.term, body: body.as_bytes() }])?;
    }
    Ok(out)
}

/// Counted uids (`"pod-000017"`) as long as random ones. The count stays in front: some events list uids in their order.
pub(crate) fn long_uids(body: &str) -> String {
    let mut out = String::with_capacity(body.len() * 3 / 2);
    for (n, part) in body.split('"').enumerate() {
        if n > 0 {
            out.push('"');
        }
        match part.rsplit_once('-') {
            Some(("pod" | "service" | "aitrainingjob", count))
                if count.len() >= 6 && count.bytes().all(|b| b.is_ascii_digit()) =>
            {
                let number = count.parse::<u64>().unwrap_or_default();
                let salt = part.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
                let (high, low) = (mix(salt), mix(salt ^ 1));
                // Writing to a string cannot fail.
                let _ = write!(
                    out,
                    "{number:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
                    high & 0xffff,
                    (high >> 16) & 0xfff,
                    (high >> 28) & 0xfff,
                    low & 0xffff_ffff_ffff
                );
            }
            _ => out.push_str(part),
        }
    }
    out
}

/// Finalizer of `SplitMix64` (Steele, Lea, Flood): spreads the bits of a counter.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
