//! What runs the pods of the embedded cluster.
//!
//! The cluster owns the objects; a runtime only starts and stops what a pod stands for and reports what became of it.

use serde_json::Value;

/// Report of a runtime about one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodReport {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid; a report about another pod of that name is ignored.
    pub uid: String,
    /// The new `status` members: merged into the pod's status (RFC 7386).
    pub status: Value,
    /// True if nothing of the pod runs any more, so that a pod being deleted can vanish.
    pub ended: bool,
}

/// Runs pods. Calls return at once; results come through [`PodRuntime::poll`].
pub trait PodRuntime: Send {
    /// Starts a pod that was bound to a node.
    fn start(&mut self, pod: &Value);
    /// Stops a pod: politely, and after `grace_seconds` (0: at once) by force.
    fn stop(&mut self, namespace: &str, name: &str, uid: &str, grace_seconds: u32);
    /// Returns the last line that a container of a pod printed; `None` where there is none, or what runs pods does not know it.
    fn last_line(&self, _namespace: &str, _name: &str, _container: &str) -> Option<String> {
        None
    }
    /// Takes the reports that have come in since the last call, oldest first.
    fn poll(&mut self) -> Vec<PodReport>;
}

/// Pods that do nothing by themselves: scenarios say what becomes of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct VirtualPods;

impl PodRuntime for VirtualPods {
    fn start(&mut self, _pod: &Value) {}
    fn stop(&mut self, _namespace: &str, _name: &str, _uid: &str, _grace_seconds: u32) {}
    fn poll(&mut self) -> Vec<PodReport> {
        Vec::new()
    }
}
