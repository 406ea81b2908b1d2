//! Storage of a model: `spec.storage` of a ModelVersion, which TorchJobs hold as well.
//!
//! Must not render volumes. Tests: `tests.rs`, `torchjob/tests/pods.rs`.

use serde_json::Value;
use settings::ModelStorage;

use crate::fields::{Findings, join};

/// Place of a model's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// A directory of a server.
    Nfs {
        /// The server.
        server: &'a str,
        /// The directory.
        path: &'a str,
    },
    /// A directory of a node.
    Local {
        /// The node; `None` where it is still to be found.
        node: Option<&'a str>,
        /// The directory.
        path: &'a str,
    },
}

impl Place<'_> {
    /// Returns true if it lies in storage that models may name.
    fn is_in(&self, allowed: &ModelStorage) -> bool {
        match *self {
            Self::Nfs { server, path } => allowed.allows_nfs(server, path),
            Self::Local { node, path } => allowed.allows_local(node, path),
        }
    }
}

/// Storage as a spec names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage<'a> {
    /// Nothing.
    Absent,
    /// Something that cannot be used. It was said.
    Wrong,
    /// A place, and the path of it inside containers that train.
    At(Place<'a>, Option<&'a str>),
}

impl<'a> Storage<'a> {
    /// Reads `storage` of the spec of a version, which stands at `base`, where only some storage is allowed. The path inside containers must be
    /// there if they are to have it.
    pub(crate) fn read(
        spec: &'a Value,
        base: &str,
        is_mounted: bool,
        allowed: &ModelStorage,
        findings: &mut Findings,
    ) -> Self {
        let path = join(base, "storage");
        let Some(storage) = spec.get("storage").filter(|storage| !storage.is_null()) else { return Self::Absent };
        if findings.object(spec, base, "storage").is_none() {
            return Self::Wrong;
        }
        let written = |key: &str| storage.get(key).filter(|value| value.is_object());
        let (key, of) = match (written("nfs"), written("localStorage")) {
            (Some(_), Some(_)) => {
                findings.error(path, Some(storage), "must be either nfs or localStorage");
                return Self::Wrong;
            }
            (Some(nfs), None) => ("nfs", nfs),
            (None, Some(local)) => ("localStorage", local),
            (None, None) => return Self::Absent,
        };
        let base = join(&path, key);
        let mut needed = |name: &str| findings.required_text(of, &base, name);
        let mount = if is_mounted { needed("mountPath") } else { None };
        let directory = needed("path");
        let place = if key == "nfs" {
            needed("server").zip(directory).map(|(server, path)| Place::Nfs { server, path })
        } else {
            let node = findings.text(of, &base, "nodeName").filter(|name| !name.is_empty());
            directory.map(|path| Place::Local { node, path })
        };
        if let Some(place) = place.filter(|place| !place.is_in(allowed)) {
            let problem = match place {
                Place::Nfs { server, .. } => format!("model-storage of the operator allows no such path of {server}"),
                Place::Local { node: Some(node), .. } => {
                    format!("model-storage of the operator allows no such path of node {node}")
                }
                Place::Local { node: None, .. } => {
                    "model-storage of the operator allows no such path of a node".to_owned()
                }
            };
            findings.error(join(&base, "path"), of.get("path"), problem);
            return Self::Wrong;
        }
        match place {
            Some(place) if mount.is_some() || !is_mounted => Self::At(place, mount),
            Some(_) | None => Self::Wrong,
        }
    }
}
