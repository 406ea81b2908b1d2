//! TorchrunQueue object -> [`JobSpec`]: a job without groups that owns the KAI Queue, the claim of the datasets, and the objects of
//! templates.
//!
//! It must not render anything (that is `objects.rs`). Tests: `tests.rs`.

use model::{CreatePhase, JobSpec, OwnedSpec, ReadinessGate, Retain, SpecFact, Text};
use serde_json::{Value, json};

use super::constants::KAI_QUEUE;
use super::crd::spec_schema;
use super::objects::{claim, kai_queue};
use super::settings::Queue;
use super::templates::Templated;
use crate::fields::Findings;
use crate::objects::{at, name};
use crate::owned::{self, CLAIM};
use crate::replicas;
use crate::translation::{self, Translation};

/// Reads specs of this API.
pub(super) const TRANSLATION: Translation = Translation { read, schema: spec_schema, manifest };

/// Reads a queue object. The manifest gives its generation even where the spec cannot be accepted.
pub(super) fn fact(object: &Value) -> SpecFact {
    let fact = TRANSLATION.fact(object);
    if fact.spec.is_ok() {
        return fact;
    }
    let manifest = json!({"generation": at(object, &["metadata", "generation"])});
    SpecFact { manifest: Text::from(model::json::canonical(&manifest)), ..fact }
}

fn read(object: &Value, findings: &mut Findings) -> Option<JobSpec> {
    replicas::job_name(object, findings);
    let queue = Queue::read(object, findings)?;
    let mut owned = Vec::new();
    owned.extend(queue.kai.map(|kai| OwnedSpec {
        object: KAI_QUEUE.named(kai),
        when: CreatePhase::Accepted,
        awaits: ReadinessGate::Nothing,
        keep: Retain::Finalized,
        digest: Some(owned::digest(&kai_queue(&manifest(object)))),
        follows: None,
        pods: None,
    }));
    let datasets = queue.volumes.datasets.filter(|volume| volume.existing.is_none());
    owned.extend(datasets.map(|volume| OwnedSpec {
        object: CLAIM.named(&datasets_claim(&name(object))),
        when: CreatePhase::Accepted,
        awaits: ReadinessGate::Nothing,
        keep: if volume.retain == Some(false) { Retain::WithJob } else { Retain::Retained },
        digest: Some(owned::digest(&claim(&manifest(object)))),
        follows: None,
        pods: None,
    }));
    owned.extend(queue.templates.iter().map(Templated::owned));
    Some(JobSpec { owned, finalizer: true, counts_referrers: true, ..translation::without_groups() })
}

/// Returns the name of the claim for the datasets of a queue.
pub(crate) fn datasets_claim(queue: &str) -> String {
    format!("{queue}-datasets")
}

/// Returns the manifest that the queue's objects are rendered from.
pub(super) fn manifest(object: &Value) -> Value {
    let mut findings = Findings::default();
    let queue = Queue::read(object, &mut findings);
    let datasets = queue.as_ref().and_then(|queue| queue.volumes.datasets);
    let mut manifest = json!({
        "generation": at(object, &["metadata", "generation"]),
        "name": &*name(object),
        "namespace": at(object, &["metadata", "namespace"]),
        "parent": queue.as_ref().map(|queue| queue.parent),
        "resources": at(object, &["spec", "queue", "resources"]),
        "datasets": datasets.map(|volume| json!({"size": volume.size, "class": volume.class})),
    });
    let objects: Vec<Value> = queue.iter().flat_map(|queue| &queue.templates).map(Templated::stored).collect();
    if let Some(members) = manifest.as_object_mut().filter(|_| !objects.is_empty()) {
        members.insert("objects".to_owned(), Value::Array(objects));
    }
    manifest
}
