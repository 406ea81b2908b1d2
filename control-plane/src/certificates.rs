//! The plane's own certificate authority and what it issues, as files in `pki/`.
//!
//! Owns which keys and certificates there are. The directory above is closed to other users; key files are, too.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::NamedTempFile;

use crate::component::KUBERNETES_SERVICE;
use crate::error::{Error, io};

/// Signs certificates of one plane.
#[derive(Debug)]
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A client's certificate and key, as files.
#[derive(Debug, Clone)]
pub(crate) struct ClientFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes a new authority, the API server's certificate and the service accounts' keys in `directory`.
    pub(crate) fn create(directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(io(directory.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("trainyard-control-plane", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { directory: directory.to_path_buf(), issuer };
        authority.write("ca.crt", &authority.issuer.pem())?;
        authority.serve()?;
        // With it the API server asks nodes for the output of containers.
        authority.client("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"))?;
        let accounts = KeyPair::generate()?;
        authority.write("service-account.key", &accounts.serialize_pem())?;
        authority.write("service-account.pub", &accounts.public_key_pem())?;
        Ok(authority)
    }

    /// The authority's own certificate, which clients need to trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Issues the API server's certificate.
    fn serve(&self) -> Result<(), Error> {
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let names = names.into_iter().chain([KUBERNETES_SERVICE]).map(str::to_owned);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("server", &mut params)?;
        Ok(())
    }

    /// Issues a client certificate for a user, who may be in one group. Files are named `file.crt` and `file.key`.
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<ClientFiles, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, &mut params)
    }

    fn issue(&self, file: &str, params: &mut CertificateParams) -> Result<ClientFiles, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(ClientFiles {
            certificate: self.write(&format!("{file}.crt"), &certificate.pem())?,
            key: self.write(&format!("{file}.key"), &key.serialize_pem())?,
        })
    }

    fn write(&self, file: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(file);
        write_private(&path, text)?;
        Ok(path)
    }
}

fn name(user: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

/// Writes a file that no other user may read, atomically: an earlier one may be read at the same time.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    // Such files are closed to others from the start.
    let mut file = NamedTempFile::new_in(directory).map_err(io(path.display()))?;
    file.write_all(text.as_bytes()).map_err(io(path.display()))?;
    file.persist(path).map_err(|error| io(path.display())(error.error))?;
    Ok(())
}
