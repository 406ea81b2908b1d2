//! `trainyard operator`: serves the job APIs on a Kubernetes cluster.
//!
//! Owns how flags, environment (`TRAINYARD_*`) and a file agree: a flag goes before the environment, that before the file,
//! that before the default, and each setting has one name in all three. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use k8s_driver::client;
use k8s_driver::http::{HttpOptions, TlsFiles};
use k8s_driver::options::{Lease, Options};
use k8s_driver::rehearse::{Format, Rehearsal};
use k8s_driver::run::{self, Handles};
use k8s_driver::sources::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use simulator::{duration, flags};
use tracing_subscriber::EnvFilter;

use crate::out::Failure;

/// Logged unless told otherwise. The client's own layer tells of every answer above 499 as an error; what such an answer
/// means is told here.
const LOGGED: &str = "info,kube_client=off";

/// Arguments of `trainyard operator`.
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// Settings as YAML, under the names of the flags.
    #[arg(long, env = "TRAINYARD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    ignored: Ignored,
}

/// Settings; every one may stand in the file as well.
#[derive(Debug, Default, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, then the pod's service account.
    #[arg(long, env = "TRAINYARD_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "TRAINYARD_CONTEXT")]
    context: Option<String>,
    /// Address of the API server, in place of the configured one.
    #[arg(long, env = "TRAINYARD_MASTER", value_name = "URL")]
    master: Option<String>,
    /// Use the pod's service account, whatever kubeconfig there is.
    #[arg(long, env = "TRAINYARD_RUN_IN_CLUSTER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    run_in_cluster: Option<bool>,
    /// The only namespace to serve. Default: all.
    #[arg(long, env = "TRAINYARD_NAMESPACE")]
    namespace: Option<String>,
    /// Serve only jobs with these labels, for example `team=a,stage!=test`.
    #[arg(long, env = "TRAINYARD_LABEL_SELECTOR", value_name = "SELECTOR")]
    label_selector: Option<String>,
    /// Where the log is kept. [default: ./trainyard-operator]
    #[arg(long, env = "TRAINYARD_DATA_DIRECTORY", value_name = "DIR")]
    data_directory: Option<PathBuf>,
    /// Records after which the log is compacted; 0 for never. [default: 500000]
    #[arg(long, env = "TRAINYARD_COMPACT_AFTER", value_name = "RECORDS")]
    compact_after: Option<u64>,
    /// Go on although the cluster's versions went backwards (it was restored): the log is set aside.
    #[arg(long, env = "TRAINYARD_ACCEPT_NEW_CLUSTER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    accept_new_cluster: Option<bool>,
    /// Decide and print what would be done; write nothing.
    #[arg(long, env = "TRAINYARD_DRY_RUN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    dry_run: Option<bool>,
    /// How --dry-run prints. [default: text]
    #[arg(long, env = "TRAINYARD_OUTPUT", value_name = "FORMAT")]
    output: Option<Output>,
    /// How logs are written, to standard error. [default: text]
    #[arg(long, env = "TRAINYARD_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged, for example `debug` or `info,k8s_driver=trace`. [default: info]
    #[arg(long, env = "TRAINYARD_LOG_LEVEL", value_name = "FILTER")]
    log_level: Option<String>,

    /// Where probes and metrics are served in plain HTTP; `none` for nowhere. [default: 127.0.0.1:8080, in a pod 0.0.0.0:8080]
    #[arg(long, env = "TRAINYARD_HEALTH_ADDRESS", value_name = "ADDRESS", help_heading = "Looking in")]
    health_address: Option<String>,
    /// Where the log is served over HTTPS, to whoever the API server lets; `none` for nowhere. [default: 127.0.0.1:8443, in a pod 0.0.0.0:8443]
    #[arg(long, env = "TRAINYARD_LOG_ADDRESS", value_name = "ADDRESS", help_heading = "Looking in")]
    log_address: Option<String>,
    /// Host name or address under which others reach this process: in a pod its address. Default: $POD_IP, or what is listened on.
    #[arg(long, env = "TRAINYARD_LOG_HOST", value_name = "HOST", help_heading = "Looking in")]
    log_host: Option<String>,
    /// Certificate of the log, PEM. Default: a self-made one, which is told in the Lease.
    #[arg(
        long,
        env = "TRAINYARD_LOG_CERTIFICATE",
        value_name = "FILE",
        requires = "log_key",
        help_heading = "Looking in"
    )]
    log_certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(
        long,
        env = "TRAINYARD_LOG_KEY",
        value_name = "FILE",
        requires = "log_certificate",
        help_heading = "Looking in"
    )]
    log_key: Option<PathBuf>,
    /// The authority that readers shall trust for it, PEM. Default: they know it already.
    #[arg(
        long,
        env = "TRAINYARD_LOG_AUTHORITY",
        value_name = "FILE",
        requires = "log_certificate",
        help_heading = "Looking in"
    )]
    log_authority: Option<PathBuf>,

    /// Stand for election; `false` only where no second operator can exist. [default: true]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Leadership")]
    leader_elect: Option<bool>,
    /// How long others wait after a renewal. [default: 15s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_LEASE_DURATION", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_lease_duration: Option<String>,
    /// How long the leader believes in a renewal. [default: 10s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RENEW_DEADLINE", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_renew_deadline: Option<String>,
    /// Time between renewals. [default: 2s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RETRY_PERIOD", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_retry_period: Option<String>,
    /// Name of the Lease. [default: trainyard]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RESOURCE_NAME", value_name = "NAME", help_heading = "Leadership")]
    leader_elect_resource_name: Option<String>,
    /// Its namespace. Default: that of the pod, or of the kubeconfig's context.
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RESOURCE_NAMESPACE", value_name = "NAME", help_heading = "Leadership")]
    leader_elect_resource_namespace: Option<String>,

    /// Calls to the API server at once. [default: 32]
    #[arg(long, env = "TRAINYARD_MAX_CALLS", value_name = "N", help_heading = "Calls")]
    max_calls: Option<usize>,
    /// How long one call may take. [default: 30s]
    #[arg(long, env = "TRAINYARD_CALL_TIMEOUT", value_name = "TIME", help_heading = "Calls")]
    call_timeout: Option<String>,

    /// Window after a pod began to be created in which a creation failure is answered by a restart. [default: 0s]
    #[arg(long, env = "TRAINYARD_CREATING_RESTART_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    creating_restart_period: Option<String>,
    /// How long a pod must be stuck before a creation failure restarts it. [default: 15m]
    #[arg(long, env = "TRAINYARD_CREATING_DURATION_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    creating_duration_period: Option<String>,
    /// Whether a creation failure past its window fails the pod. [default: false]
    #[arg(long, env = "TRAINYARD_ENABLE_CREATING_FAILED", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Decisions")]
    enable_creating_failed: Option<bool>,
    /// How long a node may be not ready before its pods count as lost. [default: 0s]
    #[arg(long, env = "TRAINYARD_NODE_GRACE_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    node_grace_period: Option<String>,
    /// First delay before a pod that keeps failing is created again. [default: 10s]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff: Option<String>,
    /// Upper bound of that delay. [default: 5m]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF_MAX", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff_max: Option<String>,
    /// A pod that ran this long before failing starts its back-off anew. [default: 10m]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF_RESET", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff_reset: Option<String>,
    /// First delay before a call that failed for unknown reasons is tried a third time. [default: 1s]
    #[arg(long, env = "TRAINYARD_RETRY_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    retry_period: Option<String>,
    /// Upper bound of that delay. [default: 1m]
    #[arg(long, env = "TRAINYARD_RETRY_PERIOD_MAX", value_name = "TIME", help_heading = "Decisions")]
    retry_period_max: Option<String>,
    /// How long a pod whose job does not exist may stay. [default: 10m]
    #[arg(long, env = "TRAINYARD_ORPHAN_GRACE_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    orphan_grace_period: Option<String>,
    /// Conditions and words that name a GPU failure, between commas.
    #[arg(long, env = "TRAINYARD_GPU_FAULTS", value_delimiter = ',', value_name = "WORDS", help_heading = "Decisions")]
    gpu_faults: Option<Vec<String>>,
}

/// Flags of the original trainingjob-operator and its logger that mean nothing here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted and ignored")]
struct Ignored {
    /// One thread decides.
    #[arg(long, value_name = "N", hide_short_help = true)]
    thread_num: Option<String>,
    /// Nothing is looked at by the clock alone.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    resync_period: Option<String>,
    /// Only Leases are used.
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    leader_elect_resource_lock: Option<String>,
    /// See --log-level.
    #[arg(long = "v", short = 'v', value_name = "N", hide_short_help = true)]
    verbosity: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, hide = true)]
    logtostderr: Option<Option<String>>,
    #[arg(long, num_args = 0..=1, require_equals = true, hide = true)]
    alsologtostderr: Option<Option<String>>,
    #[arg(long, hide = true, action = ArgAction::Set)]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true)]
    log_dir: Option<String>,
    #[arg(long, hide = true)]
    log_file: Option<String>,
    #[arg(long, hide = true)]
    log_backtrace_at: Option<String>,
    #[arg(long, hide = true)]
    log_flush_frequency: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Output {
    /// One line a call.
    Text,
    /// One JSON object a call.
    Json,
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

/// Runs until it is told to stop.
pub(crate) fn run(args: &OperatorArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.over_file(args.config.as_deref())?;
    start_logging(&settings)?;
    for name in args.ignored.given() {
        tracing::info!(flag = name, "this flag of the original operator means nothing here");
    }
    let options = settings.options()?;
    let rehearsal = options.rehearsal.map(|format| Rehearsal::new(format, Box::new(std::io::stdout())));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("driver").enable_all().build()?;
    let handles = Handles::new(rehearsal);
    let stopped = handles.clone();
    let outcome = runtime.block_on(async {
        tokio::spawn(async move {
            if let Err(error) = stop_on_signals(&stopped).await {
                tracing::error!(%error, "no signals can be received");
            }
        });
        run::run(options, handles).await
    });
    // What still runs in the background has nothing left to do.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The first signal ends in good order, the second at once.
async fn stop_on_signals(handles: &Handles) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for first in [true, false] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if first {
            tracing::info!("asked to stop: calls under way are finished, the lease is released");
            handles.stop.cancel();
        }
    }
    tracing::warn!("asked again: stopping at once");
    std::process::exit(130)
}

fn start_logging(settings: &Settings) -> Result<(), Failure> {
    let filter = match &settings.log_level {
        None => LOGGED.to_owned(),
        Some(level) if level.contains("kube_client") => level.clone(),
        Some(level) => format!("{level},kube_client=off"),
    };
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| Failure::new(format!("log-level: {:?}: {error}", settings.log_level.as_deref())))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match settings.log_format.unwrap_or(LogFormat::Text) {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    started.map_err(|error| Failure::new(format!("logs cannot be written: {error}")))
}

impl Ignored {
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("thread-num", self.thread_num.is_some()),
            ("resync-period", self.resync_period.is_some()),
            ("leader-elect-resource-lock", self.leader_elect_resource_lock.is_some()),
            ("v", self.verbosity.is_some()),
            ("logtostderr", self.logtostderr.is_some()),
            ("alsologtostderr", self.alsologtostderr.is_some()),
            ("stderrthreshold", self.stderrthreshold.is_some()),
            ("vmodule", self.vmodule.is_some()),
            ("log-dir", self.log_dir.is_some()),
            ("log-file", self.log_file.is_some()),
            ("log-backtrace-at", self.log_backtrace_at.is_some()),
            ("log-flush-frequency", self.log_flush_frequency.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }
}

impl Settings {
    /// These, and what they leave open from a file.
    fn over_file(&self, file: Option<&std::path::Path>) -> Result<Self, Failure> {
        let mut all = match file {
            None => Map::new(),
            Some(path) => {
                let at = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
                let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
                let settings: Self = serde_saphyr::from_str(&text).map_err(|error| at(&error))?;
                settings.given()?
            }
        };
        all.extend(self.given()?);
        Ok(serde_json::from_value(Value::Object(all))?)
    }

    /// The settings that are given, by name.
    fn given(&self) -> Result<Map<String, Value>, Failure> {
        let Value::Object(all) = serde_json::to_value(self)? else { return Ok(Map::new()) };
        Ok(all.into_iter().filter(|(_, value)| !value.is_null()).collect())
    }

    fn options(&self) -> Result<Options, Failure> {
        let usual = Options::default();
        let given = self.given()?;
        let decisions: BTreeMap<String, Value> =
            flags::names().filter_map(|name| Some((name.to_owned(), given.get(name)?.clone()))).collect();
        let output = match self.output.unwrap_or(Output::Text) {
            Output::Text => Format::Text,
            Output::Json => Format::Json,
        };
        let max_calls = self.max_calls.unwrap_or(usual.most_at_once);
        if max_calls == 0 {
            return Err(Failure::new("max-calls: 0: must be at least 1"));
        }
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(Options {
            connection: client::Options {
                kubeconfig: self.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty()),
                context: filled(&self.context),
                master: filled(&self.master),
                in_cluster: self.run_in_cluster.unwrap_or(false),
            },
            scope: Scope {
                namespace: filled(&self.namespace),
                label_selector: self.label_selector.clone().unwrap_or_default(),
            },
            config: flags::config(&decisions)?,
            data_directory: self.data_directory.clone().unwrap_or(usual.data_directory),
            lease: if self.leader_elect.unwrap_or(true) { Some(self.lease()?) } else { None },
            http: self.http()?,
            most_at_once: max_calls,
            call_limit: time("call-timeout", self.call_timeout.as_ref(), usual.call_limit)?,
            compact_after: self.compact_after.unwrap_or(usual.compact_after),
            accept_new_cluster: self.accept_new_cluster.unwrap_or(false),
            rehearsal: self.dry_run.unwrap_or(false).then_some(output),
        })
    }

    fn http(&self) -> Result<HttpOptions, Failure> {
        let tls = match (&self.log_certificate, &self.log_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                authority: self.log_authority.clone(),
            }),
            (None, None) => None,
            _ => return Err(Failure::new("log-certificate and log-key belong together: give both or none")),
        };
        let pod = pod_address()?;
        // Beside an operator that serves, one that only says what it would do must not need its ports.
        let none = self.dry_run.filter(|dry| *dry).map(|_| "none".to_owned());
        Ok(HttpOptions {
            health: address("health-address", self.health_address.as_ref().or(none.as_ref()), pod, 8080)?,
            log: address("log-address", self.log_address.as_ref().or(none.as_ref()), pod, 8443)?,
            tls,
            host: self.log_host.clone().filter(|host| !host.is_empty()).or_else(|| pod.map(|ip| ip.to_string())),
        })
    }

    fn lease(&self) -> Result<Lease, Failure> {
        let usual = Lease::default();
        let time =
            |name: &str, text: &Option<String>, usual| time(&format!("leader-elect-{name}"), text.as_ref(), usual);
        Ok(Lease {
            namespace: self.leader_elect_resource_namespace.clone().filter(|name| !name.is_empty()),
            name: self.leader_elect_resource_name.clone().unwrap_or(usual.name),
            duration: time("lease-duration", &self.leader_elect_lease_duration, usual.duration)?,
            renew_deadline: time("renew-deadline", &self.leader_elect_renew_deadline, usual.renew_deadline)?,
            retry_period: time("retry-period", &self.leader_elect_retry_period, usual.retry_period)?,
        })
    }
}

/// The address of the pod this runs in, as its manifest tells (`POD_IP`).
fn pod_address() -> Result<Option<IpAddr>, Failure> {
    let Some(text) = std::env::var("POD_IP").ok().filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Failure::new(format!("POD_IP: {text:?} is no address")))
}

/// An address to listen on: in a pod any of its own, elsewhere this machine's alone.
fn address(name: &str, text: Option<&String>, pod: Option<IpAddr>, port: u16) -> Result<Option<SocketAddr>, Failure> {
    let usual = match pod {
        None => IpAddr::from(Ipv4Addr::LOCALHOST),
        Some(IpAddr::V4(_)) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    match text.map(String::as_str) {
        None => Ok(Some(SocketAddr::new(usual, port))),
        Some("none" | "") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Failure::new(format!("{name}: {text:?} is no address such as 0.0.0.0:{port}, nor `none`"))),
    }
}

fn time(name: &str, text: Option<&String>, usual: Duration) -> Result<Duration, Failure> {
    let Some(text) = text else { return Ok(usual) };
    let ms = duration::parse_ms(text).map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        operator: OperatorArgs,
    }

    fn parse(args: &[&str]) -> Result<Options, String> {
        let all = ["trainyard", "operator"].iter().chain(args).map(OsString::from);
        // The word `operator` stands where the name of the program would.
        let args = hyphenated(all).into_iter().skip(1);
        let args = Arguments::try_parse_from(args).map_err(|error| error.to_string())?.operator;
        let settings = args.settings.over_file(args.config.as_deref()).map_err(|error| error.to_string())?;
        settings.options().map_err(|error| error.to_string())
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.yaml");
        std::fs::write(&path, text).unwrap();
        (dir, format!("--config={}", path.display()))
    }

    #[test]
    fn nothing_given_is_the_default() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.config, model::Config::default());
        assert_eq!((options.scope, options.lease), (Scope::default(), Some(Lease::default())));
        assert_eq!(options.http.health, Some(SocketAddr::from(([127, 0, 0, 1], 8080))));
        assert_eq!(options.rehearsal, None);
    }

    #[test]
    fn a_command_line_of_the_original_operator_is_taken() {
        let options = parse(&[
            "--kubeconfig=/k",
            "--run_in_cluster=false",
            "--thread-num=1000",
            "--namespace=ml",
            "--resync_period=10s",
            "--v=4",
            "--logtostderr",
            "--creating_restart_period",
            "1h",
            "--creating-duration-period=30s",
            "--enable-creating-failed",
            "--leader-elect=true",
            "--leader-elect-lease-duration=20s",
            "--leader_elect_renew_deadline=15s",
            "--leader-elect-retry-period",
            "3s",
            "--leader-elect-resource-lock=endpoints",
        ])
        .unwrap();
        assert_eq!(options.connection.kubeconfig.as_deref(), Some(std::path::Path::new("/k")));
        assert_eq!(options.scope.namespace.as_deref(), Some("ml"));
        let config = options.config;
        assert_eq!(
            (config.creating_restart_ms, config.creating_patience_ms, config.creating_failed),
            (3_600_000, 30_000, true)
        );
        let lease = options.lease.unwrap();
        assert_eq!(
            (lease.duration.as_secs(), lease.renew_deadline.as_secs(), lease.retry_period.as_secs()),
            (20, 15, 3)
        );
        assert!(parse(&["--leader-elect=false"]).unwrap().lease.is_none());
    }

    #[test]
    fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
        let (_dir, config) = file(
            "namespace: from-file\nnode-grace-period: 1m\ngpu-faults: [A, B]\nleader-elect: false\nmax-calls: 7\n\
             data-directory: /from-file\ndry-run: true\noutput: json\n",
        );
        let options = parse(&[&config, "--namespace=from-flag", "--node_grace_period=2m"]).unwrap();
        assert_eq!(options.scope.namespace.as_deref(), Some("from-flag"));
        assert_eq!((options.config.node_grace_ms, options.most_at_once), (120_000, 7));
        assert_eq!(options.config.gpu_faults, ["A", "B"]);
        assert_eq!(options.config.retry_ms, model::Config::default().retry_ms);
        assert!(options.lease.is_none());
        assert_eq!((options.data_directory, options.rehearsal), (PathBuf::from("/from-file"), Some(Format::Json)));
        assert_eq!(parse(&[&config, "--dry-run=false"]).unwrap().rehearsal, None);
    }

    #[test]
    fn every_setting_of_the_file_is_a_flag_and_an_environment_variable_of_that_name() {
        use clap::CommandFactory;
        let command = Arguments::command();
        let known = Settings::default();
        let Value::Object(settings) = serde_json::to_value(&known).unwrap() else { panic!("no settings") };
        for name in settings.keys() {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name)).unwrap();
            let variable = format!("TRAINYARD_{}", name.to_uppercase().replace('-', "_"));
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
        }
        for name in flags::names() {
            assert!(settings.contains_key(name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for (args, words) in [
            (&["--node-grace-period=soon"][..], &["node-grace-period", "soon"][..]),
            (&["--leader-elect-lease-duration=5"], &["leader-elect-lease-duration", "`5`"]),
            (&["--health-address=8080"], &["health-address", "\"8080\"", "0.0.0.0:8080"]),
            (&["--max-calls=0"], &["max-calls", "0", "at least 1"]),
            (&["--log-certificate=x"], &["--log-key"]),
            (&["--log-format=xml"], &["--log-format", "xml", "json"]),
            (&["--creating-restart=1h"], &["--creating-restart"]),
            (&["--config=/does/not/exist"], &["/does/not/exist", "No such file"]),
        ] {
            let error = parse(args).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{args:?}: {error}");
            }
        }
        for (text, words) in [
            ("namespaces: x\n", &["operator.yaml", "namespaces"][..]),
            ("max-calls: many\n", &["operator.yaml", "max-calls"]),
            ("log-format: xml\n", &["operator.yaml", "xml"]),
            ("log-certificate: x\n", &["log-certificate and log-key"]),
            ("- a list\n", &["operator.yaml"]),
        ] {
            let (_dir, config) = file(text);
            let error = parse(&[&config]).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
