//! Plays scheduling studies: a trace, a speedup profile and a cluster through an allocation policy in virtual time.
//!
//! Owns reading the inputs ([`input`]), the simulation ([`sim`]), what is measured of it ([`summary`]) and how it is shown. It
//! must not decide which job gets GPUs: that is `scheduler`'s; only rules of other simulators that are wanted for comparison and
//! nothing else stand here ([`mod@reference`]). Everything is deterministic: integers for time and work, seeds for noise.
//! Tests: beside each module, and `tests/published.rs` against published results.

pub mod check;
pub mod compare;
pub mod input;
pub mod lineup;
pub mod published;
pub mod recorded;
pub mod reference;
pub mod report;
pub mod rows;
pub mod sim;
pub mod summary;
pub mod tables;
