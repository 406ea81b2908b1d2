//! Scheduling: the only module that turns jobs, nodes and queues into targets.
//!
//! The operator's queues and the trace studies both decide here, so a study predicts the operator. A caller describes
//! what there is as plain values and gets plain values back. The parts:
//!
//! | module | subject |
//! |---|---|
//! | [`lessons`] | knowledge of one job, learnt from its reports |
//! | [`ledger`] | knowledge of all jobs, kept between decisions |
//! | [`snapshot`], [`queue`] | the input: claims, nodes, queues and cohorts |
//! | `reach` | the nodes that claims can use, and what is free there |
//! | [`decision`] | targets, reasons for changes and for waiting |
//! | [`mod@decide`] | a decision; beside it the parts that it is made of |
//! | [`mod@ask`] | one policy asked once, as the trace studies do |
//! | [`floor`] | workers on nodes between decisions of a study |
//!
//! A decision is made of budgets (`budgets`, on the accounts of `books` and what is `free`), policies within budgets (`line`, in whole workers
//! by `steps`), nodes (`place`), rights (`moves`) and reasons (`waits`).
//!
//! Like the rest of the crate it must not read a clock, use a float or iterate a hash map, and it never changes its input.
//! Tests: beside each module, and in `tests/scheduling.rs`.

pub mod ask;
pub mod books;
mod budgets;
pub mod decide;
pub mod decision;
pub mod floor;
mod free;
mod info;
pub mod ledger;
pub mod lessons;
mod line;
mod moves;
mod place;
pub mod queue;
mod reach;
pub mod snapshot;
mod steps;
mod waits;

pub use ask::ask;
pub use books::Books;
pub use decide::{Error, decide};
pub use decision::{Change, Decision, Reason, Target, Wait, Why};
pub use floor::Floor;
pub use ledger::Ledger;
pub use lessons::{Belief, Lessons, outlived};
pub use queue::{Backfill, QueueSettings, QueueSnapshot, Quota, Reclaim, WithinQueue};
pub use snapshot::{Claim, Fixed, Pools, Sizes, Snapshot, Usage};
