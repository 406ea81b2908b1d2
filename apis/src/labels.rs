//! Label selectors of manifests: their schema, and manifest -> [`LabelSelector`]. Must not know what is selected. Tests:
//! `trainingqueue/tests.rs`.

use model::{LabelOperator, LabelRequirement, LabelSelector, Text};
use serde_json::{Value, json};

use crate::crd::{field, object, one_of};
use crate::fields::{Findings, Unknown, Word, join};

/// A label selector of the spec.
pub(crate) struct Field<'a> {
    /// Path of the selector.
    pub(crate) path: &'a str,
    /// Values of `operator`.
    pub(crate) operators: &'a [Word<LabelOperator>],
    /// Reports an error at a path for a key that cannot be selected by.
    pub(crate) check_key: fn(key: &str, path: &str, value: &Value, findings: &mut Findings),
}

/// Returns the schema of a selector with these operators.
pub(crate) fn schema(operators: &[Word<LabelOperator>], description: &str, values: &str) -> Value {
    let labels = json!({"type": "object", "description": "Labels with their values.",
        "additionalProperties": {"type": "string"}});
    let requirement = object(
        "Requirement on one label.",
        &[
            ("key", field("string", "Key of the label.")),
            ("operator", one_of(operators, "Comparison of the label with the values.")),
            ("values", json!({"type": "array", "items": {"type": "string"}, "description": values})),
        ],
    );
    object(
        description,
        &[
            ("matchLabels", labels),
            (
                "matchExpressions",
                json!({"type": "array", "description": "Requirements, all of which must hold.", "items": requirement}),
            ),
        ],
    )
}

impl Field<'_> {
    /// Reads a selector.
    pub(crate) fn read(&self, selector: &Value, findings: &mut Findings) -> LabelSelector {
        let mut requirements = Vec::new();
        findings.check_text_map(selector, self.path, "matchLabels");
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            (self.check_key)(key, &join(&join(self.path, "matchLabels"), key), value, findings);
            let values = value.as_str().map(Text::from).into_iter().collect();
            requirements.push(LabelRequirement { key: Text::from(key.as_str()), operator: LabelOperator::In, values });
        }
        for (n, each) in findings.list(selector, self.path, "matchExpressions").iter().enumerate() {
            requirements.extend(self.requirement(each, &format!("{}.matchExpressions[{n}]", self.path), findings));
        }
        LabelSelector { requirements }
    }

    fn requirement(&self, each: &Value, base: &str, findings: &mut Findings) -> Option<LabelRequirement> {
        if !each.is_object() {
            findings.error(
                base,
                Some(each),
                "must be an object, for example {key: pool, operator: In, values: [a100]}",
            );
            return None;
        }
        let key = findings.required_text(each, base, "key")?;
        (self.check_key)(key, &join(base, "key"), each.get("key").unwrap_or(each), findings);
        findings.required_text(each, base, "operator")?;
        let operator = findings.word(each, base, "operator", self.operators, LabelOperator::Exists, Unknown::Refused);
        let mut values = Vec::new();
        for value in findings.list(each, base, "values") {
            match value.as_str() {
                Some(text) => values.push(Text::from(text)),
                None => findings.error(join(base, "values"), Some(value), "must be a list of texts"),
            }
        }
        let problem = match operator {
            LabelOperator::In | LabelOperator::NotIn if values.is_empty() => "needs at least one value",
            LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
                "must be absent for Exists and DoesNotExist"
            }
            LabelOperator::Gt | LabelOperator::Lt if !matches!(values.as_slice(), [one] if one.parse::<i64>().is_ok()) => {
                "must be one whole number, written as text"
            }
            _ => return Some(LabelRequirement { key: Text::from(key), operator, values }),
        };
        if !findings.has_error_at(&join(base, "operator")) {
            findings.error(join(base, "values"), each.get("values"), problem);
        }
        None
    }
}
