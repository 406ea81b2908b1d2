//! `spec.nodes` of a queue -> the labels of the nodes on which its jobs are placed. Must not look at nodes. Tests: `tests.rs`.

use model::{LabelOperator, LabelSelector};
use serde_json::Value;

use crate::crd::{field, object};
use crate::fields::{Findings, Word};
use crate::labels::{self, Field};
use crate::node::HARDWARE_LABELS;

/// Values of `operator`.
const OPERATORS: [Word<LabelOperator>; 6] = LabelOperator::WORDS;

/// Returns the schema of `nodes` as it is meant.
pub(super) fn schema() -> Value {
    let selector = labels::schema(
        &OPERATORS,
        "Labels of the nodes, as in any Kubernetes selector; all nodes when absent.",
        "Values to compare with: one whole number for Gt and Lt, none for Exists and DoesNotExist.",
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
    Some(Field { path: "spec.nodes.selector", operators: &OPERATORS, check_key }.read(selector, findings))
}

/// Returns true if the queue says that pods of others use GPUs of its nodes.
pub(super) fn are_shared(spec: &Value, findings: &mut Findings) -> bool {
    let nodes = spec.get("nodes").unwrap_or(&Value::Null);
    findings.boolean(nodes, "spec.nodes", "exclusive") == Some(false)
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
