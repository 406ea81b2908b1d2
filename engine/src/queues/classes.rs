//! Resolves priorities: that of a job which sets none itself, from the classes that its pod templates name.
//!
//! Owns the built-in classes and the rule of the default. Must not know an API: `apis::demand` reads the names. Tests: at the end of
//! this file, and the scenarios with PriorityClass objects in `fixtures/scenarios/trainingqueue/`.

use std::collections::BTreeMap;

use model::{ClassFact, Demand, Text};

/// Classes that every cluster has, with their values.
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The classes that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes {
    pub(crate) by_name: BTreeMap<Text, ClassFact>,
}

impl Classes {
    /// Returns the value of a class; `None` if there is no such class.
    pub(super) fn value(&self, name: &str) -> Option<i32> {
        let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        self.by_name.get(name).map(|class| class.value).or_else(built_in)
    }

    /// Returns the class of a pod that names none: the default class, of several the one of the lowest value.
    fn default_class(&self) -> Option<&ClassFact> {
        self.by_name.values().filter(|class| class.is_default).min_by_key(|class| class.value)
    }

    /// Returns the name of that class.
    pub(super) fn default_name(&self) -> Option<&Text> {
        self.default_class().map(|class| &class.name)
    }

    /// Returns the value of that class.
    fn default_value(&self) -> i32 {
        self.default_class().map(|class| class.value).unwrap_or_default()
    }

    /// Returns the priority of a job.
    pub fn priority(&self, demand: &Demand) -> i32 {
        let of =
            |name: &Text| if name.is_empty() { self.default_value() } else { self.value(name).unwrap_or_default() };
        let of_classes = || demand.classes.iter().map(of).max().unwrap_or_else(|| self.default_value());
        demand.priority.unwrap_or_else(of_classes)
    }

    /// Returns the classes that a job names and that are not there.
    pub(crate) fn unknown(&self, demand: &Demand) -> Vec<Text> {
        let is_unknown = |name: &&Text| !name.is_empty() && self.value(name).is_none();
        demand.classes.iter().filter(is_unknown).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{ResourceVersion, Timestamp};

    use super::*;

    fn classes(all: &[(&str, i32, bool)]) -> Classes {
        let class = |&(name, value, is_default): &(&str, i32, bool)| {
            (name.into(), ClassFact { name: name.into(), rv: ResourceVersion(1), value, is_default })
        };
        Classes { by_name: all.iter().map(class).collect() }
    }

    fn demand(priority: Option<i32>, classes: &[&str]) -> Demand {
        let classes = classes.iter().map(|name| Text::from(*name)).collect();
        Demand { queue: None, priority, classes, submitted: Timestamp(0), category: None, units: None, level: 0 }
    }

    #[test]
    fn the_highest_class_counts_where_a_job_names_no_priority() {
        let known = classes(&[("high", 100, false), ("low", -5, false), ("usual", 7, true), ("other", 9, true)]);
        for (priority, names, want) in [
            (Some(3), &["high"][..], 3),
            (None, &["high", "low"], 100),
            (None, &["low"], -5),
            (None, &["low", ""], 7),
            (None, &[], 7),
            (None, &["gone"], 0),
            (None, &["gone", "low"], 0),
            (None, &["system-node-critical"], 2_000_001_000),
        ] {
            assert_eq!(known.priority(&demand(priority, names)), want, "{priority:?} {names:?}");
        }
        assert_eq!(Classes::default().priority(&demand(None, &[])), 0);
        assert_eq!(known.unknown(&demand(None, &["", "gone", "high", "system-node-critical"])), ["gone".into()]);
    }
}
