//! The settings of `trainyard operator`.
//!
//! Owns how flags, environment (`TRAINYARD_*`) and a file agree: a flag goes before the environment, that before the file,
//! that before the default, and each setting has one name in all three. Tests: `tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use k8s_driver::{Format, HttpOptions, JobFilter, LeaseSettings, Options, TlsFiles, api_server};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use settings::{duration, flags};
use terminal::out::Failure;

use super::addresses::{LOG_PORT, address, original_address, pod_address};
use crate::logging::LogFormat;

/// Settings; the file may set each of them as well.
#[derive(Debug, Default, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Settings {
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, then the pod's service account.
    #[arg(long, env = "TRAINYARD_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "TRAINYARD_CONTEXT")]
    context: Option<String>,
    /// Address of the API server, in place of the configured one.
    #[arg(long, env = "TRAINYARD_MASTER", value_name = "URL")]
    master: Option<String>,
    /// Use the pod's service account, and no kubeconfig.
    #[arg(long, env = "TRAINYARD_RUN_IN_CLUSTER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    run_in_cluster: Option<bool>,
    /// The only namespace to serve. Default: all.
    #[arg(long, env = "TRAINYARD_NAMESPACE")]
    namespace: Option<String>,
    /// Serve only jobs with these labels, for example `team=a,stage!=test`.
    #[arg(long, env = "TRAINYARD_LABEL_SELECTOR", value_name = "SELECTOR")]
    label_selector: Option<String>,
    /// Directory of the log. [default: ./trainyard-operator]
    #[arg(long, alias = "data-dir", env = "TRAINYARD_DATA_DIRECTORY", value_name = "DIR")]
    data_directory: Option<PathBuf>,
    /// Records after which the log is compacted; 0 for never. [default: 500000]
    #[arg(long, env = "TRAINYARD_COMPACT_AFTER", value_name = "RECORDS")]
    compact_after: Option<u64>,
    /// Continue although the cluster's versions went backwards (it was restored): the log is archived.
    #[arg(long, env = "TRAINYARD_ACCEPT_NEW_CLUSTER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    accept_new_cluster: Option<bool>,
    /// Decide and print the calls, without writing to the cluster.
    #[arg(long, env = "TRAINYARD_DRY_RUN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    dry_run: Option<bool>,
    /// Output format of --dry-run. [default: text]
    #[arg(long, env = "TRAINYARD_OUTPUT", value_name = "FORMAT")]
    output: Option<Output>,
    /// Format of logs on standard error. [default: text]
    #[arg(long, env = "TRAINYARD_LOG_FORMAT", value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
    /// Log filter, for example `debug` or `info,k8s_driver=trace`. [default: info]
    #[arg(long, env = "TRAINYARD_LOG_LEVEL", value_name = "FILTER")]
    pub(super) log_level: Option<String>,

    /// Address of probes and metrics (plain HTTP), or `none`. [default: 127.0.0.1:8080, in a pod 0.0.0.0:8080]
    #[arg(long, env = "TRAINYARD_HEALTH_ADDRESS", value_name = "ADDRESS", help_heading = "Looking in")]
    health_address: Option<String>,
    /// Address of metrics, as the operators before had it: `:8080`, a port, or `0` for none. It serves probes as well.
    #[arg(
        long,
        alias = "metrics-addr",
        env = "TRAINYARD_METRICS_BIND_ADDRESS",
        value_name = "ADDRESS",
        hide_short_help = true,
        help_heading = "Looking in"
    )]
    metrics_bind_address: Option<String>,
    /// Address of the metrics of TorchJobs' controllers, as `--metrics-bind-address`.
    #[arg(
        long,
        env = "TRAINYARD_CONTROLLER_METRICS_ADDR",
        value_name = "ADDRESS",
        hide_short_help = true,
        help_heading = "Looking in"
    )]
    controller_metrics_addr: Option<String>,
    /// Address of probes, as `--metrics-bind-address`.
    #[arg(
        long,
        env = "TRAINYARD_HEALTH_PROBE_BIND_ADDRESS",
        value_name = "ADDRESS",
        hide_short_help = true,
        help_heading = "Looking in"
    )]
    health_probe_bind_address: Option<String>,
    /// Address that serves the log over HTTPS to clients the API server authorizes, or `none`. [default: 127.0.0.1:8443, in a pod 0.0.0.0:8443]
    #[arg(long, env = "TRAINYARD_LOG_ADDRESS", value_name = "ADDRESS", help_heading = "Looking in")]
    log_address: Option<String>,
    /// Host name or address under which others reach this process: in a pod its address. Default: `$POD_IP`, or the address it listens on.
    #[arg(long, env = "TRAINYARD_LOG_HOST", value_name = "HOST", help_heading = "Looking in")]
    log_host: Option<String>,
    /// Certificate of the log, PEM. Default: a generated one, published in the Lease.
    #[arg(
        long,
        env = "TRAINYARD_LOG_CERTIFICATE",
        value_name = "FILE",
        requires = "log_key",
        help_heading = "Looking in"
    )]
    log_certificate: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(
        long,
        env = "TRAINYARD_LOG_KEY",
        value_name = "FILE",
        requires = "log_certificate",
        help_heading = "Looking in"
    )]
    log_key: Option<PathBuf>,
    /// Authority that readers trust for that certificate, PEM. Default: one they know already.
    #[arg(
        long,
        env = "TRAINYARD_LOG_AUTHORITY",
        value_name = "FILE",
        requires = "log_certificate",
        help_heading = "Looking in"
    )]
    log_authority: Option<PathBuf>,

    /// Use leader election; `false` only where no second operator can exist. [default: true]
    #[arg(long, alias = "enable-leader-election", env = "TRAINYARD_LEADER_ELECT", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Leadership")]
    leader_elect: Option<bool>,
    /// Time other replicas wait after a renewal before they take over. [default: 15s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_LEASE_DURATION", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_lease_duration: Option<String>,
    /// Time the leader has to renew its Lease before it stops. [default: 10s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RENEW_DEADLINE", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_renew_deadline: Option<String>,
    /// Time between renewals. [default: 2s]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RETRY_PERIOD", value_name = "TIME", help_heading = "Leadership")]
    leader_elect_retry_period: Option<String>,
    /// Name of the Lease. [default: trainyard]
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RESOURCE_NAME", value_name = "NAME", help_heading = "Leadership")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease. Default: that of the pod, or of the kubeconfig's context.
    #[arg(long, env = "TRAINYARD_LEADER_ELECT_RESOURCE_NAMESPACE", value_name = "NAME", help_heading = "Leadership")]
    leader_elect_resource_namespace: Option<String>,

    /// Maximum number of API calls in flight. [default: 32]
    #[arg(long, env = "TRAINYARD_MAX_CALLS", value_name = "N", help_heading = "Calls")]
    max_calls: Option<usize>,
    /// Timeout of one API call. [default: 30s]
    #[arg(long, env = "TRAINYARD_CALL_TIMEOUT", value_name = "TIME", help_heading = "Calls")]
    call_timeout: Option<String>,

    /// Give TorchJobs pod groups of Volcano, where the cluster has them. [default: true]
    #[arg(long, env = "TRAINYARD_ENABLE_GANG_SCHEDULING", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "TorchJob")]
    enable_gang_scheduling: Option<bool>,
    /// Gates of TorchJobs: `DAGScheduling`, `JobCoordinator`, `TorchLocalMasterAddr`, `HostNetWithHeadlessSvc`, each `=true` or `=false`.
    #[arg(long, env = "TRAINYARD_FEATURE_GATES", value_name = "GATES", help_heading = "TorchJob")]
    feature_gates: Option<String>,
    /// Rule by which the coordinator serves the queues of TorchJobs: `RoundRobin`, `WeightedRoundRobin`, `SmoothWeightedRoundRobin`. [default: `RoundRobin`]
    #[arg(long, env = "TRAINYARD_QUEUE_SELECTOR", value_name = "NAME", help_heading = "TorchJob")]
    queue_selector: Option<String>,
    /// Least time between two TorchJobs that the coordinator dequeues. [default: 100ms]
    #[arg(long, env = "TRAINYARD_DEQUEUE_PERIOD", value_name = "TIME", help_heading = "TorchJob")]
    dequeue_period: Option<String>,
    /// Ports of TorchJobs' pods on the network of their nodes. [default: 20000-30000]
    #[arg(long, env = "TRAINYARD_HOSTNETWORK_PORT_RANGE", value_name = "RANGE", help_heading = "TorchJob")]
    hostnetwork_port_range: Option<String>,
    /// Image of the pods that build images of models. [default: kubedl/kaniko:latest]
    #[arg(long, env = "TRAINYARD_MODEL_IMAGE_BUILDER", value_name = "IMAGE", help_heading = "TorchJob")]
    model_image_builder: Option<String>,
    /// Storage that models may name, with all below: `NODE:/PATH`, `*:/PATH`, `nfs://SERVER/PATH`, separated by commas, or `none`. Default:
    /// what the Pod Security of their namespace allows.
    #[arg(long, env = "TRAINYARD_MODEL_STORAGE", value_name = "DIRECTORIES", help_heading = "TorchJob")]
    model_storage: Option<String>,

    /// Create KAI Queues of TorchrunQueues only below parents whose annotation `trainyard.dev/namespace-selector` selects their namespace.
    /// [default: true]
    #[arg(long, env = "TRAINYARD_KAI_PARENT_CHECK", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "TorchrunQueue")]
    kai_parent_check: Option<bool>,

    /// Time after a pod's creation began in which a creation failure restarts it. [default: 0s]
    #[arg(long, env = "TRAINYARD_CREATING_RESTART_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    creating_restart_period: Option<String>,
    /// Time a pod must be stuck before a creation failure restarts it. [default: 15m]
    #[arg(long, env = "TRAINYARD_CREATING_DURATION_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    creating_duration_period: Option<String>,
    /// Fail a pod whose creation failure is past its window. [default: false]
    #[arg(long, env = "TRAINYARD_ENABLE_CREATING_FAILED", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Decisions")]
    enable_creating_failed: Option<bool>,
    /// Time a node may be not ready before its pods count as lost. [default: 60s]
    #[arg(long, env = "TRAINYARD_NODE_GRACE_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    node_grace_period: Option<String>,
    /// First delay before a failing pod is created again. [default: 10s]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff: Option<String>,
    /// Upper bound of that delay. [default: 5m]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF_MAX", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff_max: Option<String>,
    /// A pod that ran this long before failing restarts its back-off. [default: 10m]
    #[arg(long, env = "TRAINYARD_RESTART_BACKOFF_RESET", value_name = "TIME", help_heading = "Decisions")]
    restart_backoff_reset: Option<String>,
    /// First delay before a call that failed for unknown reasons is retried a second time. [default: 1s]
    #[arg(long, env = "TRAINYARD_RETRY_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    retry_period: Option<String>,
    /// Upper bound of that delay. [default: 1m]
    #[arg(long, env = "TRAINYARD_RETRY_PERIOD_MAX", value_name = "TIME", help_heading = "Decisions")]
    retry_period_max: Option<String>,
    /// Maximum number of restarts of a group without a limit of its own: a number, or none. [default: none]
    #[arg(long, env = "TRAINYARD_RESTART_LIMIT", value_name = "N", help_heading = "Decisions")]
    restart_limit: Option<Limit>,
    /// Time after a failure in which an earlier failure of another pod is still awaited. [default: 0s]
    #[arg(long, env = "TRAINYARD_FAILURE_WINDOW", value_name = "TIME", help_heading = "Decisions")]
    failure_window: Option<String>,
    /// Time after which a pod whose job does not exist is deleted. [default: 10m]
    #[arg(long, env = "TRAINYARD_ORPHAN_GRACE_PERIOD", value_name = "TIME", help_heading = "Decisions")]
    orphan_grace_period: Option<String>,
    /// Start jobs with GPUs only when nodes have room for all their pods. Where it is off, quotas alone admit, so that an autoscaler adds
    /// nodes. [default: false where Karpenter or the cluster autoscaler is found at the start, else true]
    #[arg(long, env = "TRAINYARD_CAPACITY_GATE", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Decisions")]
    capacity_gate: Option<bool>,
    /// Conditions and words that name a GPU failure, separated by commas.
    #[arg(long, env = "TRAINYARD_GPU_FAULTS", value_delimiter = ',', value_name = "WORDS", help_heading = "Decisions")]
    gpu_faults: Option<Vec<String>>,
}

/// A number, or a word, as a flag and in the settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Limit {
    /// A number.
    Number(u64),
    /// A word: `none`.
    Word(String),
}

impl From<String> for Limit {
    fn from(text: String) -> Self {
        text.parse().map_or(Self::Word(text), Self::Number)
    }
}

/// Flags of the original operators and their loggers that mean nothing here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted and ignored")]
pub(super) struct Ignored {
    /// One thread decides.
    #[arg(long, value_name = "N", hide_short_help = true)]
    thread_num: Option<String>,
    /// One thread decides.
    #[arg(long, value_name = "N", hide_short_help = true)]
    max_reconciles: Option<String>,
    /// Nothing is looked at by the clock alone.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    resync_period: Option<String>,
    /// Only Leases are used.
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    leader_elect_resource_lock: Option<String>,
    /// See --log-level.
    #[arg(long = "v", short = 'v', value_name = "N", hide_short_help = true)]
    verbosity: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    logtostderr: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    alsologtostderr: Option<String>,
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
pub(super) enum Output {
    /// One line a call.
    Text,
    /// One JSON object a call.
    Json,
}

impl Ignored {
    /// Those that were given.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("thread-num", self.thread_num.is_some()),
            ("max-reconciles", self.max_reconciles.is_some()),
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
    pub(super) fn over_file(&self, file: Option<&Path>) -> Result<Self, Failure> {
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

    /// Returns the APIs that are served, with the settings that their specs are translated with.
    pub(super) fn registry(&self) -> Result<apis::Registry, Failure> {
        let given: BTreeMap<String, Value> = self.given()?.into_iter().collect();
        Ok(apis::Registry::with(&settings::ApiSettings::of_operator(&given)?))
    }

    /// Returns the arguments of the process.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let usual = Options::default();
        let given = self.given()?;
        let decisions: BTreeMap<String, Value> =
            flags::names().filter_map(|name| Some((name.to_owned(), given.get(name)?.clone()))).collect();
        let output = match self.output.unwrap_or(Output::Text) {
            Output::Text => Format::Text,
            Output::Json => Format::Json,
        };
        let max_calls = self.max_calls.unwrap_or(usual.max_in_flight);
        if max_calls == 0 {
            return Err(Failure::new("max-calls: 0: must be at least 1"));
        }
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(Options {
            connection: api_server::Options {
                kubeconfig: self.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty()),
                context: filled(&self.context),
                master: filled(&self.master),
                in_cluster: self.run_in_cluster.unwrap_or(false),
            },
            scope: JobFilter {
                namespace: filled(&self.namespace),
                label_selector: self.label_selector.clone().unwrap_or_default(),
            },
            config: flags::operator_config(&decisions)?,
            detects_autoscaler: self.capacity_gate.is_none(),
            data_directory: self.data_directory.clone().unwrap_or(usual.data_directory),
            lease: if self.leader_elect.unwrap_or(true) { Some(self.lease()?) } else { None },
            http: self.http()?,
            max_in_flight: max_calls,
            call_timeout: time("call-timeout", self.call_timeout.as_ref(), usual.call_timeout)?,
            compact_after: self.compact_after.unwrap_or(usual.compact_after),
            accept_new_cluster: self.accept_new_cluster.unwrap_or(false),
            dry_run: self.dry_run.unwrap_or(false).then_some(output),
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
            _ => return Err(Failure::new("log-certificate and log-key: set both or neither")),
        };
        let pod = pod_address()?;
        // Beside an operator that serves, one that only says what it would do must not need its ports.
        let none = self.dry_run.filter(|dry| *dry).map(|_| "none".to_owned());
        let plain = |name: &str, port: u16| address(name, self.health_address.as_ref().or(none.as_ref()), pod, port);
        let (given, health) = match self.original_addresses(pod)? {
            Some(given) if none.is_none() => {
                let own = if self.health_address.is_some() { plain("health-address", 8080)? } else { None };
                (given.clone(), own.into_iter().chain(given).collect())
            }
            _ => (BTreeSet::new(), plain("health-address", 8080)?.into_iter().collect()),
        };
        // An original operator may have its metrics where the log is served: the log moves, and the Lease names its address.
        let is_taken = |port: u16| given.iter().any(|address| address.port() == port);
        let log_port = (LOG_PORT..=u16::MAX).find(|port| !is_taken(*port)).unwrap_or(LOG_PORT);
        Ok(HttpOptions {
            health,
            log: address("log-address", self.log_address.as_ref().or(none.as_ref()), pod, log_port)?,
            tls,
            host: self.log_host.clone().filter(|host| !host.is_empty()).or_else(|| pod.map(|ip| ip.to_string())),
        })
    }

    /// Returns the addresses that flags of the original operators name; `None` where none of them is given.
    fn original_addresses(&self, pod: Option<IpAddr>) -> Result<Option<BTreeSet<SocketAddr>>, Failure> {
        let flags = [
            ("metrics-bind-address", &self.metrics_bind_address),
            ("controller-metrics-addr", &self.controller_metrics_addr),
            ("health-probe-bind-address", &self.health_probe_bind_address),
        ];
        let given = flags.iter().filter_map(|(name, text)| Some((*name, text.as_ref()?)));
        let addresses: Vec<Option<SocketAddr>> =
            given.map(|(name, text)| original_address(name, text, pod)).collect::<Result<_, _>>()?;
        Ok((!addresses.is_empty()).then(|| addresses.into_iter().flatten().collect()))
    }

    fn lease(&self) -> Result<LeaseSettings, Failure> {
        let usual = LeaseSettings::default();
        let time =
            |name: &str, text: &Option<String>, usual| time(&format!("leader-elect-{name}"), text.as_ref(), usual);
        Ok(LeaseSettings {
            namespace: self.leader_elect_resource_namespace.clone().filter(|name| !name.is_empty()),
            name: self.leader_elect_resource_name.clone().unwrap_or(usual.name),
            duration: time("lease-duration", &self.leader_elect_lease_duration, usual.duration)?,
            renew_deadline: time("renew-deadline", &self.leader_elect_renew_deadline, usual.renew_deadline)?,
            retry_period: time("retry-period", &self.leader_elect_retry_period, usual.retry_period)?,
        })
    }
}

fn time(name: &str, text: Option<&String>, usual: Duration) -> Result<Duration, Failure> {
    let Some(text) = text else { return Ok(usual) };
    let ms = duration::parse_ms(text).map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok(Duration::from_millis(ms))
}
