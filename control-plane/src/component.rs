//! The components: their names, and the flags each is started with.
//!
//! Owns the command lines. What is chosen and why: all of it listens on loopback only; etcd on sockets in the plane's own
//! directory, which others cannot enter; clients of the API server are not slowed down by their own rate limits, so that a
//! bench measures the server and the operator.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A part of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, in place of kubelets.
    Kwok,
}

impl Component {
    /// All, in the order in which they start.
    pub const ALL: [Self; 5] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The name of its program, which is also that of its log.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}

/// Addresses of services; those of pods are below 10.64.0.0, see `nodes`.
const SERVICE_RANGE: &str = "10.96.0.0/12";
/// The address of the service `kubernetes`: the first of [`SERVICE_RANGE`].
pub(crate) const KUBERNETES_SERVICE: &str = "10.96.0.1";
/// Socket of etcd in the plane's directory. etcd takes `unix://` addresses apart as host and port and makes a socket of that
/// name in its working directory, which keeps the path short for every directory.
pub(crate) const ETCD_CLIENTS: &str = "etcd:1";
const ETCD_PEERS: &str = "etcd:2";

/// Settings of a command line.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The API server's port.
    pub(crate) port: u16,
    pub(crate) controller_manager: bool,
    pub(crate) node_grace: Duration,
}

/// The arguments of a component that runs in `directory`. Paths are relative to it.
pub(crate) fn arguments(component: Component, settings: &Settings) -> Vec<String> {
    match component {
        Component::Etcd => etcd(),
        Component::ApiServer => api_server(settings),
        Component::ControllerManager => controller_manager(settings),
        Component::Scheduler => vec!["--config=scheduler.yaml".into(), "--secure-port=0".into()],
        Component::Kwok => kwok(settings),
    }
}

fn etcd() -> Vec<String> {
    let clients = format!("unix://{ETCD_CLIENTS}");
    let peers = format!("unix://{ETCD_PEERS}");
    vec![
        "--name=default".into(),
        "--data-dir=etcd.data".into(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--log-level=warn".into(),
        // What a crash of the machine would lose is of no use after it.
        "--unsafe-no-fsync".into(),
        // 10,000 jobs of 8 pods take more than the 2 GiB that are the default.
        "--quota-backend-bytes=8589934592".into(),
    ]
}

fn api_server(settings: &Settings) -> Vec<String> {
    let mut arguments: Vec<String> = vec![
        format!("--etcd-servers=unix://{ETCD_CLIENTS}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        // Endpoints may not have loopback addresses, and no pod needs these.
        "--endpoint-reconciler-type=none".into(),
        format!("--secure-port={}", settings.port),
        // The owner holds the port with a socket that does not listen, so that no other process takes it while the server is down.
        "--permit-port-sharing=true".into(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--tls-cert-file=pki/server.crt".into(),
        "--tls-private-key-file=pki/server.key".into(),
        "--client-ca-file=pki/ca.crt".into(),
        "--kubelet-client-certificate=pki/kubelet-client.crt".into(),
        "--kubelet-client-key=pki/kubelet-client.key".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-account-key-file=pki/service-account.pub".into(),
        "--service-account-signing-key-file=pki/service-account.key".into(),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        "--shutdown-watch-termination-grace-period=1s".into(),
        "--profiling=false".into(),
    ];
    if !settings.controller_manager {
        // No controller creates service accounts, or removes the taint that new nodes get.
        arguments.push("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into());
    }
    arguments
}

fn controller_manager(settings: &Settings) -> Vec<String> {
    let grace = settings.node_grace;
    vec![
        "--kubeconfig=kube-controller-manager.kubeconfig".into(),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=5000".into(),
        "--kube-api-burst=10000".into(),
        "--root-ca-file=pki/ca.crt".into(),
        "--service-account-private-key-file=pki/service-account.key".into(),
        // It would write to every node whenever the number of nodes passes some hundred.
        "--controllers=*,-ttl-controller".into(),
        format!("--node-monitor-grace-period={}ms", grace.as_millis()),
        format!("--node-monitor-period={}ms", (grace / 10).as_millis()),
        "--profiling=false".into(),
    ]
}

fn kwok(settings: &Settings) -> Vec<String> {
    // kwok renews a lease when a quarter of its duration is over: a fifth of the grace period.
    let lease = (settings.node_grace.as_secs() * 4 / 5).max(4);
    vec![
        "--kubeconfig=kwok.kubeconfig".into(),
        "--config=kwok.yaml".into(),
        "--manage-all-nodes=false".into(),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
        format!("--node-lease-duration-seconds={lease}"),
        // It logs a line for every patch otherwise.
        "--v=WARN".into(),
    ]
}

/// Returns the file `scheduler.yaml`. An extender is asked about the nodes that pass all filters, each time and of all nodes.
pub(crate) fn scheduler_configuration(extender: Option<SocketAddr>) -> String {
    let extender = extender.map(|address| {
        format!(
            "\
percentageOfNodesToScore: 100
extenders:
- urlPrefix: http://{address}
  filterVerb: filter
  nodeCacheCapable: true
  httpTimeout: 30s
"
        )
    });
    format!("{SCHEDULER_CONFIGURATION}{}", extender.unwrap_or_default())
}

/// Begins `scheduler.yaml`, whether there is an extender or not.
const SCHEDULER_CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: kube-scheduler.kubeconfig
  qps: 5000
  burst: 10000
leaderElection:
  leaderElect: false
";

/// The file `kwok.yaml`.
pub(crate) const KWOK_CONFIGURATION: &str = include_str!("../kwok/stages.yaml");

/// A component's log in the plane's directory.
pub(crate) fn log_of(directory: &Path, component: Component) -> std::path::PathBuf {
    directory.join("logs").join(format!("{}.log", component.program()))
}
