//! Rules for the labels, annotations and finalizers of pods.

use super::Judge::{Key, Other, Text};
use super::{Faults, Place, Rule, rule};
use crate::names::{NOT_LABEL_KEY, NOT_LABEL_VALUE, is_label_key, is_label_value};

/// Most bytes of all annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Finalizers of Kubernetes that go without a domain.
const FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("label-key", &["metadata.labels{}"], Key(is_label_key, NOT_LABEL_KEY)),
    rule("label-value", &["metadata.labels{}"], Text(is_label_value, NOT_LABEL_VALUE)),
    // Annotations are not selected by: the case of their domains is free.
    rule("annotation-key", &["metadata.annotations{}"], Key(|key| is_label_key(&key.to_lowercase()), NOT_LABEL_KEY)),
    rule("annotations-size", &["metadata.annotations"], Other(annotations_size)),
    rule(
        "finalizer",
        &["metadata.finalizers[]"],
        Text(
            |name| is_label_key(name) && (name.contains('/') || FINALIZERS.contains(&name)),
            "must be a name after a domain and /, such as example.com/cleanup",
        ),
    ),
];

fn annotations_size(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let members = place.value.as_object().into_iter().flatten();
    let size = members.fold(0_usize, |sum, (key, value)| {
        sum.saturating_add(key.len()).saturating_add(value.as_str().map_or(0, str::len))
    });
    if size > ANNOTATIONS_MAX {
        faults.error(place, format!("must be at most {ANNOTATIONS_MAX} bytes together, not {size}"));
    }
}
