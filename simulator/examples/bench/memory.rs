//! Memory per job, live and over: the growth of this process while jobs are added to a state.

use std::fs;

use crate::AnyError;
use crate::replicated_jobs::{JobStage, ReplicatedJobs};
use crate::table::{aimed, row, thousands, topic};

const LIVE_AIM: u64 = 10 * 1024;
const OVER_AIM: u64 = 1536;

/// Resident memory of this process, in bytes.
fn resident() -> Result<u64, AnyError> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Measures.
pub(crate) fn run(jobs: u32, stage: JobStage) -> Result<(), AnyError> {
    let mut replicated_jobs = ReplicatedJobs::new(stage)?;
    // The allocator's first steps are not the jobs'.
    let warm = jobs / 10;
    replicated_jobs.grow(0, warm)?;
    let before = resident()?;
    replicated_jobs.grow(warm, jobs)?;
    let grown = resident()?.saturating_sub(before);
    let each = grown / u64::from(jobs - warm).max(1);
    let checkpoint = u64::try_from(replicated_jobs.state.to_checkpoint()?.len())? / u64::from(jobs);
    let (what, most) = match stage {
        JobStage::Running => ("running jobs of 8 pods and 8 services", LIVE_AIM),
        JobStage::Over => ("jobs of 8 pods that are over", OVER_AIM),
    };
    topic(&format!("memory: {} {what} in one state", thousands(u64::from(jobs))));
    aimed("resident bytes per job", &thousands(each), &format!("< {}", thousands(most)), each < most);
    row("the same job in a checkpoint, bytes", &thousands(checkpoint));
    Ok(())
}
