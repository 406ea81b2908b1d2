//! Model object and its versions -> [`model::JobSpec`]: a job without groups, and its latest version. Tests: `tests.rs`.

use model::{SpecFact, Text};
use serde_json::{Value, json};

use crate::api::Referenced;
use crate::objects::{at, name, text_at};
use crate::translation;

/// Reads a model, given its versions.
pub(super) fn fact(object: &Value, versions: &Referenced) -> SpecFact {
    let manifest = json!({"latest": latest(object, versions)});
    SpecFact::of(Ok(translation::without_groups()), Text::from(model::json::canonical(&manifest)))
}

/// Returns the newest version whose image is being built, or was. Where none is left, the one that was shown stays.
fn latest(object: &Value, versions: &Referenced) -> Option<Value> {
    let image = |version: &Value| text_at(version, &["status", "image"]).map(str::to_owned);
    let age = |version: &Value| {
        let created = text_at(version, &["metadata", "creationTimestamp"]).unwrap_or_default().to_owned();
        (created, name(version))
    };
    let built = versions.values().filter_map(|version| Some((age(version), version, image(version)?)));
    let newest = built.max_by(|(one, ..), (other, ..)| one.cmp(other));
    newest
        .map(|(_, version, image)| json!({"modelVersion": &*name(version), "imageName": image}))
        .or_else(|| at(object, &["status", "latestVersion"]).cloned())
}
