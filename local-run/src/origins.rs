//! Where the jobs of other processes were submitted: the directory and the environment of their programs.
//!
//! Owns which job has which origin, while the run is active. It must not know processes. Tests: `cli/tests/local/submit.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use apis::Registry;
use local::{Origin, OriginOf};
use serde_json::Value;

use crate::peers::{Name, job_of};
use crate::requests::JobRef;

/// Origins of the jobs that were submitted to a run.
#[derive(Clone)]
pub(crate) struct Origins {
    registry: Registry,
    known: Arc<Mutex<BTreeMap<Name, Origin>>>,
}

impl Origins {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, known: Arc::default() }
    }

    /// Notes where a job was submitted.
    pub(crate) fn set(&self, job: JobRef, origin: Origin) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((job.kind, job.namespace, job.name), origin);
    }

    /// Returns the function that finds the origin of a pod's job.
    pub(crate) fn of_pods(&self) -> OriginOf {
        let origins = self.clone();
        Arc::new(move |pod| origins.of(pod))
    }

    /// Returns the directory from which a pod's job was submitted; `None` of a job of the run's own.
    pub(crate) fn workdir(&self, pod: &Value) -> Option<PathBuf> {
        self.of(pod).map(|origin| origin.workdir)
    }

    fn of(&self, pod: &Value) -> Option<Origin> {
        let (_, name) = job_of(&self.registry, pod)?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }
}
