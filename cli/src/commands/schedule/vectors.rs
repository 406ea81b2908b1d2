//! Reading values out of a vectors file, with the place where each was found for the error message.

use std::fmt::Write;

use serde_json::{Map, Value};
use settings::decimal::fixed;
use terminal::out::Failure;

/// A value in the file and the way to it.
#[derive(Debug, Clone)]
pub(super) struct VectorValue<'v> {
    value: &'v Value,
    path: String,
}

impl<'v> VectorValue<'v> {
    /// The whole file.
    pub(super) fn root(value: &'v Value) -> Self {
        Self { value, path: String::new() }
    }

    /// An error about this value; a long value is cut.
    pub(super) fn error(&self, wanted: &str) -> Failure {
        let mut shown = self.value.to_string();
        if shown.chars().count() > 80 {
            shown = shown.chars().take(77).collect::<String>() + "...";
        }
        let path = if self.path.is_empty() { "the file" } else { &self.path };
        Failure::new(format!("{path}: {wanted}, got {shown}"))
    }

    /// Adds to the way how a person would call the thing, for example its id.
    pub(super) fn called(mut self, name: &str) -> Self {
        let _ = write!(self.path, " ({name})"); // writing to a string cannot fail
        self
    }

    fn step(&self, value: &'v Value, step: &str) -> Self {
        let path = if self.path.is_empty() { step.to_owned() } else { format!("{}.{step}", self.path) };
        Self { value, path }
    }

    pub(super) fn object(&self) -> Result<&'v Map<String, Value>, Failure> {
        self.value.as_object().ok_or_else(|| self.error("expected an object"))
    }

    /// A member that must be there.
    pub(super) fn get(&self, key: &str) -> Result<Self, Failure> {
        self.find(key)?.ok_or_else(|| {
            let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
            Failure::new(format!("{path}: missing"))
        })
    }

    /// A member that may be absent.
    pub(super) fn find(&self, key: &str) -> Result<Option<Self>, Failure> {
        Ok(self.object()?.get(key).map(|value| self.step(value, key)))
    }

    /// A member that is there and not null.
    pub(super) fn given(&self, key: &str) -> Result<Option<Self>, Failure> {
        Ok(self.find(key)?.filter(|member| !member.value.is_null()))
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    /// The elements of an array, each with its place.
    pub(super) fn items(&self) -> Result<Vec<Self>, Failure> {
        let items = self.value.as_array().ok_or_else(|| self.error("expected an array"))?;
        let place = |(i, value)| Self { value, path: format!("{}[{i}]", self.path) };
        Ok(items.iter().enumerate().map(place).collect())
    }

    /// The members of an object, each with its place.
    pub(super) fn members(&self) -> Result<Vec<(&'v str, Self)>, Failure> {
        Ok(self.object()?.iter().map(|(key, value)| (key.as_str(), self.step(value, key))).collect())
    }

    pub(super) fn text(&self) -> Result<&'v str, Failure> {
        self.value.as_str().ok_or_else(|| self.error("expected a string"))
    }

    pub(super) fn count(&self) -> Result<u32, Failure> {
        let count = self.value.as_u64().and_then(|n| u32::try_from(n).ok());
        count.ok_or_else(|| self.error("expected a whole number from 0 to 4294967295"))
    }

    /// A number that is not negative, in units of ten to the power of `-places`.
    pub(super) fn number(&self, places: u32) -> Result<u64, Failure> {
        let Value::Number(number) = self.value else { return Err(self.error("expected a number")) };
        fixed(&number.to_string(), places).ok_or_else(|| self.error("expected a number from 0 that is not too large"))
    }
}
