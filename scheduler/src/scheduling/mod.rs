//! Scheduling: the only module that turns jobs, nodes and queues into targets.
//!
//! The operator's queues and the trace studies both decide here, so a study predicts the operator. A caller describes
//! what there is as plain values and gets plain values back. The parts:
//!
//! | module | subject |
//! |---|---|
//! | [`estimate`] | speed samples of one job, and the estimate from them |
//! | [`history`] | what is known of all jobs, kept between decisions |
//! | [`snapshot`], [`queue`] | the input: claims, nodes, queues and cohorts |
//! | `reach` | the nodes that claims can use, and what is free there |
//! | [`decision`] | targets, reasons for changes and for waiting |
//! | [`mod@decide`] | a decision; beside it the parts that it is made of |
//! | [`mod@ask`] | one policy asked once, as the trace studies do |
//! | [`floor`] | workers on nodes between decisions of a study |
//!
//! A decision is made of budgets (`budgets`, on the accounts of `resource_usage` and what is `free`), policies within budgets (`line`, in whole workers
//! by `steps`), nodes (`place`), rights (`moves`) and reasons (`waits`).
//!
//! Like the rest of the crate it must not read a clock, use a float or iterate a hash map, and it never changes its input.
//! Tests: beside each module, and in `tests/scheduling.rs`.

pub mod ask;
mod budgets;
pub mod decide;
pub mod decision;
pub mod estimate;
pub mod floor;
mod free;
pub mod history;
mod info;
mod line;
mod moves;
mod place;
pub mod queue;
mod reach;
pub mod resource_usage;
pub mod snapshot;
mod steps;
mod waits;

pub use ask::ask;
pub use decide::{Error, decide};
pub use decision::{Change, Decision, Reason, Target, Wait, Why};
pub use estimate::{SpeedEstimate, SpeedSamples, outlived};
pub use floor::Floor;
pub use history::History;
pub use queue::{Backfill, QueueSettings, QueueSnapshot, Quota, Reclaim, WithinQueue};
pub use resource_usage::ResourceUsage;
pub use snapshot::{Claim, Fixed, Pools, Sizes, Snapshot, Usage};
