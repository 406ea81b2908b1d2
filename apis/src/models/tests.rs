//! Tests of this API: its definition, and which version is its latest.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{DESCRIPTOR, Model};
use crate::api::{JobApi, ReferenceApi, Referenced};
use crate::testing::{check_described, check_structure, columns, edited, job, schema};

fn model() -> Value {
    json!({"apiVersion": "model.distributed.io/v1alpha1", "kind": "Model",
        "metadata": {"name": "m", "namespace": "ns", "uid": "u", "generation": 1}, "spec": null})
}

fn versions(all: &[(&str, &str, Option<&str>)]) -> Referenced {
    let of = |(name, created, image): &(&str, &str, Option<&str>)| {
        let object = json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"image": image}});
        (("ModelVersion".into(), (*name).into()), Arc::new(object))
    };
    all.iter().map(of).collect()
}

#[test]
fn the_definition_is_structural_and_described() {
    let schema = schema(&Model);
    check_structure(&schema, "$");
    check_described(&schema, "$");
    assert_eq!(columns(&Model), ["Latest-Version", "Latest-Image"]);
    let crd = DESCRIPTOR.crd();
    assert_eq!(
        crd["spec"]["versions"][0]["additionalPrinterColumns"][1]["jsonPath"],
        json!(".status.latestVersion.imageName")
    );
}

#[test]
fn the_newest_version_with_an_image_is_the_latest() {
    let (early, late) = ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
    let shown =
        edited(model(), &[("/status", json!({"latestVersion": {"modelVersion": "gone", "imageName": "r:gone"}}))]);
    for (object, all, want) in [
        (model(), vec![], Value::Null),
        (model(), vec![("b", early, None)], Value::Null),
        (
            model(),
            vec![("b", early, Some("r:b")), ("a", late, Some("r:a"))],
            json!({"modelVersion": "a", "imageName": "r:a"}),
        ),
        (model(), vec![("b", early, Some("r:b")), ("a", late, None)], json!({"modelVersion": "b", "imageName": "r:b"})),
        (
            model(),
            vec![("a", early, Some("r:a")), ("b", early, Some("r:b"))],
            json!({"modelVersion": "b", "imageName": "r:b"}),
        ),
        (shown, vec![], json!({"modelVersion": "gone", "imageName": "r:gone"})),
    ] {
        let fact = Model.spec_fact_with(&object, &versions(&all));
        assert_eq!(fact.manifest.parse::<Value>().unwrap()["latest"], want, "{all:?}");
        let (key, mut held) = job(&Model, &model());
        held.spec = Some(Arc::new(fact));
        assert_eq!(Model.status(&key, &held).get("latestVersion").cloned().unwrap_or_default(), want);
    }
}

#[test]
fn a_version_counts_again_when_its_image_is_known() {
    let of = |image: Value| Model.version_of(&json!({"metadata": {"uid": "v"}, "status": {"image": image}}));
    assert_ne!(of(Value::Null), of(json!("r:a")));
}
