//! `spec.namespaceSelector` of a queue -> the labels of the namespaces whose jobs it admits. Must not look at namespaces. Tests:
//! `tests.rs`.

use model::{LabelOperator, LabelSelector};
use serde_json::Value;

use super::labels::{self, Field};
use crate::fields::{Findings, Word};

/// Values of `operator`.
const OPERATORS: [Word<LabelOperator>; 4] = {
    let [is_in, is_not_in, exists, does_not_exist, ..] = LabelOperator::WORDS;
    [is_in, is_not_in, exists, does_not_exist]
};

/// Returns the schema of `namespaceSelector` as it is meant.
pub(super) fn schema() -> Value {
    labels::schema(
        &OPERATORS,
        "Labels of the namespaces whose jobs the queue admits, as in any Kubernetes selector; all namespaces when absent.",
        "Values to compare with: none for Exists and DoesNotExist.",
    )
}

/// Reads the labels of the namespaces; `None`: all namespaces.
pub(super) fn selector(spec: &Value, findings: &mut Findings) -> Option<LabelSelector> {
    findings.object(spec, "spec", "namespaceSelector")?;
    let selector = spec.get("namespaceSelector")?;
    let field = Field { path: "spec.namespaceSelector", operators: &OPERATORS, check_key: |_, _, _, _| {} };
    let mut read = field.read(selector, findings);
    // Names stand in order in records.
    read.requirements.iter_mut().for_each(|requirement| {
        requirement.values.sort();
        requirement.values.dedup();
    });
    Some(read).filter(|read| !read.requirements.is_empty())
}
