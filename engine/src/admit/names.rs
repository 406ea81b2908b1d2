//! Taken names: what a create that met another object means for the job.

use model::{JobKey, Outcome, Uid};

use crate::state::State;

/// The object that holds a name which a job needs for a pod or a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameHolder {
    /// Its uid; `None` when it has none that can be read.
    pub uid: Option<Uid>,
    /// The job that controls it, of any served API.
    pub owner: Option<JobKey>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Its labels are those by which this API's pods and services are watched.
    pub watched: bool,
}

/// Owner of an object, as seen from a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The job's.
    Ours,
    /// The job's, but its labels were changed: no watch shows what becomes of it, so it cannot serve as a pod or service.
    Unseen,
    /// Not the job's.
    Other,
}

impl NameHolder {
    /// Returns whose the object is.
    pub fn ownership(&self, key: &JobKey) -> Ownership {
        match (self.owner.as_ref() == Some(key), self.watched) {
            (false, _) => Ownership::Other,
            (true, false) => Ownership::Unseen,
            (true, true) => Ownership::Ours,
        }
    }
}

impl State {
    /// Returns the outcome of a create whose name is held by another object; `None` when that object is the job's own and
    /// stays, so that it serves. The job waits for a holder that is going, or whose own job is gone.
    pub fn taken(&self, key: &JobKey, holder: &NameHolder) -> Option<Outcome> {
        let job = self.job(key);
        let is_going = job.zip(holder.uid.as_ref()).is_some_and(|(job, uid)| job.deleting_pods.contains(uid));
        let ownership = holder.ownership(key);
        if ownership == Ownership::Ours && !is_going {
            return None;
        }
        let exists = |owner: &JobKey| self.jobs.summary(owner).is_some_and(|job| job.known && !job.gone);
        let owner_is_gone = holder.owner.as_ref().is_some_and(|owner| owner != key && !exists(owner));
        let waiting = is_going || owner_is_gone || holder.deleting;
        Some(Outcome::Taken { waiting, unseen: ownership == Ownership::Unseen })
    }
}
