//! Manifests as users have them: they are accepted as they are, without an error and without a remark.

use serde_json::{Value, json};

use super::{base, edited};
use crate::Registry;
use crate::elasticjob::ElasticJob;
use crate::fields::Severity;
use crate::testing::{self, refusals};

const TEMPLATE: &str = "/spec/replicaSpecs/Worker/template";

/// The two samples of the original's repository, by what they ask for.
fn samples() -> Vec<Value> {
    let sample = |name: &str, args: Value, resources: Value| {
        json!({
            "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": "elastic-job"},
            "spec": {"rdzvEndpoint": "etcd-service:2379", "minReplicas": 1, "maxReplicas": 2, "replicaSpecs": {"Worker": {
                "replicas": 2, "restartPolicy": "ExitCode", "template": {"apiVersion": "v1", "kind": "Pod", "spec": {
                    "containers": [{"name": "elasticjob-worker", "image": "example.com/trainer:1", "imagePullPolicy": "Always",
                        "args": args, "resources": resources}]}}}}},
        })
    };
    vec![
        sample(
            "imagenet",
            json!(["--nproc_per_node=1", "/workspace/main.py", "--epochs=20"]),
            json!({"limits": {"nvidia.com/gpu": 1}}),
        ),
        sample("classy-vision", json!(["--nproc_per_node=1", "/workspace/train.py"]), json!({})),
    ]
}

#[test]
fn every_shape_in_use_is_accepted_as_it_is() {
    let container = format!("{TEMPLATE}/spec/containers/0");
    let shapes = [
        edited(&[("/spec/RunPolicy", json!({"cleanPodPolicy": "None"}))]),
        edited(&[
            ("/spec/cleanPodPolicy", json!("Running")),
            ("/spec/ttlSecondsAfterFinished", json!(60)),
            ("/spec/activeDeadlineSeconds", json!(3600)),
            ("/spec/backoffLimit", json!(3)),
            ("/spec/schedulingPolicy", json!({"minAvailable": 1})),
        ]),
        edited(&[(&format!("{TEMPLATE}/metadata"), json!({"creationTimestamp": null}))]),
        edited(&[(&format!("{container}/command"), json!(["torchrun"]))]),
        edited(&[(&format!("{container}/command"), json!(["python", "-m", "torch.distributed.run"]))]),
        edited(&[(&format!("{container}/args"), json!(["--nnodes=1:2", "--rdzv_id=mine", "main.py"]))]),
        edited(&[(&format!("{container}/name"), json!("trainer"))]),
        edited(&[("/spec/replicaSpecs/Worker/replicas", json!(4))]),
    ];
    let registry = {
        let mut registry = Registry::default();
        registry.add(std::sync::Arc::new(ElasticJob));
        registry
    };
    for manifest in shapes.into_iter().chain(samples()).chain([base()]) {
        assert_eq!(refusals(&testing::schema(&ElasticJob), &manifest, "$"), [""; 0], "{manifest}");
        let found = crate::manifest::findings(&registry, &manifest);
        assert!(found.iter().all(|finding| finding.severity < Severity::Error), "{found:?}");
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn the_samples_ask_for_two_workers_and_their_devices() {
    for (mut sample, gpus) in samples().into_iter().zip([true, false]) {
        sample["metadata"]["uid"] = json!("u");
        let (_, spec, _) = testing::accepted(&ElasticJob, &sample);
        assert_eq!((spec.groups[0].replicas, spec.groups[0].gpus), (2, gpus));
    }
}
