//! Memory per live job: what this process grows by while jobs are told to a state.

use std::fs;

use crate::AnyError;
use crate::herd::Herd;
use crate::table::{aimed, row, thousands, topic};

const AIM_BYTES: u64 = 10 * 1024;

/// Resident memory of this process, in bytes.
fn resident() -> Result<u64, AnyError> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Measures.
pub(crate) fn run(jobs: u32) -> Result<(), AnyError> {
    let mut herd = Herd::new()?;
    // The allocator's first steps are not the jobs'.
    let warm = jobs / 10;
    herd.grow(0, warm)?;
    let before = resident()?;
    herd.grow(warm, jobs)?;
    let grown = resident()?.saturating_sub(before);
    let each = grown / u64::from(jobs - warm).max(1);
    let checkpoint = u64::try_from(herd.state.to_checkpoint()?.len())? / u64::from(jobs);
    topic(&format!("memory: {} running jobs of 8 pods and 8 services in one state", thousands(u64::from(jobs))));
    aimed("resident bytes per job", &thousands(each), "< 10,240", each < AIM_BYTES);
    row("the same job in a checkpoint, bytes", &thousands(checkpoint));
    Ok(())
}
