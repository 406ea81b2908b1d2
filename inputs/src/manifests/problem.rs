//! One thing wrong with a manifest, as a line for people and as JSON.

use apis::Severity;
use model::{FieldError, printable};
use serde_json::{Value, json};
use terminal::out;

use super::yaml::LineColumn;

/// Something wrong in a file, and where.
#[derive(Debug)]
pub struct Problem {
    pub(super) file: String,
    pub(super) place: LineColumn,
    pub(super) severity: Severity,
    pub(super) field: FieldError,
}

impl Problem {
    /// Returns an error about the value of a field.
    pub(super) fn new(file: &str, place: LineColumn, path: &str, value: Option<&Value>, problem: String) -> Self {
        let field = FieldError::new(path, apis::fields::shown(value), problem);
        Self { file: file.to_owned(), place, severity: Severity::Error, field }
    }

    /// Returns an error about a file as a whole.
    pub(super) fn of_file(file: &str, place: LineColumn, problem: &str) -> Self {
        let field = FieldError::new("", "", out::plain(problem));
        Self { file: file.to_owned(), place, severity: Severity::Error, field }
    }

    /// Returns whether it keeps a job from being started.
    pub fn is_error(&self) -> bool {
        self.severity != Severity::Remark
    }

    /// Returns `FILE:LINE:COLUMN: path: problem (value); did you mean ...?`; remarks, and with `lax` all, say `warning:`.
    pub fn line(&self, lax: bool) -> String {
        let place =
            if self.place.line == 0 { String::new() } else { format!(":{}:{}", self.place.line, self.place.column) };
        let kind = if lax || !self.is_error() { "warning: " } else { "" };
        let text = match (self.field.path.as_str(), self.field.value.as_str()) {
            ("", "") => self.field.problem.clone(),
            ("", value) => format!("{} ({value})", self.field.problem),
            (_, _) => self.field.to_string(),
        };
        // Keys and names come from a file: they must not command the terminal.
        let text = text.replace('\n', "\\n").replace('\t', "\\t");
        let text = printable::escaped(&text);
        format!("{}{place}: {kind}{text}", self.file)
    }

    /// Returns the same as an object; line and column are left out where there are none.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "file": self.file,
            "severity": if self.is_error() { "error" } else { "warning" },
            "problem": self.field.problem,
        });
        let mut set = |key: &str, value: Value| object[key] = value;
        if self.place.line > 0 {
            set("line", self.place.line.into());
            set("column", self.place.column.into());
        }
        for (key, text) in [("path", &self.field.path), ("value", &self.field.value)] {
            if !text.is_empty() {
                set(key, text.as_str().into());
            }
        }
        if let Some(suggestion) = &self.field.suggestion {
            set("suggestion", suggestion.as_str().into());
        }
        object
    }
}
