//! Settings of an operator that TorchrunQueues are served with.
//!
//! Owns their names and defaults. It must not know what follows from them. Tests: at the end of this file.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::flags::{Error, plain, switch};

/// Settings by which objects of TorchrunQueues are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TorchrunSettings {
    /// Flag `kai-parent-check`: a KAI Queue is written only where its parent selects the namespace of the TorchrunQueue.
    pub checks_parents: bool,
}

/// Flag of [`TorchrunSettings::checks_parents`].
pub(crate) const PARENT_CHECK: &str = "kai-parent-check";

/// Reads the settings that flags ask for; what they leave out stays. Other flags are passed over.
///
/// # Errors
/// When a value cannot be read.
pub fn read(mut settings: TorchrunSettings, flags: &BTreeMap<String, Value>) -> Result<TorchrunSettings, Error> {
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
        let of = |checks_parents, flags: Value| {
            let read = read(TorchrunSettings { checks_parents }, &serde_json::from_value(flags).unwrap());
            read.map(|settings| settings.checks_parents)
        };
        assert_eq!((of(false, json!({})), of(false, json!({"kai_parent_check": "true"}))), (Ok(false), Ok(true)));
        assert_eq!((of(true, json!({})), of(true, json!({PARENT_CHECK: false}))), (Ok(true), Ok(false)));
        let error = of(false, json!({PARENT_CHECK: 7})).unwrap_err().to_string();
        assert_eq!(error, "flag `kai-parent-check`: 7 is no boolean");
    }
}
