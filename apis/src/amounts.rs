//! Amounts of resources: what a container or a pod requests, and its limits.
//!
//! Must not know what they are compared with. Tests: `torchjob/pod_groups.rs`, `torchjob/tests/spec.rs`, `free_storage.rs`.

use std::collections::BTreeMap;

use serde_json::Value;
use settings::Quantity;

use crate::objects::{at, list_at};

/// Returns amounts by name, in thousandths. One that is no quantity is left out.
pub(crate) fn amounts(of: Option<&Value>) -> Vec<(String, i128)> {
    let members = of.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli()))).collect()
}

/// Returns what a pod comes to, in thousandths: its containers together or an init container, whichever is more, and its overhead.
pub(crate) fn totals(spec: &Value, of_container: impl Fn(&Value) -> Vec<(String, i128)>) -> BTreeMap<String, i128> {
    let mut all: BTreeMap<String, i128> = BTreeMap::new();
    let add = |all: &mut BTreeMap<String, i128>, name: String, amount: i128| {
        let sum = all.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    };
    for (name, amount) in list_at(spec, &["containers"]).iter().flat_map(&of_container) {
        add(&mut all, name, amount);
    }
    for (name, amount) in list_at(spec, &["initContainers"]).iter().flat_map(&of_container) {
        let sum = all.entry(name).or_default();
        *sum = amount.max(*sum);
    }
    for (name, amount) in amounts(at(spec, &["overhead"])) {
        add(&mut all, name, amount);
    }
    all
}

/// Returns the limits of a container.
pub(crate) fn limits(container: &Value) -> Vec<(String, i128)> {
    amounts(at(container, &["resources", "limits"]))
}

/// Returns what a container requests. The API server takes a limit for a request that is not written.
pub(crate) fn requested(container: &Value) -> Vec<(String, i128)> {
    let mut requests = amounts(at(container, &["resources", "requests"]));
    for (name, limit) in limits(container) {
        if !requests.iter().any(|(known, _)| *known == name) {
            requests.push((name, limit));
        }
    }
    requests
}
