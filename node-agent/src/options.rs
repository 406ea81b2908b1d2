//! What can be set, and reading it from text. Tests: at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the node.
    pub node_name: String,
    /// The way to the API server; absent: `$KUBECONFIG`, `~/.kube/config`, or the service account of the pod this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Certificates (PEM) that sign clients who may read the output of containers; absent: as the API server publishes them.
    pub client_ca_file: Option<PathBuf>,
    /// Where logs, volumes and the like of pods go. One agent each.
    pub data_directory: PathBuf,
    /// The binary that calls [`local::reexec`].
    pub program: PathBuf,
    /// Working directory of containers that name none; absent: the agent's own.
    pub workdir: Option<PathBuf>,
    /// GPUs to allocate, numbered from 0.
    pub gpus: u32,
    /// Processors the node has; absent: as many as the machine.
    pub cpus: Option<u32>,
    /// Memory the node has; absent: as much as the machine.
    pub memory: Option<Quantity>,
    /// Pods the node takes.
    pub pods: u32,
    /// Labels of the node, beside the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node.
    pub taints: Vec<Taint>,
    /// How often the lease is renewed.
    pub lease_interval: Duration,
    /// How long pods may take to end when the agent is asked to stop.
    pub shutdown_grace: Duration,
}

impl Options {
    /// The defaults: the machine's own processors and memory, no GPUs.
    pub fn new(node_name: impl Into<String>, data_directory: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            node_name: node_name.into(),
            kubeconfig: None,
            client_ca_file: None,
            data_directory: data_directory.into(),
            program: program.into(),
            workdir: None,
            gpus: 0,
            cpus: None,
            memory: None,
            pods: 110,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            lease_interval: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(20),
        }
    }
}

/// Reason for refusing the value of an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// It is no amount.
    #[error("{0:?} is no amount: write a whole number with a suffix, for example 16Gi")]
    Quantity(String),
    /// It is no taint.
    #[error("{0:?} is no taint: write KEY=VALUE:EFFECT, for example runtime=process:NoSchedule")]
    Taint(String),
}

/// An amount as Kubernetes writes it, for example `16Gi`; kept as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity(String);

impl Quantity {
    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Quantity {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = &text[digits.len()..];
        let known = ["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&suffix);
        if known && digits.parse::<u64>().is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(OptionError::Quantity(text.to_owned()))
        }
    }
}

/// A taint of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl FromStr for Taint {
    type Err = OptionError;

    /// `key=value:Effect` or `key:Effect`, as `kubectl taint` takes it.
    fn from_str(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::Taint(text.to_owned());
        let (pair, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key.is_empty() || !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(wrong());
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_whole_numbers_with_known_suffixes() {
        for text in ["0", "16Gi", "1000", "5G"] {
            assert_eq!(text.parse::<Quantity>().unwrap().as_str(), text);
        }
        for text in ["", "Gi", "16GiB", "1.5Gi", "-1", "much"] {
            assert!(text.parse::<Quantity>().unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
        }
    }

    #[test]
    fn taints_are_written_as_kubectl_takes_them() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        };
        assert_eq!("a/b=c:NoSchedule".parse(), Ok(taint("a/b", "c", "NoSchedule")));
        assert_eq!("a:NoExecute".parse(), Ok(taint("a", "", "NoExecute")));
        for text in ["", "a", "a=b", ":NoSchedule", "a=b:Sometimes"] {
            assert!(text.parse::<Taint>().unwrap_err().to_string().contains("KEY=VALUE:EFFECT"), "{text}");
        }
    }
}
