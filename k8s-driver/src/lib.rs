//! Connects the operator to a real cluster: watch streams in, API calls out, leadership, the HTTP endpoints.
//!
//! Owns the Kubernetes client and the asynchronous runtime. It decides nothing: `operator` says what to do, `apis` what an object
//! means. Its parts, each private, with the names others need listed below:
//!
//! * `process`: the whole process, one leadership of it, its settings and what it reports of itself;
//! * `core`: the one thread that owns the [`operator::Operator`], its log and its clock;
//! * `watch`: lists and watches of the objects that decisions read, reduced while they are read;
//! * `dispatch`: API calls, as many in flight as the API server takes, or printed only in a dry run;
//! * `client`: connecting to an API server, and one HTTP exchange with it;
//! * `lease`: leader election and the permission to write;
//! * `replication`: reading the log of a live leader, by a standby or by a command of a user;
//! * `http`: health, metrics and the log, served to others;
//! * `metrics`: what is counted and timed.
//!
//! Tests: beside each file against a mock of the API server, and in `tests/` against a real one.

mod client;
mod core;
mod dispatch;
mod hash;
mod http;
mod lease;
mod metrics;
mod process;
mod replication;
mod watch;

pub use crate::dispatch::dry_run::{DryRun, Format};
pub use crate::http::{HttpOptions, TlsFiles};
pub use crate::metrics::Metrics;
pub use crate::process::options::{Lease as LeaseSettings, Options};
pub use crate::process::run::{CACHE_AFTER, Error, Handles, run};
pub use crate::process::status::ProcessState;
pub use crate::watch::sources::JobFilter;

/// Connections to an API server and single HTTP exchanges with it.
pub mod api_server {
    pub use crate::client::exchange::{error_chain, exchange, send};
    pub use crate::client::{Connection, Error, Options, connect, connect_upgradable};
}

/// Leader election on a Lease.
pub mod election {
    pub use crate::lease::{Elector, Error, Leader, LeaseHold, LeaseOptions, find_leader};
}

/// The log of a live leader, read over HTTPS.
pub mod remote_log {
    pub use crate::replication::credentials::{Error as TokenError, READER};
    pub use crate::replication::locate::{DEFAULT_NAMESPACE, Error as LocateError, LocateOptions, LocatedLog, locate};
    pub use crate::replication::remote::{Error, Lines, Remote};
}

/// Listeners whose connections are bounded, and their certificates, for the HTTP endpoints of other processes.
pub mod listener {
    pub use crate::http::certificate::self_signed;
    pub use crate::http::health::METRICS_TYPE;
    pub use crate::http::serve::{Kept, Peer, Place, plain, tls};
}

/// Single watches and requests, for harnesses that drive them without a process.
pub mod harness {
    pub use crate::dispatch::request::{Prepared, answer, no_answer, prepare};
    pub use crate::process::status::StatusReporter;
    pub use crate::watch::definitions::Definitions;
    pub use crate::watch::lines::Lines;
    pub use crate::watch::list_tracker::ListReporter;
    pub use crate::watch::selection::Selection;
    pub use crate::watch::sources::{Source, collection, sources};
    pub use crate::watch::{End, SourceWatch};
}
