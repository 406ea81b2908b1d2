//! `trainyard operator` on a real control plane while things go wrong: the operator is killed, the API server stops, history is
//! forgotten, others write, a quota refuses, a namespace goes, a definition comes late. Failover between replicas is
//! `failover.rs`.
//!
//! One control plane for all; one test at a time, because most disturb all of it. Random moments come from a seed that is
//! printed; `TRAINYARD_SEED` sets it.

mod api;
#[path = "../common/mod.rs"]
mod common;
mod jobs;
mod kills;
mod operator;
mod users;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use control_plane::Options;

use common::Cluster;

/// The control plane, for one test at a time.
fn cluster() -> (&'static Cluster, MutexGuard<'static, ()>) {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Nodes outlive the longest stop of the API server here.
    let node_grace = Some(Duration::from_secs(90));
    let cluster = CLUSTER.get_or_init(|| Cluster::start(Options { nodes: 8, node_grace, ..Options::default() }));
    // A test that takes the definition away may have failed before it was there again.
    cluster.define();
    (cluster, turn)
}

/// `SplitMix64`, by Steele, Lea and Flood (2014): enough for moments in time.
struct Random(u64);

impl Random {
    /// By `TRAINYARD_SEED`, or the clock; it is printed.
    fn new() -> Self {
        let given = std::env::var("TRAINYARD_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_secs()
        });
        eprintln!("TRAINYARD_SEED={seed}");
        Self(seed)
    }

    /// A time between two numbers of milliseconds.
    fn between(&mut self, least: u64, most: u64) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_millis(least + (z ^ (z >> 31)) % (most - least))
    }
}
