//! Facts and events of a record as one flat list, whatever their scope: a word is read in the form that knows it.
//!
//! The scope of a record stands in other members of its body, in no fixed order, so that the form cannot be chosen by it. Must not
//! judge whether a word belongs into its record: [`crate::wire`] does.

use std::fmt::{self, Display};

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_with::DeserializeAs;

use super::event::{JobEvent, QueueEvent};
use super::fact::{ClusterFact, JobFact, QueueFact};

/// A fact of any scope, to be read.
pub(crate) struct Fact;

/// An event of any scope, to be read.
pub(crate) struct Event;

impl<'de> DeserializeAs<'de, model::Fact> for Fact {
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<model::Fact, D::Error> {
        deserializer.deserialize_enum("Fact", &[], AnyFact)
    }
}

impl<'de> DeserializeAs<'de, model::Event> for Event {
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<model::Event, D::Error> {
        deserializer.deserialize_enum("Event", &[], AnyEvent)
    }
}

struct AnyFact;

impl<'de> Visitor<'de> for AnyFact {
    type Value = model::Fact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fact")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<model::Fact, A::Error> {
        let lists =
            [words::<ClusterFact, model::ClusterFact>(), words::<QueueFact, _>(), words::<JobFact, model::JobFact>()];
        let ((list, word), contents) = access.variant_seed(Word(&lists))?;
        let read = OneWord { word, contents };
        match list {
            0 => ClusterFact::deserialize(read).map(model::Fact::Cluster),
            1 => QueueFact::deserialize(read).map(model::Fact::Queue),
            _ => JobFact::deserialize(read).map(model::Fact::Job),
        }
    }
}

struct AnyEvent;

impl<'de> Visitor<'de> for AnyEvent {
    type Value = model::Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<model::Event, A::Error> {
        let lists = [words::<QueueEvent, model::QueueEvent>(), words::<JobEvent, model::JobEvent>()];
        let ((list, word), contents) = access.variant_seed(Word(&lists))?;
        let read = OneWord { word, contents };
        match list {
            0 => QueueEvent::deserialize(read).map(model::Event::Queue),
            _ => JobEvent::deserialize(read).map(model::Event::Job),
        }
    }
}

/// Finds the list of words that holds the word of a value.
struct Word<'l>(&'l [&'static [&'static str]]);

impl<'de> DeserializeSeed<'de> for Word<'_> {
    type Value = (usize, &'static str);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Word<'_> {
    type Value = (usize, &'static str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        let in_list = |list: &&'static [&'static str]| list.iter().find(|known| **known == word).copied();
        let found = self.0.iter().enumerate().find_map(|(n, list)| Some((n, in_list(list)?)));
        found.ok_or_else(|| E::unknown_variant(word, &[]))
    }
}

/// A value whose word was read already, to be read in one form.
struct OneWord<A> {
    word: &'static str,
    contents: A,
}

impl<'de, A: VariantAccess<'de>> Deserializer<'de> for OneWord<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, A: VariantAccess<'de>> EnumAccess<'de> for OneWord<A> {
    type Error = A::Error;
    type Variant = A;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, A), A::Error> {
        Ok((seed.deserialize(self.word.into_deserializer())?, self.contents))
    }
}

/// Returns the words that a form knows: it asks a deserializer for one of them.
fn words<F: DeserializeAs<'static, T>, T>() -> &'static [&'static str] {
    match F::deserialize_as(Probe) {
        Err(Words(words)) => words,
        Ok(_) => &[],
    }
}

/// A deserializer that holds no value, and answers with the words that it was asked for.
struct Probe;

/// The words that a form knows.
#[derive(Debug)]
struct Words(&'static [&'static str]);

impl Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Words {}

impl Error for Words {
    fn custom<T: Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Words;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Words> {
        Err(Words(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Words> {
        Err(Words(words))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
