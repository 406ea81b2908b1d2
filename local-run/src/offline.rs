//! Changes to the jobs of a data directory that no run has open.
//!
//! Owns a session without processes, whose records the next run continues. It must not start pods. Tests:
//! `cli/tests/local/control.rs`.

use std::collections::VecDeque;
use std::path::Path;

use apis::Registry;
use cluster::runtime::{PodReport, PodRuntime};
use cluster::{Cluster, Mode};
use embedded::{EmbeddedCluster, Session};
use event_log::disk::SledLog;
use serde_json::{Map, Value};
use terminal::out::Failure;

use crate::args::RESTART_LIMIT;
use crate::changes;
use crate::data_dir::DataDir;
use crate::requests::Request;
use crate::session::config;

/// Rounds in which the operator takes a change up: pods that ended, then what they held up.
const ROUNDS: u32 = 8;

/// Pods of which nothing runs.
#[derive(Default)]
struct NoPods {
    stopped: VecDeque<PodReport>,
}

impl PodRuntime for NoPods {
    fn start(&mut self, _pod: &Value) {}

    fn stop(&mut self, namespace: &str, name: &str, uid: &str, _grace_seconds: u32) {
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        self.stopped.push_back(PodReport { namespace, name, uid, status: Map::new().into(), ended: true });
    }

    fn poll(&mut self) -> Vec<PodReport> {
        self.stopped.drain(..).collect()
    }
}

/// Makes a change, and has it recorded. Returns what was done.
pub(crate) fn change(data_dir: &Path, request: &Request) -> Result<String, Failure> {
    local::keep_files_private();
    let _lock = DataDir::open(data_dir)?;
    let log = SledLog::open(data_dir.join("log"), event_log::disk::Options::default())?;
    let file = data_dir.join("cluster.json");
    let mut cluster = Cluster::load(&file, Mode::Automatic, Box::new(NoPods::default()))?;
    cluster.set_now(local::now());
    let registry = Registry::all();
    let backend = EmbeddedCluster::serving(cluster, &registry)?.stored_in(&file);
    let settings = [("restart-limit".to_owned(), RESTART_LIMIT.to_owned())];
    let mut session = Session::open(backend, registry, Box::new(log), config(&settings)?)?;
    session.settle(&mut local::now, &mut |_, _| {})?;
    let done = changes::make(&mut session, request)
        .unwrap_or_else(|| Err(Failure::new("no run has this data directory open")))?;
    for _ in 0..ROUNDS {
        session.settle(&mut local::now, &mut |_, _| {})?;
        session.cluster_mut().tick();
    }
    session.settle(&mut local::now, &mut |_, _| {})?;
    Ok(done)
}
