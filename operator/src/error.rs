//! Errors that stop an operator.

use engine::{ReplayError, WireError};
use model::{Kind, Position};

/// Stops an operator. Nothing is dispatched after it: open the operator again on its log and list every kind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] event_log::Error),
    /// A record in the log cannot be read.
    #[error("record {at}: {source}")]
    Record {
        /// Its position.
        at: Position,
        /// Reason.
        source: WireError,
    },
    /// A record does not follow from those before it.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A record could not be written down.
    #[error("a record could not be encoded: {0}")]
    Encode(WireError),
    /// The records of the log that is followed do not continue this one.
    #[error("record {at} of the log that is followed does not continue this log, which ends at {head}")]
    Diverged {
        /// The record.
        at: Position,
        /// The last position of this log.
        head: Position,
    },
    /// Another operator wrote to a job and leads by now: start again from the objects.
    #[error("job {job} carries a mirror ({mirror}) that this log does not contain: start again from the objects")]
    Superseded {
        /// The job.
        job: String,
        /// The stamp of its mirror.
        mirror: String,
    },
    /// The API server's versions went backwards: it was restored from an older copy.
    #[error("the cluster's {kind:?} list is at version {have}, older than version {known} seen before")]
    ClusterWentBack {
        /// The kind listed.
        kind: Kind,
        /// Version of the list.
        have: u64,
        /// Version seen before.
        known: u64,
    },
}
