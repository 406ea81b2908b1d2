//! Options of the runtime, and the output it reports. Holds no behaviour.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::gpus::VisibleGpus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something a person at the terminal wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A line a container wrote to its standard output or error.
    Line {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
        /// The container's name.
        container: String,
        /// The line without its end; bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// Something this machine cannot do as a cluster would, or a reason why a pod does not start. Reported once.
    Warning {
        /// The pod's namespace.
        namespace: String,
        /// The pod it was noticed on first.
        pod: String,
        /// In words.
        message: String,
    },
}

/// Takes [`Output`] from any thread. A slow sink delays only other output, never a pod. It must not call the runtime.
pub type Sink = Arc<dyn Fn(Output) + Send + Sync>;

/// Called from any thread when [`cluster::runtime::PodRuntime::poll`] has something new. It must not call the
/// runtime itself: wake the thread that does.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Place of a pod among the pods of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its number, from 0.
    pub rank: u32,
    /// Number of pods.
    pub world_size: u32,
    /// Name of the pod of rank 0.
    pub master: String,
}

/// Returns the place of a pod, where it has one. It must not call the runtime.
pub type Peers = Arc<dyn Fn(&Value) -> Option<Peer> + Send + Sync>;

/// Returns the port of this machine that stands for a port at which a pod's job serves its group; the same port where the job says so. For
/// what it returned before it returns the same again. It must not call the runtime.
pub type PortOf = Arc<dyn Fn(&Value, u16) -> u16 + Send + Sync>;

/// Returns the path on this machine of a path in a container of a pod, where it has that container.
pub type PathIn<'a> = dyn Fn(&str, &str) -> Option<PathBuf> + 'a;

/// Gives a pod what it needs besides its object, before it is started. After an error the pod waits, with its message. It must not call
/// the runtime.
pub type Prepare = Arc<dyn Fn(&Value, &PathIn<'_>) -> Result<(), Box<dyn Error>> + Send + Sync>;

/// Delay before a container that ended is started again in its pod. The first time it does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    /// Wait before the second restart, in milliseconds; doubles with each one after.
    pub first_ms: u64,
    /// The longest wait, in milliseconds.
    pub most_ms: u64,
    /// A container that ran this long, in milliseconds, starts over without a wait.
    pub forget_ms: u64,
}

impl Default for BackOff {
    /// The kubelet's: 10 s, doubling to 5 min, forgotten after 10 min.
    fn default() -> Self {
        Self { first_ms: 10_000, most_ms: 300_000, forget_ms: 600_000 }
    }
}

/// Where the job of a pod was submitted, by a process other than the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Directory to which working directories of its containers are relative.
    pub workdir: PathBuf,
    /// Environment that its processes inherit instead of the runner's: names and values.
    pub environment: Arc<[(String, String)]>,
}

/// Returns where a pod's job was submitted; `None` of a job of the runner's own. It must not call the runtime.
pub type OriginOf = Arc<dyn Fn(&Value) -> Option<Origin> + Send + Sync>;

/// Settings of [`crate::Processes`].
#[derive(Clone)]
pub struct Options {
    /// Directory of logs, volumes and configuration files; created if missing.
    pub data_dir: PathBuf,
    /// Working directory of containers without `workingDir`; absent: the runner's own.
    pub workdir: Option<PathBuf>,
    /// Number of GPUs of this machine to allot; absent: GPUs are not looked after at all.
    pub gpus: Option<u32>,
    /// GPUs that may be taken.
    pub visible_gpus: VisibleGpus,
    /// The binary that calls [`crate::reexec`]. Also what a container command `trainyard` stands for.
    pub supervisor_program: PathBuf,
    /// Takes container output and warnings; absent: output goes to the log files only.
    pub log_sink: Option<Sink>,
    /// Called when a report is ready.
    pub waker: Option<Waker>,
    /// Restarts of containers inside a pod.
    pub back_off: BackOff,
    /// Identifier of this cluster, when pods run on several nodes: all of them then give a name the same
    /// address. Absent: every pod runs here.
    pub cluster: Option<String>,
    /// Identifies the data directory to later runs, wherever it is moved. Absent: its path does.
    pub directory_id: Option<String>,
    /// Variables of the runner's own environment that pods get; absent: all of them.
    pub inherited_variables: Option<Vec<String>>,
    /// True if a pod whose security contexts cannot be applied is rejected. Otherwise it runs without them, and a warning says so.
    pub refuse_unhonoured: bool,
    /// Places of pods: those that have one get the environment that PyTorch reads. Absent: no pod gets it.
    pub peers: Option<Peers>,
    /// Ports of the pods that have a place. Absent: they stay as they are written.
    pub port_of: Option<PortOf>,
    /// Origins of the pods of other users' processes. Absent: every pod is the runner's own.
    pub origin_of: Option<OriginOf>,
    /// Prepares pods. Absent: none needs it.
    pub prepare: Option<Prepare>,
}

impl Options {
    /// The defaults: no GPUs, no sink, the kubelet's back-off.
    pub fn new(data_dir: impl Into<PathBuf>, supervisor_program: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            workdir: None,
            gpus: None,
            visible_gpus: VisibleGpus::default(),
            supervisor_program: supervisor_program.into(),
            log_sink: None,
            waker: None,
            back_off: BackOff::default(),
            cluster: None,
            directory_id: None,
            inherited_variables: None,
            refuse_unhonoured: false,
            peers: None,
            port_of: None,
            origin_of: None,
            prepare: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("data_dir", &self.data_dir)
            .field("workdir", &self.workdir)
            .field("gpus", &self.gpus)
            .field("supervisor_program", &self.supervisor_program)
            .field("back_off", &self.back_off)
            .field("cluster", &self.cluster)
            .field("inherited_variables", &self.inherited_variables)
            .field("refuse_unhonoured", &self.refuse_unhonoured)
            .finish_non_exhaustive()
    }
}
