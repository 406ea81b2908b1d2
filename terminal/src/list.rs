//! The option `--output` of commands that list objects.
//!
//! Owns the formats, and an object as YAML. It must not know what is listed. Tests: `cli/tests/local/verbs.rs`.

use serde_json::Value;

use crate::out::Failure;

/// Output format of lists and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// A table.
    Text,
    /// A table with more columns.
    Wide,
    /// One JSON object.
    Json,
    /// YAML.
    Yaml,
    /// Names, one a line.
    Name,
}

/// Returns an object as YAML.
///
/// # Errors
/// Returns an error if a value has no form in YAML.
pub fn yaml(value: &Value) -> Result<String, Failure> {
    Ok(format!("{}\n", serde_saphyr::to_string(value)?.trim_end()))
}
