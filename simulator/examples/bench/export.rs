//! Makes a log of many jobs and exports it.

use std::fs::File;
use std::path::Path;

use event_log::{EventLog as _, jsonl};

use crate::AnyError;
use crate::uids::with_long_uids;
use crate::workload::{Workload, mixed};

/// Number of jobs that live at the same time.
const LIVE_JOBS: u32 = 32;

/// Makes a log of at least `records` records and exports it.
pub(crate) fn write_log(records: u64, to: &Path) -> Result<(), AnyError> {
    let mut workload = Workload::new(mixed)?;
    for n in 0..LIVE_JOBS {
        workload.next_job(u64::from(n) * 20_000);
    }
    while workload.log().head().position.0 < records {
        let (came, went) = workload.jobs;
        for _ in came.saturating_sub(went)..LIVE_JOBS {
            let after = workload.between(1000, 30_000);
            workload.next_job(after);
        }
        if !workload.step()? {
            return Err("no job has anything left to do".into());
        }
    }
    let log = with_long_uids(workload.log(), records)?;
    jsonl::export(&log, File::create(to)?, jsonl::Digests::Every)?;
    let (came, went) = workload.jobs;
    println!("{} records of {came} jobs ({went} of them over), {} bytes", log.head().position, log.stats().body_bytes);
    Ok(())
}
