//! `trainyard node-agent`: this machine as a node of a cluster, pods as processes.
//!
//! Owns arguments, signals and logging; the work is `node_agent`'s. Tests: `node-agent/tests/`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use node_agent::{Options, Quantity, Taint};
use terminal::out::{self, Failure};
use tokio::signal::unix::{SignalKind, signal};

use crate::logging::{self, LogFormat};

/// Default log filter. The client's own layer logs every answer above 499 as an error; the agent logs the meaning of
/// such an answer.
const LOGGED: &str = "info,kube_client=off";

/// Arguments of `trainyard node-agent`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trainyard node-agent --node-name gpu-1 --gpus 8
  trainyard node-agent --node-name here --kubeconfig target/cluster/kubeconfig")]
pub(crate) struct NodeAgentArgs {
    /// Name of the node.
    #[arg(long, env = "TRAINYARD_NODE_NAME", value_name = "NAME", value_parser = node_name)]
    node_name: String,
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, then the pod's service account.
    #[arg(long, env = "TRAINYARD_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Certificates (PEM) that sign the clients who may read containers' output. Default: as the API server publishes them.
    #[arg(long, env = "TRAINYARD_CLIENT_CA_FILE", value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Directory of the pods' output and volumes; each agent needs its own. [default: ./trainyard-node-<NAME>]
    #[arg(long, alias = "data-dir", env = "TRAINYARD_DATA_DIRECTORY", value_name = "DIR")]
    data_directory: Option<PathBuf>,
    /// Number of GPUs of this machine for pods, numbered from 0.
    #[arg(long, env = "TRAINYARD_GPUS", default_value_t = 0, value_name = "N")]
    gpus: u32,
    /// Processors that the node reports. [default: the machine's]
    #[arg(long, env = "TRAINYARD_CPUS", value_name = "N")]
    cpus: Option<u32>,
    /// Memory that the node reports, for example 16Gi. [default: the machine's]
    #[arg(long, env = "TRAINYARD_MEMORY", value_name = "AMOUNT")]
    memory: Option<Quantity>,
    /// Maximum number of pods on the node.
    #[arg(long, env = "TRAINYARD_PODS", default_value_t = 110, value_name = "N")]
    pods: u32,
    /// Label of the node. May be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Taint of the node, for example runtime=process:NoSchedule. May be repeated.
    #[arg(long = "taint", value_name = "KEY=VALUE:EFFECT")]
    taints: Vec<Taint>,
    /// Working directory of containers without one.
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Interval between heartbeats, in seconds. A node counts as lost after about five missed ones.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=30))]
    heartbeat: u64,
    /// Time pods have to end when the agent is stopped, in seconds.
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    shutdown_grace: u64,
    /// Format of logs on standard error.
    #[arg(long, env = "TRAINYARD_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log filter, for example `debug` or `info,node_agent=trace`.
    #[arg(long, env = "TRAINYARD_LOG_LEVEL", default_value = LOGGED, value_name = "FILTER")]
    log_level: String,
}

/// Reason for refusing the value of an option.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum OptionError {
    /// A node cannot have this name.
    #[error("must be lower-case letters, digits, inner hyphens and dots, at most 63 characters")]
    NodeName,
    /// It is no label.
    #[error("must be KEY=VALUE")]
    Label,
}

/// Checks a node's name as an API server does: it is part of URLs and labels.
fn node_name(text: &str) -> Result<String, OptionError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part =
        |part: &str| part.chars().all(|c| plain(c) || c == '-') && part.starts_with(plain) && part.ends_with(plain);
    if text.len() <= 63 && text.split('.').all(part) { Ok(text.to_owned()) } else { Err(OptionError::NodeName) }
}

fn label(text: &str) -> Result<(String, String), OptionError> {
    let (key, value) = text.split_once('=').ok_or(OptionError::Label)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs until it gets a signal to stop.
pub(crate) fn run(args: &NodeAgentArgs) -> Result<ExitCode, Failure> {
    logging::start(&args.log_level, args.log_format)?;
    let data_directory = args.data_directory.clone();
    let data_directory = data_directory.unwrap_or_else(|| format!("./trainyard-node-{}", args.node_name).into());
    let options = Options {
        kubeconfig: args.kubeconfig.clone(),
        client_ca_file: args.client_ca_file.clone(),
        workdir: args.workdir.clone(),
        gpus: args.gpus,
        cpus: args.cpus,
        memory: args.memory.clone(),
        pods: args.pods,
        labels: args.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        taints: args.taints.clone(),
        lease_interval: Duration::from_secs(args.heartbeat),
        shutdown_grace: Duration::from_secs(args.shutdown_grace),
        ..Options::new(&args.node_name, data_directory, std::env::current_exe()?)
    };
    // Little is done at once: one thread waits for the API server, each pod has one of its own beside it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut stop = Some(stop);
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                match stop.take() {
                    Some(stop) => {
                        tracing::info!("stopping: ending the pods; a second signal kills them at once");
                        // An agent that has stopped by itself needs no signal.
                        let _ = stop.send(());
                    }
                    // Every process ends with this one.
                    None => std::process::exit(i32::from(out::FOUND)),
                }
            }
        });
        let stopped = async {
            // The sender is kept until it is used.
            let _ = stopped.await;
        };
        node_agent::run(options, stopped).await.map_err(Failure::from)
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        for name in ["process-0", "n1", "a.example"] {
            assert_eq!(node_name(name).unwrap(), name);
        }
        for name in ["", "Node", "a/b", "-a", "a.", "a b", &"x".repeat(64)] {
            assert!(node_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn labels_have_a_key_and_a_value() {
        assert_eq!(label("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
        assert!(label("a").is_err());
    }
}
