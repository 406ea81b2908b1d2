//! Holds the state of a job's object: existence, version, and the requests in its metadata.
//!
//! Owns these members and all that changes them. It must not hold the spec or the status. Tests: `admit/tests.rs`, the scenarios
//! of deletion, and `wire/tests.rs` for what is stored.

use std::collections::BTreeMap;

use model::fact::EndRequest;
use model::{ObjectFact, ResourceVersion, Text};

/// Existence, version and metadata of a job's object, as last observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectState {
    known: bool,
    gone: bool,
    deleting: bool,
    rv: ResourceVersion,
    end_requests: BTreeMap<EndRequest, Text>,
    end_annotated: bool,
}

impl ObjectState {
    /// Returns the state of an object that exists with this version, and whose metadata asks for nothing.
    pub fn present(rv: ResourceVersion) -> Self {
        Self::of_version(rv).with_flags(true, false, false)
    }

    /// Returns the state of an object of which only a version is known.
    pub(crate) fn of_version(rv: ResourceVersion) -> Self {
        Self { rv, ..Self::default() }
    }

    /// Returns the state with these values of [`Self::is_known`], [`Self::is_gone`] and [`Self::is_deleting`].
    pub(crate) fn with_flags(self, known: bool, gone: bool, deleting: bool) -> Self {
        Self { known, gone, deleting, ..self }
    }

    /// Returns the state with these end requests, and with or without the end annotation.
    pub(crate) fn with_metadata(self, end_requests: BTreeMap<EndRequest, Text>, end_annotated: bool) -> Self {
        Self { end_requests, end_annotated, ..self }
    }

    /// Returns the version, the end requests, and whether the end annotation stands on it.
    pub(crate) fn into_metadata(self) -> (ResourceVersion, BTreeMap<EndRequest, Text>, bool) {
        (self.rv, self.end_requests, self.end_annotated)
    }

    /// Returns true if the object has been seen; a job known only by its pods is an orphan.
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// Returns true if the object is gone.
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns true if the object has a deletionTimestamp.
    pub const fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Returns true if the object has been seen and is not gone.
    pub const fn exists(&self) -> bool {
        self.known && !self.gone
    }

    /// Returns true if the object is gone or being deleted.
    pub const fn is_going(&self) -> bool {
        self.gone || self.deleting
    }

    /// Returns true if the object exists and is not being deleted.
    pub const fn is_present(&self) -> bool {
        self.known && !self.is_going()
    }

    /// Returns the version last observed.
    pub const fn rv(&self) -> ResourceVersion {
        self.rv
    }

    /// Returns the end requests on the object that are meant for it.
    pub const fn end_requests(&self) -> &BTreeMap<EndRequest, Text> {
        &self.end_requests
    }

    /// Returns true if the end annotation stands on the object, or was written.
    pub(crate) const fn end_annotated(&self) -> bool {
        self.end_annotated
    }

    /// Returns true if the metadata in a fact about the object says nothing that is not known.
    pub(crate) fn shows(&self, fact: &ObjectFact) -> bool {
        self.rv == fact.rv
            && self.deleting == fact.deleting
            && self.end_requests == fact.end_requests
            && (self.end_annotated || !fact.end_annotated)
    }

    /// Takes the metadata of the object in.
    pub(crate) fn observe(&mut self, fact: &ObjectFact) {
        self.known = true;
        self.rv = fact.rv;
        self.deleting = fact.deleting;
        self.end_requests.clone_from(&fact.end_requests);
        // Once written it is not written again: taking it away is the user's business.
        self.end_annotated |= fact.end_annotated;
    }

    /// Takes a newer version of the object in. Returns true if it is newer.
    pub(crate) fn observe_version(&mut self, rv: ResourceVersion) -> bool {
        let is_newer = rv > self.rv;
        if is_newer {
            self.rv = rv;
        }
        is_newer
    }

    /// Notes that the end annotation was written.
    pub(crate) const fn note_end_annotation(&mut self) {
        self.end_annotated = true;
    }

    /// Notes that the API server accepted the deletion of the object.
    pub(crate) const fn note_deletion(&mut self) {
        self.deleting = true;
    }

    /// Notes that the object is gone.
    pub(crate) const fn note_gone(&mut self) {
        self.gone = true;
    }
}
