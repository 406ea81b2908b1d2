//! JobQueue (`torchrun.ai/v1alpha1`): what the first generation of the torchrun controller called a [`TorchrunQueue`].
//!
//! It is the same object under another kind: everything but the names is that kind's. A cluster that never had one needs no definition of
//! it. Tests: at the end, and the scenarios of TorchrunQueue.

use model::fact::Adopted;
use model::{JobKey, ObjectFact, SpecFact};
use serde_json::Value;

use crate::api::{Descriptor, JobApi, OwnedApi};
use crate::fields::{Finding, Findings};
use crate::torchrunqueue::{self, KIND as SUCCESSOR, TorchrunQueue, definition};

/// Kind of the objects.
pub const KIND: &str = "JobQueue";
/// Plural of the resource.
pub const PLURAL: &str = "jobqueues";

/// Constants of the API.
pub const DESCRIPTOR: Descriptor = Descriptor {
    kind: KIND,
    plural: PLURAL,
    is_former: true,
    crd: || definition(KIND, PLURAL, "jobqueue", &[]),
    ..torchrunqueue::DESCRIPTOR
};

/// The JobQueue API.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobQueue {
    /// The API of its present kind, with the settings of that.
    pub successor: TorchrunQueue,
}

impl JobApi for JobQueue {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn object_fact(&self, object: &Value) -> ObjectFact {
        self.successor.object_fact(object)
    }

    fn spec_fact(&self, object: &Value) -> SpecFact {
        self.successor.spec_fact(object)
    }

    fn findings(&self, object: &Value) -> Vec<Finding> {
        let mut findings = Findings::default();
        findings.merge(self.successor.findings(object));
        let problem =
            format!("is called {SUCCESSOR} now; a cluster serves it where its definition is installed as well");
        findings.warn("kind", object.get("kind"), problem);
        findings.into_list()
    }

    fn adopt(&self, object: &Value) -> Adopted {
        self.successor.adopt(object)
    }

    fn status(&self, key: &JobKey, job: &engine::Job) -> Value {
        self.successor.status(key, job)
    }

    fn owned(&self) -> Option<&dyn OwnedApi> {
        self.successor.owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{check_described, check_structure, errors, schema};

    fn queue() -> Value {
        json!({"apiVersion": "torchrun.ai/v1alpha1", "kind": "JobQueue",
            "metadata": {"name": "q", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": {"kaiQueue": "k", "image": "i"}})
    }

    #[test]
    fn it_is_a_torchrunqueue_by_another_name() {
        assert_eq!(JobQueue::default().spec_fact(&queue()), TorchrunQueue::default().spec_fact(&queue()));
        assert_eq!(
            errors(&JobQueue::default(), &json!({"metadata": {"name": "q"}})),
            ["spec: must be an object (missing)"]
        );
        let found: Vec<String> =
            JobQueue::default().findings(&queue()).iter().map(|finding| finding.field.to_string()).collect();
        let want = "kind: is called TorchrunQueue now; a cluster serves it where its definition is installed as well (\"JobQueue\")";
        assert_eq!(found, [want]);
    }

    #[test]
    fn the_definition_differs_in_its_names_alone() {
        let (mut own, successor) = (DESCRIPTOR.crd(), torchrunqueue::DESCRIPTOR.crd());
        check_structure(&schema(&JobQueue::default()), "$");
        check_described(&schema(&JobQueue::default()), "$");
        assert_eq!(own["metadata"]["name"], json!("jobqueues.torchrun.ai"));
        assert_eq!(own["spec"]["names"]["shortNames"], Value::Null, "both definitions cannot have one");
        own["metadata"]["name"] = successor["metadata"]["name"].clone();
        own["spec"]["names"] = successor["spec"]["names"].clone();
        let kind = "/spec/versions/0/schema/openAPIV3Schema/properties/kind/description";
        *own.pointer_mut(kind).unwrap() = json!("TorchrunQueue.");
        assert_eq!(own, successor);
    }
}
