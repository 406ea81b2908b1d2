//! Errors of a log, by what the caller does about them.
//!
//! Owns the error enums and the reading of IO errors; decides nothing. Tests: where the errors arise.

use std::io;
use std::path::{Path, PathBuf};

use model::{Position, Term};

use crate::digest::Head;

/// Reason for rejecting a log or an operation on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stored bytes are not those written. The records before `at` can be saved with [`crate::salvage`].
    #[error("log damaged at position {at}: {reason}")]
    Damaged {
        /// First position that cannot be trusted.
        at: Position,
        /// The fault.
        reason: Damage,
    },
    /// Written by a newer build. Use that build, or its export.
    #[error("log has format {needed}, this build reads up to format {have}")]
    TooNew {
        /// The format of the file.
        needed: u16,
        /// The newest format this build reads.
        have: u16,
    },
    /// Another handle has it open for writing. Close that one, or read a copy.
    #[error("log {} is open in another process or handle", path.display())]
    Locked {
        /// The log's directory.
        path: PathBuf,
    },
    /// An earlier error left this handle unsure of what is stored. Open the log again.
    #[error("an earlier write failed; the log must be opened again")]
    Poisoned,
    /// No space left, or a quota or file size limit is reached. Free space, then open the log again.
    #[error("no space left to {action}")]
    Full {
        /// The action that failed.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The storage engine failed in a way of its own. Open the log again; if it fails again, treat it as damaged.
    #[error("storage engine failed to {action}: {message}")]
    Engine {
        /// The action that failed.
        action: &'static str,
        /// Message of the engine.
        message: String,
    },
    /// More bytes than the log takes.
    #[error("{what} has {bytes} bytes, the limit is {limit_bytes}")]
    TooBig {
        /// The thing that is too big: a record's body, a group, a checkpoint.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The largest size that is taken.
        limit_bytes: u64,
    },
    /// A position outside the log was asked for.
    #[error("position {asked} is not in the log, which holds {first} to {head}")]
    Gap {
        /// The position asked for.
        asked: Position,
        /// The first readable position.
        first: Position,
        /// The last position.
        head: Position,
    },
    /// A record's term is lower than the last record's: two writers, or a term that was not claimed properly.
    #[error("term {offered} is lower than the log's last term {last}")]
    TermBackwards {
        /// Term of the last record.
        last: Term,
        /// Term that was offered.
        offered: Term,
    },
    /// A checkpoint that does not belong to this log.
    #[error("checkpoint at position {at} does not fit the log: {reason}")]
    BadCheckpoint {
        /// The checkpoint's position.
        at: Position,
        /// The member that does not fit.
        reason: &'static str,
    },
    /// The directory holds something else.
    #[error("{} is not a log: {reason}", path.display())]
    NotALog {
        /// The directory.
        path: PathBuf,
        /// The reason for saying so.
        reason: &'static str,
    },
    /// This handle is a read-only copy.
    #[error("this log was opened read-only")]
    ReadOnly,
}

/// Difference between stored bytes and those written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Records are missing here though later ones, or the rest of their group, are there.
    #[error("records are missing")]
    Missing,
    /// A block's header is unreadable.
    #[error("unreadable block header ({0})")]
    Header(&'static str),
    /// A frame's bytes do not match their checksum.
    #[error("checksum mismatch")]
    Checksum,
    /// Bytes are intact but do not belong where they are.
    #[error("misplaced data ({0})")]
    Misplaced(&'static str),
    /// The digest before this record is not the one its block was written after.
    #[error("digest chain broken")]
    Chain,
    /// The log ends before the stored head.
    #[error("log ends before its noted head {}", .0.position)]
    Behind(Head),
    /// The stored head is not on this log's chain.
    #[error("noted head {} has another digest", .0.position)]
    OtherHead(Head),
    /// The file that notes the head is unreadable.
    #[error("unreadable head file")]
    HeadFile,
    /// The file that names the live epoch is missing or unreadable.
    #[error("the live epoch is not named ({0})")]
    Current(&'static str),
    /// The checkpoint does not match its digest.
    #[error("checkpoint does not match its digest")]
    Checkpoint,
    /// The storage engine cannot read its files, or does not return what they hold.
    #[error("storage engine: {0}")]
    Engine(String),
}

impl Error {
    /// Sorts an IO error by what the caller does about it.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { action, source }
            }
            _ => Self::Io { action, path: path.to_owned(), source },
        }
    }

    /// Returns the error for damage at a position.
    pub(crate) const fn damaged(at: Position, reason: Damage) -> Self {
        Self::Damaged { at, reason }
    }
}
