//! What everything is measured on: one control plane, the account of the operator, the watcher, and what components use.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use control_plane::{Component, ControlPlane, Identity, Options};
use tokio::runtime::Runtime;

use crate::api::Api;
use crate::operator::{HOME, Operator, Start};
use crate::table::AnyError;
use crate::watcher::Watcher;
use crate::work::JobKind;

/// CPU seconds a second above its idle rate below which a component counts as idle.
const IDLE_CPU_RATE: f64 = 0.05;
/// Time limit of waiting for an idle component; a busy machine may never be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const SAMPLE: Duration = Duration::from_secs(1);
/// Over which use at rest is averaged.
const IDLE_WINDOW: Duration = Duration::from_secs(4);

/// The control plane and who looks at it.
pub(crate) struct TestBed {
    pub(crate) plane: ControlPlane,
    pub(crate) runtime: Runtime,
    /// As an administrator.
    pub(crate) admin: Api,
    /// As the operator: pods have no other sign of their creator.
    pub(crate) account: PathBuf,
    pub(crate) watcher: Watcher,
    /// The operator's.
    pub(crate) program: PathBuf,
    /// The API of the jobs.
    pub(crate) kind: JobKind,
    /// GPUs of each node.
    pub(crate) gpus: u32,
    /// CPU seconds a second that the API server and etcd use for nodes and leases alone.
    idle: Cpu,
}

/// CPU seconds of the API server and of etcd.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) api_server: f64,
    pub(crate) etcd: f64,
}

/// A point from which use is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    cpu: Cpu,
}

impl TestBed {
    /// Starts a control plane with `nodes` nodes, and prepares it for the operator, which is this program.
    pub(crate) fn start(nodes: u32, program: PathBuf, kind: JobKind) -> Result<Self, AnyError> {
        let mut options = Options { nodes, ready_within: Duration::from_secs(600), ..Options::default() };
        // Clearing away between rounds is not measured, and takes long with one worker.
        options.arguments.insert(Component::ApiServer, vec!["--delete-collection-workers=8".to_owned()]);
        let gpus = options.gpus;
        let plane = ControlPlane::start(options)?;
        let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base");
        for name in ["namespace.yaml", "service-account.yaml", "roles.yaml", "rbac.yaml"] {
            let path = format!("{base}/{name}");
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            plane.apply(&text)?;
        }
        plane.run_kubectl(["apply", "-k", &format!("{base}/crds")])?;
        plane.wait_for_definitions()?;
        let account = plane.kubeconfig_for(Identity::ServiceAccount { namespace: HOME, name: "trainyard" })?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (admin, watcher) = runtime.block_on(async {
            let admin = Api::connect(plane.kubeconfig()).await?;
            let served = Instant::now();
            while let Err(error) = admin.get(&kind.path("default")?).await {
                if served.elapsed() > Duration::from_secs(60) {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let watcher = Watcher::begin(admin.clone()).await?;
            Ok::<_, AnyError>((admin, watcher))
        })?;
        let mut test_bed = Self {
            plane,
            runtime,
            admin,
            account,
            watcher,
            program,
            kind,
            gpus,
            idle: Cpu { api_server: 1.0, etcd: 1.0 },
        };
        test_bed.measure_idle()?;
        Ok(test_bed)
    }

    /// Idle use: the lowest of some windows, because the work of the start ends slowly.
    fn measure_idle(&mut self) -> Result<(), AnyError> {
        for _ in 0..5 {
            let mark = self.mark()?;
            std::thread::sleep(IDLE_WINDOW);
            let (used, seconds) = (self.since(mark)?, mark.at.elapsed().as_secs_f64());
            self.idle.api_server = self.idle.api_server.min(used.api_server / seconds);
            self.idle.etcd = self.idle.etcd.min(used.etcd / seconds);
        }
        Ok(())
    }

    /// CPU seconds a second that are used for nodes and leases alone.
    pub(crate) const fn idle(&self) -> Cpu {
        self.idle
    }

    fn cpu(&self) -> Result<Cpu, AnyError> {
        let used = |component| Ok::<_, AnyError>(self.plane.usage(component)?.cpu_seconds);
        Ok(Cpu { api_server: used(Component::ApiServer)?, etcd: used(Component::Etcd)? })
    }

    /// The present.
    pub(crate) fn mark(&self) -> Result<Mark, AnyError> {
        Ok(Mark { at: Instant::now(), cpu: self.cpu()? })
    }

    /// Returns the resources used since then, idle use included.
    fn since(&self, mark: Mark) -> Result<Cpu, AnyError> {
        let now = self.cpu()?;
        Ok(Cpu { api_server: now.api_server - mark.cpu.api_server, etcd: now.etcd - mark.cpu.etcd })
    }

    /// Returns the resources used since then beyond the idle use.
    pub(crate) fn spent(&self, mark: Mark) -> Result<Cpu, AnyError> {
        let (used, seconds) = (self.since(mark)?, mark.at.elapsed().as_secs_f64());
        Ok(Cpu {
            api_server: (used.api_server - self.idle.api_server * seconds).max(0.0),
            etcd: (used.etcd - self.idle.etcd * seconds).max(0.0),
        })
    }

    /// Waits until the API server has nothing left to do, two seconds in a row.
    pub(crate) fn until_rest(&self) -> Result<(), AnyError> {
        let started = Instant::now();
        let mut calm = 0;
        while calm < 2 && started.elapsed() < IDLE_TIMEOUT {
            let mark = self.mark()?;
            std::thread::sleep(SAMPLE);
            let used = self.since(mark)?;
            calm = if used.api_server - self.idle.api_server < IDLE_CPU_RATE { calm + 1 } else { 0 };
        }
        if calm < 2 {
            eprintln!("(the API server did not come to rest within {IDLE_TIMEOUT:?}; figures follow without)");
        }
        Ok(())
    }

    /// An operator that leads and is at rest.
    pub(crate) fn operator(&self, name: &str) -> Result<Operator, AnyError> {
        let mut operator = Operator::start(self, name, &Start::default())?;
        operator.until_says("leading")?;
        self.until_rest()?;
        Ok(operator)
    }

    /// Deletes what is in a namespace, and waits until nothing of it is left to do.
    pub(crate) fn clear(&self, namespace: &str) -> Result<(), AnyError> {
        self.runtime.block_on(self.admin.clear_namespace(namespace))?;
        self.until_rest()
    }
}
