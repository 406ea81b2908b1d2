//! Settings of an operator that TorchJobs and ModelVersions are translated with: gates and flags of the original.
//!
//! Owns their names and defaults. It must not know what follows from them. Tests: at the end of this file.

use std::collections::BTreeMap;

use model::Text;
use serde_json::Value;

use crate::flags::{Error, plain, switch};
use crate::storage::ModelStorage;

/// Settings by which specs of TorchJobs are translated and their pods rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchSettings {
    /// Gate `DAGScheduling`: types start one after the other.
    pub ordered: bool,
    /// Gate `JobCoordinator`: jobs wait until the coordinator dequeues them, and the quotas of their namespace have room.
    pub coordinator: bool,
    /// Flag `enable-gang-scheduling`: Volcano's pod groups, where the cluster has them.
    pub gang: bool,
    /// Gate `TorchLocalMasterAddr`: the master finds itself at `localhost`.
    pub local_master: bool,
    /// Gate `HostNetWithHeadlessSvc`: services of pods on the network of their nodes are headless, and the workers know the
    /// master's port there.
    pub headless_host_network: bool,
    /// Flag `hostnetwork-port-range`: first port and number of ports for pods on the network of their nodes.
    pub host_ports: (u16, u16),
    /// Settings of the models that jobs leave behind.
    pub models: ModelSettings,
}

impl Default for TorchSettings {
    fn default() -> Self {
        Self {
            ordered: true,
            coordinator: true,
            gang: true,
            local_master: true,
            headless_host_network: false,
            host_ports: (20_000, 10_000),
            models: ModelSettings::default(),
        }
    }
}

/// Settings by which specs of ModelVersions are translated and their pods rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Flag `model-image-builder`: image of the pods that build images of models.
    pub builder: Text,
    /// Flag `model-storage`: storage that specs may name.
    pub storage: ModelStorage,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self { builder: Text::from("kubedl/kaniko:latest"), storage: ModelStorage::default() }
    }
}

/// Flag of [`ModelSettings::builder`].
pub(crate) const BUILDER: &str = "model-image-builder";
/// Flag of [`TorchSettings::gang`].
pub(crate) const GANG: &str = "enable-gang-scheduling";
/// Flag with the gates.
pub(crate) const GATES: &str = "feature-gates";
/// Flag of [`TorchSettings::host_ports`].
pub(crate) const HOST_PORTS: &str = "hostnetwork-port-range";
/// Flag of [`ModelSettings::storage`].
pub(crate) const STORAGE: &str = "model-storage";

/// Gates without an effect here: least numbers of members need none.
const INERT: [&str; 1] = ["GangScheduling"];

/// Reads the settings that flags ask for; what they leave out has its default. Other flags are passed over.
///
/// # Errors
/// When a value cannot be read.
pub fn read(flags: &BTreeMap<String, Value>) -> Result<TorchSettings, Error> {
    let mut settings = TorchSettings::default();
    for (name, value) in flags {
        let bad = |wanted| Error::BadValue { name: name.clone(), value: value.to_string(), wanted };
        match (plain(name).as_str(), value) {
            (GANG, value) => settings.gang = switch(value).ok_or_else(|| bad("boolean"))?,
            (GATES, Value::String(text)) => {
                for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
                    set_gate(&mut settings, gate).ok_or_else(|| bad("list of gates, such as DAGScheduling=false"))?;
                }
            }
            (HOST_PORTS, Value::String(text)) => {
                settings.host_ports =
                    range(text).ok_or_else(|| bad("range of ports, such as 20000-30000 or 20000+10000"))?;
            }
            (BUILDER, value) => {
                let image = value.as_str().filter(|image| !image.is_empty());
                settings.models.builder = Text::from(image.ok_or_else(|| bad("name of an image"))?);
            }
            (STORAGE, Value::String(text)) => {
                settings.models.storage = ModelStorage::parse(text).ok_or_else(|| bad(crate::storage::FORM))?;
            }
            (GATES | HOST_PORTS | STORAGE, _) => return Err(bad("text")),
            _ => {}
        }
    }
    Ok(settings)
}

fn set_gate(settings: &mut TorchSettings, gate: &str) -> Option<()> {
    let (name, value) = gate.split_once('=')?;
    let on: bool = value.trim().parse().ok()?;
    match name.trim() {
        "DAGScheduling" => settings.ordered = on,
        "JobCoordinator" => settings.coordinator = on,
        "TorchLocalMasterAddr" => settings.local_master = on,
        "HostNetWithHeadlessSvc" | "AllAlpha" => settings.headless_host_network = on,
        "AllBeta" => (settings.ordered, settings.local_master, settings.coordinator) = (on, on, on),
        name if INERT.contains(&name) => {}
        _ => return None,
    }
    Some(())
}

/// Reads `a-b` or `a+n`. The last port of the range stays free, as in the original.
fn range(text: &str) -> Option<(u16, u16)> {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    let (first, count) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (number(first)?, number(last)?.checked_sub(number(first)?)?),
        (None, Some((first, count))) => (number(first)?, number(count)?),
        (None, None) => return None,
    };
    (first > 0 && count > 0 && first.checked_add(count).is_some()).then_some((first, count))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(flags: Value) -> Result<TorchSettings, Error> {
        read(&serde_json::from_value(flags).unwrap())
    }

    #[test]
    fn every_flag_and_gate_sets_its_own_field() {
        let (usual, models) = (TorchSettings::default, ModelSettings::default);
        for (flags, want) in [
            (json!({"node-grace-period": "1m"}), usual()),
            (json!({"enable_gang-scheduling": false}), TorchSettings { gang: false, ..usual() }),
            (
                json!({"feature-gates": "DAGScheduling=false, JobCoordinator=false"}),
                TorchSettings { ordered: false, coordinator: false, ..usual() },
            ),
            (json!({"feature-gates": "TorchLocalMasterAddr=false"}), TorchSettings { local_master: false, ..usual() }),
            (json!({"feature-gates": "AllAlpha=true"}), TorchSettings { headless_host_network: true, ..usual() }),
            (json!({"hostnetwork-port-range": "100-200"}), TorchSettings { host_ports: (100, 100), ..usual() }),
            (json!({"hostnetwork-port-range": "100+50"}), TorchSettings { host_ports: (100, 50), ..usual() }),
            (
                json!({"model-image-builder": "b:2"}),
                TorchSettings { models: ModelSettings { builder: "b:2".into(), ..models() }, ..usual() },
            ),
            (
                json!({"model-storage": "none"}),
                TorchSettings {
                    models: ModelSettings { storage: ModelStorage::parse("none").unwrap(), ..models() },
                    ..usual()
                },
            ),
        ] {
            assert_eq!(of(flags.clone()), Ok(want), "{flags}");
        }
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (flags, words) in [
            (json!({"enable-gang-scheduling": "maybe"}), "is no boolean"),
            (json!({"feature-gates": "Novel=true"}), "is no list of gates"),
            (json!({"feature-gates": true}), "is no text"),
            (json!({"hostnetwork-port-range": "200-100"}), "is no range of ports"),
            (json!({"hostnetwork-port-range": "60000+10000"}), "is no range of ports"),
            (json!({"model-image-builder": ""}), "is no name of an image"),
            (json!({"model-image-builder": 7}), "is no name of an image"),
            (json!({"model-storage": "data"}), "\"data\" is no list of"),
            (json!({"model-storage": 7}), "is no text"),
        ] {
            let error = of(flags).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
