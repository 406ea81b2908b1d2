//! Operator flags as scenarios (and the original operator's command lines) write them, read into a [`Config`].
//!
//! Owns names and units only. Words of a name may be joined by `-` or `_`. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::{Config, QueueSelector};
use serde_json::Value;

use crate::{duration, torch, torchrun};

/// A flag that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No flag has that name.
    #[error("unknown flag `{name}`; known are {known}")]
    Unknown {
        /// The name as written.
        name: String,
        /// Names there are.
        known: String,
    },
    /// Its value is of the wrong type.
    #[error("flag `{name}`: {value} is no {wanted}")]
    BadValue {
        /// The name as written.
        name: String,
        /// The value as JSON.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Its duration cannot be read.
    #[error("flag `{name}`: {source}")]
    BadDuration {
        /// The name as written.
        name: String,
        /// Why.
        source: duration::Error,
    },
}

/// Where the value of a flag goes.
enum Setting {
    Duration(fn(&mut Config) -> &mut u64),
    Switch(fn(&mut Config) -> &mut bool),
    /// A switch whose field is set when it is off.
    OffSwitch(fn(&mut Config) -> &mut bool),
    /// A number, or `none`.
    Limit(fn(&mut Config) -> &mut Option<u32>),
    Words(fn(&mut Config) -> &mut Vec<String>),
    /// The name of a rule by which the coordinator serves queues.
    Selector(fn(&mut Config) -> &mut QueueSelector),
    /// Read by [`crate::ApiSettings`], where specs are translated.
    Translation,
    /// Accepted because command lines of the original operator have it; means nothing to decisions.
    Inert,
}

const FLAGS: &[(&str, Setting)] = &[
    ("creating-restart-period", Setting::Duration(|c| &mut c.creating_restart_ms)),
    ("creating-duration-period", Setting::Duration(|c| &mut c.creating_timeout_ms)),
    ("enable-creating-failed", Setting::Switch(|c| &mut c.creating_failed)),
    ("node-grace-period", Setting::Duration(|c| &mut c.node_grace_ms)),
    ("restart-backoff", Setting::Duration(|c| &mut c.restart_backoff_ms)),
    ("restart-backoff-max", Setting::Duration(|c| &mut c.restart_backoff_max_ms)),
    ("restart-backoff-reset", Setting::Duration(|c| &mut c.restart_backoff_reset_ms)),
    ("retry-period", Setting::Duration(|c| &mut c.retry_ms)),
    ("retry-period-max", Setting::Duration(|c| &mut c.retry_max_ms)),
    ("orphan-grace-period", Setting::Duration(|c| &mut c.orphan_grace_ms)),
    ("restart-limit", Setting::Limit(|c| &mut c.restart_limit)),
    ("failure-window", Setting::Duration(|c| &mut c.failure_window_ms)),
    ("capacity-gate", Setting::OffSwitch(|c| &mut c.ignores_capacity)),
    ("queue-selector", Setting::Selector(|c| &mut c.queue_selector)),
    ("dequeue-period", Setting::Duration(|c| &mut c.dequeue_period_ms)),
    ("gpu-faults", Setting::Words(|c| &mut c.gpu_faults)),
    (torch::GANG, Setting::Translation),
    (torch::GATES, Setting::Translation),
    (torch::HOST_PORTS, Setting::Translation),
    (torch::BUILDER, Setting::Translation),
    (torch::STORAGE, Setting::Translation),
    (torchrun::PARENT_CHECK, Setting::Translation),
    ("master", Setting::Inert),
    ("kubeconfig", Setting::Inert),
    ("run-in-cluster", Setting::Inert),
    ("thread-num", Setting::Inert),
    ("namespace", Setting::Inert),
    ("resync-period", Setting::Inert),
    ("leader-elect", Setting::Inert),
    ("leader-elect-lease-duration", Setting::Inert),
    ("leader-elect-renew-deadline", Setting::Inert),
    ("leader-elect-retry-period", Setting::Inert),
    ("leader-elect-resource-lock", Setting::Inert),
    ("v", Setting::Inert),
    ("logtostderr", Setting::Inert),
];

/// Names of all flags, without the inert ones.
pub fn names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(|(_, setting)| !matches!(setting, Setting::Inert)).map(|(name, _)| *name)
}

/// Time for which the operator, runs and simulations let a node be not ready: a kubelet that restarts costs no job its pods.
const NODE_GRACE_MS: u64 = 60_000;

/// The configuration of an operator that is started with these flags; what they leave out has its default.
///
/// # Errors
/// When a name is not known or a value cannot be read.
pub fn operator_config(flags: &BTreeMap<String, Value>) -> Result<Config, Error> {
    with(Config { node_grace_ms: NODE_GRACE_MS, ..Config::default() }, flags)
}

/// The configuration that the flags of a scenario ask for; what they leave out has its default. That of `node-grace-period` is 0.
///
/// # Errors
/// When a name is not known or a value cannot be read.
pub fn config(flags: &BTreeMap<String, Value>) -> Result<Config, Error> {
    with(Config::default(), flags)
}

fn with(mut config: Config, flags: &BTreeMap<String, Value>) -> Result<Config, Error> {
    for (name, value) in flags {
        set(&mut config, name, value)?;
    }
    Ok(config)
}

/// Returns the flags that make a configuration of the default one, and the members that no flag sets, in words.
pub fn of(config: &Config) -> (BTreeMap<String, Value>, Option<String>) {
    let (mut own, mut default) = (config.clone(), Config::default());
    let mut flags = BTreeMap::new();
    for (name, setting) in FLAGS {
        let value = match setting {
            Setting::Duration(field) => {
                (*field(&mut own) != *field(&mut default)).then(|| Value::from(format!("{}ms", *field(&mut own))))
            }
            Setting::Switch(field) => (*field(&mut own) != *field(&mut default)).then(|| Value::from(*field(&mut own))),
            Setting::OffSwitch(field) => {
                (*field(&mut own) != *field(&mut default)).then(|| Value::from(!*field(&mut own)))
            }
            Setting::Limit(field) => (*field(&mut own) != *field(&mut default))
                .then(|| field(&mut own).map_or_else(|| Value::from("none"), Value::from)),
            Setting::Words(field) => {
                (*field(&mut own) != *field(&mut default)).then(|| Value::from(field(&mut own).clone()))
            }
            Setting::Selector(field) => {
                (*field(&mut own) != *field(&mut default)).then(|| Value::from(field(&mut own).name()))
            }
            Setting::Translation | Setting::Inert => None,
        };
        if let Some(value) = value {
            flags.insert((*name).to_owned(), value);
        }
    }
    let unset = [
        ("quiet time of a term", config.quiet_ms, default.quiet_ms),
        ("start deadline", config.start_timeout_ms, default.start_timeout_ms),
    ];
    let unset = unset.into_iter().filter(|(_, own, usual)| own != usual);
    let words: Vec<String> = unset.map(|(name, own, _)| format!("{name} {own}ms")).collect();
    (flags, (!words.is_empty()).then(|| words.join(", ")))
}

/// Returns the name of a flag with its words joined by `-`.
pub(crate) fn plain(name: &str) -> String {
    name.trim_start_matches('-').replace('_', "-")
}

/// Reads a boolean, or its name as text.
pub(crate) fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn set(config: &mut Config, name: &str, value: &Value) -> Result<(), Error> {
    let plain = plain(name);
    let Some((_, setting)) = FLAGS.iter().find(|(known, _)| *known == plain) else {
        return Err(Error::Unknown { name: name.to_owned(), known: names().collect::<Vec<_>>().join(", ") });
    };
    let bad = |wanted| Error::BadValue { name: name.to_owned(), value: value.to_string(), wanted };
    match setting {
        Setting::Duration(field) => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(bad("duration")),
            };
            *field(config) =
                duration::parse_ms(&text).map_err(|source| Error::BadDuration { name: name.to_owned(), source })?;
        }
        Setting::Switch(field) => *field(config) = switch(value).ok_or_else(|| bad("boolean"))?,
        Setting::OffSwitch(field) => *field(config) = !switch(value).ok_or_else(|| bad("boolean"))?,
        Setting::Limit(field) => {
            let number = match value {
                Value::Number(number) => number.as_u64(),
                Value::String(text) if text == "none" => {
                    *field(config) = None;
                    return Ok(());
                }
                Value::String(text) => text.parse().ok(),
                _ => None,
            };
            let limit = number.and_then(|number| u32::try_from(number).ok());
            *field(config) = Some(limit.ok_or_else(|| bad("number of restarts or `none`"))?);
        }
        Setting::Words(field) => {
            *field(config) = match value {
                Value::String(text) => text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect(),
                Value::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| bad("list of words")))
                    .collect::<Result<_, _>>()?,
                _ => return Err(bad("list of words")),
            };
        }
        Setting::Selector(field) => {
            let named = QueueSelector::ALL.into_iter().find(|selector| Some(selector.name()) == value.as_str());
            let wanted = "queue selector; known are RoundRobin, WeightedRoundRobin, SmoothWeightedRoundRobin";
            *field(config) = named.ok_or_else(|| bad(wanted))?;
        }
        Setting::Translation => {
            torch::read(&BTreeMap::from([(name.to_owned(), value.clone())]))?;
        }
        Setting::Inert => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> Result<Config, Error> {
        config(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn every_flag_sets_its_own_field_and_words_join_either_way() {
        let set = of(json!({
            "creating_restart_period": "1h", "creating-duration-period": "30s", "enable-creating-failed": true,
            "node-grace-period": "1m", "restart-backoff": "1s", "restart-backoff-max": "2s", "restart_backoff-reset": "3s",
            "retry-period": "4s", "retry-period-max": "5s", "orphan-grace-period": "6s", "gpu-faults": "A, B",
            "thread-num": 1000,
            "restart-limit": "3", "failure-window": "500ms", "capacity-gate": "false",
            "queue-selector": "WeightedRoundRobin", "dequeue_period": "1s",
        }));
        let want = Config {
            creating_restart_ms: 3_600_000,
            creating_timeout_ms: 30_000,
            creating_failed: true,
            node_grace_ms: 60_000,
            restart_backoff_ms: 1_000,
            restart_backoff_max_ms: 2_000,
            restart_backoff_reset_ms: 3_000,
            retry_ms: 4_000,
            retry_max_ms: 5_000,
            orphan_grace_ms: 6_000,
            gpu_faults: vec!["A".to_owned(), "B".to_owned()],
            restart_limit: Some(3),
            failure_window_ms: 500,
            ignores_capacity: true,
            queue_selector: QueueSelector::WeightedRoundRobin,
            dequeue_period_ms: 1_000,
            ..Config::default()
        };
        assert_eq!(set, Ok(want.clone()));
        let (flags, unset) = super::of(&want);
        assert_eq!((config(&flags), flags.len(), unset), (Ok(want), 16, None));
        let quiet = Config { quiet_ms: 5, ..Config::default() };
        assert_eq!(super::of(&quiet), (BTreeMap::new(), Some("quiet time of a term 5ms".to_owned())));
        assert_eq!(of(json!({})), Ok(Config::default()));
        // A scenario has no grace where it names none; an operator has.
        let grace = |flags: Value| operator_config(&serde_json::from_value(flags).unwrap()).unwrap().node_grace_ms;
        assert_eq!((Config::default().node_grace_ms, grace(json!({}))), (0, 60_000));
        assert_eq!(grace(json!({"node-grace-period": "0s"})), 0);
        assert_eq!(of(json!({"restart-limit": "none"})), Ok(Config::default()));
        assert_eq!(of(json!({"restart-limit": 0})).unwrap().restart_limit, Some(0));
    }

    #[test]
    fn bad_flags_are_refused_by_name() {
        for (flags, words) in [
            (json!({"creating-restart": "1h"}), "unknown flag `creating-restart`; known are creating-restart-period"),
            (json!({"node-grace-period": "soon"}), "flag `node-grace-period`: `soon` is no duration"),
            (json!({"node-grace-period": 5}), "a number has no unit: ms"),
            (json!({"node-grace-period": [1]}), "[1] is no duration"),
            (json!({"enable-creating-failed": "maybe"}), "is no boolean"),
            (json!({"capacity-gate": "of"}), "is no boolean"),
            (json!({"queue-selector": "Random"}), "is no queue selector; known are RoundRobin"),
            (json!({"gpu-faults": [1]}), "is no list of words"),
            (json!({"restart-limit": -1}), "-1 is no number of restarts or `none`"),
            (json!({"restart-limit": "few"}), "is no number of restarts or `none`"),
        ] {
            let error = of(flags).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
