//! The hands on a real cluster: watch streams in, API calls out, leadership, the HTTP surface.
//!
//! The only crate with a Kubernetes client and tokio. It decides nothing: what is to be done comes from `operator`, what an
//! object means from `apis`. Its parts:
//!
//! * `run` the whole process; `runtime` the thread that waits for the network; `lead` one period of leadership; `options` what a user may set; `standing` what is told of it;
//! * `turns` the one thread that owns the [`operator::Operator`] and its log; `logs` where that log is kept; `clock` time; `hash` what is remembered in
//!   place of names;
//! * `sources`, `selection`, `watching`, `decode`, `trim` what comes in: lists and watches, cut down while they are read;
//! * `request`, `dispatch`, `budget`, `event_limiter` what goes out: calls, as fast as the API server takes them; `rehearse` calls
//!   that are only printed;
//! * `lease` who may write; `follow` a standby's log; `metrics` and `http` what can be looked at from outside.
//!
//! Tests: beside each file against a mock of the API server, and in `tests/` against a real one.

pub mod budget;
pub mod client;
pub mod clock;
mod crd_check;
pub mod decode;
pub mod dispatch;
pub mod event_limiter;
pub mod follow;
pub mod guard;
mod hash;
pub mod http;
pub mod lead;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod options;
pub mod queue;
pub mod rehearse;
pub mod remote;
pub mod request;
pub mod run;
pub mod runtime;
pub mod selection;
#[cfg(test)]
mod served;
pub mod sources;
pub mod standing;
pub mod transport;
pub mod trim;
pub mod turns;
pub mod watching;
pub mod wire;
