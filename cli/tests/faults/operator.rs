//! The operator as a process of its own, under the account and the rights of `deploy/base`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use control_plane::{Identity, until};
use serde_json::{Value, json};

use crate::common::{Cluster, file};
use crate::probe;

/// Options of an operator process that can be started again after a kill.
pub(crate) struct Operator<'a> {
    cluster: &'a Cluster,
    data: tempfile::TempDir,
    kubeconfig: PathBuf,
    /// Namespace of its Lease; other operators on the same control plane use other ones.
    home: String,
    arguments: Vec<String>,
    elects: bool,
    health: u16,
    starts: u32,
    child: Option<Child>,
}

impl<'a> Operator<'a> {
    /// Starts one that serves one namespace.
    pub(crate) fn start(cluster: &'a Cluster, namespace: &str, elects: bool) -> Self {
        Self::start_with(cluster, namespace, elects, &["--namespace", namespace])
    }

    /// Starts one with further arguments, and its Lease in the namespace `home`.
    pub(crate) fn start_with(cluster: &'a Cluster, home: &str, elects: bool, arguments: &[&str]) -> Self {
        let account = Identity::ServiceAccount { namespace: "trainyard-system", name: "trainyard" };
        let kubeconfig = cluster.plane.kubeconfig_for(account).unwrap_or_else(|error| panic!("{error}"));
        allow_election(cluster, home);
        let mut operator = Self {
            cluster,
            data: tempfile::tempdir().unwrap(),
            kubeconfig,
            home: home.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            elects,
            // Free at this moment; no other program on this machine asks for this one by number.
            health: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
            starts: 0,
            child: None,
        };
        operator.start_again();
        operator
    }

    /// It is started with one more argument from the next time on.
    pub(crate) fn add_argument(&mut self, argument: &str) {
        self.arguments.push(argument.to_owned());
    }

    pub(crate) fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let level = std::env::var("TRAINYARD_LOG_LEVEL").unwrap_or_else(|_| "info".to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command.args(["operator", "--leader-elect-resource-namespace", &self.home]);
        command.arg(format!("--leader-elect={}", self.elects));
        command.args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"]);
        command.arg("--leader-elect-retry-period=1s");
        // Short, so that what is tried again is tried within a test.
        command.args(["--restart-backoff=500ms", "--restart-backoff-max=1s", "--retry-period-max=3s"]);
        command.arg("--node-grace-period=0s");
        command.args(["--log-address=none", "--log-level", &level]);
        command.arg(format!("--health-address=127.0.0.1:{}", self.health));
        command.arg("--data-directory").arg(self.data());
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(&self.arguments);
        self.starts += 1;
        let name = self.name();
        self.child = Some(self.cluster.plane.spawn(&name, command).unwrap_or_else(|error| panic!("{error}")));
    }

    /// Of the process that was started last.
    fn name(&self) -> String {
        format!("operator-{}-{}", self.health, self.starts)
    }

    /// Returns the log lines of that process.
    pub(crate) fn log(&self) -> String {
        let path = self.cluster.plane.directory().join(format!("logs/{}.log", self.name()));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.data.path().join("data")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The log is lost, between two starts.
    pub(crate) fn lose_log(&self) {
        assert!(self.child.is_none(), "it runs");
        if Path::new(&self.data()).exists() {
            std::fs::remove_dir_all(self.data()).unwrap();
        }
    }

    /// Returns the answer of `/readyz` or another path; `None` without one.
    pub(crate) fn says(&self, path: &str) -> String {
        probe::get(self.health, path).unwrap_or_default()
    }

    pub(crate) fn until_leading(&self) {
        until("the operator leads", || {
            let says = self.says("/readyz");
            says.contains("leading").then_some(()).ok_or(says)
        });
    }

    /// Returns whether the process that was started last still lives.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }
}

/// Gives the operator's account in a namespace what `deploy/base` gives it for its election in `trainyard-system`.
fn allow_election(cluster: &Cluster, namespace: &str) {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&file("deploy/base/rbac.yaml")).unwrap();
    let here = documents.into_iter().filter(|document| document["metadata"]["name"] == "trainyard-election");
    let items: Vec<Value> = here
        .map(|mut document| {
            document["metadata"]["namespace"] = json!(namespace);
            document
        })
        .collect();
    assert_eq!(items.len(), 2, "a role and its binding");
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
}

impl Drop for Operator<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
