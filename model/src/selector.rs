//! Label selectors: what the labels of a node must be for a queue to use it, and of a namespace for a queue to admit its jobs.
//!
//! Plain values and the rule of Kubernetes; reads no manifest. Tests: at the end of this file.

use std::collections::BTreeMap;

use crate::id::Text;

/// Label that every namespace has: its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Requirements on labels. All of them must hold; without any, every object is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements.
    pub requirements: Vec<LabelRequirement>,
}

/// Requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelRequirement {
    /// Key of the label.
    pub key: Text,
    /// The comparison.
    pub operator: LabelOperator,
    /// Values that it compares with; none for an operator that takes none.
    pub values: Vec<Text>,
}

/// Comparison of a label with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is a whole number greater than the value.
    Gt,
    /// The label is a whole number less than the value.
    Lt,
}

impl LabelSelector {
    /// Returns true if it selects an object with these labels.
    pub fn selects(&self, labels: &BTreeMap<Text, Text>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key).map(|value| &**value)))
    }

    /// Returns true if it selects the namespace of this name with these labels. Its name is a label as well: see [`NAMESPACE_NAME`].
    pub fn selects_namespace(&self, name: &str, labels: Option<&BTreeMap<Text, Text>>) -> bool {
        let label = |key: &Text| labels.and_then(|labels| labels.get(key)).map(|value| &**value);
        let value = |key: &Text| if **key == *NAMESPACE_NAME { Some(name) } else { label(key) };
        self.requirements.iter().all(|requirement| requirement.holds(value(&requirement.key)))
    }

    /// Returns true if it reads labels of namespaces besides their names.
    pub fn reads_namespaces(&self) -> bool {
        self.requirements.iter().any(|requirement| *requirement.key != *NAMESPACE_NAME)
    }
}

impl LabelRequirement {
    /// Returns true if it holds for a label of this value; `None` is an absent label.
    pub fn holds(&self, value: Option<&str>) -> bool {
        self.operator.holds(value, self.values.iter().map(|value| &**value))
    }
}

impl LabelOperator {
    /// Every operator with its name.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("In", Self::In),
        ("NotIn", Self::NotIn),
        ("Exists", Self::Exists),
        ("DoesNotExist", Self::DoesNotExist),
        ("Gt", Self::Gt),
        ("Lt", Self::Lt),
    ];

    /// Returns the operator of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| *word == name).map(|(_, operator)| *operator)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, operator)| *operator == self).map_or("", |(word, _)| word)
    }

    /// Returns true if it holds for a label of this value; `None` is an absent label.
    pub fn holds<'a>(self, value: Option<&str>, mut values: impl Iterator<Item = &'a str>) -> bool {
        match self {
            Self::In => value.is_some_and(|value| values.any(|each| each == value)),
            Self::NotIn => value.is_none_or(|value| values.all(|each| each != value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt | Self::Lt => {
                let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
                let (have, bound) = (number(value), number(values.next()));
                have.zip(bound).is_some_and(|(have, bound)| if self == Self::Gt { have > bound } else { have < bound })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_compare_as_in_kubernetes() {
        let cases: [(&str, &[&str], Option<&str>, bool); 19] = [
            ("In", &["a", "b"], Some("b"), true),
            ("In", &["a", "b"], Some("c"), false),
            ("In", &["a"], None, false),
            ("NotIn", &["a"], Some("b"), true),
            ("NotIn", &["a"], Some("a"), false),
            ("NotIn", &["a"], None, true),
            ("Exists", &[], Some(""), true),
            ("Exists", &[], None, false),
            ("DoesNotExist", &[], None, true),
            ("DoesNotExist", &[], Some("a"), false),
            ("Gt", &["3"], Some("4"), true),
            ("Gt", &["3"], Some("3"), false),
            ("Gt", &["3"], Some("x"), false),
            ("Gt", &["x"], Some("3"), false),
            ("Gt", &["3"], None, false),
            ("Lt", &["3"], Some("2"), true),
            ("Lt", &["3"], Some("-1"), true),
            ("Lt", &["3"], Some("3"), false),
            ("Lt", &[], Some("3"), false),
        ];
        for (name, values, value, want) in cases {
            let operator = LabelOperator::named(name).unwrap();
            assert_eq!(operator.holds(value, values.iter().copied()), want, "{value:?} {name} {values:?}");
        }
        assert_eq!(LabelOperator::named("in"), None);
    }

    #[test]
    fn all_requirements_must_hold() {
        let requirement = |key: &str, value: &str| LabelRequirement {
            key: key.into(),
            operator: LabelOperator::In,
            values: vec![value.into()],
        };
        let selector = LabelSelector { requirements: vec![requirement("a", "1"), requirement("b", "2")] };
        let labels = |all: &[(&str, &str)]| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert!(selector.selects(&labels(&[("a", "1"), ("b", "2"), ("c", "3")])));
        assert!(!selector.selects(&labels(&[("a", "1")])));
        assert!(LabelSelector::default().selects(&labels(&[])));
    }

    #[test]
    fn the_name_of_a_namespace_is_a_label_of_it() {
        let requirement = |key: &str, operator: LabelOperator, value: &str| LabelRequirement {
            key: key.into(),
            operator,
            values: vec![value.into()],
        };
        let by_name = LabelSelector { requirements: vec![requirement(NAMESPACE_NAME, LabelOperator::In, "ml")] };
        assert!(by_name.selects_namespace("ml", None) && !by_name.selects_namespace("other", None));
        assert!(!by_name.reads_namespaces());
        let both = requirement("team", LabelOperator::In, "a");
        let both = LabelSelector { requirements: [by_name.requirements, vec![both]].concat() };
        let labels = BTreeMap::from([("team".into(), "a".into()), (NAMESPACE_NAME.into(), "forged".into())]);
        assert!(both.selects_namespace("ml", Some(&labels)) && both.reads_namespaces());
        assert!(!both.selects_namespace("ml", None) && !both.selects_namespace("forged", Some(&labels)));
        let absent = LabelSelector { requirements: vec![requirement("team", LabelOperator::NotIn, "a")] };
        assert!(absent.selects_namespace("ml", None) && !absent.selects_namespace("ml", Some(&labels)));
    }
}
