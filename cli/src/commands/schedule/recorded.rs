//! The options that choose a recorded log as the workload of a study.
//!
//! Owns the options, and reading the log; what is taken from its records is `studies::recorded`'s. Tests:
//! `tests/local/recorded.rs`.

use std::path::{Path, PathBuf};

use engine::State;
use local_run::records::{self, Flow, LogSource};
use studies::recorded::{Reader, Recorded};
use terminal::out::Failure;

/// Arguments that choose a recorded workload.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RecordedArgs {
    /// Play the jobs of a recorded log (a directory, `.jsonl` or `.jsonl.gz`) instead of a trace, on its nodes, decided as the operator
    /// does. Each job takes the time for which it held its places.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["trace", "profile", "gpus", "cluster"])]
    pub(super) log: Option<PathBuf>,
    /// Play the jobs of this queue of the log alone; `root` is that of jobs that name none.
    #[arg(long, value_name = "NAME", requires = "log")]
    pub(super) queue: Option<String>,
    /// Let the policy decide alone, as it does on a trace: without nodes, quota and priorities, and without the reservation that the
    /// operator makes for the first job that waits.
    #[arg(long, requires_all = ["log", "policy"])]
    pub(super) alone: bool,
    /// Play the log under the policies of its queues, and compare starts, nodes and ends with those recorded.
    #[arg(long, requires = "log", conflicts_with = "policy")]
    pub(super) check: bool,
}

/// Reads a log as a workload: of the chosen queue, or of all.
pub(super) fn read(path: &Path, chosen: Option<&str>) -> Result<Recorded, Failure> {
    let mut reader = Reader::default();
    records::each(&LogSource::from(path), &mut State::default(), &mut |state, record| {
        state.replay(&record)?;
        reader.take(state, &record);
        Ok(Flow::Go)
    })?;
    Ok(reader.finish(&path.display().to_string(), chosen)?)
}
