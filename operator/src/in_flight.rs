//! Calls in flight: those dispatched and not yet answered.
//!
//! Owns their numbers, the rule of one call an object at a time, the limit, the reads that must follow an answer, and the objects that a
//! watch reported deleted before an answer came in that still shows them.
//! Kubernetes Events do not count: their answers are not awaited. Tests: at the end of this file.

use std::collections::{BTreeMap, BTreeSet};

use apis::authorization::{ClusterObject, Found};
use apis::{CallId, FreeStorage};
use model::{Command, JobKey, ObjectRef, OwnedRef, ResourceVersion, Uid};

/// Purpose of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// The command itself.
    Command(Command),
    /// Objects decide whether the command is sent: reads the next one.
    ReadBefore {
        /// The command.
        command: Command,
        /// Those that were read.
        found: Found,
        /// The one to read.
        next: ClusterObject,
    },
    /// The name of the object to create is taken: reads the object that holds it.
    ReadTaken(Command),
    /// A pod or an owned object was patched, or stands in a newer version: reads it.
    ReadPatched(Command),
    /// A write met a newer version of the job, or changed more than its answer shows: reads the job.
    ReadJob {
        /// Version that was known when the read was sent.
        known: ResourceVersion,
        /// The part of the job that was written.
        of: ObjectRef,
    },
    /// The search for a node continues: lists the next page.
    ListPage {
        /// Free storage by the pages that were read.
        free: FreeStorage,
        /// True for pods; the nodes come before them.
        pods: bool,
        /// Token of the page; empty for the first one.
        page: String,
    },
}

impl Purpose {
    /// Returns the object that the call is about.
    pub(crate) fn object(&self) -> ObjectRef {
        match self {
            Self::Command(command)
            | Self::ReadBefore { command, .. }
            | Self::ReadTaken(command)
            | Self::ReadPatched(command) => command.object(),
            Self::ReadJob { of, .. } => of.clone(),
            Self::ListPage { .. } => ObjectRef::StorageNode,
        }
    }
}

/// Calls in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    calls: BTreeMap<CallId, (JobKey, Purpose)>,
    /// Objects with a call in flight.
    objects: BTreeMap<JobKey, BTreeSet<ObjectRef>>,
    last_id: CallId,
    limit: usize,
    /// Reads to dispatch with the job's next commands, in the order of the answers they follow.
    reads: BTreeMap<JobKey, Vec<Purpose>>,
    /// Objects of jobs with calls in flight that were deleted since.
    deleted: BTreeMap<JobKey, BTreeSet<Uid>>,
}

impl Default for InFlight {
    fn default() -> Self {
        let (calls, objects, reads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { calls, objects, last_id: 0, limit: usize::MAX, reads, deleted: BTreeMap::new() }
    }
}

impl InFlight {
    pub(crate) const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the number of calls in flight.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of calls that the limit leaves.
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.calls.len())
    }

    /// Returns true if a call about the object is in flight.
    pub(crate) fn contains(&self, job: &JobKey, object: &ObjectRef) -> bool {
        self.objects.get(job).is_some_and(|objects| objects.contains(object))
    }

    /// Iterates over the objects of a job that are being created or patched.
    pub(crate) fn written<'a>(&'a self, job: &'a JobKey) -> impl Iterator<Item = &'a OwnedRef> {
        self.calls.values().filter(move |(of, _)| of == job).filter_map(|(_, purpose)| {
            let Purpose::Command(command) = purpose else { return None };
            let (Command::CreateOwned { object } | Command::UpdateOwned { object, .. }) = command else { return None };
            Some(object)
        })
    }

    /// Adds a call and returns its number.
    pub(crate) fn begin(&mut self, job: &JobKey, purpose: Purpose) -> CallId {
        self.last_id = self.last_id.saturating_add(1);
        self.objects.entry(job.clone()).or_default().insert(purpose.object());
        self.calls.insert(self.last_id, (job.clone(), purpose));
        self.last_id
    }

    /// Takes out an answered call; `None` for a call of an earlier process.
    pub(crate) fn end(&mut self, id: CallId) -> Option<(JobKey, Purpose)> {
        let (job, purpose) = self.calls.remove(&id)?;
        if let Some(objects) = self.objects.get_mut(&job) {
            objects.remove(&purpose.object());
            if objects.is_empty() {
                self.objects.remove(&job);
            }
        }
        Some((job, purpose))
    }

    /// Notes that an object of a job was deleted: the answer to a call in flight may show it as it was before.
    pub(crate) fn note_deleted(&mut self, job: &JobKey, uid: &Uid) {
        if self.objects.contains_key(job) {
            self.deleted.entry(job.clone()).or_default().insert(uid.clone());
        }
    }

    /// Returns true if an object was deleted while calls of its job were in flight.
    pub(crate) fn is_deleted(&self, job: &JobKey, uid: &Uid) -> bool {
        self.deleted.get(job).is_some_and(|uids| uids.contains(uid))
    }

    /// Forgets the deleted objects of a job without calls in flight. To be called once an answer was taken in.
    pub(crate) fn settle(&mut self, job: &JobKey) {
        if !self.objects.contains_key(job) {
            self.deleted.remove(job);
        }
    }

    /// Has an object read with the job's next commands.
    pub(crate) fn read_next(&mut self, job: &JobKey, read: Purpose) {
        self.reads.entry(job.clone()).or_default().push(read);
    }

    /// Takes the reads of a job that are to be dispatched, but for objects with a call in flight.
    pub(crate) fn take_reads(&mut self, job: &JobKey) -> Vec<Purpose> {
        let mut reads = self.reads.remove(job).unwrap_or_default();
        reads.retain(|read| !self.contains(job, &read.object()));
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Purpose = Purpose::ReadJob { known: ResourceVersion(1), of: ObjectRef::Status };

    fn key(name: &str) -> JobKey {
        JobKey { namespace: "ns".into(), name: name.into(), kind: "AITrainingJob".into(), uid: name.into() }
    }

    fn create(index: u32) -> Command {
        Command::CreateService { slot: model::SlotId { group: "g".into(), index } }
    }

    #[test]
    fn an_object_has_one_call_in_flight_and_the_limit_counts_calls() {
        let (mut in_flight, a, b) = (InFlight::default(), key("a"), key("b"));
        assert_eq!(in_flight.free(), usize::MAX, "without a limit");
        in_flight.set_limit(2);
        let first = in_flight.begin(&a, Purpose::Command(create(0)));
        assert!(in_flight.contains(&a, &create(0).object()));
        assert!(!in_flight.contains(&a, &create(1).object()) && !in_flight.contains(&b, &create(0).object()));
        let second = in_flight.begin(&a, READ);
        assert_eq!((in_flight.len(), in_flight.free(), second > first), (2, 0, true));
        in_flight.set_limit(1);
        assert_eq!(in_flight.free(), 0, "a lower limit waits for answers");
        assert_eq!(in_flight.end(first), Some((a.clone(), Purpose::Command(create(0)))));
        assert!(!in_flight.contains(&a, &create(0).object()) && in_flight.contains(&a, &ObjectRef::Status));
        assert_eq!((in_flight.end(first), in_flight.end(99)), (None, None), "an answer counts once");
        assert_eq!(in_flight.end(second), Some((a.clone(), READ)));
        assert!(in_flight.begin(&b, READ) > second, "numbers are not used again");
    }

    #[test]
    fn reads_wait_for_their_job_and_not_for_an_object_that_is_busy() {
        let (mut in_flight, a, b) = (InFlight::default(), key("a"), key("b"));
        in_flight.read_next(&a, Purpose::ReadTaken(create(0)));
        in_flight.read_next(&b, READ);
        in_flight.read_next(&a, READ);
        in_flight.begin(&a, Purpose::Command(create(0)));
        assert_eq!(in_flight.take_reads(&a), [READ]);
        assert_eq!((in_flight.take_reads(&a), in_flight.take_reads(&b)), (vec![], vec![READ]));
    }
}
