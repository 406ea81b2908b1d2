//! Finds the word in a body that this build does not know: a variant of a fact, an event, a phase, or of what is in them.
//!
//! A body that could not be read is read once more with an error type of our own. serde's [`Error::unknown_variant`] shows it
//! which word it was; no text of a message is parsed. Slow, and only done for a body that is refused anyway.

use std::fmt::{self, Display};

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// Returns the first unknown word of a body. `None` if the body is refused for another reason.
pub(super) fn word<T: DeserializeOwned>(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match T::deserialize(Node(&body)) {
        Err(ReadError::Unknown(word)) => Some(word),
        Err(ReadError::Other) | Ok(_) => None,
    }
}

/// Why a body is refused.
#[derive(Debug)]
enum ReadError {
    /// It has a word that this build does not know.
    Unknown(String),
    /// Anything else: the error of the first reading shows what.
    Other,
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "unknown word {word}"),
            Self::Other => f.write_str("malformed"),
        }
    }
}

impl std::error::Error for ReadError {}

impl Error for ReadError {
    fn custom<T: Display>(_: T) -> Self {
        Self::Other
    }

    fn unknown_variant(variant: &str, _: &'static [&'static str]) -> Self {
        Self::Unknown(variant.to_owned())
    }
}

/// A part of a body, to be read.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Value);

impl<'de> IntoDeserializer<'de, ReadError> for Node<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(value) => match (value.as_u64(), value.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => Err(ReadError::Other),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Node))),
            Value::Object(members) => {
                visitor.visit_map(MapDeserializer::new(members.iter().map(|(name, value)| (Key(name), Node(value)))))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(BorrowedStrDeserializer::new(word)),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (Key(name), Node(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(members)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(ReadError::Other),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The name of a member, to be read: a text, a word, or a number.
#[derive(Clone, Copy)]
struct Key<'a>(&'a str);

impl<'de> IntoDeserializer<'de, ReadError> for Key<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_u32(self.0.parse().map_err(|_| ReadError::Other)?)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_enum(BorrowedStrDeserializer::new(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
