//! Holds the outcome of a study: of every job, and of the cluster over time.

use model::id::Text;
use scheduler::{GpuMicros, Grant, Micros};

/// Outcome of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Its id in the trace.
    pub name: Text,
    /// Its place in the workload.
    pub place: usize,
    /// Time of submission.
    pub submitted: Micros,
    /// Time at which it first got GPUs.
    pub first_start: Micros,
    /// Time at which its end was noticed.
    pub finished: Micros,
    /// Time it held GPUs.
    pub ran: Micros,
    /// Time it made progress.
    pub progressed: Micros,
    /// Service attained.
    pub attained: GpuMicros,
    /// Changes of what it held, the first start and the end not counted.
    pub changes: u32,
    /// Number of times all GPUs were taken from it.
    pub halts: u32,
    /// Starts and changes of size after the first start.
    pub restarts: u32,
}

impl JobRecord {
    /// Returns the completion time: from submission to the end.
    pub fn completion(&self) -> Micros {
        self.finished.since(self.submitted)
    }

    /// Returns the wait until the first start.
    pub fn first_wait(&self) -> Micros {
        self.first_start.since(self.submitted)
    }

    /// Returns the time that it held nothing.
    pub fn queued(&self) -> Micros {
        self.completion().since(self.ran)
    }
}

/// Use of the cluster from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Time from which it holds.
    pub at: Micros,
    /// Jobs that hold nothing.
    pub waiting: u32,
    /// Jobs that hold GPUs.
    pub running: u32,
    /// GPUs held.
    pub gpus: u32,
}

/// A job's change of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeChange {
    /// Time.
    pub at: Micros,
    /// The job's place in the workload.
    pub job: usize,
    /// GPUs held from then on.
    pub grant: Grant,
}

/// A job's change of the nodes it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Time.
    pub at: Micros,
    /// The job's place in the workload.
    pub job: usize,
    /// The node of each of its workers from then on.
    pub on: Vec<Text>,
}

/// A trace played to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyOutcome {
    /// The jobs, in the order of the workload.
    pub jobs: Vec<JobRecord>,
    /// The cluster over time, one entry per time at which something changed.
    pub samples: Vec<Sample>,
    /// All changes of size, ends included; empty unless they were asked for.
    pub changes: Vec<SizeChange>,
    /// All changes of nodes, ends not included; empty where the policy alone decided.
    pub places: Vec<Places>,
    /// Decisions taken.
    pub decisions: u64,
}
