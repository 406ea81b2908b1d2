//! The event log: encoded frames, chained by digest, in memory or on disk.
//!
//! Owns what a record's place, term and digest are, how frames are laid out in blocks, how a log is opened, verified,
//! copied, compacted, exported and imported. It must not know what a body means: to this crate a body is bytes. The
//! format is written down in `docs/log-format.md`.
//!
//! * [`EventLog`] is what the operator is written against; [`MemoryLog`] and [`SledLog`] implement it, [`FaultyLog`]
//!   wraps either in tests of crates that use a log.
//! * [`Blocks`] and [`Store`] are what a back end implements; [`log::Log`] is the log on top of any of them, so both
//!   back ends verify alike.
//! * Values from the storage engine are never trusted: contiguity, checksums, the digest chain and the stored head are
//!   always checked.
//!
//! Tests: beside the modules, and in `tests/` (`conformance.rs` runs one suite against every back end).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::todo)]

mod block;
mod chain;
mod copying;
mod digest;
pub mod disk;
mod error;
mod faulty;
mod hooked;
pub mod jsonl;
pub mod log;
mod memory;
mod pack;
mod read_ahead;
mod recover;
mod store;
mod types;

pub use block::{Block, BlockKey, FORMAT, MAX_BLOCK_BYTES, MAX_BODY_BYTES};

pub use digest::{Digest, Head};
pub use disk::{Options, Report, SledLog, Verify, salvage, verify};
pub use error::{Damage, Error};
pub use faulty::{Fault, FaultyLog, PlannedFaults};
pub use hooked::{HookedLog, WriteHook};
pub use memory::{MemoryDisk, MemoryLog};
pub use store::{BlockIter, Blocks, Store};
pub use types::{Checkpoint, EventLog, Frame, NewRecord, Stats};
