//! Turns jobs, nodes and queues into targets. No other module does.
//!
//! The operator's queues and the trace studies both decide here, so a study predicts the operator. A caller describes its
//! cluster as plain values and gets plain values back. The parts:
//!
//! | module | subject |
//! |---|---|
//! | [`estimate`] | speed samples of one job, and the estimate from them |
//! | [`history`] | what is known of all jobs, kept between decisions |
//! | [`snapshot`], [`queue`] | the input: claims, nodes, queues and cohorts |
//! | [`decision`] | the output: targets, reasons for changes and for pending claims |
//! | [`mod@decide`] | a decision, in attempts |
//! | `info`, `reach` | claims with what follows from the snapshot; the nodes that they can use |
//! | `budgets`, [`resource_usage`], `reclaimable` | GPUs that each queue may use; those in use; those to be shared out |
//! | `ordering`, `steps` | policies within budgets, in whole workers |
//! | `place` | nodes for what was granted |
//! | `preemption` | which claim may take GPUs from which |
//! | `pending` | why a claim waits |
//! | [`mod@ask`] | one policy asked once, as the trace studies do |
//! | [`placed_workers`] | workers on nodes between decisions of a study |
//!
//! Like the rest of the crate it must not read a clock, use a float or iterate a hash map, and it never changes its input.
//! Tests: beside each module, and in `tests/scheduling.rs`.

pub mod ask;
mod budgets;
pub mod decide;
pub mod decision;
pub mod estimate;
pub mod history;
mod info;
mod ordering;
mod pending;
mod place;
pub mod placed_workers;
mod preemption;
pub mod queue;
mod reach;
mod reclaimable;
pub mod resource_usage;
pub mod snapshot;
mod steps;

pub use ask::ask;
pub use decide::{Error, decide};
pub use decision::{Decision, PendingClaim, PlacementTarget, Reason, TargetChange, Why};
pub use estimate::{SpeedEstimate, SpeedSamples, outlived};
pub use history::History;
pub use placed_workers::PlacedWorkers;
pub use queue::{Backfill, QueueSettings, QueueSnapshot, Quota, Reclaim, WithinQueue};
pub use resource_usage::ResourceUsage;
pub use snapshot::{Claim, Fixed, Pools, Sizes, Snapshot, Usage};
