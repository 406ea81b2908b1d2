//! Label selectors, as an API server takes them. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::fmt;

use model::Text;
use serde_json::Value;

use crate::objects;

/// Labels that an object must carry to be selected, each with its value. The empty selector selects every object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    labels: BTreeMap<Text, Text>,
}

impl Selector {
    /// Selects objects that carry a label with a value.
    pub fn label(key: &str, value: &str) -> Self {
        Self { labels: BTreeMap::from([(Text::from(key), Text::from(value))]) }
    }

    /// Returns true if it selects every object.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns true if it selects the object.
    pub fn selects(&self, object: &Value) -> bool {
        self.selects_labels(objects::at(object, &["metadata", "labels"]))
    }

    /// Returns true if it selects an object with these `metadata.labels`.
    pub fn selects_labels(&self, labels: Option<&Value>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        let carries = |key: &Text, value: &Text| label(key) == Some(value);
        self.labels.iter().all(|(key, value)| carries(key, value))
    }

    /// Returns the labels it requires.
    pub fn labels(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.labels.iter()
    }
}

/// As an API server takes it in `labelSelector`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (key, value)) in self.labels.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_select_and_nothing_else_does() {
        let selector = Selector::label("team", "a");
        for (labels, selected) in [
            (json!({"team": "a"}), true),
            (json!({"team": "a", "more": "b"}), true),
            (json!({"team": "b"}), false),
            (json!({"team": 1}), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            let object = json!({"metadata": {"labels": labels}});
            assert_eq!(selector.selects(&object), selected, "{object}");
            assert!(Selector::default().selects(&object), "{object}");
        }
        assert!(!selector.selects(&json!({"metadata": {}})));
        assert_eq!(selector.to_string(), "team=a");
        assert_eq!(Selector::default().to_string(), "");
    }
}
