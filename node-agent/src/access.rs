//! Who may read what containers printed, and start programs in them: as with a kubelet, a client with a certificate of the cluster's
//! authority, which the API server lets `get` or `create` `nodes/proxy` of this node (`SubjectAccessReview`). The API server's own
//! kubelet client is one.
//!
//! Verdicts are kept for a short time. Must not know what is served. Tests: at the end; `cli/tests/process_nodes` with a real API
//! server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::warn;
use x509_parser::parse_x509_certificate;

use crate::Error;
use crate::api::{RequestError, Server};

/// Where an API server publishes the authority that signs its clients.
const AUTHORITIES: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Every user who proved an identity is in this group.
const AUTHENTICATED: &str = "system:authenticated";
/// The verb of reading what containers printed.
pub(crate) const READ: &str = "get";
/// The verb of starting programs in pods and connecting to them.
pub(crate) const ENTER: &str = "create";
/// Maximum age of a verdict: a right that is taken away ends this much later.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Maximum number of verdicts kept.
const MAX_KEPT: usize = 64;

/// Returns the certificates (PEM) that sign clients: from a file, or as the API server publishes them. Without any, no client is
/// let in.
///
/// # Errors
/// When a file was named and cannot be read.
pub(crate) async fn authorities(server: &Server, file: Option<&Path>) -> Result<Option<String>, Error> {
    if let Some(path) = file {
        let failed = |error: std::io::Error| Error::Serve(format!("{}: {error}", path.display()));
        return std::fs::read_to_string(path).map(Some).map_err(failed);
    }
    let published = server.get(AUTHORITIES).await;
    let why = match &published {
        Ok(map) => match map["data"]["client-ca-file"].as_str() {
            Some(pem) => return Ok(Some(pem.to_owned())),
            None => "it publishes none".to_owned(),
        },
        Err(refusal) => refusal.to_string(),
    };
    warn!(
        why,
        "the authority of the cluster's clients is not known, so `kubectl logs` is refused: name it with --client-ca-file"
    );
    Ok(None)
}

/// A client that proved who it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User {
    name: String,
    groups: Vec<String>,
}

impl User {
    /// Reads user and groups of a verified certificate, as an API server does: common name and organizations.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let groups = groups.chain([AUTHENTICATED]).map(str::to_owned).collect();
        Some(Self { name, groups })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn review(&self, node: &str, verb: &str) -> Value {
        let attributes =
            json!({"verb": verb, "version": "v1", "resource": "nodes", "subresource": "proxy", "name": node});
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": self.name, "groups": self.groups, "resourceAttributes": attributes}})
    }
}

/// A user and a verb.
type Asked = (User, &'static str);

/// Asks the API server, and remembers.
pub(crate) struct Gate {
    server: Server,
    node: String,
    known: Mutex<BTreeMap<Asked, (bool, Instant)>>,
}

impl Gate {
    pub(crate) fn new(server: Server, node: String) -> Self {
        Self { server, node, known: Mutex::default() }
    }

    /// Returns whether a user may do what a verb says.
    ///
    /// # Errors
    /// When the API server does not say.
    pub(crate) async fn lets_in(&self, user: &User, verb: &'static str) -> Result<bool, RequestError> {
        let key = (user.clone(), verb);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some((allowed, at)) = known
            && at.elapsed() < MAX_AGE
        {
            return Ok(allowed);
        }
        let review = self.server.create(REVIEWS, &user.review(&self.node, verb)).await?;
        let allowed = review["status"]["allowed"] == true && review["status"]["denied"] != true;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, at)| at.elapsed() < MAX_AGE);
        // A refusal is not kept: a right that was just given counts at once.
        if allowed && known.len() < MAX_KEPT {
            known.insert(key, (allowed, Instant::now()));
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_says_who_its_holder_is() {
        let both = certificate(&[(DnType::CommonName, "api"), (DnType::OrganizationName, "masters")]);
        let user = User::of_certificate(&both).unwrap();
        assert_eq!(
            (user.name(), user.groups.as_slice()),
            ("api", &["masters".to_owned(), AUTHENTICATED.to_owned()][..])
        );
        let attributes = &user.review("n1", ENTER)["spec"]["resourceAttributes"];
        assert_eq!((&attributes["subresource"], &attributes["name"]), (&json!("proxy"), &json!("n1")));
        assert_eq!(attributes["verb"], "create");
        assert_eq!(User::of_certificate(&certificate(&[(DnType::OrganizationName, "masters")])), None);
        assert_eq!(User::of_certificate(b"junk"), None);
    }
}
