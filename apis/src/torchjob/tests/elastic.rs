//! Annotations of elastic jobs, read and written, and what their pods have besides.

use model::{AnnotationChanges, Checkpoint, Elastic, ObjectAnnotations, Timestamp};
use serde_json::{Value, json};

use super::{base, edited};
use crate::api::{AnnotationApi, JobApi, RenderInput};
use crate::testing::{self, T0, accepted, slot};
use crate::torchjob::TorchJob;

fn annotated(annotations: &Value) -> Value {
    let mut all = json!({"distributed.io/enable-elastic-training": "true"});
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    edited(&[("/metadata/annotations", all), ("/metadata/generation", json!(4))])
}

fn noted(object: &Value) -> ObjectAnnotations {
    *TorchJob::default().spec_fact(object).notes.unwrap()
}

#[test]
fn notes_are_read_of_annotations_also_beside_an_invalid_spec() {
    let usual = Elastic { generation: 4, ..Elastic::default() };
    let version = |text: &str| json!({"distributed.io/ckpt-requested-version": text});
    let asked = |version, done| Elastic { requested: Some(Checkpoint { version, done }), ..usual };
    for (annotations, want) in [
        (json!({}), usual),
        (json!({"distributed.io/ready-to-start-worker": "true"}), Elastic { starts: true, ..usual }),
        (json!({"distributed.io/ready-to-start-worker": "yes"}), usual),
        (json!({"distributed.io/immediately-start-worker": "true"}), Elastic { at_once: true, ..usual }),
        (json!({"distributed.io/scale-state": "inflight"}), Elastic { scaling: Some(true), ..usual }),
        (json!({"distributed.io/scale-state": "done"}), Elastic { scaling: Some(false), ..usual }),
        (version("{\"version\": 3, \"status\": \"InProgress\"}"), asked(3, false)),
        (version("{\"version\": 3, \"status\": \"Succeeded\", \"context\": \"c\"}"), asked(3, true)),
        (version("3"), usual),
        (json!({"distributed.io/ckpt-completed-version": "{\"version\": 3}"}), Elastic { completed: Some(3), ..usual }),
    ] {
        let object = annotated(&annotations);
        assert_eq!(noted(&object).elastic, Some(want), "{annotations}");
        let invalid = testing::edited(object, &[("/spec/torchTaskSpecs/Master/numTasks", json!(2))]);
        assert_eq!(noted(&invalid).elastic, Some(want), "{annotations}");
    }
    assert_eq!(noted(&base()), ObjectAnnotations::default());
    let at = json!({"distributed.io/last-failover-timestamp": "2024-02-29T00:00:00Z"});
    assert_eq!(noted(&edited(&[("/metadata/annotations", at)])).failed_over, Some(Timestamp(T0)));
}

#[test]
fn written_notes_are_read_as_they_were_meant() {
    let object = annotated(&json!({}));
    let (key, spec, manifest) = accepted(&TorchJob::default(), &object);
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    let patch = |notes: &AnnotationChanges| TorchJob::default().notes_patch(source, notes, Timestamp(T0));
    let asked =
        AnnotationChanges { requested: Some(Checkpoint { version: 4, done: false }), ..AnnotationChanges::default() };
    let written = patch(&asked);
    assert_eq!(written.get("spec"), None);
    assert_eq!(noted(&annotated(&written["metadata"]["annotations"])).elastic.unwrap().requested, asked.requested);
    let done = AnnotationChanges {
        requested: Some(Checkpoint { version: 4, done: true }),
        starts: Some(true),
        at_once: Some(false),
        scaling: Some(true),
        generation: Some(5),
        failed_over: Some(Timestamp(T0)),
        marked: false,
        restarts: Some(false),
        replicas: None,
        storage_node: Some("n1".into()),
    };
    let written = patch(&done);
    let read = noted(&annotated(&written["metadata"]["annotations"]));
    assert_eq!((read.failed_over, read.elastic.unwrap().requested), (done.failed_over, done.requested));
    assert_eq!((read.elastic.unwrap().starts, read.elastic.unwrap().scaling), (true, Some(true)));
    assert_eq!((read.restarts, read.storage_node), (Some(false), done.storage_node.clone()));
    assert_eq!(
        written["spec"],
        json!({"torchTaskSpecs": {"Master": {"template": {"metadata": {"annotations":
            {"distributed.io/generation-to-increase": "5"}}}}}})
    );
    let reasons = |notes: &AnnotationChanges| {
        TorchJob::default().notes_events(notes).into_iter().map(|e| e.reason).collect::<Vec<_>>()
    };
    assert_eq!(
        (reasons(&asked), reasons(&done)),
        (vec!["CheckpointStarted".to_owned()], vec!["CheckpointSucceeded".to_owned()])
    );
    let scaled = AnnotationChanges { scaling: Some(false), ..AnnotationChanges::default() };
    assert_eq!(reasons(&scaled), ["ScaleSucceed"]);
}

#[test]
fn workers_that_ask_for_gpus_warm_up_without_them() {
    let gpus = json!({"limits": {"nvidia.com/gpu": 1}});
    let object = testing::edited(
        annotated(&json!({})),
        &[("/spec/torchTaskSpecs/Worker/template/spec/containers/0/resources", gpus.clone())],
    );
    let pod = testing::render(&TorchJob::default(), &object, &slot("worker", 0), 1, 0);
    let warmup = &pod["spec"]["initContainers"][0];
    assert_eq!((&warmup["name"], &warmup["image"], &warmup["resources"]), (&json!("warmup"), &json!("img:1"), &gpus));
    assert_eq!(warmup["env"][0], json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}));
    assert_eq!(pod["metadata"]["annotations"]["trainyard.dev/shape"], "4");
    assert_eq!(pod["metadata"]["finalizers"], json!(["distributed.io/preempt-protector"]));
}
