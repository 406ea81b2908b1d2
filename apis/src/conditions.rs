//! Conditions of a job's status, as every API writes them. Tests: each API's `tests/status.rs`.

use model::Timestamp;
use serde_json::{Map, Value, json};

use crate::remarks::Remark;

/// Renders a condition without times. A message is left out where there is none.
pub fn condition(kind: &str, current: bool, reason: &str, message: &str) -> Map<String, Value> {
    let mut condition = Map::new();
    condition.insert("type".to_owned(), json!(kind));
    condition.insert("status".to_owned(), json!(if current { "True" } else { "False" }));
    condition.insert("reason".to_owned(), json!(reason));
    if !message.is_empty() {
        condition.insert("message".to_owned(), json!(message));
    }
    condition
}

/// Renders a remark as a condition. Its reason is the type after the API's own prefix.
pub fn of_remark(remark: &Remark, prefix: &str) -> Value {
    Value::Object(condition(remark.kind, true, &format!("{prefix}{}", remark.kind), &remark.message))
}

/// Renders a time.
pub fn time(at: Timestamp) -> Value {
    Value::from(at.to_rfc3339())
}
