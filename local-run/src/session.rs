//! What a run and a simulation begin with: settings of flags, and objects that are applied.
//!
//! Owns the words of what is wrong with them. It must not know pods. Tests: `cli/tests/local/`, by topic.

use embedded::{Rejected, Session};
use serde_json::Value;
use terminal::near::did_you_mean;
use terminal::out::{self, Failure};

/// Reads a time in milliseconds from the command line.
///
/// # Errors
/// Returns an error if the text is no duration.
pub fn duration(text: &str) -> Result<u64, settings::duration::Error> {
    settings::duration::parse_ms(text)
}

/// A setting on the command line that has no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: a name must come before =")]
pub struct NamelessFlag(String);

/// Reads `NAME=VALUE`; a name alone is switched on.
///
/// # Errors
/// Returns an error if there is no name.
pub fn flag(text: &str) -> Result<(String, String), NamelessFlag> {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    if name.is_empty() { Err(NamelessFlag(text.to_owned())) } else { Ok((name.to_owned(), value.to_owned())) }
}

/// Returns the settings that flags make.
///
/// # Errors
/// Returns an error if a flag is not known, or its value cannot be read.
pub fn config(flags: &[(String, String)]) -> Result<model::Config, Failure> {
    let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
    settings::flags::operator_config(&flags.iter().map(|(name, text)| (name.clone(), value(text))).collect()).map_err(
        |error| match &error {
            settings::flags::Error::Unknown { name, .. } => {
                let plain = name.trim_start_matches('-').replace('_', "-");
                let near = did_you_mean(&plain, settings::flags::names());
                Failure::new(format!("--flag {name}{near} ({error})"))
            }
            _ => Failure::new(format!("--flag: {error}")),
        },
    )
}

/// Applies objects as `kubectl apply` does, and warns of each one that is rejected. Returns the rejected ones.
///
/// # Errors
/// Returns an error if every object is rejected.
pub fn apply(session: &mut Session, objects: &[Value]) -> Result<Vec<Rejected>, Failure> {
    let rejected = session.apply(objects)?;
    let lines: Vec<String> = rejected.iter().map(ToString::to_string).collect();
    if rejected.len() == objects.len() {
        return Err(Failure::new(lines.join("\ntrainyard: ")));
    }
    for line in &lines {
        out::warn(line);
    }
    Ok(rejected)
}
