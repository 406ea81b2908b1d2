//! A job's life for people: what was observed, what was decided from it, why the job is where it is, and what it waits for.
//!
//! | module | subject |
//! |---|---|
//! | `timeline` | the lines of a record |
//! | `facts` | facts as text |
//! | `events` | events as text |
//! | `chain` | the records that led to the present state of a job |
//! | `story` | a job by its name, deleted or not, with that chain |
//! | `waits` | the conditions that a job waits for |
//! | `failures` | the failed tries of a job |
//! | `deleted` | jobs that the state does not hold any more |
//! | `phases` | phases in the words of their APIs |
//! | `row` | a job as a row of a list |
//! | `difference` | what two positions of a log differ in |
//!
//! Owns views of records and state, and their words. It decides nothing, folds nothing, and must not read a log or a clock, print, or
//! know a command. `trainyard explain`, `history`, `diff`, `ps`, `get`, `wait`, `top`, `log show` and the end of a run show what is
//! returned here. Tests: at the end of each file, the golden outputs of these commands in `cli/tests/local/`, and `snapshots`.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::todo,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::wildcard_enum_match_arm
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod chain;
mod deleted;
mod difference;
mod events;
mod facts;
pub mod failures;
mod phases;
mod row;
mod story;
mod timeline;
mod waits;

pub use self::chain::Chain;
pub use self::deleted::{Deleted, Deletions};
pub use self::difference::{differences, summary};
pub use self::phases::{DELETED, end_word, phase_word};
pub use self::row::{Row, retries};
pub use self::story::{Story, StoryReader};
pub use self::timeline::{Line, concerns, lines};
pub use self::waits::{refusals, waits_for};
