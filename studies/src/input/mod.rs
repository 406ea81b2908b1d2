//! Reads the inputs of a study: traces, speedup profiles and cluster specs, from CSV and text.
//!
//! Owns reading and checking; every error names file, line, column and value. It must not know how jobs are scheduled.
//! Tests: beside each module.

pub mod cluster;
pub mod decimal;
mod error;
pub mod profile;
pub(super) mod table;
pub mod trace;
pub mod workload;

pub use cluster::{Cluster, Pool};
pub use error::{BadRow, Error};
pub use profile::Profile;
pub use trace::{Trace, TraceJob};
pub use workload::{Work, Workload, WorkloadJob};

pub(super) use table::open as open_table;

/// Treatment of a row that cannot be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBadRow {
    /// Refuse the file: the first bad row is the error.
    #[default]
    Refuse,
    /// Leave it out, keep the reason, and continue.
    Skip,
}
