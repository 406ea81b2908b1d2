//! Arguments of the TorchElastic launcher, which stand before the user's own.
//!
//! Owns `spec.torchElasticPolicy`. It must not know containers (that is `pods.rs`). Tests: `tests/spec.rs`.

use serde_json::{Value, json};

use super::run_policy::{PROCESSES_NAMES, written};
use crate::fields::{Findings, join};

/// The launcher of a job.
pub(super) struct Launcher {
    /// Its arguments.
    pub args: Vec<Value>,
    /// Minimum and maximum number of workers, as far as they are written.
    pub bounds: (Option<u32>, Option<u32>),
}

/// Returns the launcher of a job with `workers` workers; `None` where it is not asked for.
pub(super) fn read(spec: &Value, job: &str, workers: u32, findings: &mut Findings) -> Option<Launcher> {
    const PATH: &str = "spec.torchElasticPolicy";
    let is_on = findings.boolean(spec, "spec", "enableTorchElastic").unwrap_or_default();
    let Some(policy) = findings.object(spec, "spec", "torchElasticPolicy").and_then(|_| spec.get("torchElasticPolicy"))
    else {
        if is_on {
            findings.mistake(PATH, None, "enableTorchElastic has no effect without it");
        }
        return None;
    };
    let most = i64::from(i32::MAX);
    let bound = |key: &str, findings: &mut Findings| findings.integer(policy, PATH, key, 0, most);
    let (min, max) = (bound("numMinReplicas", findings), bound("numMaxReplicas", findings));
    if let (Some(least), Some(greatest)) = (min, max)
        && least > greatest
    {
        let problem = format!("must be at most numMaxReplicas, which is {greatest}");
        findings.error(join(PATH, "numMinReplicas"), policy.get("numMinReplicas"), problem);
    }
    let mut text = |key: &str| {
        let text = findings.text(policy, PATH, key).filter(|text| !text.is_empty());
        if text.is_none() && policy.get(key).is_none_or(|value| value.is_null() || value == "") {
            findings.error(join(PATH, key), policy.get(key), "must be written where there is a torchElasticPolicy");
        }
        text
    };
    let (backend, endpoint) = (text("rendezvousBackend"), text("rendezvousEndpoint"));
    let key = written(policy, PATH, PROCESSES_NAMES, findings);
    let processes = findings.integer(policy, PATH, key, 1, most).unwrap_or(1);
    let (backend, endpoint) = (backend?, endpoint?);
    let workers = i64::from(workers);
    let written = |bound: Option<i64>| bound.and_then(|bound| u32::try_from(bound).ok());
    let bounds = (written(min), written(max));
    let (min, max) = (min.unwrap_or(workers), max.unwrap_or(workers));
    is_on.then(|| Launcher {
        args: vec![
            json!(format!("--rdzv_backend={backend}")),
            json!(format!("--rdzv_endpoint={endpoint}")),
            json!(format!("--rdzv_id={job}")),
            json!(format!("--nproc_per_node={processes}")),
            json!(format!("--nnodes={min}:{max}")),
        ],
        bounds,
    })
}
