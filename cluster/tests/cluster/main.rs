//! The embedded cluster's rules, one module per topic; `common` holds what they build on.

mod api;
mod auto;
mod common;
mod deletion;
mod file;
mod invariants;
mod kubelet;
mod room;
mod rules;
mod schema;
mod thousand;
mod user;
mod watch;
