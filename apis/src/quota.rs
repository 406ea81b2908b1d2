//! ResourceQuota objects: object -> [`QuotaFact`]. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{FieldError, QuotaFact, Text};
use serde_json::Value;
use settings::Quantity;

use crate::objects::{at, name, namespace, resource_version};

/// Type of the objects: API version and kind.
pub const TYPE: (&str, &str) = ("v1", "ResourceQuota");

/// Reads the fact about a quota.
///
/// # Errors
/// Returns an error if the object has no name.
pub fn fact(object: &Value) -> Result<QuotaFact, FieldError> {
    let name = name(object);
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "missing", "a resource quota without a name"));
    }
    let hard = amounts(at(object, &["spec", "hard"]));
    let mut used = amounts(at(object, &["status", "used"]));
    used.retain(|name, _| hard.contains_key(name));
    Ok(QuotaFact { namespace: namespace(object), name, rv: resource_version(object), hard, used })
}

/// Reads amounts by name, in thousandths. One that is no quantity is left out.
fn amounts(object: Option<&Value>) -> BTreeMap<Text, u64> {
    let members = object.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, amount)| Some((Text::from(name.as_str()), milli(amount)?))).collect()
}

fn milli(amount: &Value) -> Option<u64> {
    Some(u64::try_from(Quantity::read(amount)?.milli().max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_and_use_are_read_in_thousandths() {
        let quota = json!({
            "metadata": {"name": "q", "namespace": "ns", "resourceVersion": "7"},
            "spec": {"hard": {"cpu": "2500m", "pods": "4", "odd": "many"}},
            "status": {"hard": {"cpu": "1"}, "used": {"cpu": "1", "memory": "1Gi"}},
        });
        let read = fact(&quota).unwrap();
        assert_eq!((&*read.namespace, &*read.name, read.rv.0), ("ns", "q", 7));
        let of = |amounts: &BTreeMap<Text, u64>| -> Vec<(String, u64)> {
            amounts.iter().map(|(name, amount)| (name.to_string(), *amount)).collect()
        };
        assert_eq!(of(&read.hard), [("cpu".to_owned(), 2500), ("pods".to_owned(), 4000)]);
        assert_eq!(of(&read.used), [("cpu".to_owned(), 1000)], "of what it limits");
        assert_eq!(fact(&json!({})).unwrap_err().path, "metadata.name");
    }
}
