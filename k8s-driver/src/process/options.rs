//! Settings of a process, after flags, environment and file are merged.

use std::path::PathBuf;
use std::time::Duration;

use model::Config;

use crate::client;
use crate::dispatch::dry_run::Format;
use crate::http::HttpOptions;
use crate::watch::sources::JobFilter;

/// Settings of a process.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address and credentials of the API server.
    pub connection: client::Options,
    /// Which jobs are served.
    pub scope: JobFilter,
    /// Settings that decisions depend on.
    pub config: Config,
    /// True if an autoscaler of the cluster switches the capacity gate off.
    pub detects_autoscaler: bool,
    /// Directory of the log.
    pub data_directory: PathBuf,
    /// The election; `None` if it is switched off.
    pub lease: Option<Lease>,
    /// Listeners for health, metrics and the log.
    pub http: HttpOptions,
    /// Maximum number of calls in flight.
    pub max_in_flight: usize,
    /// Time limit of one call.
    pub call_timeout: Duration,
    /// Number of records after which the log is compacted; 0 for never.
    pub compact_after: u64,
    /// True to accept a cluster whose versions went backwards: the log is archived.
    pub accept_new_cluster: bool,
    /// Format in which calls are printed instead of sent; `None` to send them. A dry run writes to no disk either.
    pub dry_run: Option<Format>,
}

/// Settings of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Namespace of the Lease; `None` for that of the pod or of the context.
    pub namespace: Option<String>,
    /// Name of the Lease.
    pub name: String,
    /// Time after a renewal that other candidates wait.
    pub duration: Duration,
    /// Time after a renewal that the holder may write.
    pub renew_deadline: Duration,
    /// Interval between renewals and between attempts.
    pub retry_period: Duration,
}

impl Default for Lease {
    fn default() -> Self {
        let usual = crate::lease::LeaseOptions::new("", "");
        Self {
            namespace: None,
            name: usual.name,
            duration: usual.duration,
            renew_deadline: usual.renew_deadline,
            retry_period: usual.retry_period,
        }
    }
}

impl Options {
    /// Default number of records after which a log is compacted.
    pub const COMPACT_AFTER: u64 = 500_000;
    /// Default maximum number of calls in flight; more gains nothing on an API server of usual size.
    pub const MAX_IN_FLIGHT: usize = 32;
    /// Default time limit of one call. A busy API server takes seconds, and dropped calls make it busier. Calls in flight when the
    /// Lease is lost are dropped at once.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection: client::Options::default(),
            scope: JobFilter::default(),
            config: Config::default(),
            detects_autoscaler: true,
            data_directory: PathBuf::from("./trainyard-operator"),
            lease: Some(Lease::default()),
            http: HttpOptions::default(),
            max_in_flight: Self::MAX_IN_FLIGHT,
            call_timeout: Self::CALL_TIMEOUT,
            compact_after: Self::COMPACT_AFTER,
            accept_new_cluster: false,
            dry_run: None,
        }
    }
}
