//! Applies what was decided of objects that a job owns besides pods and services of slots.

use model::OwnedRef;

use crate::job::{Job, PendingDeletion};

/// Plans objects, to be created.
pub(super) fn planned(job: &mut Job, objects: &[OwnedRef]) {
    for object in objects {
        job.owned.entry(object.clone()).or_default().planned = true;
    }
}

/// Marks objects to be deleted.
pub(super) fn dropped(job: &mut Job, objects: &[OwnedRef]) {
    for object in objects {
        if let Some(owned) = job.owned.get_mut(object) {
            owned.deletion.get_or_insert_with(|| Box::new(PendingDeletion::unconditional()));
        }
    }
}
