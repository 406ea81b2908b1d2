//! Counts the retries of a job that no pod of it shows any more: restarts of containers, and rounds of replaced pods.
//!
//! Owns the numbers and all that changes them. It must not judge them: [`crate::Job::retries`] says what a budget counts, and
//! [`crate::decide`] whether it is spent. Tests: the scenarios of budgets, and `wire/tests.rs` for what is stored.

use model::{Mirror, Timestamp};

/// Restarts of containers, and rounds in which failed pods were replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryCounts {
    past_container_restarts: u32,
    container_restarts: u32,
    rounds: u32,
    round_at: Option<Timestamp>,
}

impl RetryCounts {
    /// Returns counts as they were stored. `past_container_restarts` are those of pods that are gone.
    pub const fn new(
        past_container_restarts: u32,
        container_restarts: u32,
        rounds: u32,
        round_at: Option<Timestamp>,
    ) -> Self {
        Self { past_container_restarts, container_restarts, rounds, round_at }
    }

    /// Returns the counts that a mirror holds. The restarts in present pods are added when these are seen.
    pub(crate) const fn of_mirror(mirror: &Mirror) -> Self {
        Self::new(mirror.container_restarts, 0, mirror.rounds, mirror.round_at)
    }

    /// Writes to a mirror what cannot be read off the present pods.
    pub(crate) const fn write_to(&self, mirror: &mut Mirror) {
        mirror.container_restarts = self.past_container_restarts;
        mirror.rounds = self.rounds;
        mirror.round_at = self.round_at;
    }

    /// Returns the number of restarts of containers in present pods and in those that are gone.
    pub const fn all_container_restarts(&self) -> u32 {
        self.past_container_restarts.saturating_add(self.container_restarts)
    }

    /// Returns the number of restarts of containers in pods that are gone.
    pub(crate) const fn past_container_restarts(&self) -> u32 {
        self.past_container_restarts
    }

    /// Returns the number of restarts of containers in present pods.
    pub(crate) const fn container_restarts(&self) -> u32 {
        self.container_restarts
    }

    /// Returns the number of rounds in which failed pods were replaced, where the budget of the job counts those.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the time of the last round, where the object of the job notes it.
    pub(crate) const fn round_at(&self) -> Option<Timestamp> {
        self.round_at
    }

    /// Counts a pod with this number of restarts that had `known` ones before. Returns true if the restarts in present pods changed.
    pub(crate) const fn count_pod(&mut self, known: u32, restarts: u32) -> bool {
        // A kubelet that evicts a pod may drop the statuses of its containers.
        self.past_container_restarts = self.past_container_restarts.saturating_add(known.saturating_sub(restarts));
        let before = self.container_restarts;
        self.container_restarts = before.saturating_sub(known).saturating_add(restarts);
        self.container_restarts != before
    }

    /// Counts the restarts of a pod that is gone among those of the past.
    pub(crate) const fn count_pod_gone(&mut self, restarts: u32) {
        self.container_restarts = self.container_restarts.saturating_sub(restarts);
        self.past_container_restarts = self.past_container_restarts.saturating_add(restarts);
    }

    /// Adds the retries of a round.
    pub(crate) const fn add_rounds(&mut self, retries: u32) {
        self.rounds = self.rounds.saturating_add(retries);
    }

    /// Notes the time of a round.
    pub(crate) const fn note_round(&mut self, at: Timestamp) {
        self.round_at = Some(at);
    }
}
