//! Policies by name for a study: those of `scheduler`, and those of other simulators that stand in [`super::reference`].
//!
//! Tests: at the end of this file.

use scheduler::{NameError, Policy};

use super::reference;

/// Why a policy cannot take part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No policy has this name.
    #[error("unknown policy {name:?}; known are {}", Candidate::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// A setting in the name is not known or has no usable value.
    #[error(transparent)]
    Setting(NameError),
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Unknown { name } => Self::Unknown { name },
            error @ (NameError::Setting { .. } | NameError::Value { .. }) => Self::Setting(error),
        }
    }
}

/// A policy in a study.
#[derive(Debug)]
pub struct Candidate {
    /// The name it was asked for by.
    pub name: String,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Event that its published results count as a preemption.
    pub counting: Counting,
}

/// Event that a row of results counts in the column for preemptions or reallocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Every change of what a job held after its first start.
    Changes,
    /// Only taking everything away.
    Halts,
}

/// Names of `tiresias-sim` schedules that `scheduler` has under another name.
const TIRESIAS_SIM: &[(&str, &str)] = &[
    ("fifo", "fifo-strict"),
    ("fjf", "fifo-backfill"),
    ("sjf", "sjf"),
    ("shortest", "srtf"),
    ("shortest-gpu", "srsf"),
];

impl Candidate {
    /// Finds a policy.
    ///
    /// # Errors
    /// No policy has that name, or a setting in it is not known or has no usable value.
    pub fn find(name: &str) -> Result<Self, Error> {
        let of_tiresias_sim = name.strip_prefix("tiresias-sim:");
        let alias = TIRESIAS_SIM.iter().find(|(theirs, _)| Some(*theirs) == of_tiresias_sim);
        let policy = match (alias, reference::by_name(name)) {
            (Some((_, ours)), _) => scheduler::by_name(ours)?,
            (None, Some(policy)) => policy,
            (None, None) => scheduler::by_name(name)?,
        };
        let counting = if of_tiresias_sim.is_some() { Counting::Halts } else { Counting::Changes };
        Ok(Self { name: name.to_owned(), policy, counting })
    }

    /// All of a comma-separated list. A comma inside the settings of a policy (`gain:a=0.3,b=4`) does not separate.
    ///
    /// # Errors
    /// As [`Candidate::find`], for the first that cannot be found.
    pub fn list(names: &str) -> Result<Vec<Self>, Error> {
        let mut parts: Vec<String> = Vec::new();
        for part in names.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match parts.last_mut() {
                Some(last) if last.contains(':') && part.contains('=') && !part.contains(':') => {
                    last.push(',');
                    last.push_str(part);
                }
                Some(_) | None => parts.push(part.to_owned()),
            }
        }
        parts.iter().map(|name| Self::find(name)).collect()
    }

    /// Every name that stands for itself.
    pub fn names() -> impl Iterator<Item = String> {
        let of_tiresias_sim = TIRESIAS_SIM.iter().map(|(theirs, _)| format!("tiresias-sim:{theirs}"));
        let ours = scheduler::NAMES.iter().map(ToString::to_string);
        ours.chain(reference::NAMES.iter().map(ToString::to_string)).chain(of_tiresias_sim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found() {
        for name in Candidate::names() {
            assert_eq!(Candidate::find(&name).unwrap().name, name);
        }
        assert!(Candidate::find("tiresias-sim:nonsense").is_err());
    }

    #[test]
    fn no_two_names_differ_in_case_alone() {
        let mut lower = std::collections::BTreeMap::new();
        for name in Candidate::names() {
            let other = lower.insert(name.to_ascii_lowercase(), name.clone());
            assert_eq!(other, None, "{name}");
        }
    }

    #[test]
    fn settings_keep_their_commas() {
        let list = Candidate::list("srtf, gain:a=0.3,b=4 ,tiresias-sim:fifo,max-min").unwrap();
        let names: Vec<&str> = list.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["srtf", "gain:a=0.3,b=4", "tiresias-sim:fifo", "max-min"]);
        let error = Candidate::list("srtf,none-such").unwrap_err().to_string();
        assert!(error.starts_with("unknown policy \"none-such\"; known are "), "{error}");
        assert!(error.contains("gain") && error.contains("tiresias-sim:fifo"), "{error}");
        let error = Candidate::list("gain:nonsense=1").unwrap_err();
        assert!(matches!(error, Error::Setting(_)), "{error}");
    }
}
