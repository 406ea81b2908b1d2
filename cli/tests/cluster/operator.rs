//! One operator process under the account and the rights of `deploy/base`, for tests that drive it with kubectl.

use std::path::Path;
use std::process::{Child, Command};

use crate::common::Cluster;

/// An operator process; killed when dropped.
pub(crate) struct Operator(Child);

impl Operator {
    /// Starts one with its log in a directory.
    pub(crate) fn start(cluster: &Cluster, data: &Path) -> Self {
        Self::start_with(cluster, data, &["--leader-elect=false"])
    }

    /// Starts one with further arguments.
    pub(crate) fn start_with(cluster: &Cluster, data: &Path, arguments: &[&str]) -> Self {
        let account = control_plane::Identity::ServiceAccount { namespace: "trainyard-system", name: "trainyard" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command.args(["operator", "--log-address=none", "--health-address=127.0.0.1:0"]).args(arguments);
        command.arg("--data-directory").arg(data);
        command.arg("--kubeconfig").arg(cluster.plane.kubeconfig_for(account).unwrap());
        Self(cluster.plane.spawn("operator", command).unwrap())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
