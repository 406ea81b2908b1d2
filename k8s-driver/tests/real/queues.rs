//! Queues on a real control plane: gangs, preemption by a PriorityClass, borrowing and reclaim, with an operator killed in between.
//!
//! One test, because its operator serves all namespaces: queues have none. It takes objects with its own label only. Each look
//! at the cluster adds up the GPUs of all pods by queue.

use std::collections::BTreeMap;

use control_plane::until;
use k8s_driver::{JobFilter, Options};
use serde_json::{Value, json};

use crate::common::{Operator, Space, directory, options, plane};

const GPU: &str = "nvidia.com/gpu";

struct World {
    space: Space,
    /// GPUs that each queue may hold.
    limits: BTreeMap<&'static str, i64>,
}

impl World {
    fn queue(&mut self, name: &'static str, nominal: i64, borrowing: i64, more: &Value) {
        let mut spec = json!({"quota": {GPU: {"nominal": nominal, "borrowing": borrowing}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let queue = json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingQueue",
            "metadata": {"name": name, "labels": {"suite": "queues"}}, "spec": spec});
        plane().apply(&queue.to_string()).expect("it is accepted");
        self.limits.insert(name, nominal + borrowing);
    }

    /// A gang of four pods of two GPUs each. `class`: its PriorityClass.
    fn gang(&self, name: &str, queue: &str, class: Option<&str>) {
        let labels = json!({"suite": "queues", "trainyard.dev/queue": queue});
        let container = json!({"name": "aitj-main", "image": "none", "resources": {"limits": {GPU: "2"}}});
        let mut template = json!({"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}});
        if let Some(class) = class {
            template["spec"]["priorityClassName"] = json!(class);
        }
        self.space.apply(&json!({"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob",
            "metadata": {"name": name, "labels": labels},
            "spec": {"replicaSpecs": {"trainer": {"replicas": 4, "restartPolicy": "Never", "template": template}}}}));
    }

    /// Adds up the GPUs of pods that have not ended, by queue.
    fn audit(&self) {
        let mut used: BTreeMap<String, i64> = BTreeMap::new();
        for pod in self.space.all("pods") {
            let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            if let Some(queue) = pod["metadata"]["labels"]["trainyard.dev/queue"].as_str().filter(|_| !has_ended) {
                *used.entry(queue.to_owned()).or_default() += 2;
            }
        }
        for (queue, gpus) in used {
            assert!(
                gpus <= self.limits[&*queue],
                "queue {queue}: {gpus} GPUs in use, {} allowed",
                self.limits[&*queue]
            );
        }
    }

    /// Waits until jobs are in these phases, each with this number of pods.
    fn until(&self, wanted: &[(&str, &str, usize)]) {
        until(&format!("{wanted:?}"), || {
            self.audit();
            let pods = self.space.all("pods");
            let found: Vec<(String, String, usize)> = wanted
                .iter()
                .map(|(name, ..)| {
                    let prefix = format!("{name}-trainer-");
                    let is_of =
                        |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|pod| pod.starts_with(&prefix));
                    let phase = self.space.job(name)["status"]["phase"].as_str().unwrap_or_default().to_owned();
                    ((*name).to_owned(), phase, pods.iter().filter(is_of).count())
                })
                .collect();
            let same = wanted.iter().zip(&found).all(|(a, b)| (a.0, a.1, a.2) == (&*b.0, &*b.1, b.2));
            same.then_some(()).ok_or_else(|| format!("{found:?}"))
        });
    }

    /// Waits until pods are being deleted for a job, or are gone already and it has its own.
    fn until_making_room_for(&self, job: &str) {
        until(&format!("there is room for {job}"), || {
            self.audit();
            let pods = self.space.all("pods");
            let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let begun = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null() || name(pod).starts_with(job);
            pods.iter().any(begun).then_some(()).ok_or_else(|| self.space.job(job)["status"].to_string())
        });
    }

    fn status_of(&self, queue: &str) -> Value {
        let text = self.space.kubectl(&["get", "trainingqueue", queue, "--output=json"]);
        serde_json::from_str::<Value>(&text).expect("JSON")["status"].clone()
    }
}

#[test]
fn gangs_preemption_and_reclaim_with_an_operator_that_dies() {
    let data = directory();
    let mut world = World { space: Space::new("queues"), limits: BTreeMap::new() };
    let start = |world: &World, data: &std::path::Path| {
        let scope = JobFilter { namespace: None, label_selector: "suite=queues".to_owned() };
        let operator = Operator::start_with(Options { scope, ..options(&world.space, data) });
        operator.until_leading();
        operator
    };
    let operator = start(&world, data.path());

    // Two gangs, and room for one. The operator dies as soon as both are there.
    world.queue("real-a", 8, 0, &json!({"preemption": {"withinQueue": "LowerPriority", "minRunSeconds": 0}}));
    world.gang("one", "real-a", None);
    until("the first is there", || {
        let pods = world.space.all("pods");
        if pods.is_empty() { Err("no pod".to_owned()) } else { Ok(()) }
    });
    world.gang("two", "real-a", None);
    operator.kill();
    let operator = start(&world, data.path());
    world.until(&[("one", "Running", 4), ("two", "Pending", 0)]);
    until("its status names the one that waits", || {
        let status = world.status_of("real-a");
        let waits = &status["jobs"][0];
        let right = waits["reason"] == "Quota" && waits["position"] == 1 && status["usage"][GPU] == 8;
        right.then_some(()).ok_or_else(|| status.to_string())
    });

    // One of higher priority takes their place. The operator dies, and loses its log, while the pods of the first end.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "real-high"}, "value": 10});
    plane().apply(&class.to_string()).expect("it is accepted");
    world.gang("high", "real-a", Some("real-high"));
    world.until_making_room_for("high");
    operator.kill();
    let other = directory();
    let operator = start(&world, other.path());
    world.until(&[("high", "Running", 4), ("one", "Pending", 0), ("two", "Pending", 0)]);
    assert_eq!(world.space.job("one")["status"]["RestartCount"], Value::Null, "a preemption is no restart");
    world.space.kubectl(&["delete", "aitrainingjob", "high"]);
    world.until(&[("one", "Running", 4), ("two", "Pending", 0)]);
    world.space.kubectl(&["delete", "aitrainingjob", "one", "two"]);

    // What a queue lends comes back, and the operator dies in between.
    let cohort = json!({"cohort": "real", "preemption": {"minRunSeconds": 0}});
    world.queue("real-lender", 8, 0, &cohort);
    world.queue("real-borrower", 0, 8, &cohort);
    world.gang("borrows", "real-borrower", None);
    world.until(&[("borrows", "Running", 4)]);
    world.gang("owns", "real-lender", None);
    world.until_making_room_for("owns");
    operator.kill();
    let operator = start(&world, other.path());
    world.until(&[("owns", "Running", 4), ("borrows", "Pending", 0)]);
    assert_eq!(world.status_of("real-borrower")["pending"], 1);
    for queue in ["real-a", "real-lender", "real-borrower"] {
        plane().run_kubectl(["delete", "trainingqueue", queue]).expect("it is deleted");
    }
    world.until(&[("owns", "Running", 4), ("borrows", "Pending", 0)]);
    operator.stop();
}
