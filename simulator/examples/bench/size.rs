//! Log bytes of one job's life, plain and in a compressed export.

use event_log::{EventLog, jsonl};

use crate::AnyError;
use crate::table::{aimed, row, thousands, topic};
use crate::uids::with_long_uids;
use crate::workload::{JobFault, Workload, mixed};

const AIM_BYTES: u64 = 32 * 1024;
const AIM_PACKED_BYTES: u64 = 4 * 1024;
const MANY: u32 = 500;

struct Size {
    records: u64,
    bytes: u64,
    packed: u64,
}

/// Returns the bytes that a job leaves in a log from its creation to its removal.
fn of(jobs: u32, faults: fn(u32) -> JobFault) -> Result<Size, AnyError> {
    let mut workload = Workload::new(faults)?;
    let first = workload.log().head().position.0;
    let start = workload.log().stats().body_bytes;
    for n in 0..jobs {
        workload.next_job(u64::from(n) * 30_000);
    }
    while workload.jobs.1 < jobs {
        if !workload.step()? {
            return Err("a job did not end".into());
        }
    }
    let log = with_long_uids(workload.log(), u64::MAX)?;
    let mut packed = Vec::new();
    jsonl::export_gz(&log, &mut packed)?;
    let jobs = u64::from(jobs);
    let stats = log.stats();
    Ok(Size {
        records: (stats.head.position.0 - first) / jobs,
        bytes: (stats.body_bytes - start) / jobs,
        packed: u64::try_from(packed.len())? / jobs,
    })
}

/// Measures.
pub(crate) fn run() -> Result<(), AnyError> {
    topic("size: what an 8-pod job leaves in a log, from creation to removal; every pod's change at its own moment");
    let (one, many, mix) = (of(1, |_| JobFault::None)?, of(MANY, |_| JobFault::None)?, of(MANY, mixed)?);
    row("records", &thousands(many.records));
    aimed("bytes of records", &thousands(many.bytes), "< 32,768", many.bytes < AIM_BYTES);
    row("compressed export of a log with this job alone, bytes", &thousands(one.packed));
    let name = format!("compressed export of {MANY} such jobs, bytes for each");
    aimed(&name, &thousands(many.packed), "< 4,096", many.packed < AIM_PACKED_BYTES);
    row("with restarts and lost nodes: records", &thousands(mix.records));
    row("with restarts and lost nodes: bytes of records", &thousands(mix.bytes));
    row("with restarts and lost nodes: bytes compressed", &thousands(mix.packed));
    Ok(())
}
