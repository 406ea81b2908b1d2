//! `trainyard rbac`: the roles on jobs, pods and services that this build needs, as YAML documents.
//!
//! Owns their text, comments included; which rights they hold is `apis::resources`'. Tests: `tests/cluster/deploy.rs`.

use std::fmt::Write as _;
use std::process::ExitCode;

use apis::{Registry, ServedResource};
use model::Kind;
use serde_json::Value;
use terminal::out;

/// Prints the roles.
pub(crate) fn run() -> ExitCode {
    out::print(&roles(&Registry::all()));
    ExitCode::SUCCESS
}

/// The operator's role in the namespaces of jobs, the additions to the built-in roles view, edit and admin, and the role for the queues of
/// the cluster.
fn roles(registry: &Registry) -> String {
    let resources = registry.resources();
    let mut text = String::from(
        "# Written by `trainyard rbac`: rights of the operator in the namespaces of jobs. `overlays/namespaced` gives them in one\n\
         # namespace instead of everywhere.\n",
    );
    text.push_str(&head("trainyard-jobs", &[]));
    for row in resources.iter().filter(|row| row.namespaced) {
        for right in &row.rights {
            for reason in &right.reasons {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  # {reason}");
            }
            let target = match right.subresource {
                "" => row.plural.to_owned(),
                subresource => format!("{}/{subresource}", row.plural),
            };
            text.push_str(&rule(row, &target, &right.verbs));
        }
    }
    let jobs = || resources.iter().filter(|row| row.kind == Some(Kind::Job)).map(|row| (row, scales(registry, row)));
    text.push_str("---\n# Jobs become part of the built-in roles view, edit and admin.\n");
    text.push_str(&head("trainyard-jobs-view", &["view"]));
    text.extend(jobs().map(reading));
    text.push_str("---\n# Users who submit write jobs alone.\n");
    text.push_str(&head("trainyard-jobs-edit", &["edit", "admin"]));
    let (submitted, others): (Vec<_>, Vec<_>) = jobs().partition(|(row, _)| is_submitted(registry, row));
    text.extend(submitted.into_iter().map(writing));
    let (namespaced, cluster): (Vec<_>, Vec<_>) = others.into_iter().partition(|(row, _)| row.namespaced);
    text.push_str(
        "---\n# Administrators of a namespace write its queues and models too: the operator creates objects outside of it for \
         them.\n",
    );
    text.push_str(&head("trainyard-jobs-admin", &["admin"]));
    text.extend(namespaced.into_iter().map(writing));
    text.push_str(
        "---\n# Administrators of the cluster write its queues. No built-in role includes this one: bind it.\n",
    );
    text.push_str(&head("trainyard-jobs-platform-admin", &[]));
    // A role in a namespace gives no user the right to read them, and `kubectl apply` reads first.
    text.extend(cluster.into_iter().map(|resource| reading(resource) + &writing(resource)));
    text
}

/// Returns the rule for reading the objects of an API with their subresources.
fn reading((row, scales): (&ServedResource, bool)) -> String {
    let scale = if scales { format!(", {}/scale", row.plural) } else { String::new() };
    rule(row, &format!("{0}, {0}/status{scale}", row.plural), &["get", "list", "watch"])
}

/// Returns the rules for writing the objects of an API, and their scale if its definition has one.
fn writing((row, scales): (&ServedResource, bool)) -> String {
    let mut rules = rule(row, row.plural, &["create", "delete", "deletecollection", "patch", "update"]);
    if scales {
        rules.push_str("  # For `kubectl scale`.\n");
        rules.push_str(&rule(row, &format!("{}/scale", row.plural), &["patch", "update"]));
    }
    rules
}

/// Returns true for an API whose objects run pods and leave nothing that a finalizer has to delete.
fn is_submitted(registry: &Registry, row: &ServedResource) -> bool {
    registry.get(&row.resource).is_some_and(|api| api.pods().is_some() && api.descriptor().finalizer.is_none())
}

/// Returns true if the definition of a resource has the subresource `scale`.
fn scales(registry: &Registry, row: &ServedResource) -> bool {
    let crd = registry.get(&row.resource).map(|api| api.crd()).unwrap_or_default();
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    versions.into_iter().flatten().any(|version| version.pointer("/subresources/scale").is_some())
}

/// A `ClusterRole` up to its rules; the built-in roles of these names aggregate it.
fn head(name: &str, aggregated_to: &[&str]) -> String {
    let mut text = format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\n");
    if !aggregated_to.is_empty() {
        text.push_str("  labels:\n");
    }
    for role in aggregated_to {
        let _ = writeln!(text, "    rbac.authorization.k8s.io/aggregate-to-{role}: \"true\"");
    }
    text + "rules:\n"
}

fn rule(row: &ServedResource, targets: &str, verbs: &[&str]) -> String {
    let group = match row.resource.group() {
        "" => "\"\"",
        group => group,
    };
    format!("  - apiGroups: [{group}]\n    resources: [{targets}]\n    verbs: [{}]\n", verbs.join(", "))
}
