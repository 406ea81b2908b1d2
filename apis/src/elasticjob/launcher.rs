//! Arguments of the launcher in the workers: where they meet, and how many they may be.
//!
//! Owns the range of `--nnodes` and the choice of the rendezvous. It must not know containers (that is `pods.rs`). Tests: at the end
//! of this file, and `tests/pods.rs`.

use model::Text;
use serde_json::Value;

use super::constants::WORKER_LOWER;
use crate::api::RenderInput;
use crate::fields::Word;
use crate::objects::{at, text_at};
use crate::replicas::slot_name;

/// Port at which worker 0 serves the rendezvous where none is named: the launcher's own default.
const PORT: u16 = 29_400;

/// Back end of the rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// An etcd that the job finds.
    Etcd,
    /// The same, by the second version of its interface.
    EtcdV2,
    /// Worker 0.
    C10d,
}

/// Accepted back ends, as the launcher spells them.
pub(super) const BACKENDS: [Word<Backend>; 3] =
    [("etcd", Backend::Etcd), ("etcd-v2", Backend::EtcdV2), ("c10d", Backend::C10d)];

/// Numbers of workers that a job can do with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// The least, where it was written.
    pub min: Option<u32>,
    /// The most, where it was written.
    pub max: Option<u32>,
    /// The number wanted, which stands for what was not written.
    pub replicas: u32,
}

impl Range {
    fn text(self) -> String {
        format!("{}:{}", self.min.unwrap_or(self.replicas), self.max.unwrap_or(self.replicas))
    }

    /// Returns the range where it follows the number of replicas, so that workers of another number do not fit in. A job without
    /// workers has none.
    pub(super) fn shape(self) -> Option<Text> {
        let follows = self.min.is_none() || self.max.is_none();
        (follows && self.replicas > 0).then(|| Text::from(self.text()))
    }
}

/// Returns the arguments that stand before the user's own.
pub(super) fn args(source: RenderInput<'_>) -> Vec<Value> {
    let RenderInput { job, spec, manifest } = source;
    let bound = |key: &str| at(manifest, &["spec", key]).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let replicas = spec.group(WORKER_LOWER).map_or(0, |group| group.replicas);
    let range = Range { min: bound("minReplicas"), max: bound("maxReplicas"), replicas };
    let word = text_at(manifest, &["backend"]).unwrap_or_default();
    let (word, backend) = BACKENDS.into_iter().find(|(name, _)| *name == word).unwrap_or(("etcd", Backend::Etcd));
    let written = text_at(manifest, &["spec", "rdzvEndpoint"]).unwrap_or_default();
    let endpoint = match backend {
        Backend::C10d if !names_worker_0(&job.name, written) => format!("{}:{PORT}", worker_0(&job.name)),
        Backend::Etcd | Backend::EtcdV2 | Backend::C10d => written.to_owned(),
    };
    vec![
        Value::from(format!("--rdzv_backend={word}")),
        Value::from(format!("--rdzv_endpoint={endpoint}")),
        Value::from(format!("--rdzv_id={}", job.name)),
        Value::from(format!("--nnodes={}", range.text())),
    ]
}

fn worker_0(job: &str) -> String {
    slot_name(job, WORKER_LOWER, 0)
}

/// Returns true if an endpoint is at worker 0 of the job, by its name alone or with its domain.
pub(super) fn names_worker_0(job: &str, endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix(&worker_0(job)).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns true if a text can be a host, with or without a port.
pub(super) fn is_endpoint(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (text, None),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']' | '/');
    !host.is_empty() && host.chars().all(is_host) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|n| n > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_hosts_with_or_without_ports() {
        for (text, want) in [
            ("etcd-service:2379", true),
            ("etcd-service", true),
            ("10.0.0.1:2379", true),
            ("[fd00::1]:2379", true),
            ("[fd00::1]", true),
            ("http://etcd.ns.svc:2379", true),
            ("<your endpoint>:<port>", false),
            ("etcd:", false),
            ("etcd:99999", false),
            (":2379", false),
            ("a b:1", false),
            ("", false),
        ] {
            assert_eq!(is_endpoint(text), want, "{text}");
        }
    }

    #[test]
    fn worker_0_is_known_by_its_name() {
        for (endpoint, want) in [
            ("j-worker-0:29400", true),
            ("j-worker-0", true),
            ("j-worker-0.ns.svc:1", true),
            ("j-worker-01:1", false),
            ("j-worker-1:1", false),
            ("etcd:2379", false),
            ("", false),
        ] {
            assert_eq!(names_worker_0("j", endpoint), want, "{endpoint}");
        }
    }
}
