//! Settings of an operator that TorchrunQueues are served with.
//!
//! Owns their names and defaults. It must not know what follows from them. Tests: at the end of this file.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::flags::{Error, plain, switch};

/// Settings by which objects of TorchrunQueues are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TorchrunSettings {
    /// Flag `kai-parent-check`: a KAI Queue is written only where its parent names the namespace of the TorchrunQueue. The operator has
    /// it on, scenarios and runs off: there are no parents.
    pub checks_parents: bool,
}

/// Flag of [`TorchrunSettings::checks_parents`].
pub const PARENT_CHECK: &str = "kai-parent-check";

/// Reads the settings that flags ask for; what they leave out has its default. Other flags are passed over.
///
/// # Errors
/// When a value cannot be read.
pub fn read(flags: &BTreeMap<String, Value>) -> Result<TorchrunSettings, Error> {
    let mut settings = TorchrunSettings::default();
    for (name, value) in flags.iter().filter(|(name, _)| plain(name) == PARENT_CHECK) {
        let bad = || Error::BadValue { name: name.clone(), value: value.to_string(), wanted: "boolean" };
        settings.checks_parents = switch(value).ok_or_else(bad)?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_check_of_parents_is_a_switch() {
        let of = |flags: Value| read(&serde_json::from_value(flags).unwrap()).map(|settings| settings.checks_parents);
        assert_eq!((of(json!({})), of(json!({"kai_parent_check": "true"}))), (Ok(false), Ok(true)));
        let error = of(json!({PARENT_CHECK: 7})).unwrap_err().to_string();
        assert_eq!(error, "flag `kai-parent-check`: 7 is no boolean");
    }
}
