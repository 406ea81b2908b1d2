//! MPIJob (`kubeflow.org/v2beta1`), as Voda schedules it. Its pods, status and definition are the MPI operator's.
//!
//! Trainyard decides when a job starts, on which nodes, and when it halts. Each file has one direction: `spec` reads the object,
//! `patch` the fields by which the MPI operator learns what was decided, `tolerations` those of them about Voda's taints, `state` writes and
//! reads the mirror beside them, `crd` is the part of the schema that is read, `constants` the vocabulary. A job that names neither a queue
//! nor a type of GPU is left alone. Tests: `tests.rs`.

mod constants;
mod crd;
mod patch;
mod spec;
mod state;
mod tolerations;

#[cfg(test)]
mod tests;

use model::fact::Adopted;
use model::{FieldError, JobKey, ObjectFact, SlotId, SpecFact, Text};
use serde_json::{Value, json};

use crate::api::{Descriptor, ExternalApi, JobApi, PodApi, PodSlot, RenderInput, SchedulingApi};
use crate::call::Verb;
use crate::demand;
use crate::fields::{Finding, Findings};
use crate::objects::{annotation, at, container_names, label, text_at};

pub use constants::{ACCELERATOR, API_VERSION, KIND, LAUNCHER, MAX_VARIABLES, MIN_VARIABLES, PHASE, WORKER};
pub use tolerations::add as tolerate_voda;

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    label: Some((constants::OPERATOR_LABEL, constants::OPERATOR)),
    verbs: &[Verb::Patch],
    ..Descriptor::new(API_VERSION, KIND, constants::PLURAL, "voda-scheduler", crd::crd, constants::phase_word)
};

/// The MPIJob API.
#[derive(Debug, Clone, Copy, Default)]
pub struct MpiJob;

impl JobApi for MpiJob {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        state::object_fact(object)
    }

    fn spec_inputs(&self, object: &Value) -> Value {
        let metadata = |key| at(object, &["metadata", key]).cloned().unwrap_or_default();
        json!([metadata("generation"), metadata("labels"), annotation(object, constants::SUSPEND)])
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        spec::fact(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        let mut findings = Findings::default();
        findings.merge(spec::TRANSLATION.findings(object));
        findings.warn("kind", object.get("kind"), spec::service(object));
        findings.into_list()
    }

    fn adopt(&self, object: &Value) -> Adopted {
        state::adopt(object)
    }

    fn status(&self, _key: &JobKey, _job: &engine::Job) -> Value {
        Value::Null
    }

    fn pods(&self) -> Option<&dyn PodApi> {
        Some(self)
    }

    fn external(&self) -> Option<&dyn ExternalApi> {
        Some(self)
    }

    fn scheduling(&self) -> Option<&dyn SchedulingApi> {
        Some(self)
    }
}

impl PodApi for MpiJob {
    fn main_containers<'a>(&self, pod: &'a Value) -> Vec<&'a str> {
        container_names(pod).collect()
    }

    /// The index stands in the name: the label counts from 1 where the launcher is a worker as well.
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        let job = label(object, constants::JOB_LABEL)?;
        let role = label(object, constants::ROLE_LABEL)?;
        if role == constants::LAUNCHER_LOWER {
            // One without GPUs is in no group.
            at(object, &["spec"]).filter(|spec| !demand::requests(spec).is_empty())?;
            return Some(SlotId { group: Text::from(constants::LAUNCHER_LOWER), index: 0 });
        }
        if role != constants::WORKER_LOWER {
            return None;
        }
        let name = text_at(object, &["metadata", "name"])?;
        let index = name.strip_prefix(job)?.strip_prefix("-worker-")?;
        Some(SlotId { group: Text::from(constants::WORKER_LOWER), index: index.parse().ok()? })
    }

    /// Returns the pods as far as they are known here: their template. The MPI operator creates them.
    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        let template = |pod: &PodSlot<'_>| {
            let of_launcher = *pod.slot.group == *constants::LAUNCHER_LOWER;
            let member = if of_launcher { constants::LAUNCHER_TEMPLATE } else { "template" };
            let mut pod = source.manifest.get(member).cloned().unwrap_or_default();
            if !of_launcher && source.manifest.get("toleratesVoda").is_some() {
                tolerations::add(&mut pod);
            }
            Ok(pod)
        };
        pods.iter().map(template).collect()
    }
}

impl ExternalApi for MpiJob {
    fn state_patch(&self, key: &JobKey, job: &engine::Job, source: Option<RenderInput<'_>>) -> Value {
        state::patch(key, job, source.map(|source| source.manifest))
    }
}

impl SchedulingApi for MpiJob {
    fn units(&self, object: &Value) -> Option<u64> {
        spec::units(object)
    }

    fn level(&self, object: &Value) -> u32 {
        spec::level(object)
    }
}
