//! The policies, and their names.
//!
//! Each file owns one family; none looks at a job's id but to break a tie. Tests: beside each; the vectors in
//! `tests/vectors.rs`; properties of all of them in `tests/properties.rs`.

pub mod afs;
pub mod afs_p;
pub mod ffdl;
pub mod gain;
mod heap;
mod knapsack;
pub mod las;
mod lookahead;
mod market;
mod names;
pub mod ordered;
pub mod shares;
pub mod sia;
pub mod simple;
mod size;
#[cfg(test)]
mod testing;
mod tournament;
mod trial;
mod worth;

pub use names::{NAMES, NameError, by_name};
