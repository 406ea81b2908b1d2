//! What is written down about the control plane that is up: `cluster/state.json` in cargo's target directory.
//!
//! Processes are written with their start times, so that nothing is ever signalled that only got a process's old number.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use control_plane::ProcessId;
use serde_json::{Value, json};

use super::{Failure, failed};

/// Returns the directory of the control plane in the background.
pub(crate) fn directory() -> PathBuf {
    control_plane::target_directory().join("cluster")
}

/// Recorded state of a plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// The process that owns all others.
    pub(crate) holder: ProcessId,
    /// True if all was ready once.
    pub(crate) ready: bool,
    /// Components and node agents, by name.
    pub(crate) processes: Vec<(String, ProcessId)>,
    /// The program and first arguments that make up kubectl.
    pub(crate) kubectl: Vec<String>,
}

impl State {
    /// Reads it; `None` if nothing is written down.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let path = directory.join("state.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path.display())(error)),
        };
        let value: Option<Value> = serde_json::from_str(&text).ok();
        let state = value.as_ref().and_then(Self::from_json);
        state.map(Some).ok_or_else(|| Failure::Other(format!("{}: not a state of this program", path.display())))
    }

    /// Writes it, whole or not at all.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Failure> {
        let (path, new) = (directory.join("state.json"), directory.join("state.json.new"));
        fs::write(&new, format!("{:#}\n", self.to_json())).map_err(failed(new.display()))?;
        fs::rename(&new, &path).map_err(failed(path.display()))
    }

    fn to_json(&self) -> Value {
        let process = |id: &ProcessId| json!({"pid": id.pid, "started": id.started});
        let processes = self.processes.iter().map(|(name, id)| json!({"name": name, "process": process(id)}));
        json!({
            "holder": process(&self.holder),
            "ready": self.ready,
            "processes": processes.collect::<Vec<_>>(),
            "kubectl": self.kubectl,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let process = |value: &Value| {
            let pid = u32::try_from(value.get("pid")?.as_u64()?).ok()?;
            Some(ProcessId { pid, started: value.get("started")?.as_u64()? })
        };
        let named = |value: &Value| Some((value.get("name")?.as_str()?.to_owned(), process(value.get("process")?)?));
        let words = |value: &Value| value.as_str().map(str::to_owned);
        Some(Self {
            holder: process(value.get("holder")?)?,
            ready: value.get("ready")?.as_bool()?,
            processes: value.get("processes")?.as_array()?.iter().map(named).collect::<Option<_>>()?,
            kubectl: value.get("kubectl")?.as_array()?.iter().map(words).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(State::read(directory.path()).unwrap(), None);
        let id = |pid| ProcessId { pid, started: 1_000_000 + u64::from(pid) };
        let processes = vec![("etcd".to_owned(), id(2)), ("kwok".to_owned(), id(3))];
        let state = State { holder: id(1), ready: true, processes, kubectl: vec!["/x".into(), "kubectl".into()] };
        state.write(directory.path()).unwrap();
        assert_eq!(State::read(directory.path()).unwrap(), Some(state));
    }

    #[test]
    fn anything_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("state.json"), "{}").unwrap();
        assert!(State::read(directory.path()).is_err());
    }
}
