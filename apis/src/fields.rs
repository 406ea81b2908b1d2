//! Reads fields of a manifest by path and collects what is wrong with them.
//!
//! Every API's `spec.rs` reads through [`Findings`], so that a field of the wrong type is an error that names the field,
//! never a crash and never a silent default. Null counts as absent, as it does for Kubernetes' own types. Tests: at the end
//! of this file.

use model::FieldError;
use serde_json::{Map, Value};

/// Longest part of a bad value that is shown.
const SHOWN_MAX: usize = 120;

/// What was found wrong, or worth a remark, in a manifest.
#[derive(Debug, Default)]
pub struct Findings {
    /// What cannot be accepted.
    pub errors: Vec<FieldError>,
    /// Remarks on what is accepted.
    pub warnings: Vec<FieldError>,
}

/// One accepted word of a field and what it means.
pub type Word<T> = (&'static str, T);

/// What becomes of a word that is none of the accepted ones.
#[derive(Debug, Clone, Copy)]
pub enum Unknown<T> {
    /// It cannot be accepted.
    Refused,
    /// It acts as this word, with a remark.
    ActsAs(Word<T>),
}

impl Findings {
    /// Notes something that cannot be accepted.
    pub fn error(&mut self, path: impl Into<String>, value: Option<&Value>, problem: impl Into<String>) {
        self.errors.push(FieldError { path: path.into(), value: shown(value), problem: problem.into() });
    }

    /// Notes a remark.
    pub fn warn(&mut self, path: impl Into<String>, value: Option<&Value>, problem: impl Into<String>) {
        self.warnings.push(FieldError { path: path.into(), value: shown(value), problem: problem.into() });
    }

    /// A text field; `None` when absent or not text.
    pub fn text<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> Option<&'a str> {
        let value = present(parent, key)?;
        if value.as_str().is_none() {
            self.error(join(base, key), Some(value), format!("must be text, not {}", type_of(value)));
        }
        value.as_str()
    }

    /// A whole number within `min..=max`; `None` when absent or not that.
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

    /// A field that takes one of a few words; `default` when absent or empty.
    pub fn word<T: Copy>(
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
            return *meaning;
        }
        let accepted = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let value = parent.get(key);
        match unknown {
            Unknown::Refused => {
                self.error(join(base, key), value, format!("must be one of {accepted}"));
                default
            }
            Unknown::ActsAs((word, meaning)) => {
                self.warn(join(base, key), value, format!("is none of {accepted}; it acts as {word}"));
                meaning
            }
        }
    }

    /// A list; empty when absent or no list.
    pub fn list<'a>(&mut self, parent: &'a Value, base: &str, key: &str) -> &'a [Value] {
        let Some(value) = present(parent, key) else { return &[] };
        if !value.is_array() {
            self.error(join(base, key), Some(value), format!("must be a list, not {}", type_of(value)));
        }
        value.as_array().map_or(&[], Vec::as_slice)
    }

    /// An object; `None` when absent or no object.
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

/// The path of a member.
pub fn join(base: &str, key: &str) -> String {
    format!("{base}.{key}")
}

/// A value as it is shown in messages: JSON text, cut when long, or `missing`.
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

/// The type of a value, with its article.
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
        let text: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
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
        assert!(findings.errors.is_empty() && findings.warnings.is_empty());
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
            findings.warnings.first().map(ToString::to_string).as_deref(),
            Some("p.b: is none of X, Y; it acts as Y (\"y\")")
        );
        assert_eq!(
            findings.errors.first().map(ToString::to_string).as_deref(),
            Some("p.b: must be one of X, Y (\"y\")")
        );
    }

    #[test]
    fn long_values_are_cut_at_characters() {
        let text = shown(Some(&json!("é".repeat(300))));
        assert_eq!(text.chars().count(), SHOWN_MAX + 1);
        assert!(text.ends_with('…'));
        assert_eq!(shown(None), "missing");
    }
}
