//! Clusters that an operator can be run on without a network.
//!
//! Owns what the loop needs of a cluster, and how the embedded one provides it. It must not know the operator.

use std::collections::BTreeMap;
use std::path::Path;

use apis::{Observation, ObservedObject, Registry, WatchTarget};
use cluster::{Cluster, ClusterFile, DefinitionError, FileError, WatcherId};
use model::{Kind, Timestamp};

/// A cluster as the loop sees it: time passes, watches report, writes become durable.
pub trait Backend {
    /// Moves the cluster's clock to `now` and does what is due by then. Returns whether any object changed.
    fn advance_to(&mut self, now: Timestamp) -> bool;

    /// Returns what the operator's watches report: everything that was written before this call. `watches`: kinds that are watched besides
    /// those of every term.
    fn observe(&mut self, registry: &Registry, watches: &[Kind]) -> Vec<Observation<ObservedObject>>;

    /// Makes all writes so far durable. Called before the operator gets the answers to its calls.
    ///
    /// # Errors
    /// When they cannot be stored.
    fn sync(&mut self) -> Result<(), FileError> {
        Ok(())
    }

    /// Returns the time of the next change that needs no call, if one is known.
    fn next_wake(&self) -> Option<Timestamp>;
}

/// The cluster in memory, the operator's watch of it, and the file it is stored in.
#[derive(Debug)]
pub struct EmbeddedCluster {
    /// The cluster.
    pub cluster: Cluster,
    targets: Vec<WatchTarget>,
    watcher: WatcherId,
    /// Watches of kinds that are not always watched.
    on_demand: BTreeMap<Kind, WatcherId>,
    file: Option<ClusterFile>,
}

impl EmbeddedCluster {
    /// Watches a cluster as the operator of a registry's APIs does.
    pub fn new(mut cluster: Cluster, registry: &Registry) -> Self {
        let targets = registry.watch_targets();
        let watcher = cluster.subscribe_to(&targets);
        Self { cluster, targets, watcher, on_demand: BTreeMap::new(), file: None }
    }

    /// Registers every API of a registry on a cluster, and watches it as their operator does.
    ///
    /// # Errors
    /// When a served API's definition does not register.
    pub fn serving(mut cluster: Cluster, registry: &Registry) -> Result<Self, DefinitionError> {
        for api in registry.iter() {
            cluster.register(&api.crd())?;
        }
        Ok(Self::new(cluster, registry))
    }

    /// Stores every write in a file from now on.
    #[must_use]
    pub fn stored_in(mut self, path: &Path) -> Self {
        self.file = Some(ClusterFile::new(path));
        self
    }

    /// Begins new watches, as a new process of the operator does: they start with complete lists.
    pub fn watch_again(&mut self) {
        self.cluster.unsubscribe(self.watcher);
        self.watcher = self.cluster.subscribe_to(&self.targets);
        for watcher in std::mem::take(&mut self.on_demand).into_values() {
            self.cluster.unsubscribe(watcher);
        }
    }

    /// Begins and ends watches, so that these kinds are watched besides those of every term.
    fn watch_on_demand(&mut self, registry: &Registry, watches: &[Kind]) {
        let cluster = &mut self.cluster;
        self.on_demand.retain(|kind, watcher| {
            let stays = watches.contains(kind);
            if !stays {
                cluster.unsubscribe(*watcher);
            }
            stays
        });
        for kind in watches {
            if !self.on_demand.contains_key(kind)
                && let Some(target) = registry.on_demand(*kind)
            {
                self.on_demand.insert(*kind, self.cluster.subscribe_to(&[target]));
            }
        }
    }
}

impl Backend for EmbeddedCluster {
    fn advance_to(&mut self, now: Timestamp) -> bool {
        self.cluster.set_now(now);
        self.cluster.tick()
    }

    fn observe(&mut self, registry: &Registry, watches: &[Kind]) -> Vec<Observation<ObservedObject>> {
        self.watch_on_demand(registry, watches);
        let own = self.cluster.watch(self.watcher).into_iter().filter_map(|observation| observation.read(registry));
        let mut all: Vec<_> = own.collect();
        for (kind, watcher) in &self.on_demand {
            let read = |object| ObservedObject::read_of(registry, *kind, object);
            all.extend(self.cluster.watch(*watcher).into_iter().filter_map(|seen| seen.filter_map(read)));
        }
        all
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.file.as_mut().map_or(Ok(()), |file| file.save(&mut self.cluster))
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.cluster.next_wake()
    }
}
