//! The `CustomResourceDefinition` of Model: the original's fields. Tests: `tests.rs`.

use serde_json::Value;
use serde_json::json;

use super::{KIND, PLURAL};
use crate::crd::{Names, UnknownFields, Version, column, definition, field, nullable, object, status};
use crate::modelversion::constants::{GROUP, VERSION};

/// Returns the definition.
pub(super) fn crd() -> Value {
    let names = Names { group: GROUP, version: VERSION, kind: KIND, plural: PLURAL, singular: "model", short: &["mo"] };
    let latest = object(
        "The newest version whose image is being built, or was.",
        &[("modelVersion", field("string", "Name of the ModelVersion.")), ("imageName", field("string", "Its image."))],
    );
    let path = |member: &str| format!(".status.latestVersion.{member}");
    let version = Version {
        description: "A model, of which there are versions.",
        subresources: json!({"status": {}}),
        columns: vec![
            column("Latest-Version", "string", &path("modelVersion"), 0, "The newest version."),
            column("Latest-Image", "string", &path("imageName"), 0, "The image of that version."),
        ],
        spec: nullable(object("The model.", &[("description", field("string", "For people. Not acted on."))])),
        groups: "",
        unknown: UnknownFields::Refused,
        status: status([("latestVersion".to_owned(), latest)].into_iter().collect()),
    };
    definition(names, &version)
}
