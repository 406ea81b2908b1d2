//! Validation of values against structural schemas, in the API server's words.
//!
//! Owns the checks and their messages; `schema` says which keywords there are. Tests: at the end of `schema.rs`.

use serde_json::{Map, Number, Value};

use crate::schema::{Bound, Schema, Type, is_integer, join};

impl Schema {
    /// Adds what is wrong with `value` to `problems`, in the API server's words, each with its field path.
    pub(crate) fn check(&self, value: &Value, path: &str, problems: &mut Vec<String>) {
        if value.is_null() && self.nullable {
            return;
        }
        let wanted = if self.int_or_string {
            (!value.is_string() && !is_integer(value)).then_some("integer,string")
        } else {
            self.kind.filter(|kind| !kind.holds(value)).map(Type::name)
        };
        if let Some(wanted) = wanted {
            let found = type_name(value);
            problems.push(format!(
                "{path}: Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\""
            ));
            return;
        }
        if !self.permitted.is_empty() && !self.permitted.contains(value) {
            let supported: Vec<String> = self.permitted.iter().map(Value::to_string).collect();
            problems.push(format!("{path}: Unsupported value: {value}: supported values: {}", supported.join(", ")));
        }
        match value {
            Value::Number(number) => self.check_number(number, path, problems),
            Value::String(text) => self.check_size(text.chars().count(), "chars long", value, path, problems),
            Value::Array(list) => {
                self.check_size(list.len(), "items", value, path, problems);
                for (n, item) in list.iter().enumerate() {
                    if let Some(rules) = &self.items {
                        rules.check(item, &format!("{path}[{n}]"), problems);
                    }
                }
            }
            Value::Object(map) => self.check_object(map, value, path, problems),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_combinations(value, path, problems);
    }

    fn check_object(&self, map: &Map<String, Value>, value: &Value, path: &str, problems: &mut Vec<String>) {
        self.check_size(map.len(), "properties", value, path, problems);
        for name in self.required.iter().filter(|name| !map.contains_key(*name)) {
            problems.push(format!("{}: Required value", join(path, name)));
        }
        let mut members: Vec<(&String, &Value)> = map.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        for (key, member) in members {
            if let Some(rules) = self.properties.get(key).or(self.additional.as_deref()) {
                rules.check(member, &join(path, key), problems);
            }
        }
    }

    fn check_number(&self, number: &Number, path: &str, problems: &mut Vec<String>) {
        let mut refuse = |problem: String| {
            problems.push(format!("{path}: Invalid value: {number}: {path} in body {problem}"));
        };
        let or_equal = |exclusive: bool| if exclusive { "" } else { " or equal to" };
        if let Some(Bound { value, exclusive }) = &self.minimum
            && !in_order(value, number, *exclusive)
        {
            refuse(format!("should be greater than{} {value}", or_equal(*exclusive)));
        }
        if let Some(Bound { value, exclusive }) = &self.maximum
            && !in_order(number, value, *exclusive)
        {
            refuse(format!("should be less than{} {value}", or_equal(*exclusive)));
        }
        if self.int32 && number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
            refuse("must be of type int32".to_owned());
        }
    }

    fn check_size(&self, size: usize, unit: &str, value: &Value, path: &str, problems: &mut Vec<String>) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if self.size.0.is_some_and(|least| size < least) || self.size.1.is_some_and(|most| size > most) {
            let bounds = match self.size {
                (Some(least), Some(most)) => format!("between {least} and {most}"),
                (Some(least), None) => format!("at least {least}"),
                (None, most) => format!("at most {}", most.unwrap_or_default()),
            };
            let shown = if value.is_string() { value.to_string() } else { size.to_string() };
            problems.push(format!("{path}: Invalid value: {shown}: {path} in body should be {bounds} {unit}"));
        }
    }

    fn check_combinations(&self, value: &Value, path: &str, problems: &mut Vec<String>) {
        let accepts = |schema: &Self| {
            let mut found = Vec::new();
            schema.check(value, path, &mut found);
            found.is_empty()
        };
        for schema in &self.all_of {
            schema.check(value, path, problems);
        }
        let mut refuse = |problem: &str| problems.push(format!("{path}: Invalid value: {path} in body {problem}"));
        if !self.any_of.is_empty() && !self.any_of.iter().any(accepts) {
            refuse("must validate at least one schema (anyOf)");
        }
        if !self.one_of.is_empty() && self.one_of.iter().filter(|schema| accepts(schema)).count() != 1 {
            refuse("must validate one and only one schema (oneOf)");
        }
        if self.not.as_deref().is_some_and(accepts) {
            refuse("must not validate the schema (not)");
        }
    }
}

/// Returns whether `a` comes before `b` (or, unless `strictly`, equals it).
fn in_order(a: &Number, b: &Number, strictly: bool) -> bool {
    let order = match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    order.is_some_and(|order| order.is_lt() || !strictly && order.is_eq())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
