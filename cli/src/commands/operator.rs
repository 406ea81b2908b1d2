//! `trainyard operator`: serves the job APIs on a Kubernetes cluster.
//!
//! Owns logging, signals and the runtime of that process; what can be set is `settings`'. Tests: `operator/tests.rs`.

mod addresses;
mod settings;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_driver::{DryRun, Handles};
use terminal::out::Failure;
use terminal::stop::StopSignals;

use self::settings::{Ignored, Settings};
use crate::logging::{self, LogFormat};

/// Default log filter.
const LOGGED: &str = "info";

/// Signals closer together than this count as one.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Arguments of `trainyard operator`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard operator --data-directory operator-data
  trainyard operator --config operator.yaml --dry-run")]
pub(crate) struct OperatorArgs {
    /// Settings as YAML, under the names of the flags.
    #[arg(long, env = "TRAINYARD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    ignored: Ignored,
}

/// Joins the words of flags with hyphens: the original operator takes underscores as well.
pub(crate) fn hyphenated(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_none_or(|command| command != "operator") {
        return args;
    }
    for arg in &mut args {
        let Some(flag) = arg.to_str().and_then(|text| text.strip_prefix("--")) else { continue };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        if name.contains('_') {
            let name = name.replace('_', "-");
            *arg = OsString::from(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
        }
    }
    args
}

/// Runs until it gets a signal to stop.
pub(crate) fn run(args: &OperatorArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.over_file(args.config.as_deref())?;
    let level = settings.log_level.as_deref().unwrap_or(LOGGED);
    logging::start(level, settings.log_format.unwrap_or(LogFormat::Text))?;
    for name in args.ignored.given() {
        tracing::info!(flag = name, "this flag of the original operator means nothing here");
    }
    let options = settings.options()?;
    let dry_run = options.dry_run.map(|format| DryRun::new(format, Box::new(std::io::stdout())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handles = Handles { registry: settings.registry()?, ..Handles::new(dry_run) };
    let stopped = handles.clone();
    let outcome = runtime.block_on(async {
        tokio::spawn(async move {
            if let Err(error) = stop_on_signals(&stopped).await {
                tracing::error!(%error, "no signals can be received");
            }
        });
        k8s_driver::run(options, handles).await
    });
    // What still runs in the background has nothing left to do.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The first signal ends in good order, the second at once.
async fn stop_on_signals(handles: &Handles) -> std::io::Result<()> {
    let mut signals = StopSignals::catch()?;
    let mut first: Option<Instant> = None;
    loop {
        signals.next().await;
        match first {
            None => {
                tracing::info!("asked to stop: calls under way are finished, the lease is released");
                handles.stop.cancel();
                first = Some(Instant::now());
            }
            // Shells and `timeout` send one signal to the process and the same to its group.
            Some(at) if at.elapsed() < SAME_SIGNAL => {}
            Some(_) => break,
        }
    }
    tracing::warn!("asked again: stopping at once");
    std::process::exit(130)
}
