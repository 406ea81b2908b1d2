//! The desk: the only place that turns jobs, nodes and queues into targets.
//!
//! The operator's queues and the trace studies both decide here, so a study predicts the operator. A caller describes
//! what there is as plain values and gets plain values back. The parts:
//!
//! | module | subject |
//! |---|---|
//! | [`lessons`] | knowledge of one job, learnt from its reports |
//! | [`ledger`] | knowledge of all jobs, kept between decisions |
//! | [`ask`] | one policy asked once: review, allocate, wake |
//! | [`floor`] | workers on nodes between decisions |
//!
//! Like the rest of the crate it must not read a clock, use a float or iterate a hash map. Tests: beside each module.

pub mod ask;
pub mod floor;
pub mod ledger;
pub mod lessons;

pub use ask::ask;
pub use floor::Floor;
pub use ledger::Ledger;
pub use lessons::{Belief, Lessons, outlived};
