//! Toleration of the taints that Voda's nodes have.
//!
//! Voda taints each of its nodes with the node's own name, and lets a pod tolerate the node that it chose. Here node affinity chooses, so
//! the pods of a job tolerate every such taint. Must not remove a toleration of the user's. Tests: `tests.rs`.

use serde_json::{Value, json};

use super::words::HOSTNAME;
use crate::objects::list_at;

/// Returns the toleration.
fn of_voda() -> Value {
    json!({"key": HOSTNAME, "operator": "Exists", "effect": "NoExecute"})
}

/// Returns the tolerations of a template as its user wrote them.
pub(super) fn own(template: &Value) -> Vec<Value> {
    let added = of_voda();
    list_at(template, &["spec", "tolerations"]).iter().filter(|each| **each != added).cloned().collect()
}

/// Returns these tolerations with that of Voda's taints.
pub(super) fn with_voda(own: &[Value]) -> Vec<Value> {
    [own, &[of_voda()]].concat()
}

/// Leaves the tolerations of a template as its user wrote them.
pub(super) fn strip(template: &mut Value) {
    let own = own(template);
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if own.is_empty() {
        spec.remove("tolerations");
    } else {
        spec.insert("tolerations".to_owned(), Value::Array(own));
    }
}
