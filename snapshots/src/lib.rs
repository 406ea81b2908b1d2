//! Snapshots of every scenario and table, and the tests that write and compare them.
//!
//! Owns no code: see `tests/`. `scenarios.rs` runs each scenario file against its own expectations and its snapshot
//! (`summary.rs`), and each API's messages against one table (`messages.rs`),
//! `tables.rs` every cell of the rule tables, `matrix.rs` prints which phase met which kind of fact, `crashes.rs` crashes
//! the operator at every point. After a reviewed change of behaviour, `INSTA_UPDATE=always cargo test -p snapshots`
//! rewrites the snapshots.
