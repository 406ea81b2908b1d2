//! Definitions of types of other projects, for tests that need such objects and no controller of theirs.

use serde_json::json;

use super::ControlPlane;
use crate::error::Error;

/// A type of objects.
#[derive(Debug, Clone, Copy)]
pub struct Definition<'a> {
    /// API group and version, for example `scheduling.run.ai/v2`.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Plural name, as in URLs.
    pub plural: &'a str,
    /// False for a type whose objects have no namespace.
    pub namespaced: bool,
}

impl ControlPlane {
    /// Defines a type whose objects have a status and may have any fields, and waits until it is served.
    ///
    /// # Errors
    /// Returns an error if the API server refuses the definition, or does not serve the type within a minute.
    pub fn define(&self, definition: Definition<'_>) -> Result<(), Error> {
        let Definition { api_version, kind, plural, namespaced } = definition;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let name = format!("{plural}.{group}");
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": version, "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": any}});
        let spec = json!({"group": group, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": plural}, "versions": [version]});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": spec});
        self.apply(&definition.to_string())?;
        self.run_kubectl(["wait", "--for=condition=Established", &format!("crd/{name}"), "--timeout=60s"]).map(|_| ())
    }
}
