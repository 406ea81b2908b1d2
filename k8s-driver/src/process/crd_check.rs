//! Checks that the served CRDs keep what the operator writes to a job's status.
//!
//! An API server prunes members that a CRD does not declare, and answers 200. Owns reading the served schema, from the document
//! below `/openapi/v3` that every account may read, and finding what it lacks. Must not judge jobs: a pruned mirror is a refusal there
//! (`operator::answers`). Tests: at the end of this file.

use std::time::Duration;

use apis::{JobApi, Registry, objects};
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::client::exchange;
use crate::process::status::StatusReporter;
use crate::watch::definitions::{Definitions, name_of};
use crate::watch::sources::collection;

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks while a CRD lacks something, or its schema is not published yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two looks otherwise: a CRD may be replaced by an older one at any time.
const INTERVAL: Duration = Duration::from_secs(300);

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// The schema cannot be read, which says nothing about the CRD.
    Nothing,
    /// The CRD keeps what is written.
    Complete,
    /// Members that the CRD lacks, in words.
    Lacking(String),
}

/// Checks every served API at intervals, and reports to the board.
pub(crate) async fn run(client: Client, registry: Registry, status: StatusReporter) {
    let mut definitions = Definitions::watch(client.clone());
    loop {
        let mut complete = true;
        for api in checked(&registry) {
            let name = name_of(&api.resource().api_version, api.descriptor().plural);
            if name.is_some_and(|name| definitions.is_absent(&name)) {
                continue;
            }
            let path = collection(&api.resource().api_version, api.descriptor().plural, None);
            match check(&client, api).await {
                Found::Nothing => complete = false,
                Found::Complete => status.crd_problem(&path, None),
                Found::Lacking(problem) => {
                    tracing::error!(path, problem, "the installed CustomResourceDefinition is too old");
                    status.crd_problem(&path, Some(problem));
                    complete = false;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(if complete { INTERVAL } else { RETRY_INTERVAL }) => {}
            () = definitions.changed() => {}
        }
    }
}

/// Returns the APIs whose status this operator writes. Other projects' definitions need nothing of ours: a mirror there is an annotation.
fn checked(registry: &Registry) -> impl Iterator<Item = &dyn JobApi> {
    registry.iter().map(|api| &**api).filter(|api| !api.is_external())
}

async fn check(client: &Client, api: &dyn JobApi) -> Found {
    let resource = api.resource();
    let request = Request::get(format!("/openapi/v3/apis/{}", resource.api_version)).body(Body::empty());
    let Ok(request) = request else { return Found::Nothing };
    match exchange::exchange(client, request, REQUEST_TIMEOUT).await {
        Ok(answer) if answer.status.is_success() => serde_json::from_slice(&answer.body)
            .map_or(Found::Nothing, |document: Value| judge(&document, &resource.kind, api.descriptor().plural)),
        Ok(_) | Err(_) => Found::Nothing,
    }
}

/// Finds what the schema of a kind lacks in the v3 document of its group and version.
fn judge(document: &Value, kind: &str, plural: &str) -> Found {
    let is_kind = |schema: &&Value| {
        let names = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|name| name.get("kind").and_then(Value::as_str) == Some(kind)))
    };
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
    let schema = schemas.and_then(|schemas| schemas.values().find(is_kind));
    let paths = document.get("paths").and_then(Value::as_object);
    let (Some(schema), Some(paths)) = (schema, paths) else { return Found::Nothing };
    let keeps_unknown =
        |schema: &Value| schema.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(true);
    let declares_mirror = |status: &Value| status.pointer(&format!("/properties/{}", objects::MIRROR)).is_some();
    // Where a member is declared, what its parent preserves does not count for it.
    let keeps_mirror = match schema.pointer("/properties/status") {
        Some(status) => keeps_unknown(status) || declares_mirror(status),
        None => keeps_unknown(schema),
    };
    if !keeps_mirror {
        return Found::Lacking(format!("it has no status.{}", objects::MIRROR));
    }
    if !paths.keys().any(|path| path.ends_with(&format!("/{plural}/{{name}}/status"))) {
        return Found::Lacking("it has no status subresource".to_owned());
    }
    Found::Complete
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(status: &Value, path: &str) -> Value {
        json!({"paths": {path: {}}, "components": {"schemas": {
            "io.k8s.Other": {"type": "object"},
            "dev.elasticdeeplearning.v1.AITrainingJob": {
                "x-kubernetes-group-version-kind": [{"group": "elasticdeeplearning.ai", "kind": "AITrainingJob", "version": "v1"}],
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"status": status}}}}})
    }

    #[test]
    fn definitions_of_other_projects_are_not_checked() {
        let registry = Registry::all();
        let kinds: Vec<String> = checked(&registry).map(|api| api.resource().kind.to_string()).collect();
        assert!(kinds.iter().any(|kind| kind == "TorchJob"), "{kinds:?}");
        assert!(!kinds.iter().any(|kind| kind == "MPIJob"), "{kinds:?}");
        assert_eq!(kinds.len() + 1, registry.iter().count());
    }

    const WITH_STATUS: &str = "/apis/elasticdeeplearning.ai/v1/namespaces/{namespace}/aitrainingjobs/{name}/status";

    #[test]
    fn a_schema_that_drops_the_mirror_is_named() {
        let found = |status: Value, path: &str| judge(&document(&status, path), "AITrainingJob", "aitrainingjobs");
        let declared = json!({"properties": {"trainyard": {"type": "object"}}});
        assert_eq!(found(declared.clone(), WITH_STATUS), Found::Complete);
        assert_eq!(found(json!({"x-kubernetes-preserve-unknown-fields": true}), WITH_STATUS), Found::Complete);
        let lacking = found(json!({"properties": {"phase": {"type": "string"}}}), WITH_STATUS);
        assert_eq!(lacking, Found::Lacking("it has no status.trainyard".to_owned()));
        let without = found(declared, "/apis/elasticdeeplearning.ai/v1/namespaces/{namespace}/aitrainingjobs/{name}");
        assert_eq!(without, Found::Lacking("it has no status subresource".to_owned()));
        assert_eq!(judge(&json!({}), "AITrainingJob", "aitrainingjobs"), Found::Nothing);
        assert_eq!(judge(&document(&json!({}), WITH_STATUS), "Other", "others"), Found::Nothing, "another kind");
    }
}
