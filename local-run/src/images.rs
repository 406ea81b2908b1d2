//! Pods whose image cannot be pulled: `--fault image=POD`.
//!
//! Owns what stands between the embedded cluster and the processes. Every other pod starts unchanged. It must not be there where no such
//! fault was asked for. Tests: `cli/tests/local/files.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::runtime::{PodReport, PodRuntime};
use local::{Processes, now};
use model::Timestamp;
use serde_json::{Value, json};

/// Pods that are still to meet an image that cannot be pulled, and for how long in milliseconds.
pub(crate) type Images = Arc<Mutex<BTreeMap<String, Option<u64>>>>;

/// Real pods, but for images that cannot be pulled the first time, for a while or for good.
pub(crate) struct ImagePullFaults {
    inner: Processes,
    images: Images,
    /// Pods whose image can be pulled from a time on.
    later: Vec<(Timestamp, Value)>,
    reports: Vec<PodReport>,
}

impl ImagePullFaults {
    /// Runs pods with `inner`, but for `images`, of which those are taken out that were met.
    pub(crate) fn new(inner: Processes, images: Images) -> Self {
        Self { inner, images, later: Vec::new(), reports: Vec::new() }
    }
}

impl PodRuntime for ImagePullFaults {
    fn start(&mut self, pod: &Value) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let failing = self.images.lock().unwrap_or_else(PoisonError::into_inner).remove(&text("/metadata/name"));
        match failing {
            None => return self.inner.start(pod),
            Some(None) => {}
            Some(Some(ms)) => self.later.push((now().plus_ms(ms), pod.clone())),
        }
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "injected by --fault"}});
        let statuses: Vec<Value> = containers
            .map(|c| json!({"name": c["name"], "ready": false, "restartCount": 0, "state": waiting}))
            .collect();
        self.reports.push(PodReport {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            status: json!({"phase": "Pending", "startTime": now().to_rfc3339(), "containerStatuses": statuses}),
            ended: true,
        });
    }

    fn stop(&mut self, namespace: &str, name: &str, uid: &str, grace_seconds: u32) {
        self.later.retain(|(_, pod)| pod.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid));
        self.inner.stop(namespace, name, uid, grace_seconds);
    }

    fn last_line(&self, namespace: &str, name: &str, container: &str) -> Option<String> {
        self.inner.last_line(namespace, name, container)
    }

    fn poll(&mut self) -> Vec<PodReport> {
        let at = now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(from, _)| *from <= at);
        self.later = later;
        Vec::into_iter(due).for_each(|(_, pod): (Timestamp, Value)| self.inner.start(&pod));
        let mut reports = std::mem::take(&mut self.reports);
        reports.extend(self.inner.poll());
        reports
    }
}
