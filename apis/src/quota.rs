//! ResourceQuota objects: object -> [`QuotaFact`]. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{FieldError, LabelOperator, LabelRequirement, LabelSelector, QuotaFact, Text};
use serde_json::Value;

use crate::objects::{at, list_at, name, namespace, resource_version, text_at};

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
    let scopes = scopes(object.get("spec").unwrap_or(&Value::Null));
    Ok(QuotaFact { namespace: namespace(object), name, rv: resource_version(object), hard, used, scopes })
}

/// Reads the scopes that pods must be in to count: those of `scopes`, and those of `scopeSelector` with their values.
fn scopes(spec: &Value) -> LabelSelector {
    let named = list_at(spec, &["scopes"]).iter().filter_map(Value::as_str);
    let named = named.map(|scope| (scope, LabelOperator::Exists, &[][..]));
    let selected = list_at(spec, &["scopeSelector", "matchExpressions"]).iter().filter_map(|expression| {
        let operator = LabelOperator::named(text_at(expression, &["operator"])?)?;
        Some((text_at(expression, &["scopeName"])?, operator, list_at(expression, &["values"])))
    });
    let requirement = |(scope, operator, values): (&str, LabelOperator, &[Value])| LabelRequirement {
        key: Text::from(scope),
        operator,
        values: values.iter().filter_map(Value::as_str).map(Text::from).collect(),
    };
    LabelSelector { requirements: named.chain(selected).map(requirement).collect() }
}

/// Reads amounts by name, in thousandths.
fn amounts(object: Option<&Value>) -> BTreeMap<Text, u64> {
    let milli = |amount: i128| u64::try_from(amount.max(0)).unwrap_or(u64::MAX);
    kube_model::resources::amounts(object).into_iter().map(|(name, amount)| (Text::from(name), milli(amount))).collect()
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
        assert_eq!(read.scopes, LabelSelector::default());
    }

    #[test]
    fn scopes_are_requirements() {
        let expression = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]});
        let quota = json!({
            "metadata": {"name": "q"},
            "spec": {"scopes": ["NotBestEffort"], "scopeSelector": {"matchExpressions": [expression]}},
        });
        let read = fact(&quota).unwrap().scopes.requirements;
        let words = |one: &LabelRequirement| format!("{} {} {:?}", one.key, one.operator.name(), one.values);
        let words: Vec<String> = read.iter().map(words).collect();
        assert_eq!(words, ["NotBestEffort Exists []", r#"PriorityClass In ["high", "low"]"#]);
    }
}
