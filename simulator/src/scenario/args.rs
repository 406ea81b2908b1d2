//! Small argument types of scenario steps, and how YAML spells them.
//!
//! Owns shapes only (`one or a list`, `all`, durations, references to objects). What a verb does is `runner`'s.
//! Tests: in `super::tests`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use settings::duration;

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Shape<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(StrDeserializer::new(text)).map(|one| OneOrMany(vec![one]))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(OneOrMany(items))
            }
        }
        deserializer.deserialize_any(Shape(PhantomData))
    }
}

/// Names of manifests; none at all (nothing written, `{}`, `[]`, `all`) means every one of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of manifests, or nothing for all of them")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Names, E> {
                Ok(Names::default())
            }
            fn visit_none<E: de::Error>(self) -> Result<Names, E> {
                Ok(Names::default())
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Names, D::Error> {
                inner.deserialize_any(Shape)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Names, E> {
                Ok(Names(if text == "all" { Vec::new() } else { vec![text.to_owned()] }))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                match map.next_key::<String>()? {
                    None => Ok(Names::default()),
                    Some(key) => Err(de::Error::unknown_field(&key, &[])),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element::<String>()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// Pods that a step changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pods {
    /// Every pod the step makes sense for.
    All,
    /// These, by name.
    Named(Vec<ObjectName>),
}

impl<'de> Deserialize<'de> for Pods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let OneOrMany(names) = OneOrMany::<PodName>::deserialize(deserializer)?;
        Ok(match names.as_slice() {
            [one] if one.0.name == "all" => Self::All,
            _ => Self::Named(names.into_iter().map(|pod| pod.0).collect()),
        })
    }
}

/// A pod's name, written as text or as `{pod: NAME}`.
struct PodName(ObjectName);

impl<'de> Deserialize<'de> for PodName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            pod: ObjectName,
        }
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = PodName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pod's name")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PodName, E> {
                ObjectName::checked(text).map(PodName).map_err(de::Error::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PodName, A::Error> {
                Long::deserialize(MapAccessDeserializer::new(map)).map(|long| PodName(long.pod))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// Address of an object inside its kind, written `name` or `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its namespace, where it is written; else it is the one namespace that has an object of that name.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

impl ObjectName {
    fn checked(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.ends_with('/') || text.starts_with('/') {
            return Err(format!("`{text}` names no object"));
        }
        Ok(Self::from(text))
    }
}

impl From<&str> for ObjectName {
    fn from(text: &str) -> Self {
        match text.split_once('/') {
            Some((namespace, name)) => Self { namespace: Some(namespace.to_owned()), name: name.to_owned() },
            None => Self { namespace: None, name: text.to_owned() },
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl<'de> Deserialize<'de> for ObjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::checked(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A duration in milliseconds, written as Go writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Millis(pub u64);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl Visitor<'_> for Shape {
            type Value = Millis;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 98s, 10m or 1h30m")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
                duration::parse_ms(text).map(Millis).map_err(de::Error::custom)
            }
            // A bare number is ambiguous, except nothing at all.
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Millis, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Millis, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// `True`, `False` or `Unknown`; a plain YAML boolean is accepted too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl Visitor<'_> for Shape {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("True, False or a word")
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Word, E> {
                Ok(Word(if value { "True" } else { "False" }.to_owned()))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}
