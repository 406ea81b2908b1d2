//! Commands by which users of other systems work on a cluster: `torchrun` of kubectl, Voda's, and the collector of epochs.
//!
//! Owns their verbs and arguments, objects as JSON, and connections to pods. They write objects and read them; what an operator
//! decides is not theirs. They print through `terminal::out` alone. Tests: at the end of each file,
//! `cli/tests/local/{torchrun,voda,collect}.rs`, and `cli/tests/process_nodes/plugin.rs`.

pub mod cluster;
pub mod collect;
pub mod torchrun;
pub mod voda;
