//! One module per command: its arguments, and what it does with the crates below.

pub(crate) mod control;
pub(crate) mod crd;
pub(crate) mod log;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod node_agent;
pub(crate) mod operator;
pub(crate) mod ps;
pub(crate) mod queue;
pub(crate) mod rbac;
pub(crate) mod replay;
pub(crate) mod scenario;
pub(crate) mod schedule;
pub(crate) mod simulate;
pub(crate) mod story;
pub(crate) mod test;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod wait;
