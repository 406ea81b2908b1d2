//! ModelVersion object -> [`JobSpec`]: a job of one pod that builds an image, and owns the volume it builds from.
//!
//! Must not render anything (that is `objects.rs`). Tests: `tests.rs`.

use model::{
    CreatePhase, Edits, EndTiming, GroupSpec, JobSpec, Milestones, ObjectAnnotations, OwnedSpec, PhaseRules,
    ReadinessGate, RestartPolicy, RestartScope, Retain, Retryable, Running, SpecFact, Text, Timestamp,
};
use serde_json::{Value, json};
use settings::ModelSettings;

use super::constants::{API_VERSION, CONFIG_MAP, FAILOVER, MODEL_LABEL, POD_ANNOTATION, VOLUME};
use super::crd::spec_schema;
use super::storage::{Place, Storage};
use crate::api::Referenced;
use crate::fields::{Finding, Findings};
use crate::models;
use crate::names::{LABEL_MAX, NOT_DNS_LABEL, is_dns_subdomain};
use crate::objects::{annotation, at, label, list_at, name, text_at, uid};
use crate::owned::CLAIM;
use crate::{replicas, schema};

/// Name of the Dockerfile of all builds in a namespace.
const DOCKERFILE: &str = "dockerfile";

/// Reads the spec of an object, given its model where that is there.
pub(super) fn fact(object: &Value, needed: &Referenced, settings: &ModelSettings) -> SpecFact {
    let (found, findings) = examine(object, needed, settings);
    let (errors, warnings) = findings.into_errors_and_warnings();
    let accepted = found.filter(|_| errors.is_empty());
    let notes = accepted.as_ref().map(|(_, manifest)| Box::new(noted(object, manifest)));
    let fact = match accepted {
        Some((spec, manifest)) => SpecFact::of(Ok(spec), Text::from(model::json::canonical(&manifest))),
        None => SpecFact::refused(errors),
    };
    SpecFact { warnings, notes, ..fact }
}

/// Returns everything that is to be said of the spec of an object.
pub(super) fn findings(object: &Value, settings: &ModelSettings) -> Vec<Finding> {
    examine(object, &Referenced::new(), settings).1.into_list()
}

/// Returns the model that an object is a version of.
pub(super) fn model_of(object: &Value) -> Option<&str> {
    text_at(object, &["spec", "modelName"]).filter(|name| !name.is_empty())
}

fn examine(object: &Value, needed: &Referenced, settings: &ModelSettings) -> (Option<(JobSpec, Value)>, Findings) {
    let mut findings = Findings::default();
    let found = read(object, needed, settings, &mut findings);
    findings.merge(schema::check(spec_schema(), object.get("spec").unwrap_or(&Value::Null), "spec"));
    (found, findings)
}

fn read(
    object: &Value,
    needed: &Referenced,
    settings: &ModelSettings,
    findings: &mut Findings,
) -> Option<(JobSpec, Value)> {
    replicas::job_name(object, findings);
    let spec = object.get("spec");
    let Some(spec) = spec.filter(|spec| spec.is_object()) else {
        findings.error("spec", spec, "must be an object with modelName, imageRepo and storage");
        return None;
    };
    let model = findings.required_text(spec, "spec", "modelName");
    if let Some(name) = model.filter(|name| name.len() > LABEL_MAX || !is_dns_subdomain(name)) {
        let problem = NOT_DNS_LABEL;
        findings.error("spec.modelName", Some(&Value::from(name)), problem);
    }
    let repository = findings.required_text(spec, "spec", "imageRepo");
    let tag = findings.text(spec, "spec", "imageTag").filter(|tag| !tag.is_empty());
    let place = match Storage::read(spec, "spec", false, &settings.storage, findings) {
        Storage::At(place, _) => Some(place),
        Storage::Wrong => None,
        Storage::Absent => {
            findings.error(
                "spec.storage",
                spec.get("storage"),
                "names no storage: there is nothing to build an image from",
            );
            None
        }
    };
    if let Some(Place::Local { node: None, .. }) = place {
        let problem = "must name the node that holds the model";
        findings.error(
            "spec.storage.localStorage.nodeName",
            at(spec, &["storage", "localStorage", "nodeName"]),
            problem,
        );
    }
    let (model, repository, place) = (model?, repository?, place?);
    let uid = uid(object).ok();
    let tag = tag.unwrap_or_else(|| first_five(uid.as_ref().map_or("", |uid| &uid.0)));
    let pod = pod_name(model, tag);
    let manifest = manifest(object, needed, &settings.builder, (model, &format!("{repository}:{tag}"), &pod, place));
    Some((job_spec(model, &pod, &manifest), manifest))
}

/// Returns the first characters of a uid, which stand in names.
pub(crate) fn first_five(uid: &str) -> &str {
    uid.get(..5).unwrap_or(uid)
}

/// Returns the name of the pod. A tag may have characters that a name may not.
fn pod_name(model: &str, tag: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let tag: String = tag.chars().map(plain).collect();
    format!("image-build-{model}-{}", tag.trim_end_matches(['-', '.']))
}

fn manifest(
    object: &Value,
    needed: &Referenced,
    builder: &str,
    (model, image, pod, place): (&str, &str, &str, Place<'_>),
) -> Value {
    let (suffix, source, size) = match place {
        Place::Nfs { server, path } => (String::new(), json!({"nfs": {"server": server, "path": path}}), "1Gi"),
        Place::Local { node, path } => {
            let node = node.unwrap_or_default();
            let term = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}});
            (format!("-{node}"), json!({"local": {"path": path}, "nodeAffinity": affinity}), "500Mi")
        }
    };
    let found = needed.get(&(Text::from(models::KIND), Text::from(model)));
    json!({
        "model": model,
        "image": image,
        "pod": pod,
        "builder": builder,
        "volume": {"name": format!("mv-pv-{}{suffix}", name(object)), "size": size, "source": source},
        "claim": format!("mv-pvc-{}{suffix}", name(object)),
        "owner": found.and_then(|model| uid(model).ok()).map(|uid| uid.0.to_string()),
        "owners": list_at(object, &["metadata", "ownerReferences"]),
    })
}

fn job_spec(model: &str, pod: &str, manifest: &Value) -> JobSpec {
    let owned = |object, awaits, keep| OwnedSpec {
        object,
        when: CreatePhase::Accepted,
        awaits,
        keep,
        digest: None,
        follows: None,
        pods: None,
    };
    let named = |path: &[&str]| text_at(manifest, path).unwrap_or_default();
    let group = GroupSpec {
        name: Text::from(pod),
        display: Some(Text::from("build")),
        replicas: 1,
        restart: RestartPolicy::Listed,
        scope: RestartScope::Each,
        ..GroupSpec::default()
    };
    JobSpec {
        groups: vec![group],
        clean_pods: model::CleanPodPolicy::None,
        // A pod that failed is a build that failed. One whose node is lost has built nothing.
        retryable: Some(Retryable { reasons: Vec::new(), disrupted: false, node: true, gpu: false, main_ended: false }),
        end_annotation: false,
        edits: Edits::BeforePods,
        finalizer: true,
        owned: vec![
            owned(model::OwnedRef::new(API_VERSION, models::KIND, model), ReadinessGate::Exists, Retain::Left),
            owned(CLAIM.named(named(&["claim"])), ReadinessGate::Ready, Retain::Finalized),
            owned(VOLUME.named(named(&["volume", "name"])), ReadinessGate::Exists, Retain::Finalized),
            owned(CONFIG_MAP.named(DOCKERFILE), ReadinessGate::Exists, Retain::Left),
        ],
        phase_rules: PhaseRules {
            creating: false,
            sticky_restarting: false,
            running: Running::All,
            ignores_leaving: false,
            ends: EndTiming::Decided,
            milestones: Milestones::EachPhase,
            queued: true,
        },
        ..JobSpec::default()
    }
}

/// Returns whether the object is marked as a version of its model, once that is there.
fn noted(object: &Value, manifest: &Value) -> ObjectAnnotations {
    let owner = text_at(manifest, &["owner"]);
    let is_owner = |uid: &&str| {
        let owners = list_at(object, &["metadata", "ownerReferences"]);
        owners.iter().any(|owner| text_at(owner, &["uid"]) == Some(*uid))
    };
    let is_labelled = label(object, MODEL_LABEL) == text_at(manifest, &["model"])
        && annotation(object, POD_ANNOTATION) == text_at(manifest, &["pod"]);
    let failed_over = annotation(object, FAILOVER).and_then(Timestamp::parse_rfc3339);
    ObjectAnnotations {
        failed_over,
        marked: owner.map(|uid| is_labelled && is_owner(&uid)),
        ..ObjectAnnotations::default()
    }
}
