//! Toleration of the taints that Voda's nodes have.
//!
//! Voda taints each of its nodes with the node's own name, and lets a pod tolerate the node that it chose. Here node affinity chooses, so
//! the pods of a job tolerate every such taint. Must not change other tolerations. Tests: `tests.rs`.

use serde_json::{Value, json};

use super::constants::HOSTNAME;

/// Returns the toleration.
fn of_voda() -> Value {
    json!({"key": HOSTNAME, "operator": "Exists", "effect": "NoExecute"})
}

/// Has the pods of a template tolerate the taints.
pub fn add(template: &mut Value) {
    remove(template);
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(own) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut() {
        own.push(of_voda());
    }
}

/// Leaves the tolerations of a template as its user wrote them.
pub(super) fn remove(template: &mut Value) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let Some(own) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else { return };
    let added = of_voda();
    own.retain(|each| *each != added);
    if own.is_empty() {
        spec.remove("tolerations");
    }
}
