//! Tests of this API: what an object becomes, what is rendered of it, and what is read back of its status.

use model::{CauseKind, Decision, ObjectAnnotations, Phase, ReadinessGate, Retain, Timestamp};
use serde_json::{Value, json};
use settings::ModelSettings;

use super::{DESCRIPTOR, ModelVersion};
use crate::api::{AnnotationApi, JobApi, OwnedApi, PodApi, ReferenceApi, Referenced, RenderInput};
use crate::testing::{
    accepted, atomic_maps, check_described, check_structure, columns, edited, errors, job, milestone, render, schema,
    slot, warnings,
};

fn version() -> Value {
    json!({"apiVersion": "model.distributed.io/v1alpha1", "kind": "ModelVersion",
        "metadata": {"name": "v1", "namespace": "ns", "uid": "abcdef-1", "generation": 1},
        "spec": {"modelName": "m1", "imageRepo": "r.io/m1",
            "storage": {"nfs": {"server": "10.0.0.1", "path": "/exp", "mountPath": "/out"}}}})
}

fn local() -> Value {
    edited(version(), &[("/spec/storage", json!({"localStorage": {"path": "/d", "nodeName": "n1"}}))])
}

fn api() -> ModelVersion {
    ModelVersion::default()
}

const POD: &str = "image-build-m1-abcde";

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&api());
    check_structure(&schema, "$");
    check_described(&schema, "$");
    assert_eq!(columns(&api()), ["Model", "Image", "Created-By", "Finish-Time"]);
    assert_eq!(DESCRIPTOR.crd()["spec"]["names"]["shortNames"], json!(["mv"]));
    assert_eq!(atomic_maps(&schema), ["trainyard"]);
}

#[test]
fn mistakes_name_their_fields() {
    for (edits, want) in [
        (vec![("/spec", Value::Null)], "spec: must be an object with modelName, imageRepo and storage (null)"),
        (vec![("/spec/modelName", json!(""))], "spec.modelName: must be written (\"\")"),
        (vec![("/spec/imageRepo", Value::Null)], "spec.imageRepo: must be written (null)"),
        (
            vec![("/spec/modelName", json!("My Model"))],
            "spec.modelName: must be lower-case letters, digits and inner hyphens, at most 63 (\"My Model\")",
        ),
        (
            vec![("/spec/storage", Value::Null)],
            "spec.storage: names no storage: there is nothing to build an image from (null)",
        ),
        (
            vec![("/spec/storage", json!({"localStorage": {"path": "/d"}}))],
            "spec.storage.localStorage.nodeName: must name the node that holds the model (missing)",
        ),
        (vec![("/spec/storage/nfs/server", json!(""))], "spec.storage.nfs.server: must be written (\"\")"),
        (
            vec![("/spec/storage/nfs/path", json!(7))],
            "spec.storage.nfs.path: must be text, not a number (7); did you mean \"7\"?",
        ),
    ] {
        assert_eq!(errors(&api(), &edited(version(), &edits)), [want]);
    }
    let both = json!({"nfs": {"server": "s", "path": "/p"}, "localStorage": {"path": "/p"}});
    let found = errors(&api(), &edited(version(), &[("/spec/storage", both)]));
    assert!(found[0].starts_with("spec.storage: must be either nfs or localStorage"), "{found:?}");
    assert_eq!(warnings(&api(), &version()), [""; 0]);
}

#[test]
fn a_version_owns_its_volume_and_leaves_its_model_and_the_dockerfile() {
    let of = |object: &Value| -> Vec<String> {
        let (_, spec, _) = accepted(&api(), object);
        let row = |owned: &model::OwnedSpec| format!("{} {:?} {:?}", owned.object, owned.awaits, owned.keep);
        spec.owned.iter().map(row).collect()
    };
    let row = |object: &str, awaits: ReadinessGate, keep: Retain| format!("{object} {awaits:?} {keep:?}");
    let all = |suffix: &str| {
        vec![
            row("Model m1", ReadinessGate::Exists, Retain::Left),
            row(&format!("PersistentVolumeClaim mv-pvc-v1{suffix}"), ReadinessGate::Ready, Retain::Finalized),
            row(&format!("PersistentVolume mv-pv-v1{suffix}"), ReadinessGate::Exists, Retain::Finalized),
            row("ConfigMap dockerfile", ReadinessGate::Exists, Retain::Left),
        ]
    };
    assert_eq!(of(&version()), all(""));
    assert_eq!(of(&local()), all("-n1"));
}

fn owned(object: &Value, kind: &str) -> Value {
    let (key, spec, manifest) = accepted(&api(), object);
    let wanted = spec.owned.iter().find(|owned| &*owned.object.kind == kind).unwrap();
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    api().render_owned(source, &job(&api(), object).1, &wanted.object).unwrap()
}

#[test]
fn volumes_lead_to_the_storage() {
    let volume = owned(&version(), "PersistentVolume");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "mv-pvc-v1", "uid": null});
    let want = json!({"claimRef": claim, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "", "nfs": {"server": "10.0.0.1", "path": "/exp"}});
    assert_eq!(volume["spec"], want);
    let volume = owned(&local(), "PersistentVolume");
    assert_eq!(
        (&volume["spec"]["capacity"]["storage"], &volume["spec"]["local"]),
        (&json!("500Mi"), &json!({"path": "/d"}))
    );
    let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(*term, json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}));
    let claim = owned(&local(), "PersistentVolumeClaim");
    let want = json!({"volumeName": "mv-pv-v1-n1", "accessModes": ["ReadWriteMany"], "storageClassName": "",
        "resources": {"requests": {"storage": "50Mi"}}});
    assert_eq!(claim["spec"], want);
    assert_eq!(
        owned(&version(), "ConfigMap")["data"],
        json!({"dockerfile": "FROM busybox\nCOPY build/ /torch-on-k8s-model\n"})
    );
    assert_eq!(owned(&version(), "Model")["spec"], json!({}));
}

#[test]
fn the_pod_builds_the_image() {
    let builder = ModelVersion { settings: ModelSettings { builder: "b:2".into(), ..ModelSettings::default() } };
    let pod = render(&builder, &version(), &slot(POD, 0), 1, 0);
    assert_eq!(pod["metadata"]["name"], json!(POD));
    assert_eq!(builder.slot_of(&pod), Some(slot(POD, 0)));
    assert_eq!(pod["spec"]["restartPolicy"], json!("Never"));
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["name"], &container["image"]), (&json!(POD), &json!("b:2")));
    let args = [
        "--skip-tls-verify=true",
        "--dockerfile=/workspace/dockerfile",
        "--context=dir:///workspace/",
        "--destination=r.io/m1:abcde",
    ];
    assert_eq!(container["args"], json!(args));
    let mounts: Vec<(&str, &str)> = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap()))
        .collect();
    let want =
        [("kaniko-secret", "/kaniko/.docker"), ("build-source", "/workspace/build"), ("dockerfile", "/workspace/")];
    assert_eq!(mounts, want);
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(volumes[0]["secret"]["secretName"], json!("regcred"));
    assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], json!("mv-pvc-v1"));
    assert_eq!(volumes[2]["configMap"]["name"], json!("dockerfile"));
}

#[test]
fn a_tag_is_part_of_the_name_as_far_as_it_can_be() {
    for (tag, pod, container) in [
        ("v1.0", "image-build-m1-v1.0", "image-build-m1-v1-0"),
        ("Best_1", "image-build-m1-best-1", "image-build-m1-best-1"),
        ("x-", "image-build-m1-x", "image-build-m1-x"),
    ] {
        let tagged = edited(version(), &[("/spec/imageTag", json!(tag))]);
        let rendered = render(&api(), &tagged, &slot(pod, 0), 1, 0);
        assert_eq!(rendered["spec"]["containers"][0]["name"], json!(container));
        assert_eq!(rendered["spec"]["containers"][0]["args"][3], json!(format!("--destination=r.io/m1:{tag}")));
    }
}

#[test]
fn a_version_is_marked_once_its_model_is_there() {
    let model = json!({"metadata": {"name": "m1", "uid": "mu"}});
    let needed = Referenced::from([(("Model".into(), "m1".into()), std::sync::Arc::new(model))]);
    let noted = |object: &Value, needed: &Referenced| api().spec_fact_with(object, needed).notes.map(|notes| *notes);
    let marked = |marked| Some(ObjectAnnotations { marked, ..ObjectAnnotations::default() });
    assert_eq!(noted(&version(), &Referenced::new()), marked(None));
    assert_eq!(noted(&version(), &needed), marked(Some(false)));
    let fact = api().spec_fact_with(&version(), &needed);
    let (key, spec, manifest) =
        (accepted(&api(), &version()).0, fact.spec.unwrap(), fact.manifest.parse::<Value>().unwrap());
    let source = RenderInput { job: &key, spec: &spec, manifest: &manifest };
    let mut patch = api().notes_patch(
        source,
        &model::AnnotationChanges { marked: true, ..model::AnnotationChanges::default() },
        Timestamp(0),
    );
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], json!("mu"));
    let mut object = version();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.extend(patch["metadata"].as_object_mut().unwrap().clone());
    assert_eq!(noted(&object, &needed), marked(Some(true)));
    assert_ne!(api().spec_inputs(&object), api().spec_inputs(&version()));
}

#[test]
fn a_status_is_read_back_as_it_was_written() {
    for (phase, word) in [
        (Phase::Queued, "ImageBuilding"),
        (Phase::Succeeded, "ImageBuildSucceeded"),
        (Phase::Failed, "ImageBuildFailed"),
    ] {
        let (key, mut held) = job(&api(), &version());
        held.phase = phase;
        held.milestones.push_back(milestone(phase, 60, "why"));
        if phase.is_terminal() {
            held.ended_at = Some(milestone(phase, 60, "").at);
        }
        let status = api().status(&key, &held);
        assert_eq!((&status["imageBuildPhase"], &status["image"]), (&json!(word), &json!("r.io/m1:abcde")));
        assert_eq!(status["message"], json!("why"));
        let shown = edited(version(), &[("/status", status.clone())]);
        let adopted = api().adopt(&shown);
        assert_eq!((adopted.mirror.clone(), adopted.ended_at), (held.mirror(), held.ended_at));
        // The original wrote no mirror.
        let mut original = shown;
        original["status"].as_object_mut().unwrap().remove("trainyard");
        let adopted = api().adopt(&original);
        assert_eq!(adopted.mirror.phase, phase);
        let kind = adopted.mirror.decision.as_ref().map(|decision: &Decision| decision.cause().kind);
        assert_eq!(
            kind,
            phase.is_terminal().then_some(if phase == Phase::Succeeded {
                CauseKind::Completed
            } else {
                CauseKind::PodFailed
            })
        );
    }
    let (key, mut waiting) = job(&api(), &version());
    waiting.phase = Phase::Pending;
    assert_eq!(api().status(&key, &waiting).as_object().unwrap().keys().collect::<Vec<_>>(), ["trainyard"]);
}
