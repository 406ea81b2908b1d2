//! Kubeconfig files: who a client is, and where the API server is.

use std::path::Path;

use serde_json::{Value, json};

use crate::certificates::{Authority, ClientFiles, write_private};
use crate::error::Error;

/// Identity of a client of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity<'a> {
    /// May do everything.
    Admin,
    /// A user, by client certificate. Without a role binding he may do next to nothing.
    User {
        /// His name.
        name: &'a str,
        /// A group he is in besides `system:authenticated`.
        group: Option<&'a str>,
    },
    /// A service account that exists, by a token of a day that the API server issues. What it may do, its bindings say.
    ServiceAccount {
        /// Its namespace, which becomes the namespace of the kubeconfig.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// The holder of this bearer token.
    Token(&'a str),
}

/// Credential of a client.
#[derive(Debug)]
pub(crate) enum Proof {
    Certificate(ClientFiles),
    Token(String),
}

/// Writes a kubeconfig with a single context. Paths in it are absolute.
pub(crate) fn write(
    path: &Path,
    port: u16,
    authority: &Authority,
    proof: &Proof,
    namespace: &str,
) -> Result<(), Error> {
    let user = match proof {
        Proof::Certificate(files) => json!({"client-certificate": files.certificate, "client-key": files.key}),
        Proof::Token(token) => json!({"token": token}),
    };
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}"),
        "certificate-authority": authority.certificate(),
    });
    write_private(path, &document(&cluster, &user, namespace))
}

/// JSON, which is YAML as well.
fn document(cluster: &Value, user: &Value, namespace: &str) -> String {
    const NAME: &str = "trainyard";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
    });
    format!("{config:#}\n")
}
