//! Number of GPUs of a run: `--gpus`, or what the workers of a command need.
//!
//! Owns the choice, its refusals, and the hint where manifests ask for GPUs and the run has none. `local` knows which GPUs there are. Tests:
//! at the end, and `cli/tests/local/habits.rs`.

use std::str::FromStr;

use apis::{Registry, Resource};
use local::VisibleGpus;
use serde_json::Value;
use terminal::out::Failure;

use crate::command::CommandArgs;

/// Reason for which no number of GPUs can be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GpuCountError {
    /// The value of `--gpus` cannot be read.
    #[error("a number of GPUs, or `auto` for all that are free")]
    Unreadable,
    /// Fewer are free than are needed.
    #[error("{free} are free on this machine. --gpus {needed} claims them all the same")]
    NotFree { free: u32, needed: u32 },
    /// `--gpus` names fewer than are needed.
    #[error("--gpus gives it {0}")]
    TooFew(u32),
}

/// Value of `--gpus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuCount {
    /// All that are free.
    Auto,
    /// A number.
    Number(u32),
}

impl FromStr for GpuCount {
    type Err = GpuCountError;

    fn from_str(text: &str) -> Result<Self, GpuCountError> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Number).map_err(|_| GpuCountError::Unreadable),
        }
    }
}

/// Returns the number of GPUs to claim; `None` where GPUs are not looked after.
pub(crate) fn claimed(
    wanted: Option<GpuCount>,
    command: &CommandArgs,
    visible: &VisibleGpus,
) -> Result<Option<u32>, Failure> {
    count(wanted, command.gpus(), &|| visible.count_free()).map_err(|problem| {
        Failure::new(format!("{} needs {} GPUs: {problem}. Nothing was started", command.gpus_words(), command.gpus()))
    })
}

/// Returns the number of GPUs that a run of another process must have for the jobs; `None` where none are asked for.
pub(crate) fn needed(
    wanted: Option<GpuCount>,
    command: &CommandArgs,
    visible: &VisibleGpus,
) -> Result<Option<u32>, Failure> {
    let needed = command.gpus();
    match wanted {
        None => Ok((needed > 0).then_some(needed)),
        Some(GpuCount::Auto) => Ok(Some(visible.count_free().max(needed))),
        Some(GpuCount::Number(_)) => claimed(wanted, command, visible),
    }
}

/// Returns a line for each job whose pods ask for GPUs, for a run that has none.
pub(crate) fn hints(manifests: &[Value]) -> Vec<String> {
    let registry = Registry::all();
    let hint = |object: &Value| {
        let spec = registry.get(&Resource::of(object))?.spec_fact(object).spec.ok()?;
        spec.groups.iter().any(|group| group.gpus).then(|| {
            let name = apis::objects::name(object);
            format!(
                "{name} asks for GPUs, and this run has none: its pods wait. --gpus N claims N, --gpus auto all that are free"
            )
        })
    };
    manifests.iter().filter_map(hint).collect()
}

fn count(wanted: Option<GpuCount>, needed: u32, free: &dyn Fn() -> u32) -> Result<Option<u32>, GpuCountError> {
    let count = match wanted {
        None if needed == 0 => return Ok(None),
        None => {
            let free = free();
            if free < needed {
                return Err(GpuCountError::NotFree { free, needed });
            }
            return Ok(Some(needed));
        }
        Some(GpuCount::Auto) => free(),
        Some(GpuCount::Number(count)) => count,
    };
    if count < needed { Err(GpuCountError::TooFew(count)) } else { Ok(Some(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_what_they_need_or_a_reason() {
        let (auto, number) = (Some(GpuCount::Auto), |n| Some(GpuCount::Number(n)));
        for (wanted, needed, want) in [
            (None, 0, Ok(None)),
            (None, 2, Ok(Some(2))),
            (None, 4, Err("3 are free on this machine. --gpus 4 claims them all the same")),
            (auto, 0, Ok(Some(3))),
            (auto, 2, Ok(Some(3))),
            (auto, 4, Err("--gpus gives it 3")),
            (number(4), 4, Ok(Some(4))),
            (number(1), 2, Err("--gpus gives it 1")),
        ] {
            let counted = count(wanted, needed, &|| 3).map_err(|error| error.to_string());
            assert_eq!(counted, want.map_err(str::to_owned), "{wanted:?} {needed}");
        }
        assert_eq!("auto".parse(), Ok(GpuCount::Auto));
        assert!("some".parse::<GpuCount>().unwrap_err().to_string().contains("`auto`"));
    }
}
