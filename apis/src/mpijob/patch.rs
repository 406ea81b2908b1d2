//! Fields of an MPIJob by which the MPI operator learns what was decided: whether the job may have pods, how many, and on which nodes.
//!
//! They are written together with the mirror, in one patch. A digest of them stands beside the mirror and shows when another client
//! changed them. Tests: `tests.rs`.

use engine::Job;
use model::Text;
use serde_json::{Map, Value, json};

use super::constants::{WORKER, WORKER_LOWER};
use super::{spec, tolerations};
use crate::demand::{self, QUEUE};
use crate::objects::{at, text_at};
use crate::owned::digest;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpecPatch {
    suspend: bool,
    /// Label of the workers.
    queue: Option<Text>,
    /// Affinity of the workers; null for none.
    affinity: Value,
    /// Number of workers, where the environment of the launcher names it.
    replicas: Option<u64>,
    /// Tolerations of the workers, where they tolerate Voda's taints.
    tolerations: Option<Value>,
}

impl SpecPatch {
    /// Returns the fields of an object.
    pub(super) fn of(object: &Value) -> Self {
        let template = at(object, &["spec", "mpiReplicaSpecs", WORKER, "template"]).unwrap_or(&Value::Null);
        let suspend = at(object, &["spec", "runPolicy", "suspend"]).and_then(Value::as_bool);
        let replicas = at(object, &["spec", "mpiReplicaSpecs", WORKER, "replicas"]).and_then(Value::as_u64);
        let replicas = replicas.filter(|_| spec::is_sized(object));
        Self::with(suspend.unwrap_or_default(), template, replicas, spec::names_accelerator(object))
    }

    /// Returns the fields that a job shall have, given what its user wrote in their place: the manifest of its spec.
    pub(super) fn wanted(manifest: &Value, job: &Job) -> Self {
        let mut template = manifest.get("template").cloned().unwrap_or_default();
        let tolerates_voda = manifest.get("toleratesVoda").is_some();
        if tolerates_voda {
            tolerations::add(&mut template);
        }
        let is_suspended = job.spec().is_some_and(|spec| spec.suspended);
        let nodes = job.allocation.share.groups.get(WORKER_LOWER).map_or(&[][..], Vec::as_slice);
        let mut names: Vec<&str> = nodes.iter().map(|node| &**node).collect();
        names.sort_unstable();
        names.dedup();
        // All workers have one template: where one may run anywhere, all may.
        if names.contains(&"") {
            names.clear();
        }
        if !nodes.is_empty() {
            // A rule by labels could not be distinguished from one of the user's when the object is read again.
            demand::place(&mut template, &names, job.queue(), None);
        }
        let suspend = is_suspended || job.is_halting() || (job.allocation.gated && nodes.is_empty());
        let group = job.spec().and_then(|spec| spec.group(WORKER_LOWER)).filter(|group| group.sizes.is_some());
        // The MPI operator deletes the workers of a suspended job below this number.
        let replicas = group.map(|group| match nodes.len() {
            0 if suspend => u64::from(group.replicas),
            0 => u64::from(group.size_range().preferred),
            granted => u64::try_from(granted).unwrap_or(u64::MAX),
        });
        Self::with(suspend, &template, replicas, tolerates_voda)
    }

    fn with(suspend: bool, template: &Value, replicas: Option<u64>, tolerates_voda: bool) -> Self {
        Self {
            replicas,
            suspend,
            queue: text_at(template, &["metadata", "labels", QUEUE]).map(Text::from),
            affinity: at(template, &["spec", "affinity"]).cloned().unwrap_or_default(),
            tolerations: tolerates_voda.then(|| at(template, &["spec", "tolerations"]).cloned().unwrap_or_default()),
        }
    }

    /// Returns the digest that stands beside the mirror.
    pub(super) fn digest(&self) -> Text {
        let fields = json!([self.suspend, self.queue.as_deref(), self.affinity, self.replicas]);
        // A job without them has the digest that it had before there were tolerations.
        digest(&match &self.tolerations {
            Some(tolerations) => json!([fields, tolerations]),
            None => fields,
        })
    }

    /// Returns the merge patch of `spec` that writes them.
    pub(super) fn patch(&self) -> Value {
        let mut spec = Map::from_iter([("affinity".to_owned(), replacing(&self.affinity))]);
        if let Some(tolerations) = &self.tolerations {
            spec.insert("tolerations".to_owned(), tolerations.clone());
        }
        let template = json!({"metadata": {"labels": {QUEUE: self.queue.as_deref()}}, "spec": spec});
        let mut worker = Map::from_iter([("template".to_owned(), template)]);
        if let Some(replicas) = self.replicas {
            worker.insert("replicas".to_owned(), json!(replicas));
        }
        json!({"runPolicy": {"suspend": self.suspend}, "mpiReplicaSpecs": {WORKER: worker}})
    }
}

/// Returns the merge patch that leaves an affinity with these rules for nodes, and no others.
fn replacing(affinity: &Value) -> Value {
    let Some(members) = affinity.as_object() else { return Value::Null };
    let nodes = members.get("nodeAffinity").and_then(Value::as_object).map_or(Value::Null, |own| {
        let mut nodes = own.clone();
        for key in [REQUIRED, PREFERRED] {
            nodes.entry(key).or_insert(Value::Null);
        }
        Value::Object(nodes)
    });
    let mut patch = members.clone();
    patch.insert("nodeAffinity".to_owned(), nodes);
    Value::Object(patch)
}

/// Returns the template of the workers without what was written into it: label and nodes. Rules by the names of nodes are ours.
pub(super) fn own(mut template: Value) -> Value {
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(QUEUE);
    }
    prune(&mut template, &["metadata", "labels"]);
    if let Some(nodes) = template.pointer_mut("/spec/affinity/nodeAffinity").and_then(Value::as_object_mut) {
        unbind(nodes, PREFERRED, |preference| preference.get_mut("preference"));
        if let Some(required) = nodes.get_mut(REQUIRED).and_then(Value::as_object_mut) {
            unbind(required, "nodeSelectorTerms", |term| Some(term));
        }
    }
    prune(&mut template, &["spec", "affinity", "nodeAffinity", REQUIRED]);
    template
}

/// Takes the names of nodes out of each term of a list. Terms that say nothing else go, and so does a list without terms.
fn unbind(parent: &mut Map<String, Value>, key: &str, term: fn(&mut Value) -> Option<&mut Value>) {
    let Some(list) = parent.get_mut(key).and_then(Value::as_array_mut) else { return };
    let mut kept: Vec<Value> = Vec::new();
    for mut each in std::mem::take(list) {
        let is_empty = term(&mut each).and_then(Value::as_object_mut).is_some_and(|term| {
            if let Some(fields) = term.get_mut("matchFields").and_then(Value::as_array_mut) {
                fields.retain(|field| text_at(field, &["key"]) != Some("metadata.name"));
                if fields.is_empty() {
                    term.remove("matchFields");
                }
            }
            term.is_empty()
        });
        if !is_empty && !kept.contains(&each) {
            kept.push(each);
        }
    }
    if kept.is_empty() {
        parent.remove(key);
    } else {
        *list = kept;
    }
}

/// Removes the last member of a path if it is empty, then the one before it, and so on.
fn prune(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(members) = value.as_object_mut() else { return };
    if let Some(member) = members.get_mut(*first) {
        prune(member, rest);
        if member.as_object().is_some_and(Map::is_empty) {
            members.remove(*first);
        }
    }
}
