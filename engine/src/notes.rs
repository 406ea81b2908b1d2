//! Notes: annotations to be written on a job's object, and protected pods whose finalizer is removed.
//!
//! Derived from what stands there and from the job's pods, never stored: a note that was written is one that stands there. It must
//! not know an API's keys. Tests: the scenarios of TorchJob.

use model::{AnnotationChanges, Checkpoint, Elastic, ObjectAnnotations, Phase, ScalingStep, SpecFact, Text, Timestamp};

use crate::group::Group;
use crate::job::{Job, Pod};

impl Job {
    /// Returns the notes that stand on the object of an elastic job.
    pub(crate) fn elastic(&self) -> Option<&Elastic> {
        self.noted()?.elastic.as_ref()
    }

    /// Returns the notes that stand on its object.
    pub(crate) fn noted(&self) -> Option<&ObjectAnnotations> {
        self.spec.as_ref()?.notes.as_deref()
    }

    /// Returns the notes that are to be written; `None` when all stand there.
    pub(crate) fn missing_notes(&self) -> Option<AnnotationChanges> {
        let noted = self.noted().filter(|_| !self.phase.is_terminal() && self.ending().is_none())?;
        // Objects hold whole seconds.
        let shown = |at: Timestamp| Timestamp::parse_rfc3339(&at.to_rfc3339());
        let failed_over = self.retry_counts.round_at().filter(|at| shown(*at) != noted.failed_over);
        let elastic = noted.elastic.as_ref().filter(|_| self.phase == Phase::Running);
        let notes = elastic.map(|elastic| self.elastic_notes(elastic)).unwrap_or_default();
        // What is rendered follows the spec that is in force. An edit may have to wait for the end of the pods.
        let manifest = |spec: &Option<std::sync::Arc<SpecFact>>| spec.as_ref().map(|spec| spec.manifest.clone());
        let marked = noted.marked == Some(false) && manifest(&self.spec) == manifest(&self.valid);
        let restarted =
            self.autoscaler.as_ref().is_some_and(|own| own.next == ScalingStep::RestartPods) && self.is_of_one_size();
        let restarts = (restarted && noted.restarts != Some(false)).then_some(false);
        let replicas = self.autoscaler.as_ref().and_then(|own| own.wanted());
        let storage_node = self.unwritten_node().cloned();
        let notes = AnnotationChanges { failed_over, marked, restarts, replicas, storage_node, ..notes };
        (notes != AnnotationChanges::default()).then_some(notes)
    }

    fn elastic_notes(&self, elastic: &Elastic) -> AnnotationChanges {
        let has_victims = self.victims().next().is_some();
        let ask = AnnotationChanges {
            requested: has_victims.then_some(Checkpoint { version: elastic.generation, done: false }),
            ..AnnotationChanges::default()
        };
        match elastic.requested {
            None => {
                if has_victims {
                    return ask;
                }
            }
            Some(asked) if elastic.completed != Some(asked.version) => return AnnotationChanges::default(),
            Some(asked) if asked.done => {
                if has_victims {
                    return ask;
                }
            }
            // Their finalizers are removed first.
            Some(_) if has_victims => return AnnotationChanges::default(),
            Some(asked) => {
                return AnnotationChanges {
                    requested: Some(Checkpoint { done: true, ..asked }),
                    starts: Some(true),
                    generation: Some(elastic.generation.saturating_add(1)),
                    ..AnnotationChanges::default()
                };
            }
        }
        if self.is_scaling_open(elastic) && !self.is_of_one_generation() {
            return AnnotationChanges {
                scaling: (elastic.scaling != Some(true)).then_some(true),
                ..AnnotationChanges::default()
            };
        }
        if elastic.scaling == Some(true) && self.is_of_one_generation() {
            return AnnotationChanges {
                scaling: Some(false),
                starts: Some(false),
                at_once: elastic.at_once.then_some(false),
                ..AnnotationChanges::default()
            };
        }
        AnnotationChanges::default()
    }

    /// Returns true if pods of an older generation may be replaced: it is noted, and no checkpoint is under way.
    pub(crate) fn is_scaling_open(&self, elastic: &Elastic) -> bool {
        let is_under_way =
            elastic.requested.is_some_and(|asked| !asked.done || elastic.completed != Some(asked.version));
        let is_open = elastic.starts || elastic.at_once;
        is_open && elastic.generation > 1 && !is_under_way && self.victims().next().is_none()
    }

    /// Returns true if every pod of the groups that have a generation is of the present one.
    fn is_of_one_generation(&self) -> bool {
        self.spec_groups().filter(|(spec, _)| spec.shape.is_some()).all(|(_, group)| self.is_current(group))
    }

    /// Returns true if every slot of a group has a pod of the present shape, none of which is going.
    pub(crate) fn is_current(&self, group: &Group) -> bool {
        let stays = |pod: &Pod| !pod.is_leaving();
        let has_pod = |slot: &crate::group::Slot| {
            let pod = slot.pod.as_ref().and_then(|uid| self.pods.get(uid));
            slot.done || pod.is_some_and(|pod| stays(pod))
        };
        group.outdated.is_empty() && group.slots.iter().all(has_pod)
    }

    /// Returns the protected pods that others delete. Their finalizers are removed once a checkpoint is written.
    fn victims(&self) -> impl Iterator<Item = &Pod> {
        let is_victim =
            |pod: &&Pod| pod.fact.protected.is_some() && pod.fact.deleting.is_some() && pod.deletion.is_none();
        self.pods.values().map(|pod| &**pod).filter(is_victim)
    }

    /// Returns the finalizers that stay on a pod whose protection is removed; `None` for a pod that is not protected or is held back. Once
    /// every pod has ended no process is left that could write a checkpoint, as in a namespace that is deleted.
    pub(crate) fn released<'a>(&self, pod: &'a Pod) -> Option<&'a Vec<Text>> {
        let others = pod.fact.protected.as_ref().filter(|_| pod.fact.deleting.is_some())?;
        let elastic = self.elastic().filter(|_| self.phase == Phase::Running);
        let has_object = self.object.is_present();
        let is_protected = pod.deletion.is_none() && has_object && self.live_pods().next().is_some();
        let is_written = |elastic: &Elastic| {
            elastic.requested.is_some_and(|asked| !asked.done && elastic.completed == Some(asked.version))
        };
        (!is_protected || elastic.is_none_or(is_written)).then_some(others)
    }
}
