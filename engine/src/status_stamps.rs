//! Holds the stamps of a job's status: of the next write, of the last acknowledged one, and of the mirror observed.
//!
//! Owns the stamps and all that changes them. It must not decide when a status is written: [`crate::State::effects_of`] does. Tests: the
//! crash sweep of the `snapshots` package, and `wire/tests.rs` for what is stored.

use model::Stamp;

/// Stamps of the records that the status of an object shows, or is to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusStamps {
    wanted: Stamp,
    acknowledged: Stamp,
    observed: Stamp,
    fenced_by: Stamp,
}

impl StatusStamps {
    /// Returns stamps as they were stored.
    pub(crate) const fn new(wanted: Stamp, acknowledged: Stamp, observed: Stamp, fenced_by: Stamp) -> Self {
        Self { wanted, acknowledged, observed, fenced_by }
    }

    /// Returns the stamps of an object whose status shows this mirror, and nothing newer.
    pub fn of_mirror(mirror: Stamp) -> Self {
        Self::new(mirror, mirror, mirror, Stamp::default())
    }

    /// Returns the stamp that the next status write carries: the newest record that changed what the status says.
    pub const fn wanted(&self) -> Stamp {
        self.wanted
    }

    /// Returns the newest stamp known to be in the object's mirror.
    pub const fn acknowledged(&self) -> Stamp {
        self.acknowledged
    }

    /// Returns the stamp of the mirror last observed on the object.
    pub const fn observed(&self) -> Stamp {
        self.observed
    }

    /// Returns the fence of the present term.
    pub(crate) const fn fenced_by(&self) -> Stamp {
        self.fenced_by
    }

    /// Returns true if a status has to be written: the object's is behind, or shows an older mirror than was acknowledged.
    pub fn is_behind(&self) -> bool {
        self.wanted > Stamp::default() && (self.acknowledged < self.wanted || self.observed < self.acknowledged)
    }

    /// Notes that this record changed what the status says.
    pub(crate) const fn change(&mut self, stamp: Stamp) {
        self.wanted = stamp;
    }

    /// Notes that this record is the fence of its term. The next status carries it.
    pub(crate) const fn fence(&mut self, stamp: Stamp) {
        self.fenced_by = stamp;
        self.wanted = stamp;
    }

    /// Notes that the API server accepted a status with this stamp.
    pub fn acknowledge(&mut self, stamp: Stamp) {
        self.acknowledged = self.acknowledged.max(stamp);
    }

    /// Notes the mirror that the object shows.
    pub(crate) fn observe(&mut self, mirror: Stamp) {
        self.observed = mirror;
        self.acknowledge(mirror);
    }
}
