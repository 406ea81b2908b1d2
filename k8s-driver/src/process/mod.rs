//! The operator's process: its order of starting and ending, one leadership of it, and what it reports of itself.

mod autoscaler;
mod crd_check;
mod leadership;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod status;
