//! Form of the namespaces that a queue selects: a list of names up to format 6, any labels since format 7.
//!
//! A selector of names alone is still written as the list, so that older builds can read it.

use std::collections::BTreeSet;
use std::fmt;

use model::{LabelOperator, LabelRequirement, LabelSelector, NAMESPACE_NAME, Text};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::{DeserializeAs, SerializeAs};

use super::share;

/// Returns the names that a selector of names alone selects, as format 4 writes them; `None` for any other selector.
pub(in crate::wire) fn names_of(selector: &LabelSelector) -> Option<&[Text]> {
    match selector.requirements.as_slice() {
        [LabelRequirement { key, operator: LabelOperator::In, values }]
            if **key == *NAMESPACE_NAME && values.is_sorted_by(|a, b| a < b) =>
        {
            Some(values)
        }
        _ => None,
    }
}

/// The form of a selector of namespaces.
pub(super) struct Namespaces;

impl SerializeAs<LabelSelector> for Namespaces {
    fn serialize_as<S: Serializer>(selector: &LabelSelector, serializer: S) -> Result<S::Ok, S::Error> {
        match names_of(selector) {
            Some(names) => names.serialize(serializer),
            None => share::LabelSelector::serialize(selector, serializer),
        }
    }
}

impl<'de> DeserializeAs<'de, LabelSelector> for Namespaces {
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<LabelSelector, D::Error> {
        deserializer.deserialize_any(Read)
    }
}

/// Reads either form.
struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = LabelSelector;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names of namespaces, or a selector of their labels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<LabelSelector, A::Error> {
        let names = BTreeSet::<Text>::deserialize(SeqAccessDeserializer::new(items))?;
        let values = names.into_iter().collect();
        let by_name = LabelRequirement { key: Text::from(NAMESPACE_NAME), operator: LabelOperator::In, values };
        Ok(LabelSelector { requirements: vec![by_name] })
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<LabelSelector, A::Error> {
        share::LabelSelector::deserialize(MapAccessDeserializer::new(members))
    }
}
