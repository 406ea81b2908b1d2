//! Rules for sources of volumes beyond one object: projected sources, fields of the pod, and templates of claims.

use std::collections::BTreeSet;

use serde_json::Value;
use settings::Quantity;

use super::Judge::{Needed, Number, Other, Text, Word};
use super::{Faults, Place, Rule, resources, rule};
use crate::names::{NOT_DNS_SUBDOMAIN, is_dns_subdomain};
use crate::objects::{list_at, text_at};

/// Sources of a projected volume. Of two, the second is refused.
const PROJECTED: [&str; 6] =
    ["clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"];
/// Sources of a projected volume that list files.
const WITH_FILES: [&str; 3] = ["configMap", "downwardAPI", "secret"];
/// Sources of a projected volume that are one file.
const ONE_FILE: [&str; 2] = ["clusterTrustBundle", "serviceAccountToken"];
/// Files whose contents are fields of the pod.
const FIELD_FILES: &[&str] =
    &["spec.volumes[].downwardAPI.items[]", "spec.volumes[].projected.sources[].downwardAPI.items[]"];
/// Fields of a pod that a file can hold.
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Least and most seconds for which a token is valid.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);
/// Way of access that a claim has alone.
const ONE_POD: &str = "ReadWriteOncePod";
/// Metadata that a template of a claim can have.
const CLAIM_METADATA: [&str; 2] = ["annotations", "labels"];

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("projected-sources", &["spec.volumes[].projected.sources[]"], Other(sources)),
    rule(
        "projected-object",
        &["spec.volumes[].projected.sources[].configMap.name", "spec.volumes[].projected.sources[].secret.name"],
        Needed("must name an object"),
    ),
    rule("projected-file-twice", &["spec.volumes[].projected"], Other(file_twice)),
    rule(
        "token-file",
        &["spec.volumes[].projected.sources[].serviceAccountToken.path"],
        Needed("must name the file of the token"),
    ),
    rule(
        "token-seconds",
        &["spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds"],
        Number(TOKEN_SECONDS.0, TOKEN_SECONDS.1),
    ),
    rule("field-file-source", FIELD_FILES, Other(of_one)),
    rule(
        "field-file",
        &[
            "spec.volumes[].downwardAPI.items[].fieldRef.fieldPath",
            "spec.volumes[].projected.sources[].downwardAPI.items[].fieldRef.fieldPath",
        ],
        Other(field_path),
    ),
    rule(
        "claim-spec",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec"],
        Needed("must say what the claim asks for: accessModes and resources.requests.storage"),
    ),
    rule(
        "claim-access",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.accessModes"],
        Needed("needs at least one, for example ReadWriteOnce"),
    ),
    rule(
        "claim-access-mode",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.accessModes[]"],
        Word(&["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ONE_POD]),
    ),
    rule("claim-access-alone", &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.accessModes"], Other(of_one_pod)),
    rule("claim-size-missing", &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources"], Other(size_missing)),
    rule(
        "claim-size-quantity",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.requests.storage"],
        Other(resources::syntax),
    ),
    rule("claim-size", &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.requests.storage"], Other(size)),
    rule(
        "claim-volume-mode",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode"],
        Word(&["Block", "Filesystem"]),
    ),
    rule(
        "claim-storage-class",
        &["spec.volumes[].ephemeral.volumeClaimTemplate.spec.storageClassName"],
        Text(is_dns_subdomain, NOT_DNS_SUBDOMAIN),
    ),
    rule("claim-metadata", &["spec.volumes[].ephemeral.volumeClaimTemplate.metadata{}"], Other(metadata)),
];

fn is_given(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|member| !member.is_null())
}

fn sources(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let given: Vec<&str> = PROJECTED.into_iter().filter(|source| is_given(place.value, source)).collect();
    if given.len() > 1 {
        faults.error(place, format!("has one source, not {}: write each as an item of its own", given.join(" and ")));
    }
}

/// Returns the paths of the files of a source.
fn files(source: &Value) -> Vec<&str> {
    let listed = WITH_FILES.iter().flat_map(|key| list_at(source, &[*key, "items"]));
    let alone = ONE_FILE.iter().filter_map(|key| source.get(*key));
    listed.chain(alone).filter_map(|file| text_at(file, &["path"])).filter(|path| !path.is_empty()).collect()
}

fn file_twice(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let mut seen = BTreeSet::new();
    let twice = list_at(place.value, &["sources"]).iter().flat_map(files).find(|path| !seen.insert(*path));
    if let Some(path) = twice {
        faults.error(place, format!("two of its sources have the file {path}"));
    }
}

fn of_one(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    match (is_given(place.value, "fieldRef"), is_given(place.value, "resourceFieldRef")) {
        (true, true) | (false, false) => faults.error(place, "must have exactly one of fieldRef, resourceFieldRef"),
        (true, false) | (false, true) => {}
    }
}

fn field_path(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    match place.text() {
        None if place.is_empty() => faults.error(place, "must name a field of the pod, for example metadata.labels"),
        // A key in brackets is the user's.
        Some(path) if !path.contains('[') && !FIELDS.contains(&path) => faults.word(place, path, &FIELDS),
        Some(_) | None => {}
    }
}

fn of_one_pod(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let modes = place.value.as_array().map(Vec::as_slice).unwrap_or_default();
    if modes.iter().any(|mode| mode == ONE_POD) && modes.iter().any(|mode| mode != ONE_POD) {
        faults.error(place, format!("{ONE_POD} stands alone"));
    }
}

fn size_missing(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let requests = place.value.get("requests").unwrap_or(&Value::Null);
    if !is_given(requests, "storage") {
        faults.error(place, "needs requests.storage, the size of the claim");
    }
}

fn size(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if Quantity::read(place.value).is_some_and(|amount| amount <= Quantity::whole(0)) {
        faults.error(place, "must be above 0");
    }
}

fn metadata(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if !place.is_empty() && !CLAIM_METADATA.contains(&place.key()) {
        faults.name(place, "the template of a claim has labels and annotations only");
    }
}
