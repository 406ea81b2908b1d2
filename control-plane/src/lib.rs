//! A real Kubernetes control plane on loopback, for tests, benches and manual trials of the operator: etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler, and kwok in place of kubelets. kubectl and helm talk to it.
//!
//! Owns getting the programs ([`Binaries`]), their flags, certificates and kubeconfigs, simulated nodes, and that nothing of
//! it outlives its owner. It knows nothing of Trainyard's own objects and must not depend on any other crate of the
//! workspace. Everything is synchronous. Tests: `tests/`.
//!
//! ```no_run
//! use control_plane::{ControlPlane, Options};
//!
//! let plane = ControlPlane::start(Options { nodes: 4, gpus: 8, ..Options::default() })?;
//! let nodes = plane.kubectl(&["get", "nodes"]).output();
//! println!("{nodes:?} {}", plane.kubeconfig().display());
//! # Ok::<(), control_plane::Error>(())
//! ```
//!
//! # Simulated pods
//!
//! Pods on nodes with the annotation `kwok.x-k8s.io/node: fake` (all that [`Options::nodes`] asks for) run when they are
//! scheduled, for ever, and go at once when deleted. Annotations of a pod change that:
//!
//! | annotation | |
//! |---|---|
//! | `trainyard.dev/kwok-start-after: 500ms` | how long it takes to start once it is scheduled |
//! | `trainyard.dev/kwok-run-for: 30s` | ends after this time (`1m30s`, `500ms`), counted from the pod's last change |
//! | `trainyard.dev/kwok-exit-code: "3"` | what all its containers end with then; `0` if absent |
//! | `trainyard.dev/kwok-stop-for: 5s` | how long it takes to stop when deleted; `grace`: its whole grace period |
//! | `trainyard.dev/kwok: manual` | left alone, deletion included: a test writes its status. Nodes take it, too |
//!
//! # 410 Gone
//!
//! A watch from an old version is refused with 410 when neither the API server's watch cache nor etcd has that version:
//! [`ControlPlane::forget_history`] compacts etcd and restarts the API server, whose watch cache then begins at the present.

mod binaries;
mod build;
mod certificates;
mod component;
mod error;
mod etcd;
mod home;
mod keeper;
mod kubeconfig;
mod mpi_operator;
mod nodes;
mod options;
mod plane;
mod port;
mod process;
mod wait;

pub use binaries::Binaries;
pub use build::target_directory;
pub use component::Component;
pub use error::Error;
pub use kubeconfig::Identity;
pub use mpi_operator::MpiOperator;
pub use options::Options;
pub use plane::{ControlPlane, Definition};
pub use process::{ProcessId, Usage};
pub use wait::{TEST_TIMEOUT, until, until_within};
