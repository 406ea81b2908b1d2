//! Definitions of types of other projects, for tests that need such objects and no controller of theirs.

use std::time::Duration;

use serde_json::json;

use super::ControlPlane;
use crate::error::Error;
use crate::wait::Deadline;

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
        self.wait_until_established(&name)
    }

    /// Waits until every type that was defined is served.
    ///
    /// # Errors
    /// Returns an error if one is not served within a minute.
    pub fn wait_for_definitions(&self) -> Result<(), Error> {
        self.wait_until_established("--all")
    }

    fn wait_until_established(&self, which: &str) -> Result<(), Error> {
        let words = ["wait", "--for=condition=Established", "crd", which, "--timeout=60s"];
        Deadline::within(Duration::from_secs(60)).wait_for("definitions are served", || match self.run_kubectl(words) {
            Ok(_) => Ok(None),
            // Until a controller has written the conditions they are null, and kubectl ends with an error instead of waiting.
            Err(Error::Kubectl { message, .. }) if message.contains("accessor error") => Ok(Some(message)),
            Err(error) => Err(error),
        })
    }
}
