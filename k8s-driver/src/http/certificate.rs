//! Provides certificates of listeners: self-signed at start, or from files that are reloaded when they change.
//!
//! Owns the server's side of TLS, for the log's listener and for those of other processes. Tests: at the end of this file.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Error, TlsFiles};

/// Minimum interval between two checks of the files.
const CERTIFICATE_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Names of a self-signed certificate besides the host's own; all but the first serve forwarded ports.
const SERVER_NAMES: [&str; 4] = ["trainyard", "localhost", "127.0.0.1", "::1"];

/// A certificate with its key.
pub(crate) struct Certificate {
    files: Option<TlsFiles>,
    to_trust: Option<String>,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    looked: Instant,
    changed: Option<SystemTime>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Creates a self-signed certificate for `host`. Its key stays in memory.
    pub(crate) fn self_made(host: &str) -> Result<Self, Error> {
        let (certificate, key) = sign(host)?;
        let acceptor = acceptor(vec![certificate.der().clone()], key, None)?;
        let current = Mutex::new(Current { acceptor, looked: Instant::now(), changed: None });
        Ok(Self { files: None, to_trust: Some(certificate.pem()), current })
    }

    /// Reads a certificate from files.
    pub(crate) fn of_files(files: TlsFiles) -> Result<Self, Error> {
        let to_trust = files.authority.as_deref().map(read_authority).transpose()?;
        let acceptor = read(&files)?;
        let changed = modified(&files.certificate);
        let current = Mutex::new(Current { acceptor, looked: Instant::now(), changed });
        Ok(Self { files: Some(files), to_trust, current })
    }

    /// Returns the certificate (PEM) that readers trust; `None` if they know the authority.
    pub(crate) fn to_trust(&self) -> Option<&str> {
        self.to_trust.as_deref()
    }

    /// Returns the TLS acceptor with the current certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = &self.files
            && current.looked.elapsed() >= CERTIFICATE_POLL_INTERVAL
        {
            current.looked = Instant::now();
            let changed = modified(&files.certificate);
            if changed != current.changed {
                match read(files) {
                    Ok(acceptor) => (current.acceptor, current.changed) = (acceptor, changed),
                    Err(error) => tracing::warn!(%error, "the changed certificate cannot be used; the old one stays"),
                }
            }
        }
        current.acceptor.clone()
    }
}

/// Creates a self-signed certificate for `host`, and returns an acceptor that verifies clients of `authorities` (PEM). A client
/// without a certificate is accepted, so that it can be answered that it needs one.
///
/// # Errors
/// Returns an error if the authorities are no certificates.
pub fn self_signed(host: &str, authorities: Option<&str>) -> Result<TlsAcceptor, Error> {
    let (certificate, key) = sign(host)?;
    let clients = authorities.map(verifier).transpose()?;
    acceptor(vec![certificate.der().clone()], key, clients)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Certificate(error.to_string())
}

fn sign(host: &str) -> Result<(rcgen::Certificate, PrivateKeyDer<'static>), Error> {
    let mut names: Vec<String> = SERVER_NAMES.iter().map(|name| (*name).to_owned()).collect();
    if !names.iter().any(|name| name == host) {
        names.push(host.to_owned());
    }
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "trainyard");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(failed)?;
    Ok((certificate, key))
}

fn verifier(authorities: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(certificate.map_err(failed)?).map_err(failed)?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.allow_unauthenticated().build().map_err(failed)
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|meta| meta.modified()).ok()
}

fn fail(file: &Path) -> impl Fn(&dyn std::fmt::Display) -> Error + '_ {
    move |reason| Error::File { file: file.to_owned(), reason: reason.to_string() }
}

fn read_authority(file: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(file).map_err(|e| fail(file)(&e))?;
    certificates(file, text.as_bytes())?;
    Ok(text)
}

fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|e| fail(file)(&e))?;
    if chain.is_empty() {
        return Err(fail(file)(&"no certificate (PEM) in it"));
    }
    Ok(chain)
}

fn read(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let pem = fs::read(&files.certificate).map_err(|e| fail(&files.certificate)(&e))?;
    let chain = certificates(&files.certificate, &pem)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| fail(&files.key)(&e))?;
    acceptor(chain, key, None)
}

/// `clients` verifies certificates of clients; absent: none is requested.
fn acceptor(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<TlsAcceptor, Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let config = match clients {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key).map_err(failed)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["x".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(at("cert"), cert.pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        fs::write(at("other"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        fs::write(at("junk"), "junk").unwrap();
        let files = |cert: &str, key: &str| TlsFiles { certificate: at(cert), key: at(key), authority: None };
        let good = Certificate::of_files(TlsFiles { authority: Some(at("cert")), ..files("cert", "key") }).unwrap();
        assert_eq!(good.to_trust(), Some(cert.pem().as_str()));
        let refused = |cert, key| Certificate::of_files(files(cert, key)).unwrap_err().to_string();
        assert!(refused("none", "key").contains("none: "), "{}", refused("none", "key"));
        assert!(refused("junk", "key").contains("junk: no certificate (PEM) in it"));
        assert!(refused("cert", "junk").contains("junk: "));
        assert!(refused("cert", "other").contains("no certificate for the listener"), "{}", refused("cert", "other"));
    }
}
