//! `spec.nodes` of a queue -> the labels of the nodes on which its jobs are placed. Must not look at nodes. Tests: `tests.rs`.

use model::{LabelOperator, LabelRequirement, LabelSelector, Text};
use serde_json::{Value, json};

use crate::crd::{field, object, one_of};
use crate::fields::{Findings, Unknown, Word, join};
use crate::node::HARDWARE_LABELS;

/// Path of the selector.
const SELECTOR: &str = "spec.nodes.selector";
/// Values of `operator`.
const OPERATORS: [Word<LabelOperator>; 6] = LabelOperator::WORDS;

/// Returns the schema of `nodes` as it is meant.
pub(super) fn schema() -> Value {
    let labels = json!({"type": "object", "description": "Labels with their values.",
        "additionalProperties": {"type": "string"}});
    let values = json!({"type": "array", "items": {"type": "string"},
        "description": "Values to compare with: one whole number for Gt and Lt, none for Exists and DoesNotExist."});
    let requirement = object(
        "Requirement on one label.",
        &[
            ("key", field("string", "Key of the label.")),
            ("operator", one_of(&OPERATORS, "Comparison of the label with the values.")),
            ("values", values),
        ],
    );
    let selector = object(
        "Labels of the nodes, as in any Kubernetes selector; all nodes when absent.",
        &[
            ("matchLabels", labels),
            (
                "matchExpressions",
                json!({"type": "array", "description": "Requirements, all of which must hold.", "items": requirement}),
            ),
        ],
    );
    object(
        "Nodes on which jobs of the queue are placed.",
        &[
            ("selector", selector),
            (
                "exclusive",
                field(
                    "boolean",
                    "False where pods of others use GPUs of nodes: these pods are watched and counted then. True when absent.",
                ),
            ),
        ],
    )
}

/// Reads the labels of the nodes; `None`: all nodes.
pub(super) fn selector(spec: &Value, findings: &mut Findings) -> Option<LabelSelector> {
    findings.object(spec, "spec", "nodes")?;
    let nodes = spec.get("nodes")?;
    findings.object(nodes, "spec.nodes", "selector")?;
    let selector = nodes.get("selector")?;
    let mut requirements = Vec::new();
    findings.check_text_map(selector, SELECTOR, "matchLabels");
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        check_key(key, &join(&join(SELECTOR, "matchLabels"), key), value, findings);
        let values = value.as_str().map(Text::from).into_iter().collect();
        requirements.push(LabelRequirement { key: Text::from(key.as_str()), operator: LabelOperator::In, values });
    }
    for (n, each) in findings.list(selector, SELECTOR, "matchExpressions").iter().enumerate() {
        requirements.extend(requirement(each, &format!("{SELECTOR}.matchExpressions[{n}]"), findings));
    }
    Some(LabelSelector { requirements })
}

/// Returns true if the queue says that pods of others use GPUs of its nodes.
pub(super) fn are_shared(spec: &Value, findings: &mut Findings) -> bool {
    let nodes = spec.get("nodes").unwrap_or(&Value::Null);
    findings.boolean(nodes, "spec.nodes", "exclusive") == Some(false)
}

fn requirement(each: &Value, base: &str, findings: &mut Findings) -> Option<LabelRequirement> {
    if !each.is_object() {
        findings.error(base, Some(each), "must be an object, for example {key: pool, operator: In, values: [a100]}");
        return None;
    }
    let key = findings.required_text(each, base, "key")?;
    check_key(key, &join(base, "key"), each.get("key").unwrap_or(each), findings);
    findings.required_text(each, base, "operator")?;
    let operator = findings.word(each, base, "operator", &OPERATORS, LabelOperator::Exists, Unknown::Refused);
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

/// Refuses a label that is not kept of nodes.
fn check_key(key: &str, path: &str, value: &Value, findings: &mut Findings) {
    if key.starts_with(HARDWARE_LABELS) {
        let problem = format!(
            "labels of {HARDWARE_LABELS} are not read: put a label of your own on the nodes, for example pool, and select by it"
        );
        findings.error(path, Some(value), problem);
    }
}
