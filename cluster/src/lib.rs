//! The embedded cluster: the API server's rules in memory, for runs on one machine and for every test.
//!
//! Owns objects, versions, watches, binding, deletion and garbage collection. It must not know jobs: what it does for
//! them a real API server, scheduler and kubelet would do alike. Pods are run by a [`runtime::PodRuntime`].
//!
//! | module | owns |
//! |---|---|
//! | `cluster` | [`Cluster`]: construction, the clock, reading what is stored |
//! | `execute` | `ApiCall` -> `ApiAnswer`: create, patch, status, get, with every precondition |
//! | `deletion` | graceful deletion, finalizers, namespaces, owner-reference garbage collection |
//! | `user` | what people do: `kubectl apply`, `patch`, `delete`, planting an object past its schema |
//! | `watch` | per-consumer watches with label selectors: lists, changes in order, hold and release, broken lists |
//! | `fault` | API calls that are made to fail |
//! | `kubelet`, `pod_status`, `node` | manual pods and nodes, for scenarios |
//! | `schedule`, `quantity` | pods and nodes by themselves, for local runs |
//! | `kinds`, `schema`, `schema_check`, `rules` | served kinds, structural schemas, the checks on built-in kinds |
//! | `store`, `merge` | the object map and its indices; JSON merge patches |
//! | `file` | the cluster in a file, and what changed since in a journal beside it |
//!
//! Everything is deterministic: ordered maps, counted uids, one resourceVersion counter, a clock that is set from outside.
//! Tests: `tests/cluster/*.rs` by topic, and beside `merge`, `quantity` and `schema`.

mod cluster;
mod deletion;
mod error;
mod execute;
mod fault;
mod file;
mod kinds;
mod kubelet;
mod merge;
mod node;
mod pod_status;
mod room;
mod rules;
pub mod runtime;
mod schedule;
mod schema;
mod schema_check;
mod store;
mod user;
mod watch;

pub use cluster::{Cluster, Mode, Options, ServedKinds};
pub use error::{DefinitionError, Error, FileError};
pub use fault::{FailRule, FailRules, FailVerb};
pub use file::ClusterFile;
pub use node::{NodeSpec, NodeState};
pub use watch::CatchUp;
pub use watch::streams::WatcherId;
