//! Finds the log of a live operator for a command: through the kubeconfig and the Lease, or at a given address.
//!
//! Owns which credential goes where. The user's own goes to the API server, and to an address that the user names and for which
//! the user says what to trust. What a Lease names gets a token that is good for nothing else (`credentials`). Only the Lease in the
//! operator's namespace is read: any tenant can make one in a namespace of theirs. Tests: `replication/remote/tests.rs`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::AuthInfo;
use tokio::time::timeout;

use super::credentials::{self, Tokens};
use super::remote::Target;
use crate::client::{self, Connection};
use crate::lease::{self, Leader, find_leader};

/// Time limit of reading the Lease.
const LEASE_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Namespace of the operator's Lease unless another is named: where `deploy/base` puts the operator.
pub const DEFAULT_NAMESPACE: &str = "trainyard-system";

/// Options of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocateOptions {
    /// The log's address; `None` to find it through the Lease.
    pub server: Option<String>,
    /// A file with a bearer token, for an address that is given; `None` for one that is requested, or the kubeconfig's user.
    pub token_file: Option<PathBuf>,
    /// Certificates to trust, PEM; `None` for what the Lease says, or else the system's.
    pub authority: Option<PathBuf>,
    /// Address and credentials of the API server.
    pub connection: client::Options,
    /// Namespace of the operator's Lease; `None` for the usual one.
    pub namespace: Option<String>,
    /// Name of the Lease.
    pub lease: String,
}

/// An error of finding the log.
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
    /// The Lease has no holder.
    #[error("no operator leads: Lease {namespace}/{name} has no holder")]
    NoLeader {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
    },
    /// The leader does not serve its log, or does not say where.
    #[error("{leader} leads and does not say where its log is served: is --log-address none?")]
    NotServed {
        /// Identity of the leader.
        leader: String,
    },
    /// There is no token for the leader's log.
    #[error(transparent)]
    Token(#[from] credentials::Error),
    /// A token of the user's would go to an address that the user has not named.
    #[error("a token from a file is sent only to an address you name, not to one that a Lease names")]
    TokenWithoutAddress,
    /// A file cannot be read.
    #[error("{}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Result of the search.
#[derive(Debug, Clone)]
pub struct LocatedLog {
    /// Address to read from, with credentials.
    pub target: Target,
    /// Holder of the Lease, if it was read.
    pub leader: Option<Leader>,
}

/// Finds the log.
///
/// # Errors
/// Returns an error if the given options do not suffice to find it.
pub async fn locate(options: &LocateOptions) -> Result<LocatedLog, Error> {
    let unreadable = |file: &PathBuf| {
        let file = file.clone();
        move |source| Error::File { file, source }
    };
    let authority = options.authority.as_ref().map(|file| fs::read_to_string(file).map_err(unreadable(file)));
    let authority = authority.transpose()?;
    if let Some(file) = &options.token_file {
        let address = options.server.clone().ok_or(Error::TokenWithoutAddress)?;
        // Read when it is sent; a file that is not there is reported as that now.
        fs::metadata(file).map_err(unreadable(file))?;
        let auth = AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() };
        return Ok(LocatedLog { target: Target { address, authority, auth }, leader: None });
    }
    let connection = client::connect(&options.connection).await?;
    if let (Some(address), Some(_)) = (&options.server, &authority) {
        let target = Target { address: address.clone(), authority, auth: connection.auth };
        return Ok(LocatedLog { target, leader: None });
    }
    let namespace = options.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let leader = leader(&connection, namespace, &options.lease).await?;
    let advertised = leader.advertised.clone();
    let advertised = advertised.ok_or_else(|| Error::NotServed { leader: leader.identity.clone() })?;
    let auth = Tokens::new(connection.client, namespace).for_server(&advertised).await?;
    let address = options.server.clone().unwrap_or(advertised.address);
    let target = Target { address, authority: authority.or(advertised.certificate), auth };
    Ok(LocatedLog { target, leader: Some(leader) })
}

async fn leader(connection: &Connection, namespace: &str, name: &str) -> Result<Leader, Error> {
    let found = timeout(LEASE_READ_TIMEOUT, find_leader(connection.client.clone(), namespace, name)).await;
    let found = found.map_err(|_| Error::Silent { server: connection.server.clone() })??;
    found.ok_or_else(|| Error::NoLeader { namespace: namespace.to_owned(), name: name.to_owned() })
}
