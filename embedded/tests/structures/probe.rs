//! An API for tests: jobs of AITrainingJob's form, to which an annotation adds what that API has no words for.

use std::sync::Arc;

use apis::aitrainingjob::{self, AiTrainingJob};
use apis::api::{Descriptor, OwnedApi, PodApi, PodSlot, ReferenceApi, RenderInput};
use apis::fields::Finding;
use apis::owned::{self, Access, CLAIM, OwnedType};
use apis::{JobApi, Referenced, Registry, Verb, objects};
use model::fact::Adopted;
use model::{
    CreatePhase, Dependency, Edits, FieldError, JobEndPolicy, JobKey, JobSpec, Missing, ObjectFact, OwnedRef,
    OwnedSpec, Reached, ReadinessGate, Retain, SlotId, SpecFact, Text,
};
use serde_json::{Value, json};

const GROUP: &str = "probe.example.com";
pub(crate) const API_VERSION: &str = "probe.example.com/v1";
const LABEL: (&str, &str) = ("probe", "yes");
const FINALIZER: &str = "probe.example.com/protection";
const EXTRA: &str = "probe.example.com/extra";

/// A type whose objects have no namespace, so that no job can be their owner.
pub(crate) const POOL: OwnedType = OwnedType {
    api_version: "probe.example.com/v1",
    kind: "Pool",
    plural: "pools",
    namespaced: false,
    optional: true,
    access: Access::Managed,
    reports: None,
    pods: apis::owned::Pods::Unrelated,
    reason: "Pools of nodes are made for jobs.",
};

/// The kinds of this API. Specs of probes may reference templates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Probe,
    Template,
}

pub(crate) struct Probe(Kind);

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Probe(Kind::Probe)));
    registry.add(Arc::new(Probe(Kind::Template)));
    registry
}

/// The definition of a type in this group.
pub(crate) fn definition(kind: &str, plural: &str, scope: &str) -> Value {
    let mut crd = aitrainingjob::DESCRIPTOR.crd();
    crd["metadata"]["name"] = json!(format!("{plural}.{GROUP}"));
    crd["spec"]["group"] = json!(GROUP);
    crd["spec"]["scope"] = json!(scope);
    crd["spec"]["names"] =
        json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()});
    crd
}

impl Probe {
    fn read(&self, object: &Value) -> SpecFact {
        let mut fact = AiTrainingJob.spec_fact(object);
        let extra: Value =
            objects::annotation(object, EXTRA).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if let Ok(spec) = &mut fact.spec {
            if self.0 == Kind::Template {
                // It has no pods and does not end.
                *spec = JobSpec { complete: JobEndPolicy::None, fail: JobEndPolicy::None, ..JobSpec::default() };
            }
            add(spec, &extra);
        }
        fact
    }
}

/// Adds to a spec what the annotation says.
fn add(spec: &mut JobSpec, extra: &Value) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(Text::from);
    let truth = |value: &Value, key: &str| value.get(key).and_then(Value::as_bool) == Some(true);
    spec.suspended = truth(extra, "suspended");
    spec.finalizer = truth(extra, "finalizer");
    spec.phase_rules.queued = truth(extra, "queued");
    if truth(extra, "numbers") {
        spec.edits = Edits::Numbers;
    }
    for group in &mut spec.groups {
        let of = &extra["groups"][&*group.name];
        group.once = truth(of, "once");
        group.drops_succeeded = group.once;
        group.shape = text(of, "run");
        let reached = |word: &str| match word {
            "scheduled" => Reached::Scheduled,
            "running" => Reached::Running,
            _ => Reached::Succeeded,
        };
        let after = of["after"].as_object().into_iter().flatten();
        group.after = after
            .map(|(group, word)| Dependency {
                group: group.as_str().into(),
                reached: reached(word.as_str().unwrap_or_default()),
            })
            .collect();
    }
    for of in extra["owned"].as_array().into_iter().flatten() {
        let kind = if text(of, "kind").as_deref() == Some(POOL.kind) { POOL } else { CLAIM };
        let name = text(of, "name").unwrap_or_default();
        spec.owned.push(OwnedSpec {
            object: kind.named(&name),
            when: if truth(of, "succeeded") { CreatePhase::Succeeded } else { CreatePhase::Accepted },
            awaits: if truth(of, "ready") { ReadinessGate::Ready } else { ReadinessGate::Exists },
            keep: match text(of, "keep").as_deref() {
                Some("end") => Retain::UntilEnd,
                Some("retained") => Retain::Retained,
                Some("finalized") => Retain::Finalized,
                _ => Retain::WithJob,
            },
            digest: text(of, "size").map(|size| owned::digest(&json!(&*size))),
            follows: text(of, "follows"),
            pods: None,
        });
    }
}

/// The object as one of this API's: with its owner and label instead of `AITrainingJob`'s.
fn own(mut object: Value, shape: Option<&Text>) -> Value {
    let metadata = &mut object["metadata"];
    metadata["ownerReferences"][0]["apiVersion"] = json!(API_VERSION);
    metadata["ownerReferences"][0]["kind"] = json!("Probe");
    metadata["labels"][LABEL.0] = json!(LABEL.1);
    if let Some(shape) = shape {
        metadata["annotations"][objects::SHAPE] = json!(&**shape);
    }
    object
}

/// Constants of both kinds.
const BOTH: Descriptor = Descriptor {
    label: Some(LABEL),
    verbs: &[Verb::Patch, Verb::Delete],
    finalizer: Some(FINALIZER),
    owned_types: &[POOL],
    ..Descriptor::new(
        API_VERSION,
        "ProbeTemplate",
        "probetemplates",
        "probe",
        || definition("ProbeTemplate", "probetemplates", "Namespaced"),
        aitrainingjob::DESCRIPTOR.phase_word,
    )
};

/// Constants of the kind whose specs reference templates.
const PROBE: Descriptor = Descriptor {
    kind: "Probe",
    plural: "probes",
    owned_types: &[CLAIM, POOL],
    referenced_kinds: &["ProbeTemplate"],
    crd: || definition("Probe", "probes", "Namespaced"),
    ..BOTH
};

impl JobApi for Probe {
    fn descriptor(&self) -> &'static Descriptor {
        if self.0 == Kind::Probe { &PROBE } else { &BOTH }
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        let finalizers: Vec<Text> = objects::list_at(object, &["metadata", "finalizers"])
            .iter()
            .filter_map(|name| name.as_str().map(Text::from))
            .collect();
        let finalized = finalizers.iter().any(|name| **name == *FINALIZER);
        ObjectFact { finalizers, finalized, ..AiTrainingJob.object_fact(object) }
    }

    fn spec_inputs(&self, object: &Value) -> Value {
        json!([objects::at(object, &["metadata", "generation"]), objects::annotation(object, EXTRA)])
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        self.read(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        AiTrainingJob.findings(object)
    }

    fn adopt(&self, object: &Value) -> Adopted {
        AiTrainingJob.adopt(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        AiTrainingJob.status(key, job)
    }

    fn pods(&self) -> Option<&dyn PodApi> {
        Some(self)
    }

    fn owned(&self) -> Option<&dyn OwnedApi> {
        Some(self)
    }

    fn references(&self) -> Option<&dyn ReferenceApi> {
        (self.0 == Kind::Probe).then_some(self)
    }
}

impl PodApi for Probe {
    fn slot_of(&self, object: &Value) -> Option<SlotId> {
        AiTrainingJob.slot_of(object)
    }

    fn main_containers<'a>(&self, pod: &'a Value) -> Vec<&'a str> {
        AiTrainingJob.main_containers(pod)
    }

    fn slot_name(&self, job: &JobKey, slot: &SlotId) -> Text {
        AiTrainingJob.slot_name(job, slot)
    }

    fn render(&self, source: RenderInput<'_>, pods: &[PodSlot<'_>]) -> Vec<Result<Value, FieldError>> {
        let shapes = pods.iter().map(|pod| pod.group.shape.as_ref());
        let rendered = AiTrainingJob.render(source, pods).into_iter().zip(shapes);
        rendered.map(|(pod, shape)| pod.map(|pod| own(pod, shape))).collect()
    }

    fn service(&self, source: RenderInput<'_>, slot: &SlotId) -> Result<Value, FieldError> {
        AiTrainingJob.service(source, slot).map(|service| own(service, None))
    }
}

impl ReferenceApi for Probe {
    fn referenced(&self, object: &Value) -> Vec<(Text, Text)> {
        let name = objects::annotation(object, "probe.example.com/template");
        name.map(|name| ("ProbeTemplate".into(), name.into())).into_iter().collect()
    }

    fn spec_fact_with(&self, object: &Value, needed: &Referenced) -> SpecFact {
        let needs = self.referenced(object);
        let lacks = |name: &&(Text, Text)| !needed.contains_key(*name);
        let missing: Vec<Missing> = needs
            .iter()
            .filter(lacks)
            .map(|(kind, name)| Missing { kind: kind.clone(), name: name.clone(), problem: None })
            .collect();
        let fact = self.read(object);
        let spec = if missing.is_empty() { fact.spec } else { Err(Vec::new()) };
        SpecFact { spec, missing, needs, ..fact }
    }
}

impl OwnedApi for Probe {
    fn render_owned(
        &self,
        _source: RenderInput<'_>,
        job: &engine::Job,
        object: &OwnedRef,
    ) -> Result<Value, FieldError> {
        let labels = json!({LABEL.0: LABEL.1});
        if &*object.kind == POOL.kind {
            return Ok(json!({"metadata": {"labels": labels}, "spec": {"replicaSpecs": {}}}));
        }
        let run = job.groups.values().find_map(|group| group.achieved.clone()).unwrap_or_default();
        let labels = json!({LABEL.0: LABEL.1, "run": &*run});
        let resources = json!({"requests": {"storage": "1Gi"}});
        Ok(json!({"metadata": {"labels": labels}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}))
    }
}
