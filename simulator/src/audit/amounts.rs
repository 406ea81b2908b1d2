//! Amounts of resources that pods request and nodes list, in thousandths, read from raw objects. GPUs are the audit's own.
//!
//! Tests: at the end of this file.

use std::collections::BTreeMap;

use apis::objects::{at, list_at, text_at};
use serde_json::Value;
use settings::Quantity;

use super::is_gpu;

/// Amounts in thousandths, by resource.
pub(super) type Amounts = BTreeMap<String, i128>;

/// Returns the amounts of a list of resources besides GPUs.
pub(super) fn listed(amounts: Option<&Value>) -> Amounts {
    let all = amounts.and_then(Value::as_object).into_iter().flatten().filter(|(name, _)| !is_gpu(name));
    all.filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount)?.milli()))).collect()
}

/// Adds amounts to others.
pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *to.entry(resource.clone()).or_default() += amount;
    }
}

/// Raises amounts to others that are greater.
pub(super) fn raise(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let most = to.entry(resource.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// Returns what a pod of a spec requests besides GPUs: the greater of what its containers need together and what its init containers
/// need one after the other, each beside the sidecars declared before it.
pub(super) fn requests(pod: &Value) -> Amounts {
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in list_at(pod, &["initContainers"]) {
        let mut together = of_resources(container);
        add(&mut together, &sidecars);
        raise(&mut most, &together);
        if text_at(container, &["restartPolicy"]) == Some("Always") {
            sidecars = together;
        }
    }
    let mut all = sidecars;
    for container in list_at(pod, &["containers"]) {
        add(&mut all, &of_resources(container));
    }
    raise(&mut all, &most);
    all.extend(of_resources(pod));
    add(&mut all, &listed(at(pod, &["overhead"])));
    all.insert("pods".to_owned(), 1000);
    all
}

/// Returns the requests of a container or of a whole pod. One that is absent is the limit.
fn of_resources(of: &Value) -> Amounts {
    let mut amounts = listed(at(of, &["resources", "limits"]));
    amounts.extend(listed(at(of, &["resources", "requests"])));
    amounts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sidecars_count_beside_init_containers_declared_after_them() {
        let container = |cpu: u32| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"limits": {"cpu": 1}}});
        for (init, cpu) in [
            (json!([sidecar, container(5)]), 6000),
            (json!([container(5), sidecar]), 5000),
            (json!([container(1), sidecar]), 4000),
            (json!([]), 3000),
        ] {
            let pod = json!({"containers": [container(3)], "initContainers": init});
            assert_eq!(requests(&pod), [("cpu".into(), cpu), ("pods".into(), 1000)].into(), "{pod}");
        }
        let pod = json!({"containers": [container(3)], "overhead": {"cpu": "250m"},
            "resources": {"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}}});
        assert_eq!(requests(&pod), [("cpu".into(), 2250), ("pods".into(), 1000)].into());
    }
}
