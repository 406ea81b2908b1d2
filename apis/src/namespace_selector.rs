//! Selectors of namespaces: manifest -> [`LabelSelector`]. Must not look at namespaces. Tests: `trainingqueue/tests.rs`.

use model::{LabelOperator, LabelSelector};
use serde_json::Value;

use crate::fields::{Findings, Word};
use crate::labels::{self, Field};

/// Values of `operator`.
const OPERATORS: [Word<LabelOperator>; 4] = {
    let [is_in, is_not_in, exists, does_not_exist, ..] = LabelOperator::WORDS;
    [is_in, is_not_in, exists, does_not_exist]
};

/// Returns the schema of `namespaceSelector` of a queue.
pub(crate) fn schema() -> Value {
    labels::schema(
        &OPERATORS,
        "Labels of the namespaces whose jobs the queue admits, as in any Kubernetes selector; all namespaces when absent.",
        "Values to compare with: none for Exists and DoesNotExist.",
    )
}

/// Reads `namespaceSelector` of a spec; `None`: all namespaces.
pub(crate) fn of_spec(spec: &Value, findings: &mut Findings) -> Option<LabelSelector> {
    findings.object(spec, "spec", "namespaceSelector")?;
    let selector = spec.get("namespaceSelector")?;
    Some(read(selector, "spec.namespaceSelector", findings)).filter(|read| !read.requirements.is_empty())
}

/// Reads a selector that stands at a path.
pub(crate) fn read(selector: &Value, path: &str, findings: &mut Findings) -> LabelSelector {
    let mut read = Field { path, operators: &OPERATORS, check_key: |_, _, _, _| {} }.read(selector, findings);
    // Names stand in order in records.
    read.requirements.iter_mut().for_each(|requirement| {
        requirement.values.sort();
        requirement.values.dedup();
    });
    read
}
