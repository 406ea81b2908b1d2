//! Memory per job, live and over: what this process grows by while jobs are told to a state.

use std::fs;

use crate::AnyError;
use crate::herd::{Herd, Moment};
use crate::table::{aimed, row, thousands, topic};

const LIVE_AIM: u64 = 10 * 1024;
const OVER_AIM: u64 = 1024;

/// Resident memory of this process, in bytes.
fn resident() -> Result<u64, AnyError> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Measures.
pub(crate) fn run(jobs: u32, moment: Moment) -> Result<(), AnyError> {
    let mut herd = Herd::new(moment)?;
    // The allocator's first steps are not the jobs'.
    let warm = jobs / 10;
    herd.grow(0, warm)?;
    let before = resident()?;
    herd.grow(warm, jobs)?;
    let grown = resident()?.saturating_sub(before);
    let each = grown / u64::from(jobs - warm).max(1);
    let checkpoint = u64::try_from(herd.state.to_checkpoint()?.len())? / u64::from(jobs);
    let (what, most) = match moment {
        Moment::Running => ("running jobs of 8 pods and 8 services", LIVE_AIM),
        Moment::Over => ("jobs of 8 pods that are over", OVER_AIM),
    };
    topic(&format!("memory: {} {what} in one state", thousands(u64::from(jobs))));
    aimed("resident bytes per job", &thousands(each), &format!("< {}", thousands(most)), each < most);
    row("the same job in a checkpoint, bytes", &thousands(checkpoint));
    Ok(())
}
