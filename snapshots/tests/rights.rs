//! Rights of the operator: what it calls in all scenarios, compared both ways with what its roles are written from. What the driver
//! calls by itself is compared in `cli/tests/cluster/rights.rs`.

use std::collections::BTreeSet;

use apis::{Registry, Resource, Verb};

use crate::per_api::{APIS, Api};

/// A type, a subresource and a verb.
type Right = (Resource, &'static str, &'static str);

/// Rights that no call of a scenario needs, each with what does.
const OTHERS: [(&str, &str, &str); 3] = [
    ("CustomResourceDefinition", "get", "the driver, where an API is not served"),
    ("ContainerRecreateRequest", "get", "a name that is taken: the object that holds it is read"),
    ("ModelVersion", "delete", "the plugin OwnerReferencesPermissionEnforcement, where an owner is written"),
];

fn right(resource: Resource, verb: Verb) -> Right {
    let (subresource, verb) = match verb {
        Verb::Create => ("", "create"),
        Verb::Delete => ("", "delete"),
        Verb::Patch => ("", "patch"),
        Verb::PatchStatus | Verb::ApplyStatus => ("status", "patch"),
        Verb::Get => ("", "get"),
        Verb::List => ("", "list"),
        Verb::Log => ("log", "get"),
    };
    (resource, subresource, verb)
}

#[test]
fn every_call_has_its_right_and_every_right_its_call() {
    let mut called: BTreeSet<Right> = BTreeSet::new();
    for file in APIS.iter().flat_map(Api::scenarios) {
        let Ok(scenario) = file.scenario else { continue };
        let Ok(outcome) = simulator::run(&scenario) else { continue };
        called.extend(outcome.called.into_iter().map(|(resource, verb)| right(resource, verb)));
    }
    let registry = Registry::all();
    let mut given: BTreeSet<Right> = BTreeSet::new();
    for row in registry.resources() {
        for rights in &row.rights {
            given.extend(rights.verbs.iter().map(|verb| (row.resource.clone(), rights.subresource, *verb)));
        }
    }
    let missing: Vec<&Right> = called.difference(&given).collect();
    assert!(missing.is_empty(), "calls without a right: {missing:#?}");
    // What is watched has these two: `apis/src/resources.rs`.
    let is_watch = |(_, _, verb): &&Right| matches!(*verb, "list" | "watch");
    let is_other =
        |(resource, _, verb): &&Right| OTHERS.iter().any(|(kind, word, _)| (*kind, word) == (&*resource.kind, verb));
    // Any job is read again after a conflict. The plugin OwnerReferencesPermissionEnforcement asks for `finalizers` of an owner.
    let is_common = |(resource, subresource, verb): &&Right| {
        *subresource == "finalizers" || *verb == "get" && registry.get(resource).is_some()
    };
    let unused = given.difference(&called).filter(|right| !is_watch(right) && !is_other(right) && !is_common(right));
    let unused: Vec<&Right> = unused.collect();
    assert!(unused.is_empty(), "rights without a call: {unused:#?}");
}
