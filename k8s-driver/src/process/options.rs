//! What a process is started with, once flags, environment and file are read.

use std::path::PathBuf;
use std::time::Duration;

use model::Config;

use crate::client;
use crate::dispatch::dry_run::Format;
use crate::http::HttpOptions;
use crate::watch::sources::Scope;

/// Settings of a process.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the API server is found.
    pub connection: client::Options,
    /// Which jobs are served.
    pub scope: Scope,
    /// What decisions depend on.
    pub config: Config,
    /// Where the log is kept.
    pub data_directory: PathBuf,
    /// The election; `None` when this process is told that it is the only one.
    pub lease: Option<Lease>,
    /// Where others can look.
    pub http: HttpOptions,
    /// Most calls at once.
    pub max_in_flight: usize,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// Records after which the log is made to begin at the present state; 0 for never.
    pub compact_after: u64,
    /// Whether a cluster whose versions went backwards is taken for what it is now: the log is set aside.
    pub accept_new_cluster: bool,
    /// Decide and print; write nothing, neither to the cluster nor to the disk.
    pub dry_run: Option<Format>,
}

/// Settings of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Namespace of the Lease; without one that of the pod or of the context.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How long others wait after a renewal.
    pub duration: Duration,
    /// How long the holder believes in a renewal.
    pub renew_deadline: Duration,
    /// Time between renewals and attempts.
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
    /// How long one call may take unless told otherwise. A busy API server takes seconds, and giving up makes it busier; what
    /// is under way when the lease is lost is given up at once, whatever this says.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection: client::Options::default(),
            scope: Scope::default(),
            config: Config::default(),
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
