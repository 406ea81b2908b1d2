//! A scenario before it is written: the steps, each with its place in the log, and the cluster around the job.

use std::collections::BTreeMap;

use model::{JobKey, Position, Text, Timestamp};
use serde_json::Value;

/// Remark on a call whose effect the log does not record.
pub(super) const NOT_APPLIED: &str =
    "whether the failed call took effect is not recorded; the scenario takes it that it did not";
/// The same, where the other assumption led elsewhere than the log.
const APPLIED: &str = "whether the failed call took effect is not recorded; the scenario takes it that it did";

/// Actions that one record of the log becomes.
#[derive(Debug, Clone)]
pub(super) struct RecordedStep {
    pub(super) position: Position,
    pub(super) at: Timestamp,
    /// Actions seen in one turn.
    pub(super) actions: Vec<Value>,
    /// Set if the actions are those of a node.
    pub(super) node: Option<Text>,
    /// Changes that no action makes.
    pub(super) remarks: Vec<String>,
    /// Time since just before a deadline that passed in the same turn, in milliseconds; 0 where none did.
    pub(super) overdue: u64,
}

/// A scenario before it is written.
#[derive(Debug, Clone)]
pub struct RecordedScenario {
    pub(super) key: JobKey,
    pub(super) flags: BTreeMap<String, Value>,
    pub(super) nodes: Vec<Value>,
    /// Set if the MPI operator creates the job's pods.
    pub(super) of_mpi_operator: bool,
    pub(super) manifests: Vec<Value>,
    pub(super) steps: Vec<RecordedStep>,
    /// Last record of the job.
    pub(super) end: (Position, Timestamp),
    pub(super) phases: Vec<&'static str>,
    /// The job's state at the end in its API's word; `None` once its object is gone.
    pub(super) state: Option<String>,
}

impl RecordedScenario {
    /// Returns every remark with the positions that it is about.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut all: Vec<(&str, Vec<String>)> = Vec::new();
        for step in &self.steps {
            for remark in &step.remarks {
                let position = step.position.to_string();
                match all.iter_mut().find(|(known, _)| known == remark) {
                    Some((_, positions)) => positions.push(position),
                    None => all.push((remark, vec![position])),
                }
            }
        }
        let line = |(remark, mut positions): (&str, Vec<String>)| {
            positions.dedup();
            let records = if positions.len() == 1 { "record" } else { "records" };
            format!("{records} {}: {remark}", positions.join(", "))
        };
        all.into_iter().map(line).collect()
    }

    /// Takes it that calls whose outcome is not recorded took effect. Returns false where there are none.
    pub(super) fn assume_applied(&mut self) -> bool {
        let mut any = false;
        for step in &mut self.steps {
            let uncertain = step.remarks.iter_mut().find(|remark| *remark == NOT_APPLIED);
            if let (Some(remark), Some(fail)) =
                (uncertain, step.actions.first_mut().and_then(|step| step.get_mut("fail")))
            {
                APPLIED.clone_into(remark);
                fail["applied"] = true.into();
                any = true;
            }
        }
        any
    }
}
