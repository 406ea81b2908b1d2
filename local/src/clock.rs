//! The machine's clock. Decisions of an operator have another one, which never goes backwards.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// Returns the machine's time; a time before 1970 counts as 1970.
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
