//! Environment of the workers: what PyTorch reads where no launcher stands between the pod and the program.
//!
//! Owns the names of these variables for this API; a variable that the template sets stays the template's. A launcher is given the same
//! by its arguments, which win over `PET_*`, and sets the others for each of its processes. Tests: `tests/pods.rs`.

use serde_json::{Value, json};

use super::constants::WORKER_LOWER;
use crate::api::{PodSlot, RenderInput};
use crate::objects::text_at;
use crate::replicas::slot_name;

/// Port at which the program of worker 0 serves the group: PyTorch's own default.
const MASTER_PORT: u16 = 29_500;

/// Launcher's options, and the variables in which it looks for those that its command line does not have.
const OPTIONS: [(&str, &str); 4] = [
    ("--rdzv_backend=", "PET_RDZV_BACKEND"),
    ("--rdzv_endpoint=", "PET_RDZV_ENDPOINT"),
    ("--rdzv_id=", "PET_RDZV_ID"),
    ("--nnodes=", "PET_NNODES"),
];

/// Returns the variables of a worker, given the launcher's arguments. Pods of other groups take no part: they get none.
pub(super) fn variables(source: RenderInput<'_>, pod: PodSlot<'_>, args: &[Value]) -> Vec<(&'static str, String)> {
    if &*pod.slot.group != WORKER_LOWER {
        return Vec::new();
    }
    let rank = pod.slot.index.to_string();
    let mut all = vec![
        ("MASTER_ADDR", slot_name(&source.job.name, WORKER_LOWER, 0)),
        ("MASTER_PORT", MASTER_PORT.to_string()),
        ("WORLD_SIZE", pod.group.replicas.to_string()),
        ("RANK", rank.clone()),
        ("LOCAL_WORLD_SIZE", "1".to_owned()),
        ("LOCAL_RANK", "0".to_owned()),
        ("PET_NODE_RANK", rank),
    ];
    for arg in args.iter().filter_map(Value::as_str) {
        let option = OPTIONS.iter().find_map(|(option, name)| Some((*name, arg.strip_prefix(option)?.to_owned())));
        all.extend(option);
    }
    all.push(("PYTHONUNBUFFERED", "1".to_owned()));
    all
}

/// Puts variables before a container's own, but for those that it sets itself.
pub(super) fn add(container: &mut Value, variables: &[(&'static str, String)]) {
    let Some(container) = container.as_object_mut().filter(|_| !variables.is_empty()) else { return };
    let own = container.entry("env").or_insert(Value::Null);
    if own.is_null() {
        *own = Value::Array(Vec::new());
    }
    let Value::Array(own) = own else { return };
    let is_set = |name: &str| own.iter().any(|variable| text_at(variable, &["name"]) == Some(name));
    let missing: Vec<Value> = variables
        .iter()
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    own.splice(0..0, missing);
}
