//! Sources: what must be listed before a term begins, and the jobs that each source shows.
//!
//! Owns which APIs a term serves. Tests: `operator/tests/sources.rs`.

use std::collections::BTreeSet;

use apis::{JobSources, ObservedObject, Registry, Resource, WatchTarget};
use model::{JobKey, Kind, Text};

/// Sources of a term.
#[derive(Debug)]
pub(crate) struct Sources {
    targets: Vec<WatchTarget>,
    /// Sources that show each API's jobs.
    shown_by: JobSources,
    /// Kinds of the APIs that this term leaves out.
    unserved: BTreeSet<Text>,
}

impl Sources {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { targets: registry.watch_targets(), shown_by: registry.job_sources(), unserved: BTreeSet::new() }
    }

    /// Leaves out the APIs of these kinds; all others are served.
    pub(crate) fn disable_kinds(&mut self, registry: &Registry, kinds: BTreeSet<Text>) {
        self.targets = registry.watch_targets_without(&kinds);
        self.unserved = kinds;
    }

    /// Returns what must be listed.
    pub(crate) fn targets(&self) -> &[WatchTarget] {
        &self.targets
    }

    /// Returns true if the job's API is served.
    pub(crate) fn serves(&self, job: &JobKey) -> bool {
        !self.unserved.contains(&job.kind)
    }

    /// Returns true if the source shows the job, or what belongs to it, and the job's API is served.
    pub(crate) fn shows(&self, kind: Kind, source: Option<&Text>, job: &JobKey) -> bool {
        self.serves(job) && self.shown_by.shows(kind, source, job)
    }

    /// Returns the source that shows an object; `None` while its kind has one source.
    pub(crate) fn source_of(&self, seen: &ObservedObject) -> Option<&Text> {
        self.shown_by.of_object(seen)
    }

    /// Returns the type of the objects that a source shows; `None` for one that is not among the targets.
    pub(crate) fn resource_of(&self, kind: Kind, source: Option<&Text>) -> Option<&Resource> {
        let target = self
            .targets
            .iter()
            .find(|target| target.kind == kind && (source.is_none() || target.of.as_ref() == source));
        target.map(|target| &target.resource)
    }
}
