//! Places in a pod template: how a rule's pattern leads to them, and what stands around them.
//!
//! Owns the walk. Paths are written only for findings: most templates have none. It must not judge anything.

use std::ptr;

use serde_json::Value;

use crate::fields::join;
use crate::objects::{list_at, text_at};

/// Lists of containers, which `container` stands for in a pattern.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// A value in a template, and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a, 'p> {
    /// The value; null where it is absent.
    pub(crate) value: &'a Value,
    step: Step<'a>,
    parent: Option<&'p Place<'a, 'p>>,
}

/// The last step to a place.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Template,
    Member(&'a str),
    Item(usize),
}

/// Visits the places of a template that a pattern names: members joined by dots, from the template down. `[]` is each item of a list,
/// `{}` each member of a map, `container` each of both lists of containers. The last member is visited even where it is absent. An
/// item that is null reads as one without members, as an API server reads it.
pub(super) fn visit<'a>(template: &'a Value, pattern: &'static str, visit: &mut dyn FnMut(&Place<'a, '_>)) {
    descend(&Place { value: template, step: Step::Template, parent: None }, pattern, visit);
}

fn descend<'a>(place: &Place<'a, '_>, pattern: &'static str, visit: &mut dyn FnMut(&Place<'a, '_>)) {
    if pattern.is_empty() {
        return visit(place);
    }
    let is_object = place.value.is_object() || place.value.is_null() && matches!(place.step, Step::Item(_));
    if !is_object {
        return;
    }
    let (segment, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let (name, each) = match (segment.strip_suffix("[]"), segment.strip_suffix("{}")) {
        (Some(name), _) => (name, Each::Item),
        (None, Some(name)) => (name, Each::Member),
        (None, None) => (segment, Each::Itself),
    };
    let names: &[&str] = if name == "container" { &CONTAINERS } else { &[name] };
    for name in names {
        let value = place.value.get(name).unwrap_or(&Value::Null);
        let member = Place { value, step: Step::Member(name), parent: Some(place) };
        match each {
            Each::Itself => descend(&member, rest, visit),
            Each::Item => {
                for (n, value) in value.as_array().into_iter().flatten().enumerate() {
                    descend(&Place { value, step: Step::Item(n), parent: Some(&member) }, rest, visit);
                }
            }
            Each::Member => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    descend(&Place { value, step: Step::Member(key), parent: Some(&member) }, rest, visit);
                }
            }
        }
    }
}

/// Part of a member that is visited.
#[derive(Debug, Clone, Copy)]
enum Each {
    Itself,
    Item,
    Member,
}

impl<'a> Place<'a, '_> {
    /// Returns the text that stands here; `None` for none, and for an empty one.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.value.as_str().filter(|text| !text.is_empty())
    }

    /// Returns true if the value is absent, or an empty text, an empty list or 0. An API server reads these as an absent field.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Bool(_) | Value::Object(_) => false,
        }
    }

    /// Returns the name of the member; empty for an item of a list.
    pub(crate) fn key(&self) -> &'a str {
        match self.step {
            Step::Member(key) => key,
            Step::Template | Step::Item(_) => "",
        }
    }

    /// Returns what holds this value.
    pub(super) fn around(&self) -> &'a Value {
        self.parent.map_or(&Value::Null, |parent| parent.value)
    }

    /// Returns another member of what holds this value; null where it is absent.
    pub(crate) fn beside(&self, key: &str) -> &'a Value {
        self.around().get(key).unwrap_or(&Value::Null)
    }

    /// Returns a member of what holds the map that holds this value; null where it is absent.
    pub(super) fn beside_around(&self, key: &str) -> &'a Value {
        self.parent.map_or(&Value::Null, |map| map.beside(key))
    }

    /// Returns the outermost value.
    fn template(&self) -> &'a Value {
        self.parent.map_or(self.value, Place::template)
    }

    /// Returns the spec of the pod.
    pub(super) fn spec(&self) -> &'a Value {
        self.template().get("spec").unwrap_or(&Value::Null)
    }

    /// Returns the container in which this value stands, or which it is.
    pub(crate) fn container(&self) -> Option<&'a Value> {
        let list = self.parent?;
        if matches!(self.step, Step::Item(_)) && CONTAINERS.contains(&list.key()) {
            return Some(self.value);
        }
        list.container()
    }

    /// Returns the name of that container.
    pub(crate) fn container_name(&self) -> Option<&'a str> {
        text_at(self.container()?, &["name"])
    }

    /// Returns true if an earlier one of the objects has the same value of the member that stands here. What holds this value is one of
    /// the objects.
    pub(super) fn is_repeated(&self, objects: impl IntoIterator<Item = &'a Value>) -> bool {
        let own = self.around();
        let mut earlier = objects.into_iter().take_while(|object| !ptr::eq(*object, own));
        self.text().is_some() && earlier.any(|object| object.get(self.key()) == Some(self.value))
    }

    /// Returns the list whose item holds this value.
    pub(super) fn siblings(&self) -> &'a [Value] {
        let list = self.parent.and_then(|item| item.parent);
        list.and_then(|list| list.value.as_array()).map_or(&[], Vec::as_slice)
    }

    /// Returns its path, below a base.
    pub(super) fn path(&self, base: &str) -> String {
        let parent = || self.parent.map_or_else(|| base.to_owned(), |parent| parent.path(base));
        match self.step {
            Step::Template => base.to_owned(),
            Step::Member(key) => join(&parent(), key),
            Step::Item(n) => format!("{}[{n}]", parent()),
        }
    }
}

/// Returns the containers of both lists, in the order in which names are compared.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.into_iter().flat_map(|key| list_at(spec, &[key]))
}
