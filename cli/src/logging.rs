//! The log of a process, on standard error.
//!
//! Owns its form and its start; what is logged is each crate's own.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use terminal::out::Failure;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging what `level` lets through.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level).map_err(|error| Failure::new(format!("log-level: {level:?}: {error}")))?;
    // The reader of the log may end; that is no reason to stop or to panic.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    started.map_err(|error| Failure::new(format!("cannot write logs: {error}")))
}
