//! Command line and environment of a worker: where the workers meet, and what each of them starts.
//!
//! Owns the spelling of the launcher's options. It must not know pods. Tests: `tests/pods.rs`.

use serde_json::{Map, Value, json};

use super::size::Shape;
use crate::api::RenderInput;
use crate::objects::{at, list_at, text_at};

/// A worker, as its launcher sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worker<'a> {
    /// Its index.
    pub(super) index: u32,
    /// Its GPUs.
    pub(super) gpus: u32,
    /// The shape of its group.
    pub(super) shape: Shape<'a>,
}

impl Worker<'_> {
    /// Returns the number of its processes: one for each GPU, or one.
    fn processes(&self) -> u32 {
        self.gpus.max(1)
    }
}

/// Returns the command of the training container.
pub(super) fn command(source: RenderInput<'_>, worker: Worker<'_>) -> Value {
    let manifest = source.manifest;
    let text = |key: &str| text_at(manifest, &[key]).unwrap_or_default();
    let mut words: Vec<String> = Vec::new();
    let setup = text("setup").trim_end();
    if !setup.is_empty() {
        // The end of a line, or of a comment, would cut what follows off.
        let is_plain = !setup.contains(['\n', '#']);
        words.push(if is_plain { format!("{setup} &&") } else { format!("{{ {setup}\n}} &&") });
    }
    words.push("torchrun".to_owned());
    let mut option = |name: &str, value: &str| {
        if !value.is_empty() {
            words.push(format!("{name} {value}"));
        }
    };
    let processes = worker.processes().to_string();
    if worker.shape.is_distributed() {
        option("--node_rank", "$(JOB_COMPLETION_INDEX)");
        option("--nnodes", worker.shape.nodes);
        option("--nproc-per-node", &processes);
        option("--rdzv-backend", text("rendezvous"));
        option("--rdzv-endpoint", &endpoint(source));
        option("--rdzv-id", text("jobName"));
        if worker.shape.is_elastic() {
            let restarts = at(manifest, &["maxRestarts"]).map(Value::to_string).unwrap_or_default();
            option("--max-restarts", &restarts);
        }
    } else {
        words.push("--standalone".to_owned());
        words.push(format!("--nproc-per-node {processes}"));
        words.push(format!("--rdzv-id {}", text("jobName")));
    }
    words.push("--no-python".to_owned());
    words.push(text("command").trim_end().to_owned());
    json!(["/bin/bash", "-c", words.join(" ")])
}

/// Returns the place of the rendezvous.
fn endpoint(source: RenderInput<'_>) -> String {
    let RenderInput { job, manifest, .. } = source;
    let port = at(manifest, &["port"]).map(Value::to_string).unwrap_or_default();
    text_at(manifest, &["endpoint"])
        .map_or_else(|| format!("{0}-0.{0}.{1}.svc:{port}", job.name, job.namespace), str::to_owned)
}

/// Gives the training container its environment: the template's, ours where it does not say otherwise, then the job's.
pub(super) fn set_environment(container: &mut Map<String, Value>, manifest: &Value, worker: Worker<'_>) {
    let own: Vec<Value> = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_job = list_at(manifest, &["env"]);
    let text = |key: &str| text_at(manifest, &[key]).unwrap_or_default().to_owned();
    let ours = [
        ("TORCHRUN_JOB_NAME", text("jobName")),
        ("TORCHRUN_JOB_ID", text("jobID")),
        ("TORCHRUN_NUM_NODES", worker.shape.nodes.to_owned()),
        ("TORCHRUN_NPROC_PER_NODE", worker.processes().to_string()),
        ("TORCHRUN_BACKEND", text("backend")),
    ];
    let is_set = |name: &str| own.iter().chain(of_job).any(|variable| text_at(variable, &["name"]) == Some(name));
    let variable = |(name, value): (&str, String)| json!({"name": name, "value": value});
    // The command line refers to it.
    let index = variable(("JOB_COMPLETION_INDEX", worker.index.to_string()));
    let missing: Vec<Value> = ours.into_iter().filter(|(name, _)| !is_set(name)).map(variable).collect();
    let rest = own.iter().chain(of_job).filter(|v| text_at(v, &["name"]) != Some("JOB_COMPLETION_INDEX")).cloned();
    let all: Vec<Value> = std::iter::once(index).chain(missing).chain(rest).collect();
    container.insert("env".to_owned(), Value::Array(all));
}
