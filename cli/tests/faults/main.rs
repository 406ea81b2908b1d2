//! `trainyard operator` on a real control plane while things go wrong: the operator is killed, the API server stops, history is
//! forgotten, others write, a quota refuses, a namespace goes, a definition comes late, the cluster is restored. Failover between
//! replicas is `failover.rs`.
//!
//! What disturbs all of a control plane has one of its own; the others share one, each with a namespace and a Lease of its own. So
//! they run side by side. Random moments come from a seed that is printed; `TRAINYARD_SEED` sets it.

mod api;
#[path = "../common/mod.rs"]
mod common;
mod figures;
mod jobs;
mod kills;
mod operator;
#[path = "../common/probe.rs"]
mod probe;
mod restored;
mod seen;
mod users;

use std::sync::OnceLock;
use std::time::Duration;

use control_plane::Options;

use common::Cluster;

/// The control plane of tests without faults.
fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(options()))
}

/// Returns the options of every control plane of these tests.
fn options() -> Options {
    // Nodes outlive the longest stop of an API server.
    Options { nodes: 8, node_grace: Some(Duration::from_secs(90)), ..Options::default() }
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
