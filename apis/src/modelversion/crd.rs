//! The `CustomResourceDefinition` of ModelVersion: the original's fields, with `status` as a subresource.
//!
//! It refuses fields of another type and fields without a name here; what cannot be served stands in the status. Tests: `tests.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::constants::{GROUP, KIND, PLURAL, VERSION};
use crate::crd::{Names, UnknownFields, Version, column, definition, field, nullable, object, status, time};

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names =
        Names { group: GROUP, version: VERSION, kind: KIND, plural: PLURAL, singular: "modelversion", short: &["mv"] };
    let version = Version {
        description: "A model that was trained, and the image that is built of it.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Model", "string", ".spec.modelName", 0, "The model."),
            column("Image", "string", ".status.image", 0, "The image."),
            column("Created-By", "string", ".spec.createdBy", 0, "The job that trained the model."),
            column("Finish-Time", "string", ".status.finishTime", 0, "The time at which the build ended."),
        ],
        spec: nullable(strict_spec()),
        groups: "",
        unknown: UnknownFields::Refused,
        status: status_schema(),
    };
    definition(names, &version)
}

/// Returns the schema of `spec` as it is meant.
pub(crate) fn spec_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(strict_spec);
    &SCHEMA
}

fn strict_spec() -> Value {
    let mount = || field("string", "Path of the model in containers that train.");
    let nfs = object(
        "A directory of an NFS server.",
        &[
            ("server", field("string", "The server.")),
            ("path", field("string", "The directory.")),
            ("mountPath", mount()),
        ],
    );
    let local = object(
        "A directory of a node.",
        &[
            ("nodeName", field("string", "The node.")),
            ("path", field("string", "The directory.")),
            ("mountPath", mount()),
        ],
    );
    object(
        "The model and its image.",
        &[
            ("modelName", field("string", "Name of the Model. It is created where there is none.")),
            ("createdBy", field("string", "The job that trained the model.")),
            ("storage", object("Where the model is: either of both.", &[("nfs", nfs), ("localStorage", local)])),
            ("imageRepo", field("string", "Repository of the image.")),
            ("imageTag", field("string", "Tag of the image; the first five characters of the uid when absent.")),
        ],
    )
}

fn status_schema() -> Value {
    let fields = [
        ("image", field("string", "The image, from the start of its build on.")),
        ("imageBuildPhase", field("string", "ImageBuilding, ImageBuildSucceeded or ImageBuildFailed.")),
        ("finishTime", time("Time at which the build ended.")),
        ("message", field("string", "What it waits for, or why the build failed.")),
    ];
    status(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect())
}
