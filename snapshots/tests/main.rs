//! All tests of this package as one program: `cargo test -p snapshots scenarios` runs those of one module.

mod copied;
mod crashes;
mod direct;
mod extremes;
mod failures;
mod limits;
mod logs;
mod manifests;
mod matrix;
mod messages;
mod narrow;
mod per_api;
mod rights;
mod scenarios;
mod schema;
mod summary;
mod tables;
mod walks;
