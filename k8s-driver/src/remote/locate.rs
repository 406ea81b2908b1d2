//! Finds the log of a live operator for a person: through the kubeconfig and the Lease, or at an address that is given.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::AuthInfo;
use tokio::time::timeout;

use super::Target;
use crate::client::{self, Connection};
use crate::lease::{self, Leader, find_leader};

/// How long the API server may take to show the Lease.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the operator's Lease is looked for first, unless a namespace is named: where `deploy/base` puts the operator.
pub const USUAL_NAMESPACE: &str = "trainyard-system";

/// What a person said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// The log's address; `None` to find it through the Lease.
    pub server: Option<String>,
    /// A file with a bearer token; `None` for the kubeconfig's user.
    pub token_file: Option<PathBuf>,
    /// Certificates to trust, PEM; `None` for what the Lease says, or else the system's.
    pub authority: Option<PathBuf>,
    /// Where the API server is found.
    pub connection: client::Options,
    /// Namespace of the operator's Lease; `None` for the usual one, then the context's.
    pub namespace: Option<String>,
    /// Name of the Lease.
    pub lease: String,
}

/// Why no log was found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no API server to ask.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The Lease cannot be read.
    #[error(transparent)]
    Lease(#[from] lease::Error),
    /// The API server does not answer.
    #[error("the API server {server} does not answer")]
    Silent {
        /// Its address.
        server: String,
    },
    /// Nobody holds the Lease.
    #[error("nobody leads at present: Lease {namespace}/{name} has no holder")]
    NobodyLeads {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
    },
    /// The leader does not serve its log, or does not tell where.
    #[error("{leader} leads and does not say where its log is served: is --log-address none?")]
    NotServed {
        /// Identity of the leader.
        leader: String,
    },
    /// A file cannot be read.
    #[error("{}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where to read, and as whom.
    pub target: Target,
    /// Who leads, if the Lease was asked.
    pub leader: Option<Leader>,
}

/// Finds the log.
///
/// # Errors
/// When what was said is not enough to find it.
pub async fn locate(wish: &Wish) -> Result<Found, Error> {
    let authority = match &wish.authority {
        Some(file) => Some(fs::read_to_string(file).map_err(|source| Error::File { file: file.clone(), source })?),
        None => None,
    };
    let own_token = match &wish.token_file {
        Some(file) => {
            // Read once now, so that a file that is not there is told as that.
            fs::metadata(file).map_err(|source| Error::File { file: file.clone(), source })?;
            Some(AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() })
        }
        None => None,
    };
    if let (Some(address), Some(auth), Some(_)) = (&wish.server, &own_token, &authority) {
        let target = Target { address: address.clone(), authority, auth: auth.clone() };
        return Ok(Found { target, leader: None });
    }
    let connection = client::connect(&wish.connection).await;
    let Some(address) = &wish.server else {
        let connection = connection?;
        let leader = leader(&connection, wish).await?;
        let advertised = leader.advertised.clone();
        let advertised = advertised.ok_or_else(|| Error::NotServed { leader: leader.identity.clone() })?;
        let auth = own_token.unwrap_or_else(|| connection.auth.clone());
        let authority = authority.or(advertised.certificate);
        let target = Target { address: advertised.address, authority, auth };
        return Ok(Found { target, leader: Some(leader) });
    };
    // With an address the cluster is only a help: what it does not tell may not be needed.
    let connection = connection.ok();
    let leader = match &connection {
        Some(connection) if authority.is_none() => leader(connection, wish).await.ok(),
        _ => None,
    };
    let told = leader.as_ref().and_then(|leader| leader.advertised.clone()?.certificate);
    let auth = own_token.or_else(|| connection.map(|c| c.auth)).unwrap_or_default();
    let target = Target { address: address.clone(), authority: authority.or(told), auth };
    Ok(Found { target, leader })
}

async fn leader(connection: &Connection, wish: &Wish) -> Result<Leader, Error> {
    let usual = || [USUAL_NAMESPACE.to_owned(), connection.namespace.clone()];
    let namespaces = wish.namespace.clone().map_or_else(|| usual().to_vec(), |namespace| vec![namespace]);
    let (mut empty, mut failed) = (None, None);
    for namespace in namespaces {
        let found = timeout(PATIENCE, find_leader(connection.client.clone(), &namespace, &wish.lease)).await;
        match found.map_err(|_| Error::Silent { server: connection.server.clone() })? {
            Ok(Some(leader)) => return Ok(leader),
            Ok(None) => empty = Some(Error::NobodyLeads { namespace, name: wish.lease.clone() }),
            Err(error) => failed = failed.or(Some(Error::Lease(error))),
        }
    }
    Err(empty.or(failed).unwrap_or_else(|| Error::Silent { server: connection.server.clone() }))
}
