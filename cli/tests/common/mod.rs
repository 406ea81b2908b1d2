//! A control plane onto which `deploy/base` is applied. For tests that drive it with kubectl.
//!
//! Owns nothing of any one test. Must not start an operator: not every test has one.

use std::path::Path;

use control_plane::{ControlPlane, Options, until};
use serde_json::Value;

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A control plane that serves the job kinds and knows the operator's account and rights.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
}

impl Cluster {
    pub(crate) fn start(options: Options) -> Self {
        let cluster = Self::start_undefined(options);
        cluster.define();
        cluster
    }

    /// One without the definitions.
    pub(crate) fn start_undefined(options: Options) -> Self {
        let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
        let cluster = Self { plane };
        for name in ["namespace.yaml", "service-account.yaml", "roles.yaml", "rbac.yaml"] {
            cluster.apply(&file(&format!("deploy/base/{name}")));
        }
        cluster
    }

    /// Applies the definitions and waits until they are served.
    pub(crate) fn define(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base/crds");
        self.plane.run_kubectl(["apply", "-k", &folder.to_string_lossy()]).unwrap_or_else(|error| panic!("{error}"));
        self.plane.wait_for_definitions().unwrap_or_else(|error| panic!("{error}"));
        until("the jobs are served", || self.try_kubectl(&["get", "aitj", "--all-namespaces"]));
    }

    pub(crate) fn apply(&self, manifests: &str) {
        self.plane.apply(manifests).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the output of kubectl.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Returns the output of kubectl, or its error.
    pub(crate) fn try_kubectl(&self, words: &[&str]) -> Result<String, String> {
        self.plane.run_kubectl(words).map_err(|error| error.to_string())
    }

    /// One object or a list of them.
    pub(crate) fn get(&self, namespace: &str, words: &[&str]) -> Value {
        let all = [&["get", "--output=json", "--namespace", namespace], words].concat();
        serde_json::from_str(&self.kubectl(&all)).unwrap()
    }
}
