//! An operator on an embedded cluster: for runs on this machine, simulations and scenarios.
//!
//! Owns the order in which cluster and operator are served. Log, clock and pod runtime are injected; crashes and faults
//! come in through [`Hooks`]. It must not print, read the clock, or know scenario verbs.
//!
//! | module | owns |
//! |---|---|
//! | `settle` | the loop: observe, turn, execute, answer, until nothing moves; its limit and its error |
//! | `backend` | [`Backend`]: what the loop needs of a cluster; [`EmbeddedCluster`]: the cluster in memory |
//! | `session` | [`Session`]: cluster and operator of `run` and `simulate` |
//! | `kubelet` | pods that run and end in virtual time |
//!
//! Tests: beside `session` and `kubelet`; every scenario through the `simulator` package; `cli/tests` for runs.

pub mod backend;
pub mod kubelet;
pub mod session;
pub mod settle;

pub use backend::{Backend, EmbeddedCluster};
pub use session::{Rejected, Session, jobs_of};
pub use settle::{Error, Hooks, Settled, settle};
