//! Handles facts that come in: each is admitted and applied at once, so that facts of one record are judged one after the other.
//!
//! Owns that order and nothing else: [`crate::admit`] judges, [`crate::facts`] applies. A fact of a record that was written is applied
//! without a verdict ([`crate::replay`]).

use model::{ClusterFact, JobFact, JobKey, Stamp};

use crate::admit::{Arrival, DropReason};
use crate::state::{Dirty, State};

/// Result of handling a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled<T> {
    /// It was applied, and goes into the record.
    Recorded(T),
    /// It changes nothing, for this reason.
    Dropped(DropReason),
    /// Another operator leads by now and wrote a mirror: this one must start again from the objects.
    Superseded {
        /// Stamp of the mirror.
        mirror: Stamp,
    },
}

impl State {
    /// Handles a fact about the cluster. Returns it with the jobs that it touched, each with the facts that its own record gets.
    pub fn handle_cluster_fact(&mut self, fact: ClusterFact, arrival: Arrival) -> Handled<(ClusterFact, Dirty)> {
        if let Err(reason) = self.admit_cluster_fact(&fact, arrival) {
            return Handled::Dropped(reason);
        }
        let dirty = self.apply_cluster_fact(&fact);
        Handled::Recorded((fact, dirty))
    }

    /// Handles a fact about a job. Returns it as it is recorded.
    pub fn handle_job_fact(&mut self, key: &JobKey, mut fact: JobFact, arrival: Arrival) -> Handled<JobFact> {
        self.leave_known_out(key, &mut fact);
        if let JobFact::Adopted(adopted) = &fact
            && self.is_superseded(key, arrival)
        {
            return Handled::Superseded { mirror: adopted.mirror.stamp };
        }
        if let Err(reason) = self.admit_job_fact(key, &fact, arrival) {
            return Handled::Dropped(reason);
        }
        self.apply_job_fact(key, &fact);
        Handled::Recorded(fact)
    }

    /// Leaves out of a pod what the spec of its job says as well.
    fn leave_known_out(&self, key: &JobKey, fact: &mut JobFact) {
        if let JobFact::Pod(pod) = fact
            && self.jobs.live(key).map_or_else(|| self.jobs.is_finished(key), |job| job.spec().is_some())
        {
            pod.holds = None;
        }
    }
}
