//! Reads fields of a manifest by path and collects what is wrong with them.
//!
//! Every API's `spec.rs` reads through [`Findings`], so that a field of the wrong type is an error that names the field,
//! never a crash and never a silent default. Null counts as absent, as it does for Kubernetes' own types. Tests: at the end
//! of this file.

use model::FieldError;
use serde_json::{Map, Value};

use crate::nearest::nearest;

/// Longest part of a bad value that is shown.
const SHOWN_MAX: usize = 120;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot be accepted.
    Error,
    /// A cluster accepts it, with a warning: it has another effect than its author expects, or none.
    Mistake,
    /// It is accepted, and may be meant so.
    Remark,
}

/// One thing found in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// True if the name of the field is wrong, false if its value is.
    pub in_name: bool,
    /// Path, value, problem, and the nearest right word.
    pub field: FieldError,
}

/// Findings in a manifest, in the order of the checks.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
}

/// One accepted word of a field and what it means.
pub type Word<T> = (&'static str, T);

/// Treatment of a word that is none of the accepted ones.
#[derive(Debug, Clone, Copy)]
pub enum Unknown<T> {
    /// It cannot be accepted.
    Refused,
    /// It acts as this word, with a remark.
    ActsAs(Word<T>),
}

impl Findings {
    /// Adds something that cannot be accepted.
    pub fn error(&mut self, path: impl Into<String>, value: Option<&Value>, problem: impl Into<String>) {
        self.add(Severity::Error, FieldError::new(path, shown(value), problem));
    }

    /// Adds something that is accepted and has another effect than expected.
    pub fn mistake(&mut self, path: impl Into<String>, value: Option<&Value>, problem: impl Into<String>) {
        self.add(Severity::Mistake, FieldError::new(path, shown(value), problem));
    }

    /// Adds a remark.
    pub fn warn(&mut self, path: impl Into<String>, value: Option<&Value>, problem: impl Into<String>) {
        self.add(Severity::Remark, FieldError::new(path, shown(value), problem));
    }

    fn add(&mut self, severity: Severity, field: FieldError) {
        self.list.push(Finding { severity, in_name: false, field });
    }

    /// Adds one finding.
    pub fn push(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// Adds findings of another check. A field that has one already only takes its suggestion.
    pub fn merge(&mut self, others: Vec<Finding>) {
        let own = self.list.len();
        for other in others {
            let path = &other.field.path;
            match self.list.iter_mut().take(own).find(|finding| finding.field.path == *path) {
                Some(known) if known.field.suggestion.is_none() => known.field.suggestion = other.field.suggestion,
                Some(_) => {}
                None => self.list.push(other),
            }
        }
    }

    /// Returns true if a field cannot be accepted.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Returns true if a field has an error.
    pub fn has_error_at(&self, path: &str) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Error && finding.field.path == path)
    }

    /// Returns all findings.
    pub fn into_list(self) -> Vec<Finding> {
        self.list
    }

    /// Returns the errors, and what is accepted with a warning.
    pub fn into_errors_and_warnings(self) -> (Vec<FieldError>, Vec<FieldError>) {
        let (errors, warnings): (Vec<_>, Vec<_>) =
            self.list.into_iter().partition(|finding| finding.severity == Severity::Error);
        let fields = |list: Vec<Finding>| list.into_iter().map(|finding| finding.field).collect();
        (fields(errors), fields(warnings))
    }

    /// Reads a text field; `None` when absent or not text.
    pub fn text<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> Option<&'a str> {
        let value = present(parent, key)?;
        if value.as_str().is_none() {
            self.error(join(base, key), Some(value), format!("must be text, not {}", type_of(value)));
        }
        value.as_str()
    }

    /// Reads a text that must be there and not be empty.
    pub fn required_text<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> Option<&'a str> {
        let text = self.text(parent, base, key).filter(|text| !text.is_empty());
        if text.is_none() && !self.has_error_at(&join(base, key)) {
            self.error(join(base, key), parent.get(key), "must be written");
        }
        text
    }

    /// Reads a whole number within `min..=max`; `None` when absent or not that.
    pub fn integer(&mut self, parent: &Value, base: &str, key: &str, min: i64, max: i64) -> Option<i64> {
        let value = present(parent, key)?;
        let problem = match value {
            Value::Number(number) => match number.as_i64() {
                Some(n) if (min..=max).contains(&n) => return Some(n),
                Some(n) if n < min => format!("must be at least {min}"),
                Some(_) => format!("must be at most {max}"),
                None if number.is_u64() => format!("must be at most {max}"),
                None => "must be a whole number".to_owned(),
            },
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                format!("must be a whole number, not {}", type_of(value))
            }
        };
        self.error(join(base, key), Some(value), problem);
        None
    }

    /// Reads a field that is true or false; `None` when absent or not that.
    pub fn boolean(&mut self, parent: &Value, base: &str, key: &str) -> Option<bool> {
        let value = present(parent, key)?;
        if value.as_bool().is_none() {
            self.error(join(base, key), Some(value), format!("must be true or false, not {}", type_of(value)));
        }
        value.as_bool()
    }

    /// Reads a field that takes one of a few words; `default` when absent or empty.
    pub fn word<T: Clone>(
        &mut self,
        parent: &Value,
        base: &str,
        key: &str,
        words: &[Word<T>],
        default: T,
        unknown: Unknown<T>,
    ) -> T {
        let Some(text) = self.text(parent, base, key).filter(|text| !text.is_empty()) else { return default };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return meaning.clone();
        }
        let names = || words.iter().map(|(word, _)| *word);
        let accepted = names().collect::<Vec<_>>().join(", ");
        let (severity, problem, meaning) = match unknown {
            Unknown::Refused => (Severity::Error, format!("must be one of {accepted}"), default),
            Unknown::ActsAs((word, meaning)) => {
                (Severity::Mistake, format!("is none of {accepted}; it acts as {word}"), meaning)
            }
        };
        let mut field = FieldError::new(join(base, key), shown(parent.get(key)), problem);
        field.suggestion = nearest(text, names()).map(str::to_owned);
        self.add(severity, field);
        meaning
    }

    /// Reads a list; empty when absent or no list.
    pub fn list<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> &'a [Value] {
        let Some(value) = present(parent, key) else { return &[] };
        if !value.is_array() {
            self.error(join(base, key), Some(value), format!("must be a list, not {}", type_of(value)));
        }
        value.as_array().map_or(&[], Vec::as_slice)
    }

    /// Reads an object; `None` when absent or no object.
    pub fn object<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> Option<&'a Map<String, Value>> {
        let value = present(parent, key)?;
        if !value.is_object() {
            self.error(join(base, key), Some(value), format!("must be an object, not {}", type_of(value)));
        }
        value.as_object()
    }

    /// Checks that a field, if present, maps names to text, as labels and annotations do.
    pub fn check_text_map(&mut self, parent: &Value, base: &str, key: &str) {
        for (name, value) in self.object(parent, base, key).into_iter().flatten() {
            if !value.is_string() {
                let path = join(&join(base, key), name);
                self.error(path, Some(value), format!("must be text, not {}", type_of(value)));
            }
        }
    }
}

/// Returns the path of a member.
pub fn join(base: &str, key: &str) -> String {
    format!("{base}.{key}")
}

/// Formats a value for messages: JSON text, cut when long, or `missing`.
pub fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "missing".to_owned() };
    let text = model::json::canonical(value);
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    text.chars().take(SHOWN_MAX).chain(['…']).collect()
}

fn present<'a>(parent: &'a Value, key: &str) -> Option<&'a Value> {
    parent.get(key).filter(|value| !value.is_null())
}

/// Returns the type of a value, with its article.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(findings: Findings) -> Vec<String> {
        findings.into_list().iter().map(|finding| finding.field.to_string()).collect()
    }

    #[test]
    fn wrong_types_name_the_field_and_the_value() {
        let parent =
            json!({"a": 1, "b": "x", "c": [], "d": {}, "e": 1.5, "f": 18_446_744_073_709_551_615_u64, "g": true});
        let mut findings = Findings::default();
        assert_eq!(findings.text(&parent, "p", "a"), None);
        assert_eq!(findings.integer(&parent, "p", "b", 0, 9), None);
        assert_eq!(findings.object(&parent, "p", "c"), None);
        assert!(findings.list(&parent, "p", "d").is_empty());
        assert_eq!(findings.integer(&parent, "p", "e", 0, 9), None);
        assert_eq!(findings.integer(&parent, "p", "f", 0, 9), None);
        assert_eq!(findings.integer(&parent, "p", "a", 2, 9), None);
        findings.check_text_map(&json!({"m": {"k": 1, "l": "x"}}), "p", "m");
        assert_eq!(
            texts(findings),
            [
                "p.a: must be text, not a number (1)",
                "p.b: must be a whole number, not text (\"x\")",
                "p.c: must be an object, not a list ([])",
                "p.d: must be a list, not an object ({})",
                "p.e: must be a whole number (1.5)",
                "p.f: must be at most 9 (18446744073709551615)",
                "p.a: must be at least 2 (1)",
                "p.m.k: must be text, not a number (1)",
            ]
        );
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let mut findings = Findings::default();
        for parent in [json!({}), json!({"a": null})] {
            assert_eq!(findings.text(&parent, "p", "a"), None);
            assert_eq!(findings.integer(&parent, "p", "a", 0, 1), None);
            assert_eq!(findings.object(&parent, "p", "a"), None);
            assert!(findings.list(&parent, "p", "a").is_empty());
            assert_eq!(findings.word(&parent, "p", "a", &[("X", 1)], 7, Unknown::Refused), 7);
        }
        assert_eq!(texts(findings), [""; 0]);
    }

    #[test]
    fn unknown_words_are_refused_or_act_as_another() {
        let words = [("X", 1), ("Y", 2)];
        let mut findings = Findings::default();
        let parent = json!({"a": "Y", "b": "y", "c": ""});
        assert_eq!(findings.word(&parent, "p", "a", &words, 1, Unknown::Refused), 2);
        assert_eq!(findings.word(&parent, "p", "c", &words, 1, Unknown::Refused), 1);
        assert_eq!(findings.word(&parent, "p", "b", &words, 1, Unknown::ActsAs(("Y", 2))), 2);
        assert_eq!(findings.word(&parent, "p", "b", &words, 1, Unknown::Refused), 1);
        assert_eq!(
            texts(findings),
            [
                "p.b: is none of X, Y; it acts as Y (\"y\"); did you mean Y?",
                "p.b: must be one of X, Y (\"y\"); did you mean Y?"
            ]
        );
    }

    #[test]
    fn a_field_has_findings_of_one_check_only() {
        let mut findings = Findings::default();
        findings.error("a", None, "first");
        findings.warn("c", None, "first");
        let other = |path: &str| {
            let mut field = FieldError::new(path, "1", "second");
            field.suggestion = Some("2".to_owned());
            Finding { severity: Severity::Mistake, in_name: false, field }
        };
        findings.merge(vec![other("a"), other("b"), other("b")]);
        assert!(findings.has_errors() && findings.has_error_at("a") && !findings.has_error_at("b"));
        let (errors, warnings) = findings.into_errors_and_warnings();
        let texts = |list: &[FieldError]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&errors), ["a: first (missing); did you mean 2?"]);
        let second = "b: second (1); did you mean 2?";
        assert_eq!(texts(&warnings), ["c: first (missing)", second, second]);
    }

    #[test]
    fn long_values_are_cut_at_characters() {
        let text = shown(Some(&json!("é".repeat(300))));
        assert_eq!(text.chars().count(), SHOWN_MAX + 1);
        assert!(text.ends_with('…'));
        assert_eq!(shown(None), "missing");
    }
}
