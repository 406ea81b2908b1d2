//! Amounts of resources, in thousandths of their unit (cores, bytes, devices): what containers and pods request, and their limits.
//!
//! The sum of a pod is that of Kubernetes (`PodRequests` in k8s.io/component-helpers): `overhead + max(containers + sidecars, each init
//! container + the sidecars declared before it)`. A sidecar is an init container with `restartPolicy: Always`. Resources that the pod names
//! as a whole replace that sum. It must not know what amounts are compared with. Tests: at the end of this file.

use std::collections::BTreeMap;

use serde_json::Value;
use settings::Quantity;

use crate::json::{at, list_at, text};

/// Amounts by resource, in thousandths.
pub type Amounts = BTreeMap<String, i128>;

/// Returns amounts by name, in thousandths. One that is no quantity is left out.
pub fn amounts(of: Option<&Value>) -> Vec<(String, i128)> {
    let members = of.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli()))).collect()
}

/// Returns the limits of a container, in thousandths.
pub fn limits(container: &Value) -> Vec<(String, i128)> {
    amounts(at(container, &["resources", "limits"]))
}

/// Returns what a container requests, in thousandths. The API server takes a limit for a request that is not written.
pub fn requested(container: &Value) -> Vec<(String, i128)> {
    let mut requests = amounts(at(container, &["resources", "requests"]));
    for (name, limit) in limits(container) {
        if !requests.iter().any(|(known, _)| *known == name) {
            requests.push((name, limit));
        }
    }
    requests
}

/// Returns true if an init container runs beside the others until the pod ends.
pub fn is_sidecar(init_container: &Value) -> bool {
    text(init_container, "restartPolicy") == "Always"
}

/// Adds amounts to a sum.
pub fn add(sum: &mut Amounts, more: impl IntoIterator<Item = (String, i128)>) {
    for (name, amount) in more {
        let total = sum.entry(name).or_default();
        *total = total.saturating_add(amount);
    }
}

fn raise(to: &mut Amounts, least: Amounts) {
    for (name, amount) in least {
        let most = to.entry(name).or_default();
        *most = amount.max(*most);
    }
}

/// Returns what a pod of this spec comes to, in thousandths, where `of_container` is what each of its containers counts.
pub fn totals(spec: &Value, of_container: impl Fn(&Value) -> Vec<(String, i128)>) -> Amounts {
    let (mut sidecars, mut start) = (Amounts::new(), Amounts::new());
    for container in list_at(spec, &["initContainers"]) {
        if is_sidecar(container) {
            add(&mut sidecars, of_container(container));
        } else {
            let mut while_it_runs = sidecars.clone();
            add(&mut while_it_runs, of_container(container));
            raise(&mut start, while_it_runs);
        }
    }
    let mut all = sidecars;
    for container in list_at(spec, &["containers"]) {
        add(&mut all, of_container(container));
    }
    raise(&mut all, start);
    // Resources of the pod as a whole are written as those of a container.
    all.extend(of_container(spec));
    add(&mut all, amounts(at(spec, &["overhead"])));
    all
}

/// Returns what a pod of this spec requests, in thousandths.
pub fn pod_requests(spec: &Value) -> Amounts {
    totals(spec, requested)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gpus(spec: &Value) -> i128 {
        pod_requests(spec).get("gpu").copied().unwrap_or_default()
    }

    fn container(gpus: u32) -> Value {
        json!({"resources": {"limits": {"gpu": gpus}}})
    }

    fn sidecar(gpus: u32) -> Value {
        json!({"restartPolicy": "Always", "resources": {"limits": {"gpu": gpus}}})
    }

    #[test]
    fn a_pod_requests_what_runs_at_once() {
        for (containers, init, want) in [
            (vec![container(2), container(1)], vec![], 3),
            (vec![container(2)], vec![container(4)], 4),
            (vec![container(1)], vec![sidecar(1)], 2),
            (vec![container(3)], vec![sidecar(1), container(5)], 6),
            (vec![container(3)], vec![container(5), sidecar(1)], 5),
            (vec![container(3)], vec![container(2), sidecar(1)], 4),
            (vec![], vec![sidecar(1), container(2), sidecar(4), container(1)], 6),
        ] {
            let spec = json!({"containers": containers, "initContainers": init});
            assert_eq!(gpus(&spec), want * 1000, "{spec}");
        }
    }

    #[test]
    fn overhead_is_added_and_resources_of_the_pod_replace_the_sum() {
        let spec = json!({"containers": [container(2)], "overhead": {"gpu": 1, "cpu": "250m"}});
        assert_eq!(pod_requests(&spec), Amounts::from([("cpu".into(), 250), ("gpu".into(), 3000)]));
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": 1, "memory": 5}}}],
            "resources": {"limits": {"cpu": 4}}, "overhead": {"cpu": 1}});
        assert_eq!(pod_requests(&spec), Amounts::from([("cpu".into(), 5000), ("memory".into(), 5000)]));
    }

    #[test]
    fn a_limit_is_a_request_that_is_not_written() {
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": 2, "gpu": 1}, "requests": {"cpu": 1}}}]});
        assert_eq!(pod_requests(&spec), Amounts::from([("cpu".into(), 1000), ("gpu".into(), 1000)]));
        assert_eq!(pod_requests(&json!({"containers": [{"resources": {"limits": {"gpu": "x"}}}]})), Amounts::new());
    }
}
